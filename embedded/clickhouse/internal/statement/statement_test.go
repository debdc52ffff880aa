package statement

import (
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	insert := func(head, target string, columns ...string) Statement {
		return Statement{Kind: Insert, Head: head, Target: target, Columns: columns}
	}
	other := func(text string) Statement { return Statement{Kind: Other, Text: text} }
	query := func(text string) Statement { return Statement{Kind: Select, Text: text} }
	for sql, want := range map[string]Statement{
		"SELECT 1":                                    query("SELECT 1"),
		" -- c\n select 1 ; ":                         query(" -- c\n select 1 "),
		"# c\nSELECT 1":                               query("# c\nSELECT 1"),
		"((SELECT 1) UNION ALL SELECT 2)":             query("((SELECT 1) UNION ALL SELECT 2)"),
		"FROM t SELECT a":                             query("FROM t SELECT a"),
		"WITH (SELECT 1) AS x SELECT x":               query("WITH (SELECT 1) AS x SELECT x"),
		"WITH x AS (SELECT 1) INSERT INTO t SELECT 1": other("WITH x AS (SELECT 1) INSERT INTO t SELECT 1"),
		"SELECT 1 FORMAT JSON":                        query("SELECT 1 "),
		"SELECT 1 format JSON SETTINGS max_threads=1": query("SELECT 1  SETTINGS max_threads=1"),
		"SELECT format FROM t":                        query("SELECT format FROM t"),
		"SELECT ';' , `;`, $a$;$a$ -- ;\n/* ; */":     query("SELECT ';' , `;`, $a$;$a$ -- ;\n/* ; */"),
		"SELECT 'it''s; \\'; '":                       query("SELECT 'it''s; \\'; '"),
		"SELECT 1; SELECT 2":                          {Kind: Many},
		"SELECT 1;;":                                  query("SELECT 1"),
		"DROP TABLE t; DROP TABLE u":                  {Kind: Many},
		"SHOW TABLES FORMAT TSV;":                     other("SHOW TABLES "),
		"":                                            other(""),
		"EXPLAIN SELECT 1":                            other("EXPLAIN SELECT 1"),

		"INSERT INTO t VALUES":                        insert("INSERT INTO t ", "t"),
		"INSERT INTO t VALUES;":                       insert("INSERT INTO t ", "t"),
		"INSERT INTO t":                               insert("INSERT INTO t", "t"),
		"insert into d.t (a, b) values ":              insert("insert into d.t (a, b) ", "d.t", "a", "b"),
		"INSERT t (a) FORMAT Native":                  insert("INSERT t (a) ", "t", "a"),
		"INSERT INTO TABLE t (a) SETTINGS x=1 VALUES": insert("INSERT INTO TABLE t (a) SETTINGS x=1 ", "t", "a"),
		"INSERT INTO `a``b`.\"c.d\" (`x y`, \"q\\\"r\", n.m) VALUES": insert("INSERT INTO `a``b`.\"c.d\" (`x y`, \"q\\\"r\", n.m) ",
			"`a``b`.\"c.d\"", "x y", `q"r`, "n.m"),
		"INSERT INTO FUNCTION remote('a', d, t) (a) VALUES": insert("INSERT INTO FUNCTION remote('a', d, t) (a) ", "remote('a', d, t)", "a"),
		"INSERT INTO {t:Identifier} (a) VALUES":             insert("INSERT INTO {t:Identifier} (a) ", "{t:Identifier}", "a"),
		"INSERT INTO t (* EXCEPT (a)) VALUES":               {Kind: Insert, Head: "INSERT INTO t (* EXCEPT (a)) ", Target: "t", ColumnsText: "* EXCEPT (a)"},
		"INSERT INTO t () VALUES":                           {Kind: Insert, Head: "INSERT INTO t () ", Target: "t"},

		"INSERT INTO t VALUES (1)":                 other("INSERT INTO t VALUES (1)"),
		"INSERT INTO t VALUES ('a; b')":            other("INSERT INTO t VALUES ('a; b')"),
		"INSERT INTO t FORMAT CSV 1":               other("INSERT INTO t FORMAT CSV 1"),
		"INSERT INTO t SELECT 1":                   other("INSERT INTO t SELECT 1"),
		"INSERT INTO t (a) SELECT 1":               other("INSERT INTO t (a) SELECT 1"),
		"INSERT INTO t (SELECT 1)":                 other("INSERT INTO t (SELECT 1)"),
		"INSERT INTO t WITH 1 AS x SELECT x":       other("INSERT INTO t WITH 1 AS x SELECT x"),
		"INSERT INTO t FROM INFILE 'x' FORMAT CSV": other("INSERT INTO t FROM INFILE 'x' "),
		"INSERT INTO t SELECT 1; DROP TABLE t":     {Kind: Many},
		"INSERT INTO t (a":                         other("INSERT INTO t (a"),
		"INSERT INTO":                              other("INSERT INTO"),
		"INSERT INTO t (a) VALUES; DROP TABLE t":   other("INSERT INTO t (a) VALUES; DROP TABLE t"),
		"INSERT INTO FUNCTION f":                   other("INSERT INTO FUNCTION f"),
	} {
		if got := Parse(sql); !reflect.DeepEqual(got, want) {
			t.Errorf("%q:\n got %#v\nwant %#v", sql, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, sql := range []string{
		"SELECT 1;", "INSERT INTO `a`.b (c, d.e) VALUES", "WITH x AS (SELECT 1) SELECT 'it''s' FORMAT JSON", "INSERT INTO FUNCTION f(1) FORMAT X 1",
		"/* ", "$a$", "'", "`\\", "INSERT INTO {a:", "-- ",
	} {
		f.Add(sql)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		s := Parse(sql)
		switch s.Kind {
		case Insert:
			if !strings.HasPrefix(sql, s.Head) || !strings.Contains(s.Head, s.Target) || s.Target == "" {
				t.Errorf("%q: head %q, target %q", sql, s.Head, s.Target)
			}
			if s.Columns != nil && s.ColumnsText != "" {
				t.Errorf("%q: both forms of columns", sql)
			}
		case Select, Other:
			if len(s.Text) > len(sql) {
				t.Errorf("%q: the text grew to %q", sql, s.Text)
			}
		}
	})
}
