package producer

import (
	"context"
	"fmt"
	"time"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/outbox"
	"github.com/slotline/slotline/partitioner"
)

// admitPeriod is how long an answer about backlogs is used.
const admitPeriod = 250 * time.Millisecond

// admit refuses work while lanes are behind. With events, the lanes that they go to count: a lane that is behind holds
// up its own tenants and no others (P13). Without, before a transaction begins, every lane must be behind, as it is
// when no relay runs or Kafka is away.
//
// It asks db at most once in admitPeriod, however many goroutines emit; the others go by the last answer, as all do
// where db is nil.
func (p *Producer) admit(ctx context.Context, db outbox.Querier, events []Event) error {
	p.mu.Lock()
	ask := db != nil && !p.asking && time.Since(p.checked) >= admitPeriod
	if ask {
		p.asking = true
	}
	backlogs := p.backlogs
	p.mu.Unlock()
	if ask {
		fresh, err := outbox.Backlogs(ctx, db, p.cfg.Outbox.Lanes)
		p.mu.Lock()
		p.asking = false
		if err == nil {
			p.backlogs, p.checked, backlogs = fresh, time.Now(), fresh
		}
		p.mu.Unlock()
		if mysqldb.Number(err) == 1146 {
			return &fault.Error{Code: codeNotApplied, Class: fault.Usage, Err: err,
				What: fmt.Sprintf("the outbox database of line %s lacks slotline's tables: %v", p.cfg.Line, err),
				Do:   "run slotline apply, and give Run the pool of the database that outbox.dsn names"}
		}
		if err != nil {
			return fmt.Errorf("asking how far the outbox is behind: %w", err)
		}
	}
	if len(backlogs) == 0 {
		return nil // the first callers at the same time: one of them asks
	}
	if events == nil {
		var last error
		for _, b := range backlogs {
			if last = refuse(p.cfg, b); last == nil {
				return nil
			}
		}
		return last
	}
	for i := range events {
		lane := partitioner.Lane(events[i].event.Tenant, len(backlogs))
		if err := refuse(p.cfg, backlogs[lane]); err != nil {
			return err
		}
	}
	return nil
}

// refuse decides whether a lane is too far behind. b.Lane's own row says both: a dead relay shows as age.
func refuse(cfg *config.Config, b outbox.Backlog) error {
	var what string
	switch o := cfg.Outbox; {
	case b.OldestAge > o.BacklogAgeMax:
		what = fmt.Sprintf("its oldest unpublished event is %v old, outbox.backlog_age_max is %v",
			b.OldestAge.Round(time.Second), o.BacklogAgeMax)
	case b.Events() > o.BacklogEventsMax:
		what = fmt.Sprintf("it holds %d unpublished events, outbox.backlog_events_max is %d", b.Events(), o.BacklogEventsMax)
	default:
		return nil
	}
	owner := "no relay owns it"
	if b.Owner != "" {
		owner = "its relay is " + b.Owner
	}
	return &fault.Error{Code: codeBacklogged, Class: fault.Transient, Err: ErrBacklogged,
		What: fmt.Sprintf("outbox lane %02d of line %s: %s", b.Lane, cfg.Line, what),
		Why:  owner + "; nothing was written",
		Do:   "answer 503 and try again; an operator looks at slotline status"}
}
