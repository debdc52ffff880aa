package integration

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/outbox"
	outboxkafka "github.com/slotline/slotline/outbox/kafka"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/producer"
)

// outboxLine is a line with an outbox database and a topic, and no sinks.
type outboxLine struct {
	t        testing.TB
	yaml     string
	cfg      *config.Config
	layout   *partitioner.Layout
	db       *sql.DB // of the service: emits
	producer *producer.Producer
	accounts *producer.Table[account]
	timing   outbox.Timing
	wrap     func(outbox.Writer) outbox.Writer // of every relay's writers, to break them; may be nil
	lost     *atomic.Int64                     // leases that relays lost which were not killed
	taken    int64                             // of them, those that the test took away
}

// account is the entity of the outbox tests. Value counts its changes, in the order of their commits.
type account struct {
	Owner string `slotline:"owner,tenant"`
	ID    uint64 `slotline:"account_id,id"`
	Value int64  `slotline:"value"`
	Pad   string `slotline:"pad"`
}

func newOutboxLine(t testing.TB, k *harness.KafkaServer, m *harness.MySQLServer, outboxKeys string) *outboxLine {
	t.Helper()
	return newOutboxLineWith(t, k, m, m, outboxKeys, "")
}

// newOutboxLineWith takes the shard's server apart from the outbox's, and tables beside accounts, each a line of the
// file.
func newOutboxLineWith(t testing.TB, k *harness.KafkaServer, m, shard *harness.MySQLServer, outboxKeys, tables string) *outboxLine {
	t.Helper()
	name := harness.Name(t)
	m.NewDatabase(t, name)
	k.Topics(t, name)
	yaml := fmt.Sprintf(`line: %s
kafka: { brokers: [%s], partitions: 8, replication: 1 }
outbox: { dsn: "%s"%s }
shards: { s1: { dsn: "%s", slots: 0-1023 } }
tables:
  accounts:
    { tenant: owner, id: account_id, columns: { owner: string(40), account_id: uint64, value: int64, pad: text } }
%sdead_letters: { halt_per_minute: 100 }
http: { listen: "127.0.0.1:0" }
`, name, strings.Join(k.Brokers, ", "), m.URL(name), outboxKeys, shard.URL(name+"_s1"), tables)
	cfg, err := config.Parse("slotline.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := cfg.Layout.WithPartitions(cfg.Kafka.Partitions)
	if err != nil {
		t.Fatal(err)
	}
	l := &outboxLine{t: t, yaml: yaml, cfg: cfg, lost: new(atomic.Int64), timing: outbox.Timing{
		PollMin: 2 * time.Millisecond, PollMax: 100 * time.Millisecond, GapMargin: 300 * time.Millisecond,
		GapCheck: 50 * time.Millisecond, Sweep: 500 * time.Millisecond, Save: 20 * time.Millisecond, Ends: 200 * time.Millisecond,
		Split: time.Second, RetryMin: 20 * time.Millisecond, RetryMax: 500 * time.Millisecond, LeaseRetry: 50 * time.Millisecond,
		Drain: 10 * time.Second}}
	if l.layout, err = partitioner.New(spec); err != nil {
		t.Fatal(err)
	}
	l.db = l.open()
	changes, err := outbox.Plan(t.Context(), l.db, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		if err := c.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	client, err := kafka.Open(t.Context(), cfg, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, topic := range kafka.Topics(cfg) {
		if err := topic.Create(t.Context(), client); err != nil {
			t.Fatal(err)
		}
	}
	l.producer = producer.New(cfg)
	l.accounts = producer.MustRegister[account](l.producer, "accounts")
	return l
}

// open is a pool of its own for the outbox database.
func (l *outboxLine) open() *sql.DB {
	l.t.Helper()
	db, err := mysqldb.Open(l.cfg.Outbox.DSN, mysqldb.Options{MaxConns: 80})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { db.Close() })
	return db
}

// runningRelay is a relay of its own: pool, clients, goroutines.
type runningRelay struct {
	*outbox.Relay
	l       *outboxLine
	db      *sql.DB
	cancel  context.CancelFunc
	done    chan error
	mu      sync.Mutex
	writers []outbox.Writer
	dead    bool
}

func (l *outboxLine) start() *runningRelay {
	l.t.Helper()
	r := &runningRelay{l: l, db: l.open(), done: make(chan error, 1)}
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	log := slog.New(slog.NewTextHandler(relayLog{r}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	r.Relay = outbox.New(outbox.Options{Config: l.cfg, Layout: l.layout, DB: r.db, Logger: log, Timing: l.timing,
		NewWriter: func(lane int) (outbox.Writer, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.dead {
				return nil, fmt.Errorf("killed")
			}
			writer, err := outboxkafka.New(l.cfg, lane, nil)
			if err != nil {
				return nil, err
			}
			var w outbox.Writer = writer
			if l.wrap != nil {
				w = l.wrap(w)
			}
			r.writers = append(r.writers, w)
			return w, nil
		}})
	go func() { r.done <- r.Run(ctx) }()
	l.t.Cleanup(func() {
		r.cancel()
		select {
		case err := <-r.done:
			r.done <- err
		case <-time.After(harness.Patience * 20 * time.Second):
			l.t.Error("the relay does not end")
		}
	})
	return r
}

// stop drains.
func (r *runningRelay) stop() {
	r.l.t.Helper()
	r.cancel()
	select {
	case err := <-r.done:
		r.done <- err
		if err != nil {
			r.l.t.Errorf("relay: %v", err)
		}
	case <-time.After(harness.Patience * 30 * time.Second):
		r.l.t.Fatal("the relay does not end")
	}
}

// kill ends the relay as SIGKILL would: connections to Kafka and MySQL are cut where they stand, nothing more is saved,
// and the lease is not given back.
func (r *runningRelay) kill() {
	r.mu.Lock()
	r.dead = true
	writers := r.writers
	r.mu.Unlock()
	r.db.Close()
	for _, w := range writers {
		w.Close()
	}
	r.cancel()
}

// relayLog passes a relay's log to the test while it runs, and counts the leases that it lost.
type relayLog struct{ r *runningRelay }

func (w relayLog) Write(b []byte) (int, error) {
	w.r.mu.Lock()
	dead := w.r.dead
	w.r.mu.Unlock()
	if bytes.Contains(b, []byte("SL5012")) && !dead {
		w.r.l.lost.Add(1)
	}
	w.r.l.t.Logf("%s", bytes.TrimSpace(b))
	return len(b), nil
}

// hold begins a transaction that may stay open, and say nothing, for as long as the test runs: the server ends a session
// that says nothing for a minute.
func (l *outboxLine) hold() *sql.Tx {
	l.t.Helper()
	tx, err := l.db.BeginTx(l.t.Context(), nil)
	if err == nil {
		_, err = tx.ExecContext(l.t.Context(), "SET SESSION wait_timeout = 7200")
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { tx.Rollback() })
	return tx
}

// published is a record of the topic.
type published struct {
	event.Event
	partition int32
	offset    int64
}

// topic reads the whole topic, in order per partition.
func (l *outboxLine) topic() []published {
	l.t.Helper()
	return l.topicNamed(l.cfg.Kafka.Topic)
}

func (l *outboxLine) topicNamed(name string) []published {
	l.t.Helper()
	var list []published
	w, err := outboxkafka.New(l.cfg, 99, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	defer w.Close()
	from := map[event.Partition]int64{}
	for n := range l.cfg.Kafka.Partitions {
		from[event.Partition{Topic: name, Number: int32(n)}] = 0
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	err = w.Tail(ctx, from, func(p event.Partition, offset int64, rec *event.Record) {
		var e published
		if err := event.ParseRecord(*rec, &e.Event); err != nil {
			l.t.Errorf("partition %d offset %d: %v", p.Number, offset, err)
		}
		e.partition, e.offset = p.Number, offset
		e.Body = append([]byte(nil), e.Body...)
		list = append(list, e)
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return list
}

// committed are the event ids in the lane tables now.
func (l *outboxLine) committed() map[event.ID]string {
	l.t.Helper()
	ids := map[event.ID]string{}
	for lane := range l.cfg.Outbox.Lanes {
		rows, err := l.db.Query("SELECT id, event_id FROM " + outbox.LaneTable(lane))
		if err != nil {
			l.t.Fatal(err)
		}
		for rows.Next() {
			var n uint64
			var raw []byte
			if err := rows.Scan(&n, &raw); err != nil {
				l.t.Fatal(err)
			}
			ids[event.ID(raw)] = fmt.Sprintf("lane %d id %d", lane, n)
		}
		if err := rows.Err(); err != nil {
			l.t.Fatal(err)
		}
	}
	return ids
}

// waitPublished waits until the topic holds at least n records.
func (l *outboxLine) waitPublished(n int, limit time.Duration) {
	l.t.Helper()
	client, err := kafka.NewClient(l.cfg, "test", nil)
	if err != nil {
		l.t.Fatal(err)
	}
	defer client.Close()
	w, err := outboxkafka.New(l.cfg, 99, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	defer w.Close()
	var parts []event.Partition
	for p := range l.cfg.Kafka.Partitions {
		parts = append(parts, event.Partition{Topic: l.cfg.Kafka.Topic, Number: int32(p)})
	}
	deadline := harness.Deadline(limit)
	for {
		ctx, cancel := context.WithDeadline(l.t.Context(), deadline)
		ends, err := w.Ends(ctx, parts)
		cancel()
		sum := int64(0)
		for _, e := range ends {
			sum += e
		}
		if err == nil && sum >= int64(n) {
			return
		}
		if time.Now().After(deadline) {
			backlog, err := outbox.Backlogs(l.t.Context(), l.db, l.cfg.Outbox.Lanes)
			l.t.Fatalf("%d of %d records after %v; outbox %+v %v", sum, n, limit, backlog, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// check compares topic and tables: every committed event is published, and nothing else; each once unless duplicates
// may be, and as they may be where a starved relay without transactions
// lost a lease while what it had sent was under way; the versions of each entity rise in the topic unless orderless.
func (l *outboxLine) check(duplicates, orderless bool) []published {
	l.t.Helper()
	want, got := l.committed(), l.topic()
	seen := map[event.ID]int{}
	last := map[string]published{}
	twice := 0
	for _, e := range got {
		if _, ok := want[e.ID]; !ok {
			l.t.Errorf("the topic holds %s (outbox %+v), which no committed row has", e.ID, e.Outbox)
		}
		if seen[e.ID]++; seen[e.ID] > 1 {
			twice++
			if !duplicates && (l.lost.Load() <= l.taken || l.cfg.Outbox.Transactional) {
				l.t.Errorf("event %s, %s, is in the topic %d times, here at partition %d offset %d", e.ID, want[e.ID], seen[e.ID], e.partition, e.offset)
			}
			continue
		}
		key := e.Tenant + "/" + e.EntityID
		if before, ok := last[key]; ok && before.Version >= e.Version && !orderless {
			l.t.Errorf("entity %s: version %d (%+v) follows %d (%+v)", key, e.Version, e.Outbox, before.Version, before.Outbox)
		}
		last[key] = e
		if p := l.layout.Route(e.Tenant, "").Partition; p != e.partition {
			l.t.Errorf("event of tenant %s is in partition %d, its slot belongs to %d", e.Tenant, e.partition, p)
		}
	}
	missing := 0
	for id, where := range want {
		if seen[id] == 0 {
			if missing++; missing < 20 {
				l.t.Errorf("event %s, %s, committed and is not in the topic", id, where)
			}
		}
	}
	l.t.Logf("%d committed, %d in the topic, %d missing, %d repeats; %d leases lost", len(want), len(got), missing, twice, l.lost.Load())
	return got
}

// writers emit until a number of transactions is done: each locks a row of a random account and counts it up, thinks,
// emits its image (and others'), and rolls back a share.
type writers struct {
	count, transactions int
	rollbackShare       float64
	think               time.Duration
	ownTx               bool        // emit at once in a transaction of their own, rather than through Run
	enough              atomic.Bool // ends the writers before that
	done                atomic.Int64
	committed           atomic.Int64
	unknown             atomic.Int64
}

func (w *writers) run(l *outboxLine, seed uint64) {
	if _, err := l.db.Exec("CREATE TABLE IF NOT EXISTS account (id INT PRIMARY KEY, value BIGINT NOT NULL)"); err != nil {
		l.t.Fatal(err)
	}
	const accounts = 40
	for i := range accounts {
		if _, err := l.db.Exec("INSERT IGNORE INTO account VALUES (?, 0)", i); err != nil {
			l.t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for i := range w.count {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			for !w.enough.Load() && w.done.Add(1) <= int64(w.transactions) {
				w.one(l, rnd, accounts)
			}
		})
	}
	wg.Wait()
}

var errOnPurpose = fmt.Errorf("rolled back on purpose")

func (w *writers) one(l *outboxLine, rnd *rand.Rand, accounts int) {
	ctx := l.t.Context()
	change := func(tx producer.Transaction, query func(context.Context, string, ...any) *sql.Row) error {
		id := rnd.IntN(accounts)
		if _, err := tx.ExecContext(ctx, "UPDATE account SET value = value + 1 WHERE id = ?", id); err != nil {
			return err
		}
		var value int64
		if err := query(ctx, "SELECT value FROM account WHERE id = ?", id).Scan(&value); err != nil {
			return err
		}
		a := account{Owner: fmt.Sprintf("owner-%02d", id), ID: uint64(id), Value: value, Pad: strings.Repeat("x", rnd.IntN(200))}
		if err := l.producer.Emit(ctx, tx, l.accounts.Upsert(a)); err != nil {
			return err
		}
		if w.think > 0 {
			time.Sleep(time.Duration(rnd.Int64N(int64(w.think))))
		}
		if rnd.Float64() < w.rollbackShare {
			return errOnPurpose
		}
		return nil
	}
	var err error
	if w.ownTx {
		var tx *sql.Tx
		if tx, err = l.db.BeginTx(ctx, nil); err == nil {
			if err = change(tx, tx.QueryRowContext); err == nil {
				err = tx.Commit()
			} else {
				tx.Rollback()
			}
		}
	} else {
		err = l.producer.Run(ctx, l.db, func(tx *producer.Tx) error { return change(tx, tx.QueryRowContext) })
	}
	switch err {
	case nil:
		w.committed.Add(1)
	case errOnPurpose:
	default:
		w.unknown.Add(1)
		time.Sleep(20 * time.Millisecond) // a server that is away is not waited for by spinning
	}
}
