package kafka

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/internal/plan"
)

// Plan says what `slotline apply` would do to the line's topics. It changes nothing; cl must stay open until the
// changes were applied. applied is the number of partitions that the layout in force has, 0 without one: a topic with
// that many, or with more after an apply that did not end, is widened to what the file says. That comes later than the
// other changes, just before the layout: from then on processes that run by the layout in force cannot start.
func Plan(ctx context.Context, cl *kgo.Client, cfg *config.Config, applied int) (changes, widen []plan.Change, err error) {
	topics := Topics(cfg)
	have, err := describe(ctx, cl, topics)
	if err != nil {
		return nil, nil, err
	}
	where := "kafka " + strings.Join(cfg.Kafka.Brokers, ",")
	if v := version(ctx, cl); v != "" {
		where += " (" + v + ")"
	}
	for _, t := range topics {
		f := have[t.Name]
		if f == nil {
			changes = append(changes, plan.Change{Where: where, Sign: plan.Create, What: "topic " + t.Name, Note: t.describe(),
				Do: func(ctx context.Context) error { return t.Create(ctx, cl) }})
			continue
		}
		if n := f.partitions; t.checksLayout && applied > 0 && applied <= n && n < t.Partitions {
			widen = append(widen, plan.Change{Where: where, Sign: plan.Alter, What: "topic " + t.Name,
				Note: fmt.Sprintf("partitions %d -> %d", n, t.Partitions),
				Do:   func(ctx context.Context) error { return t.addPartitions(ctx, cl) }})
			f.partitions = t.Partitions
		}
		for _, d := range compare(t, f) {
			if d.refuse != nil {
				changes = append(changes, plan.Change{Where: where, Sign: plan.Decide, What: "topic " + t.Name, Note: d.refuse.Error()})
				continue
			}
			changes = append(changes, plan.Change{Where: where, Sign: plan.Alter, What: "topic " + t.Name, Note: d.note,
				Do: func(ctx context.Context) error { return t.widen(ctx, cl, d.alter) }})
		}
		if f.replication < t.Replication {
			changes = append(changes, plan.Change{Where: where, Sign: plan.Note, What: "topic " + t.Name,
				Note: fmt.Sprintf("has %d replicas, the file says %d: kafka-reassign-partitions adds them", f.replication, t.Replication)})
		}
	}
	return changes, widen, nil
}

// describe is "16 partitions, replication 3, retention forever".
func (t Topic) describe() string {
	s := "s"
	if t.Partitions == 1 {
		s = ""
	}
	return fmt.Sprintf("%d partition%s, replication %d, retention %s", t.Partitions, s, t.Replication, retention(t.Retention))
}

func retention(d time.Duration) string {
	switch {
	case d == Forever:
		return "forever"
	case d%(24*time.Hour) == 0:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	return d.String()
}

// version is the brokers' release as their API versions tell it; "" when they do not say.
func version(ctx context.Context, cl *kgo.Client) string {
	versions, err := kadm.NewClient(cl).ApiVersions(ctx)
	if err != nil {
		return ""
	}
	for _, b := range versions.Sorted() {
		if b.Err == nil {
			return strings.TrimPrefix(b.VersionGuess(), "v")
		}
	}
	return ""
}
