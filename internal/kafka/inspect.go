package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
)

// Log is one partition's log as its leader describes it.
type Log struct {
	TopicID     event.TopicID
	LeaderEpoch int32 // the leader's own
	Start, End  int64 // offset of the first record; one past the last that is replicated
	Stable      int64 // one past the last that is not inside an open transaction
	// Epoch and EpochEnd answer the question where the position's leader epoch ended (OffsetForLeaderEpoch): both -1
	// when the leader does not know that epoch, or the position has none.
	Epoch    int32
	EpochEnd int64
	// Gone says that the topic or partition is not there.
	Gone bool
	// Err says that this partition's leader did not answer, while others did.
	Err error
}

// Inspect asks the leaders how the partitions' logs stand, and where the leader epoch of each position ended. There is
// a Log for every position; one whose leader does not answer has Err, the others are whole.
func Inspect(ctx context.Context, cl *kgo.Client, at []event.Position) (map[event.Partition]Log, error) {
	brokers, adm := seeds(cl), kadm.NewClient(cl)
	topics := map[string]bool{}
	ask := kadm.OffsetForLeaderEpochRequest{}
	for _, p := range at {
		topics[p.Topic] = true
		if p.LeaderEpoch >= 0 {
			ask.Add(p.Topic, p.Number, p.LeaderEpoch)
		}
	}
	names := slices.Sorted(maps.Keys(topics))
	doing := "ask how the log of " + strings.Join(names, ", ") + " stands"
	meta, err := adm.Metadata(ctx, names...)
	if err != nil {
		return nil, Wrap(err, brokers, doing)
	}
	// A broker that is down fails only the partitions that it leads.
	var start, end, stable kadm.ListedOffsets
	var epochs kadm.OffsetsForLeaderEpochs
	var failed error
	for _, request := range []func() error{
		func() (err error) { start, err = adm.ListStartOffsets(ctx, names...); return },
		func() (err error) { end, err = adm.ListEndOffsets(ctx, names...); return },
		func() (err error) { stable, err = adm.ListCommittedOffsets(ctx, names...); return },
		func() (err error) {
			if len(ask) > 0 {
				epochs, err = adm.OffsetForLeaderEpoch(ctx, ask)
			}
			return
		},
	} {
		if err := request(); err != nil {
			if _, partly := errors.AsType[*kadm.ShardErrors](err); !partly {
				return nil, Wrap(err, brokers, doing)
			}
			failed = err
		}
	}
	logs := make(map[event.Partition]Log, len(at))
	for _, p := range at {
		l, err := oneLog(p, meta, start, end, stable, epochs)
		if errors.Is(err, errNotListed) && failed != nil {
			err = failed
		}
		l.Err = Wrap(err, brokers, fmt.Sprintf("ask how the log of %s partition %d stands", p.Topic, p.Number))
		logs[p.Partition] = l
	}
	return logs, nil
}

// errNotListed stands for an answer that leaves a partition out.
var errNotListed = errors.New("the leader did not answer")

// oneLog gathers what the answers say of one partition.
func oneLog(p event.Position, meta kadm.Metadata, start, end, stable kadm.ListedOffsets, epochs kadm.OffsetsForLeaderEpochs) (Log, error) {
	t, ok := meta.Topics[p.Topic]
	if !ok || errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
		return Log{Gone: true}, nil
	}
	if t.Err != nil {
		return Log{}, t.Err
	}
	d, ok := t.Partitions[p.Number]
	if !ok {
		return Log{Gone: true}, nil
	}
	if d.Err != nil {
		return Log{}, d.Err
	}
	l := Log{TopicID: event.TopicID(t.ID), LeaderEpoch: d.LeaderEpoch, Epoch: -1, EpochEnd: -1}
	for _, list := range []struct {
		offsets kadm.ListedOffsets
		to      *int64
	}{{start, &l.Start}, {end, &l.End}, {stable, &l.Stable}} {
		o, ok := list.offsets.Lookup(p.Topic, p.Number)
		if !ok {
			return l, errNotListed
		}
		if o.Err != nil {
			return l, o.Err
		}
		*list.to = o.Offset
	}
	if p.LeaderEpoch >= 0 {
		e, ok := epochs[p.Topic][p.Number]
		if !ok {
			return l, errNotListed
		}
		if e.Err != nil {
			return l, e.Err
		}
		l.Epoch, l.EpochEnd = e.LeaderEpoch, e.EndOffset
	}
	return l, nil
}
