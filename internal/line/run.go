package line

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/slotline/slotline/archive"
	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/inforce"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/lease"
	"github.com/slotline/slotline/outbox"
	outboxkafka "github.com/slotline/slotline/outbox/kafka"
	"github.com/slotline/slotline/sinks/mysql"
)

// Parts are what one process runs of a line.
type Parts struct {
	Relay      bool
	MySQL      bool
	ClickHouse bool
	Doris      bool
	// Instance is a name that is this process's alone and survives its restart, such as a pod's: its partitions then
	// come back to it at once. Empty: other members take them over first.
	Instance string
}

// names are the parts in the order in which they start.
func (p Parts) names() (names []string) {
	for _, part := range []struct {
		name string
		on   bool
	}{{"relay", p.Relay}, {"mysql", p.MySQL}, {"clickhouse", p.ClickHouse}, {"doris", p.Doris}} {
		if part.on {
			names = append(names, part.name)
		}
	}
	return names
}

// Run runs parts until ctx ends and each has drained, or until one of them cannot go on. halted says whether a
// partition or lane is halted at the end; the log has said which, and why.
func (l *Line) Run(ctx context.Context, parts Parts) (halted bool, err error) {
	if parts.ClickHouse && l.Config.Sinks.ClickHouse == nil {
		return false, &fault.Error{Code: "SL9004", Class: fault.Usage,
			What: l.Config.File + " has no sinks.clickhouse", Write: `sinks: { clickhouse: { dsn: "clickhouse://user:${CH_PASSWORD}@host:9000/database" } }`}
	}
	if parts.Doris && l.Config.Sinks.Doris == nil {
		return false, &fault.Error{Code: "SL9004", Class: fault.Usage,
			What: l.Config.File + " has no sinks.doris", Write: `sinks: { doris: { fe: ["http://fe1:8030"], database: flights, user: slotline, password: "${DORIS_PASSWORD}" } }`}
	}
	if err := l.loadLayout(ctx); err != nil {
		return false, err
	}
	if parts.MySQL {
		if err := l.checkShards(ctx); err != nil {
			return false, err
		}
	}
	names := parts.names()
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	ready := newHealth(names...)
	stopHTTP, err := l.serve(ctx, reg, ready)
	if err != nil {
		return false, err
	}
	defer stopHTTP()
	context.AfterFunc(ctx, ready.drain)

	w := &workers{Line: l, follow: newFollower(l), reg: reg, ready: ready, parts: parts, owner: ownerName(parts.Instance),
		memory: shareMemory(l.Config.Limits.MemoryBytesMax, names)}
	backlogs := newBacklogCollector(l)
	reg.MustRegister(backlogs, w.follow)
	if (parts.ClickHouse || parts.Doris) && len(l.Config.Rollups) > 0 {
		reg.MustRegister(rollupCollector{l})
	}

	following, stopFollowing := context.WithCancel(ctx)
	var followed sync.WaitGroup
	followed.Go(func() { w.follow.run(following) })
	defer func() { stopFollowing(); followed.Wait() }()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.Log.Info("starting", "line", l.Config.Line, "parts", fmt.Sprint(names), "layout_epoch", l.layout.Epoch())
	var wg sync.WaitGroup
	errs := make([]error, len(names))
	for i, name := range names {
		work := map[string]func(context.Context) error{"relay": w.relay, "mysql": w.mysql}[name]
		if work == nil {
			work = func(ctx context.Context) error { return w.olap(ctx, name) }
		}
		wg.Go(func() {
			err := work(ctx)
			if h := (*consumers.Halted)(nil); errors.As(err, &h) || errors.As(err, new(*haltedLanes)) {
				l.Log.Error("halted at the end", "part", name, "error", err.Error())
				errs[i] = err
				return
			}
			if err != nil && ctx.Err() == nil {
				l.Log.Error("a part cannot go on; the process ends", "part", name, "code", fault.CodeOf(err))
				cancel(err) // the others drain: a process without one of its parts would look well and not be
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				errs[i] = err
			}
		})
	}
	wg.Wait()
	if context.Cause(ctx) == context.Canceled { // asked to end, not because a part could not go on
		l.Log.Info("drained", "line", l.Config.Line)
	}
	for _, err := range errs {
		switch h := (*consumers.Halted)(nil); {
		case errors.As(err, &h), errors.As(err, new(*haltedLanes)):
			halted = true
		case err != nil:
			return halted, err
		}
	}
	return halted, nil
}

