package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/examples/flights/nyc"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/partitioner"
)

// answer is what one store says of one carrier and month.
type answer struct {
	flights, cancelled int64
	delaySum           int64 // minutes; not asked of ClickHouse
	delayCount         int64
	delay              float64 // mean arrival delay in minutes; 0 where no flight arrived
}

func (a *answer) mean() {
	if a.delayCount > 0 {
		a.delay = float64(a.delaySum) / float64(a.delayCount)
	}
}

// published is what the topic holds.
type published struct {
	records  int64
	distinct int64 // event ids
	poison   int64 // images that were rolled back
}

// readTopic reads every record.
func readTopic(ctx context.Context, client *kgo.Client, cfg *config.Config) (p published, err error) {
	topic := cfg.Kafka.Topic
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil {
		return p, err
	}
	from, left := map[int32]kgo.Offset{}, int64(0)
	ends.Each(func(o kadm.ListedOffset) {
		from[o.Partition] = kgo.NewOffset().At(0)
		left += o.Offset
	})
	reader, err := kafka.NewClient(cfg, "demo", nil, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	if err != nil {
		return p, err
	}
	defer reader.Close()
	ids := map[event.ID]bool{}
	for p.records < left {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return p, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			var e event.Event
			var image struct{ Status string }
			record := event.Record{Key: r.Key, Value: r.Value}
			for _, h := range r.Headers {
				record.Headers = append(record.Headers, event.Header{Key: h.Key, Value: h.Value})
			}
			if err = event.ParseRecord(record, &e); err == nil {
				err = json.Unmarshal(e.Body, &image)
			}
			p.records++
			ids[e.ID] = true
			if image.Status == poison {
				p.poison++
			}
		})
		if err != nil {
			return p, fmt.Errorf("topic %s: %w", topic, err)
		}
	}
	p.distinct = int64(len(ids))
	return p, nil
}

// shard is what one shard holds.
type shard struct {
	name     string
	rows     map[string]int64 // month → rows that are not deleted
	deleted  int64
	airports int64
	misplace int64 // rows that the layout places elsewhere, or in another month
	carriers map[string]int64
}

// stored is what all shards hold.
type stored struct {
	shards   []shard
	answers  map[nyc.Bucket]answer
	statuses map[string]int64
}

var monthTable = regexp.MustCompile(`^flights_(\d{6})$`)

// readShards reads every row of every shard.
func readShards(ctx context.Context, layout *partitioner.Layout, names []string, dbs map[string]*sql.DB) (*stored, error) {
	all := &stored{answers: map[nyc.Bucket]answer{}, statuses: map[string]int64{}}
	for _, name := range names {
		s := shard{name: name, rows: map[string]int64{}, carriers: map[string]int64{}}
		if err := s.read(ctx, layout, dbs[name], all); err != nil {
			return nil, fmt.Errorf("shard %s: %w", name, err)
		}
		all.shards = append(all.shards, s)
	}
	for b, a := range all.answers {
		a.mean()
		all.answers[b] = a
	}
	return all, nil
}

func (s *shard) read(ctx context.Context, layout *partitioner.Layout, db *sql.DB, all *stored) error {
	if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM airports WHERE _deleted = 0").Scan(&s.airports); err != nil {
		return err
	}
	names, err := db.QueryContext(ctx, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()")
	if err != nil {
		return err
	}
	defer names.Close()
	var months []string
	for names.Next() {
		var name string
		if err := names.Scan(&name); err != nil {
			return err
		}
		if m := monthTable.FindStringSubmatch(name); m != nil {
			months = append(months, m[1])
		}
	}
	if err := names.Err(); err != nil {
		return err
	}
	for _, month := range months {
		if err := s.readMonth(ctx, layout, db, month, all); err != nil {
			return fmt.Errorf("flights_%s: %w", month, err)
		}
	}
	return nil
}

