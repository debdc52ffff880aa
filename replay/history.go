package replay

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/kafka"
)

// history is the line's log from its beginning. Whatever reads it from there reads it by these methods.
type history struct {
	cfg *config.Config
	log *slog.Logger
}

func (r *Replay) history() *history { return &history{r.o.Config, r.o.Logger} }

// consume is consumers.Run.
func (h *history) consume(ctx context.Context, o consumers.Options) error {
	return consumers.Run(ctx, o)
}

// scan is kafka.Scan.
func (h *history) scan(ctx context.Context, role string, from, to map[event.Partition]int64, each func(*kgo.Record)) error {
	return kafka.Scan(ctx, h.cfg, role, h.log, from, to, each)
}

// stand says how the partitions' logs stand, each with Start at the first offset that can be read, and where they do not
// begin at offset 0: what lies below is gone.
func (h *history) stand(ctx context.Context, role string, parts []event.Partition) (logs map[event.Partition]kafka.Log, holes []string, err error) {
	cl, err := kafka.Open(ctx, h.cfg, role, h.log)
	if err != nil {
		return nil, nil, err
	}
	defer cl.Close()
	at := make([]event.Position, len(parts))
	for i, p := range parts {
		at[i] = event.Position{Partition: p, LeaderEpoch: -1}
	}
	if logs, err = kafka.Inspect(ctx, cl, at); err != nil {
		return nil, nil, err
	}
	for _, p := range parts {
		switch log := logs[p]; {
		case log.Err != nil:
			return nil, nil, log.Err
		case log.Gone:
			holes = append(holes, fmt.Sprintf("%s partition %d is gone", p.Topic, p.Number))
		case log.Start > 0:
			holes = append(holes, fmt.Sprintf("%s partition %d begins at offset %d: what lies below is gone", p.Topic, p.Number, log.Start))
		}
	}
	return logs, holes, nil
}
