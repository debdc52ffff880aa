package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/examples/flights/nyc"
	"github.com/slotline/slotline/producer"
)

// service is the user's program: it keeps a departure board in its own database and emits what happens to each flight,
// in the same transactions.
type service struct {
	db       *sql.DB
	producer *producer.Producer
	flights  *producer.Table[nyc.Row]
	airports *producer.Table[nyc.Airport]

	mu         sync.Mutex
	committed  tally
	rolledBack tally
}

const boardDDL = "CREATE TABLE board (carrier VARCHAR(2) NOT NULL, flight_id BIGINT UNSIGNED NOT NULL," +
	" status VARCHAR(10) NOT NULL, PRIMARY KEY (flight_id))"

func newService(ctx context.Context, cfg *config.Config, db *sql.DB) (*service, error) {
	s := &service{db: db, producer: producer.New(cfg)}
	var err error
	if s.flights, err = producer.Register[nyc.Row](s.producer, "flights"); err != nil {
		return nil, err
	}
	if s.airports, err = producer.Register[nyc.Airport](s.producer, "airports"); err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, boardDDL)
	return s, err
}

// openAirports emits the broadcast rows.
func (s *service) openAirports(ctx context.Context, airports []nyc.Airport) error {
	events := make([]producer.Event, len(airports))
	for i, a := range airports {
		events[i] = s.airports.Upsert(a)
	}
	err := s.producer.Run(ctx, s.db, func(tx *producer.Tx) error { return s.producer.Emit(ctx, tx, events...) })
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed.transactions++
	s.committed.events += int64(len(events))
	s.committed.kinds = map[string]int64{"airport": int64(len(events))}
	return nil
}

// play runs the transactions of all writers at once. moved is called with the events committed so far.
func (s *service) play(ctx context.Context, all [writers][]transaction, moved func(events int64)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, list := range all {
		wg.Go(func() {
			for _, t := range list {
				if err := s.run(ctx, t); err != nil {
					cancel(fmt.Errorf("the service cannot emit: %w", err))
					return
				}
				moved(s.count(t))
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (s *service) count(t transaction) (committed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.fate == commits {
		s.committed.add(t)
	} else {
		s.rolledBack.add(t)
	}
	return s.committed.events
}

var errRolledBack = errors.New("the service changed its mind")

func (s *service) run(ctx context.Context, t transaction) error {
	events := make([]producer.Event, len(t.steps))
	for i, step := range t.steps {
		if step.Delete {
			events[i] = s.flights.Delete(step.Row)
		} else {
			events[i] = s.flights.Upsert(step.Row)
		}
	}
	if t.fate == rollsBackLate {
		tx, err := s.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := writeBoard(ctx, tx, t.steps); err != nil {
			return err
		}
		return s.producer.Emit(ctx, tx, events...)
	}
	err := s.producer.Run(ctx, s.db, func(tx *producer.Tx) error {
		if err := writeBoard(ctx, tx, t.steps); err != nil {
			return err
		}
		if err := s.producer.Emit(ctx, tx, events...); err != nil {
			return err
		}
		if t.fate == failsInRun {
			return errRolledBack
		}
		return nil
	})
	if t.fate == failsInRun && errors.Is(err, errRolledBack) {
		return nil
	}
	return err
}

// writeBoard is the service's own work: one row per flight that is not deleted, with its last status.
func writeBoard(ctx context.Context, tx producer.Transaction, steps []nyc.Step) error {
	last := map[uint64]nyc.Step{}
	for _, s := range steps {
		last[s.Row.FlightID] = s
	}
	var upserts, deletes []string
	for id, s := range last {
		if s.Delete {
			deletes = append(deletes, fmt.Sprint(id))
		} else {
			upserts = append(upserts, fmt.Sprintf("('%s',%d,'%s')", s.Row.Carrier, id, s.Row.Status))
		}
	}
	if len(upserts) > 0 {
		_, err := tx.ExecContext(ctx, "INSERT INTO board (carrier, flight_id, status) VALUES "+strings.Join(upserts, ",")+
			" ON DUPLICATE KEY UPDATE status = VALUES(status)")
		if err != nil {
			return err
		}
	}
	if len(deletes) > 0 {
		if _, err := tx.ExecContext(ctx, "DELETE FROM board WHERE flight_id IN ("+strings.Join(deletes, ",")+")"); err != nil {
			return err
		}
	}
	return nil
}
