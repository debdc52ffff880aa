package partitioner

import (
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

// golden compares got with a file of testdata, or rewrites the file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	file = "testdata/" + file
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; it is a stored format: a change needs a new format number\ngot:\n%swant:\n%s", file, got, want)
	}
}

// flightsSpec is the layout of SURFACE's example: UA dedicated, DL spread over both shards, all others by hash.
func flightsSpec() Spec {
	return Spec{
		Epoch: 1, Slots: 1024, Hash: XXH64,
		Shards: []ShardSpec{{"s1", []SlotRange{{0, 511}}}, {"s2", []SlotRange{{512, 1023}}}},
		Tenants: []TenantSpec{
			{"DL", []PlacedSlot{{100_001, "s1"}, {100_002, "s1"}, {100_003, "s2"}, {100_004, "s2"}}},
			{"UA", []PlacedSlot{{100_000, "s1"}}},
		},
	}
}

func TestSpecGolden(t *testing.T) {
	l := mustLayout(t, flightsSpec(), 4)
	golden(t, "layout.golden.json", string(l.Body())+"\n")

	stored, err := os.ReadFile("testdata/layout.golden.json")
	if err != nil {
		t.Fatal(err)
	}
	spec, err := ParseSpec(stored)
	if err != nil {
		t.Fatal(err)
	}
	again, err := New(spec)
	if err != nil {
		t.Fatal(err)
	}
	if again.Digest() != l.Digest() {
		t.Errorf("stored layout has digest %s, want %s", again.Digest(), l.Digest())
	}
	const digest = "a96b9a2f7b2c85572063e7d683dac6805bd8cb8b93ff92825cfb3d885ae932f2" // sha256sum of the golden file without its newline
	if l.Digest() != digest {
		t.Errorf("digest is %s; stored layouts have %s", l.Digest(), digest)
	}
}

func TestSpecRoundTrip(t *testing.T) {
	r := random(t)
	for range 500 {
		l := randomLayout(t, r)
		spec := l.Spec()
		body, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		if string(body) != string(l.Body()) {
			t.Fatalf("json.Marshal(Spec()) is not Body():\n%s\n%s", body, l.Body())
		}
		again, err := ParseSpec(body)
		if err != nil {
			t.Fatalf("%v\n%s", err, body)
		}
		if !reflect.DeepEqual(again, spec) {
			t.Fatalf("%s\nread as %+v\nwant    %+v", body, again, spec)
		}
	}
}

func TestSpecRoundTripKeepsWhatIsNotCanonical(t *testing.T) {
	spec := Spec{Epoch: 2, Slots: 4, Hash: Java,
		Shards:     []ShardSpec{{"b", []SlotRange{{3, 3}, {0, 1}}}, {"a", []SlotRange{{2, 2}}}, {"empty", nil}},
		Tenants:    []TenantSpec{{"<&>\u2028 \"日本\"", []PlacedSlot{{100_002, "b"}, {100_000, "a"}}}},
		Partitions: [][]SlotRange{{{0, 3}}, nil, {{100_000, 100_000}, {100_002, 100_002}}},
		Retired:    []SlotRange{{100_001, 100_001}},
	}
	body, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseSpec(body)
	if err != nil || !reflect.DeepEqual(again, spec) {
		t.Fatalf("%s\nread as %+v, %v\nwant    %+v", body, again, err, spec)
	}
	if _, err := json.Marshal(Spec{Hash: 9}); err == nil {
		t.Error("an unknown hash was stored")
	}
}

func TestSpecRefuses(t *testing.T) {
	for body, want := range map[string]string{
		``:                          "unexpected end",
		`null`:                      "no format number",
		`{}`:                        "no format number",
		`{"format":"1"}`:            "layout: json",
		`{"format":0}`:              "no format number",
		`{"format":-1}`:             "no format number",
		`{"format":2,"new":[]}`:     "format 2, this release reads up to 1",
		`{"format":1,"shard":[]}`:   `unknown field "shard"`,
		`{"format":1} x`:            "invalid character",
		`{"format":1,"hash":"md5"}`: `hash "md5" is not known`,
		`{"format":1,"shards":[{"name":"s1","slots":"9-0"}]}`: "reversed",
		`{"format":1,"slots":1e99}`:                           "layout",
	} {
		if s, err := ParseSpec([]byte(body)); err == nil {
			t.Errorf("%s was read as %+v", body, s)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", body, err, want)
		}
	}
}

func TestEveryTruncatedSpecIsRefused(t *testing.T) {
	body := mustLayout(t, flightsSpec(), 4).Body()
	for n := range body {
		if _, err := ParseSpec(body[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes were read", n, len(body))
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	s, err := flightsSpec().WithPartitions(4)
	if err != nil {
		f.Fatal(err)
	}
	body, err := json.Marshal(s)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte(`{"format":1,"epoch":1,"slots":1,"hash":"java","shards":[{"name":"a","slots":"0"}],"partitions":["0",""]}`))
	f.Add([]byte(`{"format":1,"epoch":1,"slots":4,"hash":"crc32","shards":[{"name":"a","slots":"0-9"},{"name":"a","slots":"2,2"}],"partitions":["0-1","1,100000"],"retired":"100000-2000000000","tenants":[{"tenant":"x","placed":[]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		spec, err := ParseSpec(body)
		if err != nil {
			return
		}
		l, err := New(spec)
		if err != nil {
			if ps := ProblemsOf(err); len(ps) == 0 {
				t.Fatalf("%v holds no problem", err)
			}
			return
		}
		spec, err = ParseSpec(l.Body())
		if err != nil {
			t.Fatal(err)
		}
		again, err := New(spec)
		if err != nil || again.Digest() != l.Digest() {
			t.Fatalf("a layout does not survive being stored: %v", err)
		}
		for _, tenant := range []string{"", "x", "UA", "DL"} {
			if a, b := l.Route(tenant, tenant), again.Route(tenant, tenant); a != b {
				t.Fatalf("%s goes to %v, once stored to %v", tenant, a, b)
			}
		}
	})
}
