package sinktest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/slotline/slotline/event"
)

// mistakes are wrong sinks, and the cases that must find them. What they do wrong is in Memory.mistake and where
// Memory.wrong is asked.
var mistakes = map[string][]string{
	"no fence":                    {"zombie_changes_nothing"},
	"last one wins":               {"reordering", "delete_before_insert", "random_logs"},
	"delete loses at equal":       {"delete_and_upsert_at_equal_versions", "delete_with_the_rows_own_version"},
	"ids fold case":               {"strings_that_differ_by_case_accent_or_trailing_space"},
	"ids are trimmed":             {"strings_that_differ_by_case_accent_or_trailing_space"},
	"ids at or below 0 are lost":  {"ids_zero_and_below"},
	"null is empty":               {"null_and_value"},
	"microseconds are lost":       {"every_type_at_its_limits", "month_edges"},
	"unsigned is signed":          {"every_type_at_its_limits"},
	"broadcast is lost":           {"broadcast_and_monthless_tables"},
	"a bad event stops its batch": {"bad_event_above_a_good_one", "bad_events_of_each_kind"},
	"progress is not advanced":    {"duplicates"},
	"months are not bounded":      {"month_out_of_bounds"},
	"newer layouts are ignored":   {"newer_layout_waits"},
	"excluded are applied":        {"bad_event_above_a_good_one", "bad_events_of_each_kind"},
	"markers are not passed":      {"holes_and_empty_ranges"},
}

const mistakeVariable = "SINKTEST_MISTAKE"

// TestWrongSink is a child of TestTheSuiteFindsMistakes.
func TestWrongSink(t *testing.T) {
	wrong := os.Getenv(mistakeVariable)
	if wrong == "" {
		return // it is a child of TestTheSuiteFindsMistakes, not a test of its own
	}
	factory := MemoryFactory(0)
	Run(t, func(t testing.TB) (Store, Setup) {
		store, setup := factory(t)
		m := store.(*memoryStore).Memory
		m.wrong, m.alter = wrong, m.mistake
		return store, setup
	})
}

// A suite that passes a wrong sink proves nothing about a right one.
func TestTheSuiteFindsMistakes(t *testing.T) {
	for wrong, by := range mistakes {
		t.Run(strings.ReplaceAll(wrong, " ", "_"), func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestWrongSink$", "-test.timeout=1m") // a wrong sink may never come to an end
			cmd.Env = append(os.Environ(), mistakeVariable+"="+wrong)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatal("the suite passes it")
			}
			for _, name := range by {
				if !strings.Contains(string(out), "--- FAIL: TestWrongSink/"+name) {
					t.Errorf("case %s passes it", name)
				}
			}
			if strings.Contains(string(out), "panic:") {
				t.Errorf("the suite panics:\n%s", out)
			}
		})
	}
}

// mistake makes of an entry what the wrong sink makes of it; the lock is held.
func (m *Memory) mistake(e memoryEntry) memoryEntry {
	each := func(f func(v *event.Value)) {
		values := append([]event.Value(nil), e.row.Values...)
		for i := range values {
			f(&values[i])
		}
		e.row.Values = values
	}
	switch m.wrong {
	case "last one wins":
		delete(m.rows, e.entity)
	case "delete loses at equal":
		if old, ok := m.rows[e.entity]; ok && old.ver>>1 == e.ver>>1 {
			e.ver = old.ver
		}
	case "ids fold case":
		e.entity.id = strings.ToLower(e.entity.id)
	case "ids are trimmed":
		e.entity.id = strings.TrimRight(e.entity.id, " ")
	case "ids at or below 0 are lost":
		if strings.HasPrefix(e.entity.id, "-") || e.entity.id == "0" {
			e.entity.id = "lost"
		}
	case "null is empty":
		each(func(v *event.Value) { v.Null = false })
	case "microseconds are lost":
		each(func(v *event.Value) { v.Int = v.Int / 1000 * 1000 })
	case "unsigned is signed":
		each(func(v *event.Value) { v.Uint &= 1<<63 - 1 })
	case "broadcast is lost":
		if e.entity.tenant == "" {
			e.entity.table = "nowhere"
		}
	}
	return e
}
