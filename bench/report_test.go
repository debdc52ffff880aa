package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLatestIsAListOfSixFields(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out", "latest.json")
	list := []Result{summarize("relay_drain", "events/s", []round{{ours: 1, bare: 2}}, "said below the table alone"), {Name: "b", Unit: "ms"}}
	for range 2 { // a second run replaces the first
		if err := writeJSON(path, list); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if len(got) != 2 || len(got[0]) != 6 || got[0]["name"] != "relay_drain" || got[0]["unit"] != "events/s" || got[0]["ours"] != 1.0 ||
		got[0]["bare"] != 2.0 || got[0]["ratio"] != 0.5 || got[0]["rounds"] != 1.0 {
		t.Errorf("latest.json holds\n%s", text)
	}
}

func TestAFigureWithoutAMeasurementIsNotWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "latest.json")
	if err := writeJSON(path, []Result{{Name: "x", Ratio: median(nil)}}); err == nil {
		t.Error("a NaN was written")
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a file was left")
	}
}

func TestTheTableHasALineForEachResult(t *testing.T) {
	var out strings.Builder
	writeTable(&out, []Result{
		{Name: "mysql_text_insert", Unit: "rows/s", Ours: 123_456, Bare: 98_765, Ratio: 1.25, Rounds: 6, ratioMin: 1, ratioMax: 1.5, note: "what it was"},
		{Name: "relay_latency", Unit: "ms p50", Ours: 1.234, Bare: 0.5, Ratio: 2.5, Rounds: 4, ratioMin: 2, ratioMax: 3}})
	for _, want := range []string{
		"mysql_text_insert  1.25         1.00–1.50  123k  98.8k  rows/s  6\n",
		"relay_latency      2.50         2.00–3.00  1.23  0.50   ms p50  4\n",
		"\nmysql_text_insert: what it was\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestAWrongCallSaysWhatToWrite(t *testing.T) {
	for _, c := range []struct{ name, value, says string }{
		{"BENCH", "speed", "there is no bench speed; there are\n  emit_overhead "},
		{"BENCH_SCALE", "much", "BENCH_SCALE=much is not a number from 0.01 to 100"},
		{"BENCH_SCALE", "0", "BENCH_SCALE=0 is not a number"},
		{"BENCH_SCALE", "NaN", "BENCH_SCALE=NaN is not a number"},
		{"BENCH_SEED", "-1", "BENCH_SEED=-1 is not a seed"},
	} {
		var out, said strings.Builder
		env := func(name string) string {
			if name == c.name {
				return c.value
			}
			return ""
		}
		if code := run(env, &out, &said); code != 2 || !strings.Contains(said.String(), c.says) || out.Len() > 0 {
			t.Errorf("%s=%s: exit %d, said %q", c.name, c.value, code, said.String())
		}
	}
}

func TestNamesAreOnesOwn(t *testing.T) {
	var names []string
	for _, b := range benches {
		names = append(names, b.name)
	}
	want := []string{"emit_overhead", "relay_drain", "relay_latency", "mysql_text_insert", "mysql_text_update", "mysql_staging_insert", "mysql_staging_update",
		"mysql_hot_entity", "mysql_two_shards", "clickhouse_insert", "clickhouse_over_mysql", "rebuild", "rebuild_updated", "rollup_refresh"}
	if !slices.Equal(names, want) {
		t.Errorf("benches %v, want %v", names, want)
	}
	for _, name := range want {
		if chosen, err := choose(name); err != nil || len(chosen) != 1 || chosen[0].name != name {
			t.Errorf("BENCH=%s chooses %v, %v", name, chosen, err)
		}
	}
}
