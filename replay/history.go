package replay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/archive"
	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
)

// history is the line's log from its beginning: the topics, and the archive for what they no longer hold. Whatever reads it
// from there reads it by these methods.
type history struct {
	cfg *config.Config
	log *slog.Logger
}

func (r *Replay) history() *history { return &history{r.o.Config, r.o.Logger} }

// partLog is one partition's log. Start is the first offset that can be read.
type partLog struct {
	kafka.Log
	// Archived is the offset below which the archive has to be read, 0 for none.
	Archived int64
}

// consume is consumers.Run from wherever the sink stands.
func (h *history) consume(ctx context.Context, o consumers.Options) error {
	past, err := h.past()
	if err != nil {
		return err
	}
	if past != nil {
		o.History = past
	}
	return consumers.Run(ctx, o)
}

// past is the archive; nil where the file has none.
func (h *history) past() (*archive.Archive, error) {
	if h.cfg.Archive == nil {
		return nil, nil
	}
	return archive.Open(h.cfg, h.log)
}

// scan is kafka.Scan. SL7503: neither topic nor archive has what is asked for.
func (h *history) scan(ctx context.Context, role string, from, to map[event.Partition]int64, each func(*kgo.Record)) error {
	var parts []event.Partition
	for p, end := range to {
		if from[p] < end {
			parts = append(parts, p)
		}
	}
	logs, err := h.inspect(ctx, role, parts)
	if err != nil {
		return err
	}
	past, err := h.past()
	if err != nil {
		return err
	}
	from = maps.Clone(from)
	enough := errors.New("enough was read")
	for _, p := range parts {
		log, end := logs[p], to[p]
		if log.Err != nil {
			return log.Err
		}
		if log.Start <= from[p] {
			continue
		}
		until := from[p]
		if past != nil {
			if until, err = past.Until(ctx, p, log.TopicID, until); err != nil {
				return err
			}
		}
		if until < min(end, log.Start) {
			return h.hole(fmt.Sprintf("%s partition %d begins at offset %d: %d is gone", p.Topic, p.Number, log.Start, from[p]))
		}
		from[p], err = past.Read(ctx, p, from[p], func(records []*kgo.Record) error {
			for _, r := range records {
				if r.Offset >= end {
					return enough
				}
				each(r)
			}
			return nil
		})
		if errors.Is(err, enough) {
			from[p] = end
		} else if err != nil {
			return err
		}
	}
	return kafka.Scan(ctx, h.cfg, role, h.log, from, to, each)
}

// hole is the error of a log that cannot be read from its beginning.
func (h *history) hole(holes ...string) error {
	do := "restore the shard from a backup: the sink then goes on from where that stands"
	if h.cfg.Archive != nil {
		do = "slotline archive verify names what is damaged: put those files back as they were; else " + do
	}
	return &fault.Error{Code: codeHistory, Class: fault.Fatal, What: "the log does not hold all of the history: what is made from it would lack rows",
		Why: strings.Join(holes, "\n"), Do: do}
}

// inspect asks how the partitions' logs stand.
func (h *history) inspect(ctx context.Context, role string, parts []event.Partition) (map[event.Partition]kafka.Log, error) {
	cl, err := kafka.Open(ctx, h.cfg, role, h.log)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	return inspect(ctx, cl, parts)
}

// inspect asks how partitions' logs stand, whatever was read of them.
func inspect(ctx context.Context, cl *kgo.Client, parts []event.Partition) (map[event.Partition]kafka.Log, error) {
	at := make([]event.Position, len(parts))
	for i, p := range parts {
		at[i] = event.Position{Partition: p, LeaderEpoch: -1}
	}
	return kafka.Inspect(ctx, cl, at)
}

// stand says how the partitions' logs stand, each with Start at the first offset that can be read, and where they cannot be
// read from offset 0 on: what lies below is gone.
func (h *history) stand(ctx context.Context, role string, parts []event.Partition) (logs map[event.Partition]partLog, holes []string, err error) {
	inspected, err := h.inspect(ctx, role, parts)
	if err != nil {
		return nil, nil, err
	}
	past, err := h.past()
	if err != nil {
		return nil, nil, err
	}
	logs = map[event.Partition]partLog{}
	for _, p := range parts {
		log := partLog{Log: inspected[p]}
		switch {
		case log.Err != nil:
			return nil, nil, log.Err
		case log.Gone:
			holes = append(holes, fmt.Sprintf("%s partition %d is gone", p.Topic, p.Number))
		case log.Start > 0 && past == nil:
			holes = append(holes, fmt.Sprintf("%s partition %d begins at offset %d: what lies below is gone", p.Topic, p.Number, log.Start))
		case log.Start > 0:
			why, err := past.Lacks(ctx, p, log.Log)
			if err != nil {
				return nil, nil, err
			}
			if why != "" {
				holes = append(holes, why)
			} else {
				log.Start, log.Archived = 0, log.Start
			}
		}
		logs[p] = log
	}
	return logs, holes, nil
}
