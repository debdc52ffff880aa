package doris

import (
	"strings"
	"testing"
)

// Each thing that is wrong is one finding, with what mends it; a cluster that is as it should be has none.
func TestEachThingThatIsWrongWithAClusterIsNamed(t *testing.T) {
	backends := func(alive ...bool) (list []backend) {
		for i, on := range alive {
			list = append(list, backend{string(rune('a' + i)), on})
		}
		return list
	}
	for _, c := range []struct {
		name        string
		st          serverState
		replication int
		sign        string // "" for no finding
		what, do    string
	}{
		{"sound", serverState{version: "2.1.7", backends: backends(true, true, true)}, 3, "", "", ""},
		{"one of one", serverState{version: "4.0.1", backends: backends(true)}, 1, "", "", ""},
		{"backends not shown", serverState{version: "3.0.2", unread: []string{"backends: denied"}}, 3, "", "", ""},
		{"a version of another form", serverState{version: "trunk"}, 3, "", "", ""},
		{"old", serverState{version: "2.0.15"}, 3, "x", "version 2.0.15", "newer"},
		{"too few", serverState{version: "2.1.7", backends: backends(true)}, 3, "x", "there are 1 backends", "replication: 1"},
		{"most are down", serverState{version: "2.1.7", backends: backends(true, false, false)}, 3, "x", "1 backends are alive, down: b, c", "start"},
		{"one is down", serverState{version: "2.1.7", backends: backends(true, false, true)}, 3, "!", "backends are down: b", "start"},
	} {
		list := c.st.findings(c.replication)
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

// Release and backends are read as the frontends show them.
func TestCheckupReadsWhatTheFrontendsShow(t *testing.T) {
	s, server := served(t)
	s.replication = 3
	for _, c := range []struct {
		alive []bool
		want  string
	}{{[]bool{true}, "there are 1 backends"}, {[]bool{true, false, true}, "backends are down: be2"}, {[]bool{true, true, true}, ""}} {
		server.Backends(c.alive...)
		found, err := s.Checkup(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		what := ""
		for _, f := range found.Findings {
			what += f.What
		}
		if !strings.HasPrefix(what, c.want) || c.want == "" && what != "" || len(found.Unchecked) != 0 || !strings.HasPrefix(found.Where, "doris "+server.FE()+"/flights (2.") {
			t.Errorf("%v: %+v", c.alive, found)
		}
	}
}
