package mysql

import (
	"context"
	"sync"
	"time"

	vitess "github.com/dolthub/vitess/go/mysql"
)

// lockWaitMax is innodb_lock_wait_timeout's default.
const lockWaitMax = 50 * time.Second

// locker is the lock of a server. A connection that holds it may lock it again.
type locker interface {
	lock(ctx context.Context, connection uint32) error
	unlock(connection uint32)
}

// exclusive is held by one connection at a time.
type exclusive struct {
	token chan struct{} // holds a token while a connection has the lock

	mu     sync.Mutex
	holder uint32 // 0: nobody; connections are numbered from 1
}

func newLock() *exclusive { return &exclusive{token: make(chan struct{}, 1)} }

func (e *exclusive) lock(ctx context.Context, connection uint32) error {
	if e.holds(connection) {
		return nil
	}
	timer := time.NewTimer(lockWaitMax)
	defer timer.Stop()
	select {
	case e.token <- struct{}{}:
	case <-ctx.Done():
		return vitess.NewSQLError(vitess.ERQueryInterrupted, vitess.SSUnknownSQLState, "%v", ctx.Err())
	case <-timer.C:
		return vitess.NewSQLError(vitess.ERLockWaitTimeout, vitess.SSUnknownSQLState, "Lock wait timeout exceeded; try restarting transaction")
	}
	e.mu.Lock()
	e.holder = connection
	e.mu.Unlock()
	return nil
}

func (e *exclusive) holds(connection uint32) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.holder == connection
}

// unlock does nothing for a connection that does not hold the lock.
func (e *exclusive) unlock(connection uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.holder != connection {
		return
	}
	e.holder = 0
	<-e.token
}
