package outbox

import "testing"

// A redriven row has the version that its id gave it, below every event of a later id or generation.
func TestRedriveKeepsTheVersion(t *testing.T) {
	lane := generations{{From: 1, Number: 1}, {From: 50, Number: 4}}
	for _, id := range []uint64{1, 49, 50, 70} {
		d := DeadLetter{DeadKey: DeadKey{ID: id, Generation: lane.at(id)}}
		if got, want := d.generations().version(id), lane.version(id); got != want {
			t.Errorf("id %d is redriven as version %d, want %d", id, got, want)
		}
	}
	if key := (DeadKey{Lane: 1, Generation: 2, ID: 7}).String(); key != "outbox/01/2/7" {
		t.Errorf("key %s", key)
	}
}
