package line

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"
)

// Each format writes values as they are, whatever they hold.
func TestAnswersInEachFormat(t *testing.T) {
	rows := [][]json.RawMessage{
		{json.RawMessage(`18446744073709551615`), json.RawMessage(`"a\tb\n\"c\","`), json.RawMessage(`null`)},
		{json.RawMessage(`[1,2]`), json.RawMessage(`"<é>"`), json.RawMessage(`true`)},
	}
	for format, want := range map[string]string{
		"table": "n                     text        <x>\n18446744073709551615  a\\tb\\n\"c\",  NULL\n[1,2]                 <é>         true\n",
		"csv":   "n,text,<x>\n18446744073709551615,\"a\tb\n\"\"c\"\",\",\n\"[1,2]\",<é>,true\n",
		"json":  "[\n  {\"n\": 18446744073709551615, \"text\": \"a\\tb\\n\\\"c\\\",\", \"\\u003cx\\u003e\": null},\n  {\"n\": [1,2], \"text\": \"<é>\", \"\\u003cx\\u003e\": true}\n]\n",
	} {
		var b strings.Builder
		out := bufio.NewWriter(&b)
		a := map[string]answerWriter{"table": &tableAnswer{w: out}, "csv": &csvAnswer{w: csv.NewWriter(out)}, "json": &jsonAnswer{w: out}}[format]
		if err := a.columns([]string{"n", "text", "<x>"}); err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if err := a.row(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.end(); err != nil {
			t.Fatal(err)
		}
		out.Flush()
		if b.String() != want {
			t.Errorf("%s:\n%s\nwanted\n%s", format, b.String(), want)
		}
	}
}
