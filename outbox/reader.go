package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
)

// Timing is every interval of the relay. Those that tests do not need to shorten are not in the file.
type Timing struct {
	PollMin    time.Duration // between reads: eager polling slows the service's own transactions
	PollMax    time.Duration // of a lane before it is idle; and between looks at all idle lanes
	GapMargin  time.Duration // longer than any INSERT takes from drawing an id to writing its row
	GapCheck   time.Duration // between READ UNCOMMITTED looks at gaps older than the margin
	Sweep      time.Duration // between sweeps of the cold gaps
	Save       time.Duration // between saves under load
	Ends       time.Duration // between looks at the partitions' ends
	Split      time.Duration // between looks at the lane table's partitions
	RetryMin   time.Duration // first pause after a failure; doubles up to retryMax
	RetryMax   time.Duration
	LeaseRetry time.Duration // between tries for a lease that another holds
	Drain      time.Duration // how long Run waits for answers when it ends
}

var defaultTiming = Timing{
	PollMin: 2 * time.Millisecond, PollMax: 500 * time.Millisecond,
	GapMargin: 3 * time.Second, GapCheck: time.Second, Sweep: time.Minute,
	Save: 100 * time.Millisecond, Ends: 10 * time.Second, Split: 20 * time.Second,
	RetryMin: 50 * time.Millisecond, RetryMax: 5 * time.Second, LeaseRetry: time.Second,
	Drain: 10 * time.Second,
}

const (
	pollPauseMax = 20 * time.Millisecond // of the pause that a slow read earns

	suspectsMax = 2000   // gap ranges looked at by one READ UNCOMMITTED read
	foundMax    = 50_000 // ids that such a read, or a sweep, returns at most
	sweepTerms  = 500    // cold ranges per statement of a sweep
)

// errWentBack says that ids which the lane has passed are given out again: what the table holds up to the greatest id
// read is not what was read. errOtherServer says that another server answers. The lane is taken over anew.
var (
	errWentBack    = errors.New("the outbox database went back")
	errOtherServer = errors.New("another server answers")
)

// readBatch is what one read found.
type readBatch struct {
	items []*item
	after readerState
}

// reader reads a lane's rows in commit-safe order. One goroutine, owned by the session, runs it.
type reader struct {
	db     *sql.DB
	lane   int
	router *router
	gens   generations
	gaps   gapTracker
	sum    uint64 // of the uuid of the server that the session began on
	time   Timing
	wake   <-chan struct{}
	glance *glance // tells the wake while nothing is to be read
	orders <-chan purgeOrder

	conn      *sql.Conn
	known     knownRows
	anchored  bool     // known was filled
	limit     int      // rows of a read
	behind    bool     // there was more to read last time
	batchSize int64    // bytes beyond which a read is cut short
	arena     arena    // what a batch leaves of it is the next one's
	ids       []uint64 // of the last read, for its memory
	hotWas    string
	nextCheck time.Time
	nextSweep time.Time
	nextLook  time.Time
	stats     *laneStats
}

func serverSum(uuid string) uint64 { return uint64(crc32.ChecksumIEEE([]byte(uuid))) }

// run reads until ctx ends, or until the database turns out to have gone back. Outages are waited out.
func (r *reader) run(ctx context.Context, out chan<- *readBatch) error {
	defer r.disconnect()
	pause, failures := r.time.PollMin, 0
	woken := false // a wake led to the read
	for ctx.Err() == nil {
		began := time.Now()
		b, more, err := r.step(ctx)
		took := time.Since(began)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			r.disconnect()
			if errors.Is(err, errWentBack) || errors.Is(err, errOtherServer) || fault.Is(err, fault.Fatal) || mysqldb.Classify(err) == fault.Fatal {
				return err
			}
			failures++
			r.stats.failed(laneError(err, r.lane, "read rows"))
			if !sleep(ctx, backoff(failures, r.time.RetryMin, r.time.RetryMax)) {
				return nil
			}
			continue
		}
		if failures > 0 {
			failures = 0
			r.stats.failed(nil)
		}
		if b != nil {
			select {
			case out <- b:
			case <-ctx.Done():
				return nil
			}
			// Whoever wakes the lane does so for each event: nothing is gained by looking again soon. Events that were
			// not announced come from elsewhere, and more of them may follow.
			if len(b.items) > 0 && !woken {
				pause = r.time.PollMin
			}
		}
		if more {
			continue
		}
		// At least pollMin lies between two reads, and a pause as long as the read took: where the database or the CPU is
		// busy, reads of few rows leave half of it to the service. A wake cuts any longer pause.
		if !sleep(ctx, max(r.time.PollMin-time.Since(began), min(took, pollPauseMax))) {
			return nil
		}
		idle := pause >= r.time.PollMax && len(r.gaps.hot) == 0
		wait := pause - r.time.PollMin
		if idle {
			r.glance.watch(r.lane, r.gaps.read)
			wait = time.Until(earlier(r.nextLook, r.nextSweep))
		}
		t := time.NewTimer(max(0, wait))
		woken = false
		select {
		case <-t.C:
			pause = min(2*pause, r.time.PollMax)
		case <-r.wake:
			if woken = true; idle { // the glance wakes it too, for events that nobody else announces
				pause = r.time.PollMin
			}
		case order := <-r.orders:
			r.obey(order)
		case <-ctx.Done():
		}
		t.Stop()
		if idle {
			r.glance.ignore(r.lane)
		}
	}
	return nil
}

