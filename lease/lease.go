package lease

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
)

const (
	codeTaken = "SL7001" // another owner holds the row
	codeLost  = "SL7002" // the lease ran out or another owner took over
	codeNoRow = "SL7003" // the row is not there
	codeDB    = "SL7004" // the database failed
)

const (
	// TTLMin keeps a lease longer than a few round trips.
	TTLMin = 100 * time.Millisecond
	// TTLMax bounds how long a dead owner is waited for.
	TTLMax = time.Hour

	ownerBytesMax = 128 // the column's width
)

// NewOwner is an owner id that no other process has: "host/pid/random".
func NewOwner() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	var r [6]byte
	rand.Read(r[:]) // never fails (crypto/rand)
	tail := fmt.Sprintf("/%d/%s", os.Getpid(), hex.EncodeToString(r[:]))
	return strings.ToValidUTF8(host[:min(len(host), ownerBytesMax-len(tail))], "") + tail
}

// Held is a lease that this process took. It is safe for concurrent use.
type Held struct {
	store store
	name  string // of the row, for errors
	owner string
	epoch int64
	ttl   time.Duration

	mu       sync.Mutex
	deadline time.Time // monotonic; zero once lost or released
	expire   *time.Timer
	lost     chan struct{}
}

// Acquire takes the row over if it is free, expired, or owned by the same owner id already, and adds 1 to its owner
// epoch. ttl lies between TTLMin and TTLMax. When another holds it the error is fault.Fenced and says who, until when.
// It does not wait for the row to become free.
func Acquire(ctx context.Context, db *sql.DB, row Row, owner string, ttl time.Duration) (*Held, error) {
	return acquire(ctx, sqlStore{db, row}, row.String(), owner, ttl)
}

func acquire(ctx context.Context, s store, name, owner string, ttl time.Duration) (*Held, error) {
	if owner == "" || len(owner) > ownerBytesMax {
		return nil, fmt.Errorf("lease on %s: owner %q must have 1 to %d bytes", name, owner, ownerBytesMax)
	}
	if ttl < TTLMin || ttl > TTLMax {
		return nil, fmt.Errorf("lease on %s: ttl %v must lie between %v and %v", name, ttl, TTLMin, TTLMax)
	}
	seen, err := s.read(ctx)
	if err != nil {
		return nil, storeError(err, name)
	}
	if !seen.open(owner) {
		return nil, taken(name, seen)
	}
	sent := time.Now()
	took, err := s.take(ctx, owner, seen.epoch, ttl)
	if err != nil {
		return nil, storeError(err, name)
	}
	if !took { // somebody was faster
		if now, err := s.read(ctx); err == nil {
			seen = now
		}
		return nil, taken(name, seen)
	}
	h := &Held{store: s, name: name, owner: owner, epoch: seen.epoch + 1, ttl: ttl, lost: make(chan struct{})}
	h.mu.Lock() // after a slow answer the timer fires at once
	defer h.mu.Unlock()
	h.deadline = sent.Add(ttl)
	h.expire = time.AfterFunc(time.Until(h.deadline), h.end)
	return h, nil
}

// Fence is what Guard compares.
func (h *Held) Fence() Fence { return Fence{h.owner, h.epoch} }

// Epoch is the owner epoch.
func (h *Held) Epoch() int64 { return h.epoch }

// Alive says whether the lease still runs, by the monotonic clock, counted from before its last request was sent.
func (h *Held) Alive() bool { return time.Now().Before(h.Deadline()) }

// Deadline is when Alive becomes false unless a renewal succeeds first; the zero time once it was lost or released.
func (h *Held) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deadline
}

// Lost is closed when the lease has run out, another took over, or it was released. It never opens again: take the
// row over anew.
func (h *Held) Lost() <-chan struct{} { return h.lost }

// Renew extends the lease by its ttl. fault.Fenced means that it is lost for good; with any other error it still runs
// until Deadline, and Renew may be called again.
func (h *Held) Renew(ctx context.Context) error {
	deadline := h.Deadline()
	sent := time.Now()
	if !sent.Before(deadline) {
		h.end()
		return h.gone("ran out before it was renewed")
	}
	// An answer that comes after the deadline would be of no use.
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	renewed, err := h.store.renew(ctx, h.owner, h.epoch, h.ttl)
	if err != nil {
		return storeError(err, h.name)
	}
	if !renewed {
		h.end()
		return h.gone("was taken over, or expired by the database's clock")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deadline.IsZero() || !h.expire.Stop() { // ended meanwhile, or its end has begun
		return h.gone("ran out while it was renewed")
	}
	if next := sent.Add(h.ttl); next.After(h.deadline) { // two renewals may overtake each other
		h.deadline = next
	}
	h.expire.Reset(time.Until(h.deadline))
	return nil
}

// Keep renews the lease every third of its ttl until ctx ends, and then returns nil; the lease is not released. It
// returns fault.Fenced as soon as the lease is lost.
func (h *Held) Keep(ctx context.Context) error {
	wait := time.NewTimer(renewEvery(h.ttl))
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.lost:
			return h.gone("ran out before it was renewed")
		case <-wait.C:
		}
		switch err := h.Renew(ctx); {
		case err == nil:
			wait.Reset(renewEvery(h.ttl))
		case fault.Is(err, fault.Fenced):
			return err
		default:
			wait.Reset(retryAfter(h.ttl))
		}
	}
}

// Release gives the row back, so that a successor need not wait. The owner epoch stays. Lost is closed at once,
// whatever the database answers; should it not answer, the row is free when the lease runs out.
func (h *Held) Release(ctx context.Context) error {
	h.end()
	if err := h.store.release(ctx, h.owner, h.epoch); err != nil {
		return storeError(err, h.name)
	}
	return nil
}

// end closes Lost once; the timer calls it at the deadline.
func (h *Held) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deadline.IsZero() {
		return
	}
	h.expire.Stop()
	h.deadline = time.Time{}
	close(h.lost)
}

func (h *Held) gone(how string) error {
	return &fault.Error{Code: codeLost, Class: fault.Fenced,
		What: fmt.Sprintf("the lease on %s, owner epoch %d, %s", h.name, h.epoch, how),
		Why:  "another process may work there now; what this one still writes is refused by the owner epoch",
		Do:   "nothing if it happens once: this process takes over again; else see whether it is starved of CPU or cut off from the database"}
}

func taken(name string, s state) error {
	return &fault.Error{Code: codeTaken, Class: fault.Fenced,
		What: fmt.Sprintf("the lease on %s is held by %s, owner epoch %d, for another %v unless renewed",
			name, s.owner, s.epoch, s.until.Sub(s.now).Round(time.Millisecond)),
		Do: "nothing: it is taken over when it runs out; to move it by hand stop that process"}
}

func storeError(err error, name string) error {
	if errors.Is(err, errNoRow) {
		return &fault.Error{Code: codeNoRow, Class: fault.Fatal, Err: err,
			What: "there is no row " + name + " to hold a lease on", Do: "slotline apply"}
	}
	return mysqldb.Wrap(err, codeDB, "lease on "+name)
}
