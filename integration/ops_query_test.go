package integration

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/integration/harness"
)

// query prints what ClickHouse answers in each format, changes nothing, and says when there is more.
func TestQueryAsksClickHouse(t *testing.T) {
	t.Parallel()
	w := newLine(t, sharedServers(t), "")
	ask := func(status int, says string, args ...string) string {
		t.Helper()
		r := harness.Command{Args: append([]string{"-c", w.file, "query"}, args...), Name: "query"}.Run(t, time.Minute)
		if r.Code != status || !strings.Contains(r.Stderr, says) {
			t.Errorf("slotline query %v: exit status %d, want %d and %q\n%s%s", args, r.Code, status, says, r.Stdout, r.Stderr)
		}
		return r.Stdout
	}
	const values = "SELECT toUInt64(18446744073709551615) AS big, toDecimal64('12.30', 2) AS price, NULL AS none, 'a,\"b\"\tc' AS words, " +
		"toDateTime64('2026-11-30 23:59:59.123456', 6, 'UTC') AS at, [1, 2] AS list, true AS yes, nan AS odd -- a comment"
	for format, want := range map[string]string{
		"table": "big                   price  none  words     at                          list   yes   odd\n" +
			"18446744073709551615  12.30  NULL  a,\"b\"\\tc  2026-11-30 23:59:59.123456  [1,2]  true  nan\n",
		"csv": "big,price,none,words,at,list,yes,odd\n18446744073709551615,12.30,,\"a,\"\"b\"\"\tc\",2026-11-30 23:59:59.123456,\"[1,2]\",true,nan\n",
		"json": "[\n  {\"big\": 18446744073709551615, \"price\": \"12.30\", \"none\": null, \"words\": \"a,\\\"b\\\"\\tc\", " +
			"\"at\": \"2026-11-30 23:59:59.123456\", \"list\": [1,2], \"yes\": true, \"odd\": \"nan\"}\n]\n",
	} {
		if got := ask(0, "", values+";\n", "-o", format); got != want {
			t.Errorf("-o %s prints\n%s\nwanted\n%s", format, got, want)
		}
	}
	if got := ask(0, "", "SELECT 1 AS n WHERE 0", "-o", "json"); got != "[]\n" {
		t.Errorf("no rows: %q", got)
	}
	if got := ask(1, "more rows: these are the first 3", "SELECT number AS n FROM numbers(10) ORDER BY n DESC", "--rows", "3", "-o", "csv"); got != "n\n9\n8\n7\n" {
		t.Errorf("bounded: %q", got)
	}
	ask(0, "", "SELECT number FROM numbers(3)", "--rows", "3")
	var all []map[string]int
	if err := json.Unmarshal([]byte(ask(0, "", "SELECT number AS n FROM numbers(2000)", "--rows", "0", "-o", "json")), &all); err != nil || len(all) != 2_000 {
		t.Errorf("--rows 0: %d rows, %v", len(all), err)
	}
	for _, statement := range []string{"DROP TABLE flights", "SELECT 1) SETTINGS readonly = 0; DROP TABLE flights", "INSERT INTO airports SELECT 'X', 'x', 1, 0",
		"SELECT nothing FROM flights_now", ""} {
		ask(1, "SL4009", statement)
	}
	ask(0, "", "SELECT count() FROM flights_now")
	ask(2, "sinks.doris", "SELECT 1", "--sink", "doris")
	ask(2, "table, csv or json", "SELECT 1", "-o", "yaml")
	ask(2, "--rows", "SELECT 1", "--rows", "-1")
}