// sleep waits; it returns false when ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func backoff(failures int, lo, hi time.Duration) time.Duration {
	d := lo
	for i := 1; i < failures && d < hi; i++ {
		d *= 2
	}
	return min(d, hi)
}

// step looks after gaps when it is time to, and reads once. more says that there was more to read.
func (r *reader) step(ctx context.Context) (b *readBatch, more bool, err error) {
	select {
	case order := <-r.orders:
		r.obey(order)
	default:
	}
	if r.conn == nil {
		if err := r.connect(ctx); err != nil {
			return nil, false, err
		}
	}
	if now := time.Now(); !now.Before(r.nextLook) {
		if err := r.lookBack(ctx, true); err != nil {
			return nil, false, err
		}
		r.nextLook = now.Add(r.time.Ends)
	}
	if now := time.Now(); !now.Before(r.nextSweep) {
		if err := r.sweepCold(ctx); err != nil {
			return nil, false, err
		}
		r.nextSweep = time.Now().Add(r.time.Sweep)
	}
	if now := time.Now(); !now.Before(r.nextCheck) {
		suspects, more := r.gaps.suspects(now, suspectsMax)
		if len(suspects) > 0 {
			if err := r.lookUncommitted(ctx, suspects); err != nil {
				return nil, false, err
			}
		}
		r.gaps.askAll() // a gap that was filled waits no longer than for the next look
		if !more {      // else the pass goes on with the next step, so that gaps cannot come faster than they turn cold
			r.nextCheck = now.Add(r.time.GapCheck)
		}
	}
	items, more, err := r.read(ctx)
	if err != nil {
		return nil, false, err
	}
	b = r.batch(items)
	return b, more, nil
}

// purgeOrder is what the purge wants of the reader.
type purgeOrder struct {
	forget uint64 // the gaps below this id, 0: none
	sweep  bool   // at once: rows that committed late are there
}

func (r *reader) obey(order purgeOrder) {
	r.gaps.forget(order.forget)
	if order.sweep {
		r.nextSweep = time.Time{}
	}
}

// batch is nil when nothing was read and nothing is known that was not known before.
func (r *reader) batch(items []*item) *readBatch {
	hot := r.gaps.hotRanges()
	hotText := string(appendRanges(nil, hot))
	cold := r.gaps.cold.takeDirty()
	if len(items) == 0 && cold == nil && hotText == r.hotWas {
		return nil
	}
	if cold != nil || hotText != r.hotWas {
		r.stats.gaps(countIDs(hot), r.gaps.cold.count())
	}
	r.hotWas = hotText
	return &readBatch{items: items, after: readerState{cursor: r.gaps.read, hot: hot, cold: cold}}
}

// connect opens a connection of the reader's own and makes sure that the database still has what was read.
func (r *reader) connect(ctx context.Context) (err error) {
	conn, err := r.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	var uuid string
	if err := conn.QueryRowContext(ctx, "SELECT @@server_uuid /*"+pad+"*/").Scan(&uuid); err != nil {
		return err
	}
	if serverSum(uuid) != r.sum {
		return fmt.Errorf("%w: server_uuid is %s now", errOtherServer, uuid)
	}
	if err := freshStatistics(ctx, conn); err != nil {
		return err
	}
	r.nextLook = time.Time{} // before anything is read
	r.conn = conn
	return nil
}

// pad makes the first statement of a connection long: the driver then keeps a large buffer, and reads its answers with
// fewer system calls.
var pad = func() string {
	b := make([]byte, 200<<10)
	for i := range b {
		b[i] = ' '
	}
	return string(b)
}()

// disconnect closes the connection rather than giving it back: a transaction may be open on it.
func (r *reader) disconnect() {
	if r.conn != nil {
		mysqldb.Discard(r.conn)
		r.conn = nil
	}
}

// read is one read: the rows after the greatest id read, and those that fill hot gaps, in one read view.
func (r *reader) read(ctx context.Context) (items []*item, more bool, err error) {
	gaps, through := r.gaps.ask()
	if r.limit == 0 {
		r.limit = batchRows
	}
	drawn := uint64(0)
	if r.behind && through == 0 {
		if drawn, err = r.lastID(ctx); err != nil {
			return nil, false, err
		}
	}
	defer func() { r.behind = more }()
	if len(gaps) <= hotTermsMax {
		return r.readOnce(ctx, [][]idRange{gaps}, through, drawn)
	}
	// Too many gaps for one statement: several in one snapshot, gaps first, so that the view is one still.
	if _, err := r.conn.ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"); err != nil {
		return nil, false, err
	}
	if _, err := r.conn.ExecContext(ctx, "START TRANSACTION WITH CONSISTENT SNAPSHOT"); err != nil {
		return nil, false, err
	}
	var parts [][]idRange
	for len(gaps) > hotTermsMax {
		parts = append(parts, gaps[:hotTermsMax])
		gaps = gaps[hotTermsMax:]
	}
	items, more, err = r.readOnce(ctx, append(parts, gaps), 0, drawn)
	if err != nil {
		return nil, false, err
	}
	if r.conn != nil {
		if _, err := r.conn.ExecContext(ctx, "COMMIT"); err != nil {
			r.disconnect() // what was read stays read; the next step connects anew
		}
	}
	return items, more, nil
}

