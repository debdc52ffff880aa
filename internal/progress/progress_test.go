package progress

import (
	"strings"
	"testing"

	"github.com/slotline/slotline/event"
)

// The four reasons for a move that found no row, and the fifth that tells it was a race.
func TestP4_DecideWhyAMoveFoundNoRow(t *testing.T) {
	a := Advance{OwnerEpoch: 7, Start: 100, End: 200}
	for _, c := range []struct {
		epoch, next int64
		want        Verdict
	}{
		{8, 100, Fenced}, {8, 200, Fenced}, {6, 0, Fenced}, {8, 0, Fenced},
		{7, 200, Done}, {7, 201, Done},
		{7, 99, WentBack}, {7, 0, WentBack},
		{7, 100, Pending},
		{7, 101, Between}, {7, 199, Between},
	} {
		if got := a.Decide(Row{OwnerEpoch: c.epoch, Next: c.next}); got != c.want {
			t.Errorf("epoch %d, next %d: %s, wanted %s", c.epoch, c.next, got, c.want)
		}
	}
	a.Owner = "a"
	if got := a.Decide(Row{Owner: "b", OwnerEpoch: 7, Next: 150}); got != Fenced {
		t.Errorf("the epoch given out a second time, to another owner, by a restored table: %s", got)
	}
	whole := Advance{OwnerEpoch: 1, Start: 5, End: 5}
	if got := whole.Decide(Row{OwnerEpoch: 1, Next: 5}); got != Done {
		t.Errorf("an empty move is %s", got)
	}
}

// Names reach SQL as literals that mean the same under every sql_mode.
func TestKeysAreQuoted(t *testing.T) {
	k := Key{Sink: `it's\`, Partition: event.Partition{Topic: "a'b", Number: 3}}
	if got, want := k.where(), "`sink`=x'697427735C' AND `topic`='a''b' AND `part`=3"; got != want {
		t.Errorf("%s, wanted %s", got, want)
	}
}

func TestNotSeededSaysWhatToDo(t *testing.T) {
	err := NotSeeded("mysql/s2", Key{Sink: "mysql", Partition: event.Partition{Topic: "flights.events", Number: 11}})
	if !strings.Contains(err.Error(), "slotline apply") || !strings.Contains(err.Error(), "partition 11") {
		t.Error(err)
	}
}