func (s *shard) readMonth(ctx context.Context, layout *partitioner.Layout, db *sql.DB, month string, all *stored) error {
	rows, err := db.QueryContext(ctx, "SELECT carrier, flight_id, sched_dep, status, cancelled, arr_delay, _deleted FROM flights_"+month)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var carrier, status string
		var id uint64
		var departure time.Time
		var cancelled, deleted bool
		var delay sql.NullInt64
		if err := rows.Scan(&carrier, &id, &departure, &status, &cancelled, &delay, &deleted); err != nil {
			return err
		}
		place := layout.Route(carrier, strconv.FormatUint(id, 10))
		if layout.ShardName(place.Shard) != s.name || departure.Format("200601") != month {
			s.misplace++
		}
		if deleted {
			s.deleted++
			continue
		}
		s.rows[month]++
		s.carriers[carrier]++
		all.statuses[status]++
		b := nyc.Bucket{Carrier: carrier, Month: month}
		a := all.answers[b]
		a.flights++
		if cancelled {
			a.cancelled++
		}
		if delay.Valid {
			a.delaySum += delay.Int64
			a.delayCount++
		}
		all.answers[b] = a
	}
	return rows.Err()
}

// answersSQL is the question across all tenants that no shard could answer alone.
const answersSQL = "SELECT carrier, toString(toYYYYMM(sched_dep)) AS month, count() AS flights, countIf(cancelled) AS cancelled, " +
	"ifNull(avg(arr_delay), 0) AS delay FROM flights_now GROUP BY carrier, month"

// askClickHouse asks it.
func askClickHouse(ctx context.Context, address string) (answers map[nyc.Bucket]answer, airports int64, err error) {
	client, err := ch.Dial(ctx, ch.Options{Address: address, Database: olapDatabase})
	if err != nil {
		return nil, 0, err
	}
	defer client.Close()
	answers = map[nyc.Bucket]answer{}
	var carrier, month proto.ColStr
	var flights, cancelled, count proto.ColUInt64
	var delay proto.ColFloat64
	err = client.Do(ctx, ch.Query{
		Body: answersSQL,
		Result: proto.Results{{Name: "carrier", Data: &carrier}, {Name: "month", Data: &month}, {Name: "flights", Data: &flights},
			{Name: "cancelled", Data: &cancelled}, {Name: "delay", Data: &delay}},
		OnResult: func(_ context.Context, block proto.Block) error {
			for i := range block.Rows {
				answers[nyc.Bucket{Carrier: carrier.Row(i), Month: month.Row(i)}] = answer{
					flights: int64(flights.Row(i)), cancelled: int64(cancelled.Row(i)), delay: delay.Row(i)}
			}
			return nil
		},
	})
	if err != nil {
		return nil, 0, err
	}
	err = client.Do(ctx, ch.Query{Body: "SELECT count() AS n FROM airports_now", Result: proto.Results{{Name: "n", Data: &count}},
		OnResult: func(_ context.Context, block proto.Block) error {
			for i := range block.Rows {
				airports = int64(count.Row(i))
			}
			return nil
		}})
	return answers, airports, err
}

// readBoard is what the service itself says of its flights.
func readBoard(ctx context.Context, db *sql.DB) (map[string]int64, error) {
	rows, err := db.QueryContext(ctx, "SELECT status, COUNT(*) FROM board GROUP BY status")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	statuses := map[string]int64{}
	for rows.Next() {
		var status string
		var n int64
		if err := rows.Scan(&status, &n); err != nil {
			return nil, err
		}
		statuses[status] = n
	}
	return statuses, rows.Err()
}

// input is what the CSV says: the flights to play, and the answers, computed by other code.
type input struct {
	flights   []nyc.Flight
	reference map[nyc.Bucket]answer
}

// loadInput reads the CSV, twice at once, while the servers start.
func loadInput(kept func(id uint64) bool) (wait func() (input, error)) {
	var in input
	var errs [2]error
	var wg sync.WaitGroup
	wg.Go(func() { in.flights, errs[0] = nyc.Flights(kept) })
	wg.Go(func() { in.reference, errs[1] = readReference(kept) })
	return func() (input, error) {
		wg.Wait()
		return in, errors.Join(errs[:]...)
	}
}

// readReference computes the answers straight from the CSV.
func readReference(keep func(id uint64) bool) (map[nyc.Bucket]answer, error) {
	figures, err := nyc.Reference(nyc.CSV(), keep)
	if err != nil {
		return nil, err
	}
	answers := make(map[nyc.Bucket]answer, len(figures))
	for b, f := range figures {
		a := answer{flights: f.Flights, cancelled: f.Cancelled, delaySum: f.ArrDelaySum, delayCount: f.ArrDelayCount}
		a.mean()
		answers[b] = a
	}
	return answers, nil
}