// lastID is an id that was drawn before this call ends.
func (r *reader) lastID(ctx context.Context) (id uint64, err error) {
	err = query(ctx, r.conn, lastIDSQL(r.lane), 1, func(v []driver.Value) (bool, error) {
		if v[0] == nil { // the table is empty
			return true, nil
		}
		var s valueScanner
		id = s.uint(v[0])
		return true, s.err
	})
	return id, err
}

// readOnce reads the gaps of each part, and with the last part the rows after the greatest id read, up to through if it is
// not 0. drawn is an id that was drawn before this call, or 0.
func (r *reader) readOnce(ctx context.Context, parts [][]idRange, through, drawn uint64) (items []*item, more bool, err error) {
	a := &r.arena
	ids := r.ids[:0]
	defer func() { r.ids = ids }()
	if r.behind {
		items = make([]*item, 0, r.limit)
	}
	var row laneRow
	size, payload, cut, abandoned := int64(0), int64(0), false, false
	outer := ctx
	ctx, abandon := context.WithCancel(ctx)
	defer abandon()
	for i, gaps := range parts {
		statement := readSQL(r.lane, r.gaps.read, through, gaps, r.limit)
		if i < len(parts)-1 {
			statement = readIDsSQL(r.lane, gaps, r.limit)
		}
		n := 0
		err := query(ctx, r.conn, statement, rowColumnCount, func(v []driver.Value) (bool, error) {
			sum, err := scanRow(v, &row, a)
			if err != nil {
				return false, err
			}
			if sum != r.sum {
				return false, fmt.Errorf("%w: rows come from it", errOtherServer)
			}
			it := r.router.item(&row, r.gens, a)
			items = append(items, it)
			ids = append(ids, row.id)
			size += it.bytes
			payload += int64(len(row.payload))
			n++
			cut = n == r.limit || size >= r.batchSize || payload >= payloadBytesMax
			if cut && n < r.limit {
				// The rest of the answer may be gigabytes: cutting the connection is cheaper than reading it.
				abandoned = true
				abandon()
			}
			return !cut, nil
		})
		if err != nil {
			return nil, false, err
		}
		if cut {
			break
		}
	}
	upto := ^uint64(0)
	if cut {
		upto = ids[len(ids)-1]
	}
	if abandoned {
		r.disconnect()
		if err := r.connect(outer); err != nil {
			return nil, false, err
		}
	}
	if len(ids) > 0 {
		// After the read: a table that was emptied before it shows now, and nothing of it was passed yet.
		if err := r.lookBack(outer, false); err != nil {
			return nil, false, err
		}
	}
	r.gaps.observe(ids, upto, drawn, time.Now())
	for i, it := range items {
		r.known.add(ids[i], it.eventID)
	}
	if len(ids) > 0 { // ask for no more than will be used
		rows := int64(len(ids))
		r.limit = int(min(batchRows, max(16, min(r.batchSize*rows/size, payloadBytesMax*rows/max(1, payload))+1)))
	}
	return items, cut || through > 0, nil
}

// lookUncommitted looks for old gaps among the rows of open transactions.
func (r *reader) lookUncommitted(ctx context.Context, suspects []idRange) error {
	if _, err := r.conn.ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED"); err != nil {
		return err
	}
	found, upto, err := r.find(ctx, suspects)
	if err != nil {
		return err
	}
	r.gaps.uncommitted(suspects, found, upto)
	return nil
}

// find returns which ids of the ranges have rows, sorted, and the greatest id that it can vouch for.
func (r *reader) find(ctx context.Context, ranges []idRange) (found []uint64, upto uint64, err error) {
	err = query(ctx, r.conn, findIDsSQL(r.lane, ranges, foundMax), 2, func(v []driver.Value) (bool, error) {
		var s valueScanner
		found = append(found, s.uint(v[0]))
		return true, s.err
	})
	upto = ^uint64(0)
	if len(found) == foundMax {
		upto = found[len(found)-1]
	}
	return found, upto, err
}

// sweepCold looks for committed rows in the cold gaps. What it finds is hot again.
func (r *reader) sweepCold(ctx context.Context) error {
	cold := slices.Clone(r.gaps.cold.ranges)
	for len(cold) > 0 {
		n := min(len(cold), sweepTerms)
		found, _, err := r.find(ctx, cold[:n])
		if err != nil {
			return err
		}
		if len(found) > 0 {
			r.gaps.swept(found, time.Now())
		}
		cold = cold[n:]
	}
	return nil
}
