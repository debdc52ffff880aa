package replay

import (
	"context"
	"sync"
	"time"

	"github.com/slotline/slotline/event"
)

// pace bounds how fast a job applies events, and holds it back while the live sink lags. It is safe for concurrent use.
type pace struct {
	perSecond int // 0: unbounded

	mu   sync.Mutex
	next time.Time     // when the next event may be applied
	held chan struct{} // not nil: closed when the job may go on
}

// wait returns when so many events may be applied.
func (p *pace) wait(ctx context.Context, events int) error {
	for {
		p.mu.Lock()
		held := p.held
		var at time.Time
		if held == nil {
			at = p.reserve(time.Now(), events)
		}
		p.mu.Unlock()
		if held == nil {
			return sleep(ctx, time.Until(at))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-held:
		}
	}
}

// reserve says when so many events may be applied, and that they are.
func (p *pace) reserve(now time.Time, events int) time.Time {
	if p.perSecond <= 0 {
		return now
	}
	if p.next.Before(now) { // what was not used is not saved up
		p.next = now
	}
	at := p.next
	p.next = p.next.Add(time.Duration(events) * time.Second / time.Duration(p.perSecond))
	return at
}

// hold stops the job, or lets it go on; it says whether that changed something.
func (p *pace) hold(on bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.held == nil:
		p.held = make(chan struct{})
	case !on && p.held != nil:
		close(p.held)
		p.held = nil
	default:
		return false
	}
	return true
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// ends are the offsets of partitions: of a log's ends, or of what was applied.
type ends map[event.Partition]int64

// reached says whether everything below other is below e. What e does not know of counts as nothing.
func (e ends) reached(other ends) bool {
	for p, end := range other {
		if end > 0 && e[p] < end {
			return false
		}
	}
	return true
}

func (e ends) sum() (n int64) {
	for _, end := range e {
		n += end
	}
	return n
}

// lagSamplesMax bounds the memory of a lag of hours: then every second sample is dropped, and the lag is told less
// exactly.
const lagSamplesMax = 1024

// lag tells how long a sink is behind the log, from samples of the log's ends. It is pure.
type lag struct {
	samples []lagSample
}

type lagSample struct {
	at   time.Time
	ends ends
}

// behind takes a sample of the log's ends, and says how long ago the log had an end that has been reached: 0 when that is
// its end now. known is false when none has been reached yet; it is at least so long ago then.
func (l *lag) behind(now time.Time, log, applied ends) (d time.Duration, known bool) {
	l.samples = append(l.samples, lagSample{now, log})
	newest := -1
	for i := range l.samples {
		if applied.reached(l.samples[i].ends) {
			newest = i
		}
	}
	switch {
	case newest == len(l.samples)-1:
		l.samples = l.samples[newest:]
		return 0, true
	case newest >= 0:
		l.samples = l.samples[newest:]
	}
	if len(l.samples) > lagSamplesMax {
		kept := l.samples[:0]
		for i, s := range l.samples {
			if i%2 == 0 || i == len(l.samples)-1 {
				kept = append(kept, s)
			}
		}
		l.samples = kept
	}
	return now.Sub(l.samples[0].at), newest >= 0
}
