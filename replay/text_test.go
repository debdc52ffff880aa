package replay

import (
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/sinks/mysql"
)

func TestMeterText(t *testing.T) {
	m := newMeter()
	m.text(start, 0, 1000, standing{})
	got := m.text(start.Add(2*time.Second), 500, 1000, standing{liveAlive: true, liveBehind: 5400 * time.Millisecond})
	if want := "[#########.........]  50 %  500 of 1000  0.2k ev/s  eta 2 s  live lag 5.4 s"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := m.text(start.Add(3*time.Second), 1000, 1000, standing{}); !strings.HasPrefix(got, "[##################] 100 %") {
		t.Errorf("at its end: %s", got)
	}
}

func TestSwapStatementsAreWhole(t *testing.T) {
	pairs := []pair{
		{mysql.PhysicalTable{Name: "flights_201301"}, mysql.PhysicalTable{Name: "flights_201301__rb_rb7f3a"}},
		{mysql.PhysicalTable{Name: "notes"}, mysql.PhysicalTable{Name: "notes__rb_rb7f3a"}},
	}
	if got, want := lockSQL(pairs), "LOCK TABLES `slotline_progress` WRITE, `flights_201301` WRITE, `flights_201301__rb_rb7f3a` WRITE, "+
		"`notes` WRITE, `notes__rb_rb7f3a` WRITE"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := renameSQL(pairs, "__old_rb7f3a"), "RENAME TABLE `flights_201301` TO `flights_201301__old_rb7f3a`, "+
		"`flights_201301__rb_rb7f3a` TO `flights_201301`, `notes` TO `notes__old_rb7f3a`, `notes__rb_rb7f3a` TO `notes`"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestEngines(t *testing.T) {
	r := &Replay{o: Options{Shard: "s1"}}
	for version, ok := range map[string]bool{"8.0.13": true, "8.0.12": false, "8.4.3": true, "9.7.4-2": true, "5.7.44-log": false,
		"10.11.6-MariaDB-0+deb12u1": false, "8.0.36-28.1": true} {
		if err := r.checkEngine(version); (err == nil) != ok || err != nil && fault.CodeOf(err) != codeEngine {
			t.Errorf("%s: %v", version, err)
		}
	}
}