// checkShards refuses to start on a shard that will never do: no such database, no privilege, another line's. A shard
// that does not answer now is only said: the others go on without it.
func (l *Line) checkShards(ctx context.Context) error {
	errs := make([]error, len(l.Config.Shards))
	for i, shard := range l.Config.Shards {
		db, err := l.shardDB(i)
		if err != nil {
			return err
		}
		where := fmt.Sprintf("shard %s %s", shard.Name, shard.DSN.Place())
		ask, cancel := context.WithTimeout(ctx, checkTimeout)
		stored, err := inforce.Read(ask, db, l.Config.Line, shard.Name, where)
		cancel()
		err = mysqldb.Wrap(err, "SL1809", where)
		switch {
		case err != nil && (fault.Is(err, fault.Fatal) || fault.Is(err, fault.Usage)):
			errs[i] = err
		case err != nil:
			l.Log.Warn("a shard does not answer; it is waited for", "shard", shard.Name, "error", err)
		case stored == nil:
			errs[i] = &fault.Error{Code: "SL1810", Class: fault.Usage,
				What: where + ": this shard was never applied: it holds no layout", Do: "slotline apply --dry-run, then slotline apply"}
		case stored.Digest() != l.layout.Digest():
			errs[i] = &fault.Error{Code: "SL1811", Class: fault.Usage,
				What: fmt.Sprintf("%s holds another layout (epoch %d) than the outbox database (epoch %d)", where, stored.Epoch(), l.layout.Epoch()),
				Why:  "the DSN leads to another line's shard, or an apply did not end",
				Do:   "correct shards." + shard.Name + ".dsn, or run slotline apply"}
		}
	}
	return errors.Join(errs...)
}

// checkTimeout bounds how long a start waits for one shard.
const checkTimeout = 5 * time.Second

// workers are the parts of one Run.
type workers struct {
	*Line
	follow *follower
	reg    *prometheus.Registry
	ready  *health
	parts  Parts
	owner  string
	memory map[string]int64 // bytes, by part
}

// ownerName is unique, and begins with the instance's name where there is one, for people.
func ownerName(instance string) string {
	owner := lease.NewOwner()
	if instance != "" {
		owner = instance + owner[strings.LastIndexByte(owner, '/'):]
	}
	return owner
}

// shareMemory divides a process's memory among its parts. OLAP sinks take the largest shares: their batches are long.
func shareMemory(bytes int64, names []string) map[string]int64 {
	weights := map[string]int64{"relay": 1, "mysql": 1, "clickhouse": 2, "doris": 2}
	var sum int64
	for _, name := range names {
		sum += weights[name]
	}
	shares := make(map[string]int64, len(names))
	for _, name := range names {
		shares[name] = bytes * weights[name] / sum
	}
	return shares
}

// haltedLanes are the errors of lanes that halted.
type haltedLanes struct{ error }

func (h *haltedLanes) Unwrap() error { return h.error }

