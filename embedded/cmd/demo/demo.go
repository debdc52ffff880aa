package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/examples/flights/nyc"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/internal/line"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/partitioner"
)

const (
	// everyDefault takes every 180th flight: the in-memory engine's statements cost time in proportion to their tables.
	everyDefault = 180
	// firstID makes two of them leave on New Year's Eve and, by UTC, in January 2014.
	firstID = 2
	// seed makes each run emit the same events; the order in which writers come is the machine's.
	seed = 2013
)

// demo is one run.
type demo struct {
	out     io.Writer
	live    bool   // out is a terminal
	every   uint64 // one flight in so many
	keep    bool   // leave everything running at the end
	library library
	// alter is a test's: it changes what was found, before it is compared.
	alter func(*report)

	dir     string
	file    string // slotline.yaml
	servers servers
	cfg     *config.Config
	log     *slog.Logger
	pools   map[string]*sql.DB // outboxDatabase, s1, s2
}

var shardNames = []string{"s1", "s2"}

// run returns whether all figures agree, or why the line did not get so far.
func (d *demo) run(ctx context.Context) (agree bool, err error) {
	interrupted := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if d.dir, err = os.MkdirTemp("", "slotline-demo-"); err != nil {
		return false, err
	}
	logFile, err := os.Create(filepath.Join(d.dir, "demo.log"))
	if err != nil {
		return false, err
	}
	d.log = slog.New(slog.NewTextHandler(logFile, nil))
	defer func() {
		for _, db := range d.pools {
			db.Close()
		}
		if stopErr := d.servers.stop(); err == nil {
			err = stopErr
		}
		logFile.Close()
		if err == nil || interrupted.Err() != nil {
			os.RemoveAll(d.dir)
			return
		}
		err = fmt.Errorf("%w\nthe log of the line is %s", err, logFile.Name())
	}()

	load := loadInput(d.kept)
	count := 0
	for id := firstID % d.every; id <= nyc.Count; id += d.every {
		count++
	}
	fmt.Fprintf(d.out, "slotline demo: %s of the %s flights that left New York in 2013\n\n", number(count), number(nyc.Count))
	s := &screen{out: d.out, live: d.live}
	r := &report{}
	g := s.stage("servers", "starting Kafka, MySQL and ClickHouse")
	if r.missing, err = d.servers.start(ctx, d.dir, d.library, g); err != nil {
		return false, err
	}
	g.end(d.servers.String())
	if err := d.apply(ctx, s); err != nil {
		return false, err
	}
	stop := d.runLine(ctx, cancel)
	defer func() {
		if stopErr := stop(); err == nil {
			err = stopErr
		}
	}()
	in, err := load()
	if err != nil {
		return false, err
	}
	r.reference = in.reference
	if err := d.play(ctx, s, in.flights, r); err != nil {
		return false, err
	}
	g = s.stage("check", "reading every record and every row")
	if err := d.collect(ctx, r); err != nil {
		return false, err
	}
	if d.alter != nil {
		d.alter(r)
	}
	c := r.check()
	g.end(fmt.Sprintf("%s figures compared with the CSV and what was emitted", number(c.compared)))
	r.write(d.out, c)
	if d.keep {
		d.writeConnections()
		<-ctx.Done()
		fmt.Fprintln(d.out)
		if interrupted.Err() == nil {
			return false, context.Cause(ctx)
		}
	}
	return len(c.differ) == 0, nil
}

// kept says which flights take part.
func (d *demo) kept(id uint64) bool { return id%d.every == firstID%d.every }

// apply writes the configuration and makes what it asks for, as `slotline apply` does.
func (d *demo) apply(ctx context.Context, s *screen) error {
	g := s.stage("apply", "making topics, tables and views")
	d.file = filepath.Join(d.dir, "slotline.yaml")
	if err := d.servers.write(d.file); err != nil {
		return err
	}
	var err error
	if d.cfg, err = config.Load(d.file); err != nil {
		return err
	}
	l := line.New(d.cfg, d.log)
	defer l.Close()
	p, err := l.Plan(ctx)
	if err != nil {
		return err
	}
	if err := l.Apply(ctx, p); err != nil {
		return err
	}
	d.pools = map[string]*sql.DB{}
	for name, dsn := range map[string]config.DSN{outboxDatabase: d.cfg.Outbox.DSN, "s1": d.cfg.Shards[0].DSN, "s2": d.cfg.Shards[1].DSN} {
		if d.pools[name], err = mysqldb.Open(dsn, mysqldb.Options{}); err != nil {
			return err
		}
	}
	g.end(fmt.Sprintf("%d changes: %d partitions, %d lanes, %d shards, %s", len(p.Changes), p.Partitions, p.Lanes, p.Shards,
		strings.Join(p.Sinks, ", ")))
	return nil
}

// runLine runs relay and sinks, as `slotline run` does. When it ends before stop, everything does. stop drains it and
// returns how it ended.
func (d *demo) runLine(ctx context.Context, failed context.CancelCauseFunc) (stop func() error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := line.New(d.cfg, d.log)
	ended := make(chan error, 1)
	d.servers.http.Close()
	go func() { // ends with stop
		halted, err := l.Run(ctx, line.Parts{Relay: true, MySQL: true, ClickHouse: d.servers.engine != nil})
		if err == nil && halted {
			err = errors.New("a partition or lane is halted")
		}
		if ctx.Err() == nil {
			failed(fmt.Errorf("the line ended: %w", cmp.Or(err, io.EOF)))
		}
		ended <- errors.Join(err, l.Close())
	}()
	return func() error {
		cancel()
		return <-ended
	}
}

