package clickhouse

import (
	"strings"
	"testing"
)

// Each thing that is wrong is one finding, with what mends it; a server that is as it should be has none.
func TestEachThingThatIsWrongWithAServerIsNamed(t *testing.T) {
	for _, c := range []struct {
		name     string
		wrong    func(*serverState)
		sign     string // "" for no finding
		what, do string
	}{
		{"sound", func(*serverState) {}, "", "", ""},
		{"the oldest", func(st *serverState) { st.version = "24.8.1.1" }, "", "", ""},
		{"older by a month", func(st *serverState) { st.version = "24.7.9.1" }, "x", "version 24.7.9.1", "newer"},
		{"older by a year", func(st *serverState) { st.version = "23.12.1.1" }, "x", "version 23.12", "newer"},
		{"a version of another form", func(st *serverState) { st.version = "head" }, "", "", ""},
		{"readonly", func(st *serverState) {
			st.settings["readonly"] = setting{"2", true}
			st.settings["insert_deduplicate"] = setting{"0", true} // all are fixed then: said once
		}, "x", "readonly is 2", "`slotline` a profile without readonly"},
		{"another default", func(st *serverState) { st.settings["async_insert"] = setting{"1", false} }, "", "", ""},
		{"fixed", func(st *serverState) { st.settings["async_insert"] = setting{"1", true} }, "x", "may not change async_insert, which is 1", "constraint on async_insert"},
		{"fixed as it must be", func(st *serverState) { st.settings["insert_deduplicate"] = setting{"1", true} }, "", "", ""},
		{"privileges", func(st *serverState) { st.missing = []string{"INSERT", "ALTER ADD COLUMN"} }, "x", "slotline lacks INSERT, ALTER ADD COLUMN on flights.*",
			"GRANT INSERT, ALTER ADD COLUMN ON `flights`.* TO `slotline`"},
		{"tokens", func(st *serverState) { st.forgets = []string{"flights"} }, "!", "tables flights forget tokens", "slotline apply"},
		{"parts", func(st *serverState) { st.parts, st.partsOf = 1000, "flights partition 202611" }, "!", "flights partition 202611 has 1000 parts", "batch_age"},
		{"fewer parts", func(st *serverState) { st.parts = 999 }, "", "", ""},
	} {
		st := &serverState{version: "26.7.3.1", partsDelay: 1000, partsThrow: 3000, settings: map[string]setting{
			"readonly": {"0", false}, "async_insert": {"0", false}, "insert_deduplicate": {"1", false}}}
		c.wrong(st)
		list := st.findings("flights", "slotline")
		if c.sign == "" {
			if len(list) != 0 {
				t.Errorf("%s: %+v", c.name, list)
			}
			continue
		}
		if len(list) != 1 || list[0].Sign != c.sign || !strings.Contains(list[0].What, c.what) || !strings.Contains(list[0].Do, c.do) || list[0].Why == "" {
			t.Errorf("%s: %+v", c.name, list)
		}
	}
}