func (w *workers) relay(ctx context.Context) error {
	db, err := w.outboxDB()
	if err != nil {
		return err
	}
	spans, stopSpans := w.spans("slotline/relay")
	defer stopSpans()
	var published func(outbox.Published)
	if spans != nil {
		published = func(p outbox.Published) { spans.published(w.Config.Kafka.Topic, p) }
	}
	r := outbox.New(outbox.Options{Config: w.Config, Layout: w.layout, DB: db, Logger: w.Log, Published: published,
		NewWriter: func(lane int) (outbox.Writer, error) { return outboxkafka.New(w.Config, lane, w.Log) }})
	defer w.follow.take(func(now force) { r.SetLayout(now.layout) })()
	w.reg.MustRegister(laneCollector{r})
	w.begun("relay")
	if err := r.Run(ctx); err != nil {
		for _, lane := range r.Lanes() {
			if lane.Halted != nil {
				return &haltedLanes{err}
			}
		}
		return err
	}
	return nil
}

// spans is what sends a part's spans, nil where no collector of spans is named, and what ends it.
func (w *workers) spans(scope string) (e *spanExporter, stop func()) {
	if e = newSpanExporter(os.Getenv, scope, w.Config.Line, w.Log); e == nil {
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { e.run(ctx) })
	return e, func() { cancel(); ended.Wait() }
}

var _ consumers.Sharded = (*mysql.Sink)(nil)

func (w *workers) mysql(ctx context.Context) error {
	return w.follow.anew(ctx, false, func(ctx context.Context, begin force) error {
		sink, err := mysql.New(mysql.Options{Config: begin.config, Layout: begin.layout, Owner: w.owner, Logger: w.Log})
		if err != nil {
			return err
		}
		defer sink.Close()
		defer w.follow.take(func(now force) {
			if err := sink.AddShards(now.config.Shards); err != nil {
				w.Log.Warn("a new shard cannot be used", "error", err)
			}
			sink.SetLayout(now.layout)
		})()
		maintain, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() { _ = sink.Maintain(maintain) }) // says itself what it cannot do
		return w.consume(ctx, begin.config, sink, "mysql")
	})
}

// olap needs the file of the layout: all processes must divide the partitions into the same groups.
func (w *workers) olap(ctx context.Context, name string) error {
	state, err := w.stateDB()
	if err != nil {
		return err
	}
	return w.follow.anew(ctx, true, func(ctx context.Context, begin force) error {
		sink, err := w.openOLAP(name, begin.config, begin.layout, state, w.owner)
		if err != nil {
			return err
		}
		defer sink.Close()
		defer w.follow.take(func(now force) {
			if now.layout.Partitions() == begin.layout.Partitions() { // else its groups are others, and it begins anew
				sink.SetLayout(now.layout)
			}
		})()
		maintain, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() { sink.Maintain(maintain) }) // says itself what it cannot do
		return w.consume(ctx, begin.config, sink, name)
	})
}

func (w *workers) consume(ctx context.Context, cfg *config.Config, sink consumers.Sink, part string) error {
	spans, stopSpans := w.spans("slotline/sink")
	defer stopSpans()
	var applied func(consumers.Applied)
	if spans != nil {
		applied = spans.applied
	}
	var past consumers.History
	if cfg.Archive != nil {
		a, err := archive.Open(cfg, w.Log)
		if err != nil {
			return err
		}
		past = a
	}
	waits := time.AfterFunc(kafkaPatience, func() {
		w.Log.Warn("waits for an answer of Kafka", "part", part, "host", strings.Join(cfg.Kafka.Brokers, " "))
	})
	defer waits.Stop()
	return consumers.Run(ctx, consumers.Options{Config: cfg, History: past, Sink: sink, Logger: w.Log, Registerer: w.reg, Applied: applied,
		MemoryBytesMax: w.memory[part], InstanceID: w.parts.Instance, Reload: w.follow.ask,
		Ready: func() { waits.Stop(); w.begun(part) }})
}

// kafkaPatience is from when on a start says that Kafka has not answered yet; the start fails some seconds later.
const kafkaPatience = 2 * time.Second

// begun notes that a part has what it needs to begin.
func (w *workers) begun(part string) {
	if w.ready.ready(part) {
		w.Log.Info("running", "line", w.Config.Line, "parts", fmt.Sprint(w.parts.names()))
	}
}
