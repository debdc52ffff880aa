package harness

import (
	"strings"
	"testing"
)

func TestAPartOfAProgramFailsAndCleansUpAsATestDoes(t *testing.T) {
	var order []string
	err := Part("ends", func(t testing.TB) {
		t.Cleanup(func() {
			order = append(order, "first registered")
			if t.Context().Err() == nil {
				t.Error("the context outlives the part")
			}
		})
		t.Cleanup(func() { order = append(order, "last registered"); t.Fatal("in a cleanup") })
		t.Errorf("wrong %d", 1)
		t.Fatal("wrong", 2)
		order = append(order, "after Fatal")
	})
	if got := strings.Join(order, ", "); got != "last registered, first registered" {
		t.Errorf("what ran: %s", got)
	}
	if err == nil || err.Error() != "ends: wrong 1\nends: wrong 2\nends: in a cleanup" {
		t.Errorf("error %q", err)
	}
	if err := Part("skips", func(t testing.TB) { t.Skip("no server"); t.Error("goes on") }); err == nil || err.Error() != "skips: left out: no server" {
		t.Errorf("a part that is left out: error %q", err)
	}
	if err := Part("passes", func(t testing.TB) { t.Helper() }); err != nil {
		t.Error(err)
	}
}
