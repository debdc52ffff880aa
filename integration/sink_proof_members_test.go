package integration

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/integration/harness"
)

// A member joins or leaves each second, on a real broker and real shards, under load: owner epochs do not storm, and what
// is left is the fold of the log.
func TestP5_SinkProofRebalanceStorm(t *testing.T) {
	harness.Proof(t)
	p := newSinkProof(t, harness.Kafka(t), harness.MySQL(t))
	changes := 12
	if harness.Soak() {
		changes = 60
	}
	var log lockedBuffer
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the members:\n%s", log.String())
		}
	})
	join := func(name string) (leave func()) {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		sink := p.sink(name)
		logger := slog.New(slog.NewTextHandler(&log, nil)).With("member", name)
		go func() { // ends with leave
			ended <- consumers.Run(ctx, consumers.Options{Config: p.cfg, Sink: sink, Logger: logger, SessionTimeout: 6 * time.Second})
		}()
		leave = sync.OnceFunc(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		t.Cleanup(leave)
		return leave
	}
	stays := join("stays")
	p.produce(20)
	p.untilDrained()
	if n := p.ownerEpochs(); n != 4 {
		t.Errorf("one member has taken four partitions over %d times", n)
	}

	stop, loaded := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(loaded)
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
				p.produce(20)
			}
		}
	}()
	began := time.Now()
	var leave func()
	second := time.NewTicker(time.Second) // the rate is the fault
	defer second.Stop()
	for i := range changes {
		<-second.C
		if leave == nil {
			leave = join("guest-" + string(rune('a'+i%26)))
		} else {
			leave()
			leave = nil
		}
	}
	took := time.Since(began)
	close(stop)
	<-loaded
	if leave != nil {
		leave()
	}
	p.untilDrained()
	p.check()
	// A change moves at most two of the four partitions to or from the second member.
	n := p.ownerEpochs() - 4
	t.Logf("%d changes of membership in %s, %d events: %d take-overs", changes, took.Round(time.Second), p.events, n)
	if n > int64(2*changes+4) {
		t.Errorf("owner epochs storm: %d take-overs in %d changes of membership", n, changes)
	}
	stays()
}

// A process is stopped (SIGSTOP) inside a transaction, for longer than the group keeps it, and goes on after another has
// its partitions: the lock that it held does not hold up the successor, and what it does when it wakes changes nothing.
func TestP5_SinkProofStoppedProcessWakes(t *testing.T) {
	harness.Proof(t)
	server := harness.MySQL(t)
	p := newSinkProof(t, harness.Kafka(t), server)
	var zombie atomic.Pointer[harness.Process]
	var armed, stopped atomic.Bool
	w := newWire(t, server.Addr, func(sent []byte) bool {
		if bytes.Contains(sent, []byte("START TRANSACTION")) && armed.CompareAndSwap(true, false) {
			// The statements that hold the locks are passed on; whoever sent them will not read the answer.
			zombie.Load().Signal(t, syscall.SIGSTOP)
			stopped.Store(true)
		}
		return false
	})
	first := p.process(t, "stopped", server.Addr, w.addr())
	zombie.Store(first)
	p.produce(50)
	p.untilDrained()
	second := p.process(t, "successor")
	armed.Store(true)
	p.until("the process is stopped inside a transaction", func() bool {
		p.produce(5)
		return stopped.Load()
	})
	at := time.Now()
	p.produce(50)
	p.untilDrained()
	held := time.Since(at)
	p.check()
	epochs := p.ownerEpochs()

	first.Signal(t, syscall.SIGCONT)
	p.produce(20)
	p.untilDrained()
	p.until("it has partitions again", func() bool { return p.ownerEpochs() > epochs })
	p.produce(20)
	p.untilDrained()
	p.check()
	t.Logf("the successor had everything %s after the stop; %d take-overs, %d after the waking", held.Round(time.Millisecond),
		epochs, p.ownerEpochs()-epochs)
	for name, process := range map[string]*harness.Process{"the one that was stopped": first, "its successor": second} {
		if r := process.Stop(t, 30*time.Second); r.Code != 0 || strings.Contains(r.Stderr, "halted") {
			t.Errorf("%s ended with status %d", name, r.Code)
		}
	}
}
