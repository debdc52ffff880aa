package line

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/internal/progress"
)

// Gap names a partition whose lost offsets an operator gives up.
type Gap struct {
	Sink      string // mysql, clickhouse or doris
	Topic     string // the line's when empty
	Partition int32
	To        int64 // go on from this offset, whatever the log looks like; -1: from where the log goes on
	Who, Why  string
}

// LostOffsets are the offsets of one gap, per store of the sink.
type LostOffsets struct {
	Gap
	stores []lostStore
}

type lostStore struct {
	name string
	db   *sql.DB
	gap  progress.Gap
}

// String says what would be given up.
func (l *LostOffsets) String() string {
	text := fmt.Sprintf("sink %s, %s partition %d:", l.Sink, l.Topic, l.Partition)
	for _, s := range l.stores {
		switch n := s.gap.To - s.gap.From; {
		case n > 0:
			text += fmt.Sprintf("\n  %s has applied everything below offset %d and goes on from %d: %d offsets are given up", s.name, s.gap.From, s.gap.To, n)
		default:
			text += fmt.Sprintf("\n  %s stands at offset %d; the log is another one and is applied from %d on", s.name, s.gap.From, s.gap.To)
		}
	}
	return text
}

// FindGaps looks at the log and at the sink's progress, and says what accepting the gaps of the partitions would give up. It
// changes nothing. A partition that is not halted, or whose log has no gap, is refused; nil partitions are all that are halted at
// one, less those of a database that does not answer, which notAsked names. Gap's own Partition is not read.
func (l *Line) FindGaps(ctx context.Context, g Gap, partitions []int32) (list []*LostOffsets, notAsked []error, err error) {
	if err := l.loadLayout(ctx); err != nil {
		return nil, nil, err
	}
	cl, err := l.kafkaClient(ctx, "accept-gap")
	if err != nil {
		return nil, nil, err
	}
	defer cl.Close()
	every := partitions == nil
	if every {
		for n := range l.layout.Partitions() {
			partitions = append(partitions, int32(n))
		}
	}
	silent := map[string]bool{}
	for _, g.Partition = range partitions {
		lost, err := l.findGap(ctx, cl, g, silent)
		switch {
		case every && fault.CodeOf(err) == codeNoGap:
		case every && fault.CodeOf(err) == codeProgress && ctx.Err() == nil:
			notAsked = append(notAsked, err)
		case err != nil:
			return nil, nil, err
		case lost != nil:
			list = append(list, lost)
		}
	}
	if len(list) == 0 && len(notAsked) > 0 {
		return nil, nil, errors.Join(notAsked...)
	}
	if len(list) == 0 {
		return nil, nil, &fault.Error{Code: codeNoGap, Class: fault.Usage, What: fmt.Sprintf("sink %s: no partition is halted at a gap; nothing was changed", g.Sink),
			Do: "see slotline status: other halts have other remedies"}
	}
	return list, notAsked, nil
}

const (
	codeNoGap    = "SL9010" // a partition that is not halted at a gap
	codeProgress = "SL9009" // progress that cannot be read
)