// play emits the events and waits until the line has applied them.
func (d *demo) play(ctx context.Context, s *screen, flights []nyc.Flight, r *report) error {
	service, err := newService(ctx, d.cfg, d.pools[outboxDatabase])
	if err != nil {
		return err
	}
	client, err := kafka.NewClient(d.cfg, "demo", nil)
	if err != nil {
		return err
	}
	defer client.Close()
	w := &watcher{cfg: d.cfg, outbox: d.pools[outboxDatabase], shards: map[string]*sql.DB{"s1": d.pools["s1"], "s2": d.pools["s2"]},
		kafka: kadm.NewClient(client)}

	airports := nyc.Airports(flights)
	r.airports = int64(len(airports))
	all := plays(flights, seed)
	total := r.airports
	for _, list := range all {
		for _, t := range list {
			if t.fate == commits {
				total += int64(len(t.steps))
			}
		}
	}
	var bars []*stage
	bar := func(name string) func(done int64) {
		g := s.stage(name, "")
		bars = append(bars, g)
		return func(done int64) {
			text := fmt.Sprintf("%s of %s events", number(done), number(total))
			g.move(done, total, text)
			if done >= total {
				g.end(text)
			}
		}
	}
	emit, publish, shards := bar("emit"), bar("publish"), bar("shards")
	clickhouse := func(int64) {}
	if d.servers.engine != nil {
		clickhouse = bar("clickhouse")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	emitted := make(chan struct{})
	go func() { // ends with ctx
		defer close(emitted)
		err := service.openAirports(ctx, airports)
		if err == nil {
			err = service.play(ctx, all, emit)
		}
		if err != nil {
			cancel(err)
		}
	}()
	defer func() { cancel(nil); <-emitted }()
	err = w.follow(ctx, emitted, func(seen sample) {
		publish(seen.published)
		shards(seen.shards)
		clickhouse(seen.clickhouse)
		r.applied = seen
	})
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	r.committed, r.rolledBack = service.committed, service.rolledBack
	for _, g := range bars { // those that did not get to their total say how far they came
		g.end(g.text)
	}
	return err
}

// collect reads what every store holds now.
func (d *demo) collect(ctx context.Context, r *report) error {
	client, err := kafka.NewClient(d.cfg, "demo", nil)
	if err != nil {
		return err
	}
	defer client.Close()
	if r.published, err = readTopic(ctx, client, d.cfg); err != nil {
		return err
	}
	l := line.New(d.cfg, d.log)
	defer l.Close()
	dead, err := l.DeadLetters(ctx, line.DeadFilter{Settled: true})
	if err != nil {
		return err
	}
	r.deadLetters = int64(len(dead.Letters))
	layout, err := d.layout(ctx)
	if err != nil {
		return err
	}
	if r.stored, err = readShards(ctx, layout, shardNames, d.pools); err != nil {
		return err
	}
	if r.board, err = readBoard(ctx, d.pools[outboxDatabase]); err != nil {
		return err
	}
	if d.servers.engine != nil {
		if r.olap, r.olapAirports, err = askClickHouse(ctx, d.servers.engine.Addr()); err != nil {
			return err
		}
	}
	return nil
}

// layout is the one that was applied.
func (d *demo) layout(ctx context.Context) (*partitioner.Layout, error) {
	var body []byte
	err := d.pools[outboxDatabase].QueryRowContext(ctx, "SELECT body FROM slotline_layout ORDER BY epoch DESC LIMIT 1").Scan(&body)
	if err != nil {
		return nil, err
	}
	spec, err := partitioner.ParseSpec(body)
	if err != nil {
		return nil, err
	}
	return partitioner.New(spec)
}

// writeConnections says how to look at what runs.
func (d *demo) writeConnections() {
	fmt.Fprintf(d.out, "\nIt is all still there until Ctrl-C:\n")
	show := func(format string, args ...any) { fmt.Fprintf(d.out, "  "+format+"\n", args...) }
	mysql := func(address, database, ask string) {
		host, port, _ := strings.Cut(address, ":")
		show("mysql -h %s -P %s -u root %s -e %q", host, port, database, ask)
	}
	mysql(d.servers.outbox.Addr(), outboxDatabase, "SELECT * FROM slotline_lane")
	mysql(d.servers.s1.Addr(), "s1", "SELECT * FROM flights_201307 WHERE _deleted = 0 LIMIT 5")
	mysql(d.servers.s2.Addr(), "s2", "SELECT * FROM slotline_progress")
	if d.servers.engine != nil {
		host, port, _ := strings.Cut(d.servers.engine.Addr(), ":")
		show("clickhouse-client --host %s --port %s -d %s -q %q", host, port, olapDatabase, "SELECT * FROM flights_now LIMIT 5")
	}
	show("kcat -b %s -C -e -t %s -c 5 -f '%%k %%h %%s\\n'", d.servers.kafka.Addr(), d.cfg.Kafka.Topic)
	show("curl -s http://%s/metrics | grep ^slotline", d.servers.http.Addr())
	show("go run ./cmd/slotline -c %s status", d.file)
}
