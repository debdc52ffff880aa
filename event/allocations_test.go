//go:build !race

package event

import "testing"

// Under the race detector a sync.Pool drops some of what it is given, so this one is not counted there.
func TestStructEventAllocations(t *testing.T) {
	s, err := StructOf[flight](flights())
	if err != nil {
		t.Fatal(err)
	}
	f := aFlight()
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := s.Event(&f, Upsert); err != nil {
			t.Fatal(err)
		}
	}); n > 2 {
		t.Errorf("%v allocations, wanted 2 (body; tenant, id and spread)", n)
	}
}