// findGap is FindGaps for one partition. It returns nil for one of a store that is known to be silent, and notes those that are.
func (l *Line) findGap(ctx context.Context, cl *kgo.Client, g Gap, silent map[string]bool) (*LostOffsets, error) {
	if g.Topic == "" {
		g.Topic = l.Config.Kafka.Topic
	}
	if !slices.Contains(l.Config.Topics(), g.Topic) {
		return nil, &fault.Error{Code: "SL9014", Class: fault.Usage,
			What: fmt.Sprintf("line %s has no topic %q", l.Config.Line, g.Topic), Do: "write one of: " + strings.Join(l.Config.Topics(), ", ")}
	}
	if g.Partition < 0 || int(g.Partition) >= l.layout.Partitions() {
		return nil, &fault.Error{Code: "SL9008", Class: fault.Usage,
			What: fmt.Sprintf("there is no partition %d: layout epoch %d has 0 to %d", g.Partition, l.layout.Epoch(), l.layout.Partitions()-1),
			Do:   "see slotline status for what is halted"}
	}
	stores, err := l.stores(g)
	if err != nil {
		return nil, err
	}
	part := event.Partition{Topic: g.Topic, Number: g.Partition}
	lost := &LostOffsets{Gap: g}
	if slices.ContainsFunc(stores, func(s lostStore) bool { return silent[s.name] }) {
		return nil, nil
	}
	for _, s := range stores {
		row, err := progress.Read(ctx, s.db, progress.Key{Sink: g.Sink, Partition: part})
		if err != nil {
			silent[s.name] = true
			return nil, mysqldb.Wrap(err, codeProgress, fmt.Sprintf("%s, progress of %s partition %d", s.name, g.Topic, g.Partition))
		}
		if row.HaltedAt.IsZero() && g.To < 0 {
			continue
		}
		at := row.Position()
		logs, err := kafka.Inspect(ctx, cl, []event.Position{at})
		if err != nil {
			return nil, err
		}
		log := logs[part]
		if log.Err != nil {
			return nil, log.Err
		}
		to, found := resumeAt(at, log)
		if g.To >= 0 {
			to, found = g.To, g.To > row.Next
			if g.To < log.Start || g.To > log.End {
				return nil, &fault.Error{Code: "SL9015", Class: fault.Usage,
					What: fmt.Sprintf("%s partition %d has offsets %d to %d; --to %d lies outside", g.Topic, g.Partition, log.Start, log.End, g.To),
					Do:   "write an offset of the log: the first one that is to be applied"}
			}
		}
		if !found {
			continue
		}
		s.gap = progress.Gap{Key: row.Key, From: row.Next, To: to, LeaderEpoch: -1, TopicID: log.TopicID, By: g.Who, Reason: g.Why}
		lost.stores = append(lost.stores, s)
	}
	if len(lost.stores) == 0 {
		return nil, &fault.Error{Code: codeNoGap, Class: fault.Usage,
			What: fmt.Sprintf("sink %s, %s partition %d is not halted at a gap; nothing was changed", g.Sink, g.Topic, g.Partition),
			Do:   "see slotline status: other halts have other remedies; --to OFFSET goes past a record that no sink can read"}
	}
	return lost, nil
}

// resumeAt is where a sink would go on in a log that does not continue what it has applied.
func resumeAt(at event.Position, log kafka.Log) (offset int64, gap bool) {
	switch {
	case at.TopicID != (event.TopicID{}) && log.TopicID != at.TopicID:
		return log.Start, true // another topic of the same name: all of it is new
	case at.Next < log.Start:
		return log.Start, true
	case log.EpochEnd >= 0 && log.EpochEnd < at.Next:
		return max(log.Start, log.EpochEnd), true // cut, perhaps filled again: from where the two logs part
	case at.Next > log.End:
		return log.End, true
	case at.LeaderEpoch >= 0 && log.EpochEnd < 0 && log.Start < log.End:
		return log.Start, true // the log knows nothing of what was applied
	}
	return 0, false
}

func (l *Line) stores(g Gap) ([]lostStore, error) {
	switch {
	case g.Sink == "mysql":
		var list []lostStore
		for _, i := range l.layout.PartitionShards(g.Partition) {
			name := l.layout.ShardName(i)
			for k := range l.Config.Shards {
				if l.Config.Shards[k].Name == name {
					db, err := l.shardDB(k)
					if err != nil {
						return nil, err
					}
					list = append(list, lostStore{name: "shard " + name, db: db})
				}
			}
		}
		return list, nil
	case slices.Contains(l.olapSinks(), g.Sink):
		db, err := l.stateDB()
		return []lostStore{{name: g.Sink, db: db}}, err
	}
	return nil, &fault.Error{Code: "SL9005", Class: fault.Usage,
		What: fmt.Sprintf("%s has no sink %q", l.Config.File, g.Sink), Do: "write --sink mysql, or clickhouse or doris where the file has it"}
}

// AcceptGap moves the sink past what FindGaps found. A sink that runs takes the partition up again by itself.
func (l *Line) AcceptGap(ctx context.Context, lost *LostOffsets) error {
	for _, s := range lost.stores {
		if err := progress.AcceptGap(ctx, s.db, s.gap); err != nil {
			return mysqldb.Wrap(err, "SL9011", fmt.Sprintf("%s, gap of %s partition %d", s.name, lost.Topic, lost.Partition))
		}
	}
	return nil
}
