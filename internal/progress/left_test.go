package progress

import (
	"testing"

	"github.com/slotline/slotline/event"
)

// P4, P5: a row is not as its owner left it where one field of the fence is another, or where it went back.
func TestLeft(t *testing.T) {
	part := event.Partition{Topic: "t", Number: 3}
	held := Row{Key: Key{Sink: "mysql", Partition: part}, Next: 10, Owner: "a/1/x", OwnerEpoch: 4}
	for name, c := range map[string]struct {
		change func(r *Row)
		left   bool
	}{
		"nothing":                          {func(*Row) {}, true},
		"a batch was applied":              {func(r *Row) { r.Next++ }, true},
		"it went back":                     {func(r *Row) { r.Next-- }, false},
		"another owner":                    {func(r *Row) { r.Owner = "b/1/y" }, false},
		"no owner, after a swap":           {func(r *Row) { r.Owner = "" }, false},
		"the same owner took it over anew": {func(r *Row) { r.OwnerEpoch++ }, false},
		"an epoch from before a restore":   {func(r *Row) { r.OwnerEpoch-- }, false},
	} {
		now := held
		if c.change(&now); now.Left(held) != c.left {
			t.Errorf("%s: left is %v", name, now.Left(held))
		}
	}
}
