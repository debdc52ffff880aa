package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/producer"
)

const (
	emitAloneRounds = 8
	emitAlone       = 200 // transactions of each side of a round at one connection
	emitRounds      = 16
	emitTogether    = 1600 // transactions of a side and round at emitConnections
	emitConnections = 16
)

// serviceTable is the service's own, which its transaction writes before it emits.
const serviceTable = "CREATE TABLE service_order (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, " +
	"owner VARCHAR(40) NOT NULL, order_id BIGINT UNSIGNED NOT NULL, amount BIGINT NOT NULL, note VARCHAR(600) NOT NULL)"

// service writes orders, in transactions of one INSERT of its own.
type service struct {
	*testLine
	db       *sql.DB
	producer *producer.Producer
	orders   *producer.Table[order]
	images   []order // to write, in rotation
	next     atomic.Uint64
}

func (b *bench) newService(l *testLine, conns int, opts ...producer.Option) *service {
	s := &service{testLine: l, db: l.outbox(conns), producer: producer.New(l.cfg, opts...)}
	s.orders = producer.MustRegister[order](s.producer, "orders")
	l.exec(s.db, serviceTable)
	for i, tenant := range l.tenants(50) {
		s.images = append(s.images, newOrder(b.random, tenant, uint64(i)))
	}
	return s
}

// image is the next order to write; its id is a number that no other has.
func (s *service) image() order {
	n := s.next.Add(1)
	o := s.images[n%uint64(len(s.images))]
	o.ID = n
	return o
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (s *service) insert(tx execer, o *order) error {
	_, err := tx.ExecContext(s.Context(), "INSERT INTO service_order (owner, order_id, amount, note) VALUES (?, ?, ?, ?)", o.Owner, o.ID, o.Amount, o.Note)
	return err
}

// emit is a transaction with an event.
func (s *service) emit(o order) error {
	return s.producer.Run(s.Context(), s.db, func(tx *producer.Tx) error {
		if err := s.insert(tx, &o); err != nil {
			return err
		}
		return s.producer.Emit(s.Context(), tx, s.orders.Upsert(o))
	})
}

// plain is the same transaction without.
func (s *service) plain(o order) error {
	tx, err := s.db.BeginTx(s.Context(), nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if err := s.insert(tx, &o); err != nil {
		return err
	}
	return tx.Commit()
}

// bareInsert is the same transaction with one more INSERT, of the bytes that Emit inserts, into a table of the lane's
// columns that has no partitions: what any outbox costs at least.
func (s *service) bareInsert(o order, structs *event.Struct[order]) error {
	tx, err := s.db.BeginTx(s.Context(), nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if err := s.insert(tx, &o); err != nil {
		return err
	}
	e, err := o.event(structs, 0)
	if err != nil {
		return err
	}
	in := outbox.Inserts([]event.Event{e}, 1)[0]
	if _, err := tx.ExecContext(s.Context(), strings.Replace(in.SQL, outbox.LaneTable(0), bareTable, 1)); err != nil {
		return err
	}
	return tx.Commit()
}

const bareTable = "bare_outbox"

func emitOverhead(b *bench) []Result {
	s := b.newService(b.newLine("", orderTable), emitConnections)
	timed := func(f func(order) error) float64 {
		o := s.image()
		began := time.Now()
		if err := f(o); err != nil {
			b.Fatal(err)
		}
		return float64(time.Since(began).Nanoseconds()) / 1000
	}
	together := func(f func(order) error) func(int) float64 {
		return func(int) float64 {
			left := atomic.Int64{}
			left.Store(int64(b.rows(emitTogether)))
			began := time.Now()
			var wg sync.WaitGroup
			errs := make(chan error, emitConnections)
			for range emitConnections {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						if err := f(s.image()); err != nil {
							errs <- err
							return
						}
					}
				})
			}
			wg.Wait()
			took := time.Since(began)
			select {
			case err := <-errs:
				b.Fatal(err)
			default:
			}
			return float64(b.rows(emitTogether)) / took.Seconds()
		}
	}
	s.exec(s.db, "CREATE TABLE "+bareTable+" LIKE "+outbox.LaneTable(0), "ALTER TABLE "+bareTable+" REMOVE PARTITIONING")
	structs, err := event.StructOf[order](s.cfg.Table("orders"))
	if err != nil {
		b.Fatal(err)
	}
	least := func(o order) error { return s.bareInsert(o, structs) }
	// A connection's first use is not the emit's.
	together(s.emit)(0)

	var one, floor []round
	for range emitAloneRounds { // here the sides alternate by transaction: a round of each would see two different disks
		var ours, bare, bareInsert []float64
		for range b.rows(emitAlone) {
			ours, bare, bareInsert = append(ours, timed(s.emit)), append(bare, timed(s.plain)), append(bareInsert, timed(least))
		}
		one = append(one, round{ours: median(ours), bare: median(bare)})
		floor = append(floor, round{ours: median(ours) - median(bare), bare: median(bareInsert) - median(bare)})
	}
	added := each(floor, oursOf)
	many := b.alternate(emitRounds, nil, together(s.emit), together(s.plain))
	slower := each(many, func(r round) float64 { return 100 * (r.bare/r.ours - 1) })
	return []Result{
		summarize("emit_overhead", "µs/transaction, 1 connection", one,
			fmt.Sprintf("Emit adds %.0f µs (median; %.0f to %.0f over the rounds) to a transaction of one INSERT, event of %d B",
				median(added), slices.Min(added), slices.Max(added), orderBytes)),
		summarize("emit_insert", "µs added, 1 connection", floor,
			"what Emit adds beside what one more INSERT of the same bytes adds, made by hand, into a table without partitions"),
		summarize("emit_overhead_16", "transactions/s, 16 connections", many,
			fmt.Sprintf("Emit costs %.1f %% (%.1f to %.1f)", median(slower), slices.Min(slower), slices.Max(slower))),
	}
}

// orderEvents are events of orders for the bare loops, which have them in memory.
func (l *testLine) orderEvents(n int) []event.Event {
	structs, err := event.StructOf[order](l.cfg.Table("orders"))
	if err != nil {
		l.Fatal(err)
	}
	tenants := l.tenants(50)
	events := make([]event.Event, n)
	for i := range events {
		o := newOrder(l.random, tenants[i%len(tenants)], uint64(1_000_000+i))
		if events[i], err = o.event(structs, l.layout.Epoch()); err != nil {
			l.Fatal(err)
		}
	}
	return events
}
