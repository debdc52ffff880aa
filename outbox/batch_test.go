package outbox

import (
	"testing"

	"github.com/slotline/slotline/partitioner"
)

// A row costs the relay's own part a fraction of an allocation, also where each batch holds one row.
func TestRowsShareTheirMemory(t *testing.T) {
	lane := partitioner.Lane("UA", 2)
	r := testRouter(t, lane)
	gens := generations{{1, 1}}
	payload, table, tenant, entity := make([]byte, 512), []byte("flights"), []byte("UA"), []byte("1")
	var a arena
	id := uint64(0)
	if n := testing.AllocsPerRun(10_000, func() {
		id++
		row := laneRow{id: id, eventID: a.copy(payload[:16]), table: table, tenant: tenant, entityID: entity, op: 1, codec: 1,
			payload: a.copy(payload)}
		if it := r.item(&row, gens, &a); it.out == nil {
			t.Fatal(it.reason, it.detail)
		}
	}); n > 0.1 {
		t.Errorf("%v allocations a row", n)
	}
}

// What one row that is held keeps of others stays small beside a batch.
func TestHeldRowsKeepFewOthers(t *testing.T) {
	var a arena
	large := make([]byte, 100<<10)
	a.row()
	for n := range arenaRows {
		a.copy(large)
		if a.row(); a.held == 0 { // other memory
			if kept := (n + 1) * len(large); kept > arenaBytes+len(large) {
				t.Errorf("a row keeps %d bytes of others", kept)
			}
			if len(a.free) > 0 {
				t.Errorf("large payloads lie in the memory of small ones: %d bytes", len(a.free))
			}
			return
		}
	}
	t.Errorf("a row keeps %d large ones", arenaRows)
}

func TestBatchesOfAllLanesFillHalfTheMemory(t *testing.T) {
	for _, memory := range []int64{64 << 20, 512 << 20, 1 << 40} {
		for _, lanes := range []int{1, 4, 64} {
			size := batchBytes(memory, lanes)
			if size < 1 || size > batchBytesMax || size*batchesMax*int64(lanes) > memory/2 {
				t.Errorf("%d lanes in %d bytes: batches of %d", lanes, memory, size)
			}
		}
	}
}
