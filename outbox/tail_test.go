package outbox

import (
	"testing"

	"github.com/slotline/slotline/event"
)

// An earlier state of the database answers again, as when an old primary returns. What a later generation gave the ids
// of published events is lost, and is listed; the table itself is as it was read, so that the cursor stays.
func TestP1_TailRuleListsALaterHistory(t *testing.T) {
	state := &laneState{serverUUID: "a", cursor: 100, cold: []idRange{{50, 50}}, generations: generations{{1, 1}}}
	db := database{serverUUID: "a", stored: map[uint64]event.ID{}, next: 111}
	for id := range 110 {
		db.stored[uint64(id+1)] = eventID(id + 1)
	}
	delete(db.stored, 50)
	other := func(gen int64, id uint64) tailEntry {
		return tailEntry{ID: id, Generation: gen, EventID: eventID(1000 + int(id))}
	}
	r := judgeTail([]tailEntry{other(2, 50), other(2, 99), other(2, 105), other(3, 100), other(2, 200),
		{ID: 98, Generation: 2, EventID: eventID(98)}}, state, db, 0)
	if !r.newGeneration || r.back || r.tailGeneration != 3 || len(r.lost) != 5 || len(r.skip) > 0 {
		t.Errorf("%+v", r)
	}
}
