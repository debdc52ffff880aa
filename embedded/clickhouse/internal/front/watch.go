package front

import (
	"time"

	"github.com/ClickHouse/ch-go/proto"
)

// killEvery is how often a statement that should end is killed again: one that was not yet registered with the
// engine is missed by the first time.
const killEvery = 20 * time.Millisecond

// watched runs f, a call into the engine that may take long. When the client cancels or leaves meanwhile, what the
// session runs is killed, again and again until f returns. The result tells whether that happened.
func (s *session) watched(f func() error) (cancelled bool, err error) {
	finished := make(chan struct{})
	watching := make(chan bool)
	go func() { watching <- s.watch(finished) }() // ends before watched does
	err = f()
	close(finished)
	_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // wakes the watcher
	cancelled = <-watching
	if !s.ending.Load() {
		_ = s.conn.SetReadDeadline(time.Time{})
		if s.ending.Load() {
			s.endWhenIdle()
		}
	}
	return cancelled, err
}

// watch waits for the client's cancel or end, or for finished, and kills in the first two cases.
func (s *session) watch(finished <-chan struct{}) bool {
	code, err := s.raw.Peek()
	if err != nil && s.ending.Load() {
		// The server drains: that deadline is no end of the client. Without a way to wait on both, the client's
		// own end goes unseen from here on; the drain timeout closes the connection.
		<-finished
		return false
	}
	select {
	case <-finished:
		return false // woken
	default:
	}
	switch {
	case err != nil:
		// Nobody reads the answer any more: do not wait in writing it.
		_ = s.conn.SetWriteDeadline(time.Unix(1, 0))
	case proto.ClientCode(code) == proto.ClientCodeCancel:
		_, _ = s.raw.Byte()
	default:
		// The next statement, sent ahead: it waits.
		<-finished
		return false
	}
	ticker := time.NewTicker(killEvery)
	defer ticker.Stop()
	for {
		if err := s.server.control.kill(s.tag); err != nil {
			s.server.cfg.Log.Warn("a statement could not be killed", "error", err)
		}
		select {
		case <-finished:
			return true
		case <-ticker.C:
		}
	}
}
