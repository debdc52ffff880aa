package integration

import (
	"testing"

	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/outbox"
)

// One lane whose state cannot be read hides none of the others.
func TestOutboxDamagedLaneIsShownAsHalted(t *testing.T) {
	l := newOutboxLine(t, harness.Kafka(t), harness.MySQL(t), ", lanes: 3")
	if _, err := l.db.Exec("UPDATE slotline_lane SET generations = '1:-9223372036854775808' WHERE lane = 1"); err != nil {
		t.Fatal(err)
	}
	views, err := outbox.Views(t.Context(), l.db, 3)
	if err != nil || len(views) != 3 {
		t.Fatal(views, err)
	}
	for _, v := range views {
		if damaged := v.Lane == 1; damaged != (v.HaltedAt != nil) || damaged && v.HaltCode != "SL5002" {
			t.Errorf("lane %d: %+v", v.Lane, v)
		}
	}
}
