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
			s.endWhenIdle() // it came while the deadline was lifted
		}
	}
	return cancelled, err
}

// watch waits for the client's cancel or end, or for finished, and kills in the first two cases.
func (s *session) watch(finished <-chan struct{}) bool {
	code, err := s.raw.Peek()
	if err != nil && s.ending.Load() {
		// The server drains, and that deadline is no end of the client. What the client does goes unseen from here
		// on; drain itself kills what takes too long.
		<-finished
		return false
	}
	select {
	case <-finished:
		return false // woken
	default:
	}
	switch {
	case err == nil && proto.ClientCode(code) == proto.ClientCodeCancel:
		_, _ = s.raw.Byte()
	default:
		// The client has left, or sent what has no place here; the server, too, takes nothing but a cancel now, and
		// ch-go v0.75.0 puts a zero byte before its cancel. The session ends when it reads that: do not wait in
		// writing an answer.
		_ = s.conn.SetWriteDeadline(time.Unix(1, 0))
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
