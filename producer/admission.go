package producer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/outbox"
)

// admissionAge is how long the state of the lanes is believed: a limit of minutes needs no fresher one, and the query
// is then too seldom to be noticed.
const admissionAge = 250 * time.Millisecond

// admission is the lanes' state as last read.
type admission struct {
	mu     sync.Mutex
	asking bool
	lanes  []laneAdmission
}

type laneAdmission struct {
	at     time.Time // zero: never read
	behind error     // nil if events are taken
}

func (l laneAdmission) fresh(now time.Time) bool {
	return !l.at.IsZero() && now.Sub(l.at) < admissionAge
}

// stale are the lanes, of those asked for, whose state is too old to go by.
func (p *Producer) stale(lanes []int) (list []int) {
	a, now := &p.admission, p.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, lane := range lanes {
		if !a.lanes[lane].fresh(now) {
			list = append(list, lane)
		}
	}
	return list
}

// refreshAll reads the state of all lanes, if that of one is too old.
func (p *Producer) refreshAll(ctx context.Context, q outbox.Querier) error {
	all := make([]int, p.cfg.Outbox.Lanes)
	for i := range all {
		all[i] = i
	}
	if len(p.stale(all)) == 0 {
		return nil
	}
	return p.refresh(ctx, q, all)
}

// refresh reads the state of lanes. One caller reads, on its own connection; others meanwhile go by what is known.
func (p *Producer) refresh(ctx context.Context, q outbox.Querier, lanes []int) error {
	a := &p.admission
	now := p.now()
	a.mu.Lock()
	if a.asking || len(lanes) == 0 {
		a.mu.Unlock()
		return nil
	}
	a.asking = true
	a.mu.Unlock()

	list, err := outbox.BacklogsOf(ctx, q, lanes)

	a.mu.Lock()
	defer a.mu.Unlock()
	a.asking = false
	if err != nil {
		err = mysqldb.Wrap(err, codeAdmission, "cannot read the state of the outbox")
		if fault.Is(err, fault.Fatal) {
			return err
		}
		return nil // an outage shows in the transaction itself
	}
	for _, b := range list {
		a.lanes[b.Lane] = laneAdmission{now, p.judge(b)}
	}
	return nil
}

// judge says why a lane takes no events; nil if it does.
func (p *Producer) judge(b outbox.Backlog) error {
	what := b.Refuses(&p.cfg.Outbox)
	if what == "" {
		return nil
	}
	do := "see whether Kafka takes events: slotline status"
	if b.Owner == "" {
		do = "start a relay, nobody owns the lane: slotline relay"
	}
	if b.HaltedAt != nil {
		do = "the relay halted the lane: slotline status says why"
	}
	return &fault.Error{Code: codeBacklogged, Class: fault.Transient, Err: ErrBacklogged,
		What: fmt.Sprintf("outbox lane %02d is backlogged: %s", b.Lane, what),
		Why:  "the transaction must be rolled back; what is in the outbox is safe",
		Do:   do}
}

// admit says whether a lane takes events now.
func (p *Producer) admit(lane int) error {
	a := &p.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lanes[lane].behind
}

// admitAny refuses when every lane is behind: no tenant's event would be taken, and a transaction need not be begun. One
// lane that takes events, and an empty lane does, leaves the answer to admit: one lane's backlog is its own tenants'.
func (p *Producer) admitAny() error {
	a := &p.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.lanes {
		if l.behind == nil {
			return nil
		}
	}
	return a.lanes[0].behind
}
