package doris

import (
	"database/sql"
	"testing"
)

// What could write is refused, wherever the word stands; words in texts, names and comments are none.
func TestQueryIsOnlyASelect(t *testing.T) {
	for text, want := range map[string]string{
		"SELECT 1": "", " select * from flights_now; ": "", "WITH a AS (SELECT 1) SELECT * FROM a": "",
		"SELECT 'delete', \"insert\", `update`, 'it\\'s into' -- drop\n FROM a /* into */ # update": "",
		"": "(none)", "-- nothing": "(none)", "DROP TABLE a": "DROP", "(SELECT 1)": "", "insert into a select 1": "INSERT",
		"WITH a AS (SELECT 1) INSERT INTO b SELECT * FROM a": "INSERT", "SELECT 1 INTO OUTFILE 'x'": "INTO",
		"SELECT 1; SELECT 2": ";", "WITH a AS (SELECT 1) delete from b": "DELETE", "/*!40000 DROP TABLE a */": "40000",
		"SELECT 'open": "", "SET x = 1": "SET",
	} {
		if got := writes(text); got != want {
			t.Errorf("%q: %q, wanted %q", text, got, want)
		}
	}
}

func TestQueryValuesAsJSON(t *testing.T) {
	for _, c := range []struct {
		text   string
		valid  bool
		number bool
		want   string
	}{{"1", true, true, "1"}, {"-1.5e10", true, true, "-1.5e10"}, {"nan", true, true, `"nan"`}, {"", false, true, "null"},
		{"1", true, false, `"1"`}, {"a\"b", true, false, `"a\"b"`}} {
		if got := jsonValue(sql.NullString{String: c.text, Valid: c.valid}, c.number); string(got) != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
