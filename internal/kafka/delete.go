package kafka

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
)

// MayDelete refuses a user that may not remove records of the line's topics of events (SL2006), before much is done for it.
// Brokers that do not say what a user may do are asked in vain.
func MayDelete(ctx context.Context, cl *kgo.Client, cfg *config.Config) error {
	meta, err := kadm.NewClient(cl).Metadata(kadm.WithAuthorizedOps(ctx), cfg.Topics()...)
	if err != nil {
		return Wrap(err, seeds(cl), "ask what this user may do")
	}
	for _, name := range cfg.Topics() {
		may := meta.Topics[name].AuthorizedOperations
		if len(may) > 0 && !slices.Contains(may, kmsg.ACLOperationDelete) && !slices.Contains(may, kmsg.ACLOperationAll) {
			return Wrap(kerr.TopicAuthorizationFailed, seeds(cl), "remove records of topic "+name+" (Delete)")
		}
	}
	return nil
}

// DeleteBelow has logs begin at these offsets, and returns what failed, by partition. Each must be within its log.
func DeleteBelow(ctx context.Context, cl *kgo.Client, below map[event.Partition]int64) map[event.Partition]error {
	offsets := kadm.Offsets{}
	for p, offset := range below {
		offsets.AddOffset(p.Topic, p.Number, offset, -1)
	}
	failed := map[event.Partition]error{}
	if len(below) == 0 {
		return failed
	}
	answers, err := kadm.NewClient(cl).DeleteRecords(ctx, offsets)
	for p, offset := range below {
		answer, ok := answers.Lookup(p.Topic, p.Number)
		switch {
		case ok && answer.Err == nil:
			continue
		case ok:
			failed[p] = answer.Err
		case err != nil:
			failed[p] = err
		default:
			failed[p] = errNotListed
		}
		failed[p] = Wrap(failed[p], seeds(cl), fmt.Sprintf("remove what lies below offset %d of %s partition %d", offset, p.Topic, p.Number))
	}
	return failed
}
