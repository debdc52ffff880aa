package outbox

import (
	"slices"
	"testing"
	"time"
)

// P2: transactions that stay open, with ids all over the lane, delay no other's events: while they are open everything
// else that committed gets into the topic, by any owner; and theirs follow when they commit.
func TestP2_SimulatedOpenTransactionsDelayNoOther(t *testing.T) {
	for _, seed := range simSeeds(t, 60) {
		s := newSim(t, seed, simOptions{events: 300, crashes: true})
		var held []*simTx // taken out of s.txs: nothing there ends them
		for n := range 3000 {
			if n%500 == 0 {
				s.begin()
				for _, tx := range s.txs {
					for _, r := range tx.rows {
						r.written = true
					}
				}
				held, s.txs = append(held, s.txs...), nil
			}
			s.step()
		}
		for len(s.txs) > 0 {
			s.writeDue(true)
			s.end(true)
		}
		for range 1000 {
			s.now = s.now.Add(time.Millisecond)
			s.read()
			s.lookUncommitted()
			for p := range s.names {
				s.broker(p)
				s.ack(p)
			}
			s.relay.flow.tick(s.now)
			s.refill()
			s.saveStep()
		}
		published := map[uint64]bool{}
		for _, log := range s.logs {
			for _, rec := range log {
				published[rec.pos.ID] = true
			}
		}
		others := 0
		for _, r := range s.rows {
			if r == nil || !r.committed || r.bad {
				continue
			}
			if others++; !published[r.id] {
				s.fatalf("row %d committed and is not published: %d transactions are open", r.id, len(held))
			}
		}
		if others == 0 || len(held) == 0 {
			s.fatalf("nothing was tried: %d rows, %d open transactions", others, len(held))
		}
		s.txs = slices.Clone(held)
		s.settle()
		s.verify()
	}
}
