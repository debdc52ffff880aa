package lease

import (
	"context"
	"errors"
	"sync"
	"time"
)

// memStore is the row in memory. It decides by the rules that the SQL statements repeat (integration/ runs the same
// sequences against MySQL), at a database time that a test moves at will, over a network that a test makes slow.
type memStore struct {
	mu     sync.Mutex
	st     state
	skew   time.Duration // database time minus the time here
	there  time.Duration // how long a request takes to the database
	back   time.Duration // and its answer back
	down   bool          // requests fail before they reach the database
	lose   bool          // answers are lost after the database acted
	absent bool          // there is no row
}

var errNetwork = errors.New("connection lost")

// reach runs f in the database, at the database's time.
func (m *memStore) reach(ctx context.Context, f func(st *state)) error {
	if err := sleep(ctx, m.there); err != nil {
		return err
	}
	m.mu.Lock()
	if m.down {
		m.mu.Unlock()
		return errNetwork
	}
	if m.absent {
		m.mu.Unlock()
		return errNoRow
	}
	m.st.now = time.Now().Add(m.skew)
	f(&m.st)
	lost := m.lose
	m.mu.Unlock()
	if lost {
		return errNetwork
	}
	return sleep(ctx, m.back)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (m *memStore) read(ctx context.Context) (seen state, err error) {
	err = m.reach(ctx, func(st *state) { seen = *st })
	return seen, err
}

func (m *memStore) take(ctx context.Context, owner string, epoch int64, ttl time.Duration) (took bool, err error) {
	err = m.reach(ctx, func(st *state) {
		if took = st.epoch == epoch && st.open(owner); took {
			st.owner, st.epoch, st.until = owner, st.epoch+1, st.now.Add(ttl)
		}
	})
	return took, err
}

func (m *memStore) renew(ctx context.Context, owner string, epoch int64, ttl time.Duration) (renewed bool, err error) {
	err = m.reach(ctx, func(st *state) {
		if renewed = st.renewable(owner, epoch); renewed {
			st.until = st.now.Add(ttl)
		}
	})
	return renewed, err
}

func (m *memStore) release(ctx context.Context, owner string, epoch int64) error {
	return m.reach(ctx, func(st *state) {
		if st.owner == owner && st.epoch == epoch {
			st.owner, st.until = "", time.Time{}
		}
	})
}

// write is a statement of the holder's own on the same row, with Guard.
func (m *memStore) write(f Fence) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.st.owner == f.Owner && m.st.epoch == f.Epoch
}

func (m *memStore) set(f func(m *memStore)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
}
