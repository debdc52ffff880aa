package line

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/internal/inforce"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/partitioner"
)

// followPeriod is how often a process asks for the layout in force, and reads its file again while that is older. A
// record of a newer layout has it ask at once.
const followPeriod = 5 * time.Second

// force is what a process runs by: the layout in force, and its file with the layout's partitions, and with the shards
// of the newest file that was read.
type force struct {
	layout *partitioner.Layout
	config *config.Config
	// older says that the file is: a shard of the layout may be missing in it, and what else must agree among processes.
	older bool
}

// follower keeps the parts of a process on the layout in force.
type follower struct {
	*Line
	epoch atomic.Int64 // of now.layout, for a scrape, which does not wait for I/O

	mu     sync.Mutex // held through the I/O of ask
	now    force
	said   string // why the file does not do, as the log has it
	takers map[int]func(force)
	taken  int // takers so far, which numbers them
}

func newFollower(l *Line) *follower {
	f := &follower{Line: l, now: force{layout: l.layout, config: l.Config}, takers: map[int]func(force){}}
	f.epoch.Store(l.layout.Epoch())
	return f
}

// take has a part follow: taker is told what is in force now, and at each change, and does no I/O. The part calls end
// when it is over.
func (f *follower) take(taker func(force)) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken++
	number := f.taken
	f.takers[number] = taker
	taker(f.now)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.takers, number)
	}
}

// run asks until ctx ends. While the outbox database does not answer, the process goes on by what it has.
func (f *follower) run(ctx context.Context) {
	tick := time.NewTicker(followPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := f.ask(ctx); err != nil && ctx.Err() == nil {
			f.Log.Debug("could not ask for the layout in force", "error", err)
		}
	}
}

// ask takes the layout in force if it is newer, and the file's shards with it.
func (f *follower) ask(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	db, err := f.outboxDB()
	if err != nil {
		return err
	}
	where := "outbox " + f.Config.Outbox.DSN.Place()
	var epoch int64
	err = db.QueryRowContext(ctx, "SELECT COALESCE(MAX(epoch), 0) FROM slotline_layout WHERE line = ?", f.Config.Line).Scan(&epoch)
	if err != nil {
		return mysqldb.Wrap(err, "SL1807", where)
	}
	newer := epoch > f.now.layout.Epoch()
	if !newer && !f.now.older {
		return nil
	}
	next := f.now
	if newer {
		if next.layout, err = inforce.Read(ctx, db, f.Config.Line, "", where); err != nil {
			return mysqldb.Wrap(err, "SL1807", where)
		}
	}
	read, err := f.readAgain(next.layout)
	next.older = err != nil
	if err != nil && !newer {
		f.say(err)
		return nil
	}
	next.config = atLayout(f.now.config, next.layout)
	if err == nil {
		takeShards(next.config, read)
		if c := next.config.Sinks.Doris; c != nil && read.Sinks.Doris != nil {
			groups := *c
			groups.Groups = read.Sinks.Doris.Groups
			next.config.Sinks.Doris = &groups
		}
	}
	f.now = next
	f.epoch.Store(next.layout.Epoch())
	f.Log.Info("layout loaded", "layout_epoch", next.layout.Epoch(), "partitions", next.layout.Partitions(), "shards", strings.Join(next.layout.Shards(), " "))
	f.say(err)
	for _, taker := range f.takers {
		taker(next)
	}
	return nil
}

// readAgain reads the file, and refuses one that is not of the layout.
func (f *follower) readAgain(layout *partitioner.Layout) (*config.Config, error) {
	read, err := config.Load(f.Config.File)
	if err != nil {
		return nil, err
	}
	if read.Line != f.Config.Line {
		return nil, fmt.Errorf("%s is of line %s now", f.Config.File, read.Line)
	}
	_, err = agree(f.Config.File, read.Layout, read.Kafka.Partitions, layout)
	return read, err
}

// say logs once that the file does not do.
func (f *follower) say(err error) {
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said != "" && said != f.said {
		f.Log.Warn("the file is not that of the layout in force; what needs it waits, the rest goes on", "file", f.Config.File,
			"layout_epoch", f.now.layout.Epoch(), "error", err, "do", "put the file that was applied in its place; it is read again by itself")
	}
	f.said = said
}

// errWider ends a run of a part because the layout has more partitions.
var errWider = errors.New("the layout has more partitions")

// anew runs a part that can follow a layout with as many partitions, and runs it again from its beginning, drained, when
// the layout has more. needsFile: not before the file is that of the layout.
func (f *follower) anew(ctx context.Context, needsFile bool, run func(ctx context.Context, begin force) error) error {
	for {
		var begin force
		once, end := context.WithCancelCause(ctx)
		stop := f.take(func(next force) {
			switch {
			case begin.layout == nil:
				begin = next
			case next.layout.Partitions() != begin.layout.Partitions() && !(needsFile && next.older):
				end(errWider)
			}
		})
		err := run(once, begin)
		stop()
		wider := ctx.Err() == nil && errors.Is(context.Cause(once), errWider)
		end(nil)
		if err != nil && !errors.As(err, new(*consumers.Halted)) || !wider {
			return err
		}
	}
}

// takeShards takes from a file that was read again what a layout needs of it: the shards, and the groups, of which there
// can be more with more partitions. All else is taken at the next start.
func takeShards(c, read *config.Config) {
	c.Shards = read.Shards
	if to, from := c.Sinks.ClickHouse, read.Sinks.ClickHouse; to != nil && from != nil {
		sink := *to
		sink.Groups = from.Groups
		c.Sinks.ClickHouse = &sink
	}
	if to, from := c.Sinks.Doris, read.Sinks.Doris; to != nil && from != nil {
		sink := *to
		sink.Groups = from.Groups
		c.Sinks.Doris = &sink
	}
}

// atLayout is a file's configuration with what the layout says of it.
func atLayout(c *config.Config, l *partitioner.Layout) *config.Config {
	at := *c
	at.Kafka.Partitions, at.Layout.Epoch = l.Partitions(), l.Epoch()
	return &at
}

var epochDesc = prometheus.NewDesc("slotline_layout_epoch", "Epoch of the layout that this process runs by; the same in all processes of a line but for seconds.", nil, nil)

// Describe and Collect export the layout epoch.
func (f *follower) Describe(ch chan<- *prometheus.Desc) { ch <- epochDesc }

func (f *follower) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(epochDesc, prometheus.GaugeValue, float64(f.epoch.Load()))
}
