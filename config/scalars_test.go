package config

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestReadScalars(t *testing.T) {
	counts := keySpec{kind: count}
	sizes := keySpec{kind: size}
	spans := keySpec{kind: span}
	for _, c := range []struct {
		spec *keySpec
		text string
		want int64
	}{
		{&counts, "0", 0}, {&counts, "16", 16}, {&counts, "5_000_000", 5_000_000}, {&counts, "9223372036854775807", 1<<63 - 1},
		{&sizes, "4MiB", 4 << 20}, {&sizes, "900KiB", 900 << 10}, {&sizes, "1_024KiB", mib}, {&sizes, "2 GiB", 2 << 30},
		{&spans, "20ms", int64(20 * time.Millisecond)}, {&spans, "90d", int64(90 * day)}, {&spans, "1d12h", int64(36 * time.Hour)},
		{&spans, "1h30m", int64(90 * time.Minute)}, {&spans, "1.5s", int64(1500 * time.Millisecond)}, {&spans, "0s", 0},
	} {
		if n, wrong, _ := c.spec.read(c.text); n != c.want || wrong != "" {
			t.Errorf("%s is %d (%s), want %d", c.text, n, wrong, c.want)
		}
	}
	for _, c := range []struct {
		spec        *keySpec
		text, write string
	}{
		{&counts, "", ""}, {&counts, "-1", ""}, {&counts, "+1", ""}, {&counts, "1.5", ""}, {&counts, "1e3", ""}, {&counts, "0x10", ""},
		{&counts, "010", "10"}, {&counts, "00", "0"}, {&counts, "_1", "1"}, {&counts, "1_", "1"}, {&counts, "1__0", "1_0"},
		{&counts, "9223372036854775808", ""}, {&counts, "١", ""},
		{&sizes, "4194304", "4MiB"}, {&sizes, "1000", "1KiB"}, {&sizes, "4MB", "4MiB"}, {&sizes, "4mib", "4MiB"}, {&sizes, "4M", "4MiB"}, {&sizes, "4k", "4KiB"},
		{&sizes, "4TiB", ""}, {&sizes, "MiB", ""}, {&sizes, "-4MiB", ""}, {&sizes, "1.5MiB", ""}, {&sizes, "9223372036854775807GiB", ""}, {&sizes, "", ""},
		{&spans, "20", "20s"}, {&spans, "0", "0s"}, {&spans, "-1s", ""}, {&spans, "+1s", ""}, {&spans, "1d0", ""}, {&spans, "1d-0s", ""}, {&spans, "1 d", ""}, {&spans, "d", ""},
		{&spans, "1d1d", ""}, {&spans, "999999999d", ""}, {&spans, "1w", ""}, {&spans, "1.5d", ""}, {&spans, "100000d2562047h", ""}, {&spans, "", ""},
	} {
		if n, wrong, write := c.spec.read(c.text); wrong == "" || write != c.write {
			t.Errorf("%q is %d (%s), write %q, want %q", c.text, n, wrong, write, c.write)
		}
	}
}

// What is written is what was read, for every number that a file can hold.
func TestScalarsReadWhatTheyWrite(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 20_000 {
		for _, spec := range []keySpec{{kind: count}, {kind: size}, {kind: span}} {
			n := r.Int64() >> r.IntN(62)
			if spec.kind == size { // sizes are whole KiB
				n = (n>>12 + 1) * kib
			}
			text := spec.format(n)
			if got, wrong, _ := spec.read(text); got != n || wrong != "" {
				t.Fatalf("%d is written %s and read %d (%s)", n, text, got, wrong)
			}
		}
	}
}

func TestNearest(t *testing.T) {
	keys := []string{"brokers", "topic", "partitions", "replication", "retention", "compression"}
	for word, want := range map[string]string{"broker": "brokers", "brokres": "brokers", "topics": "topic", "partition": "partitions",
		"retension": "retention", "Brokers": "brokers", "flavour": "", "": "", "x": ""} {
		if got := nearest(word, keys); got != want {
			t.Errorf("%q is nearest to %q, want %q", word, got, want)
		}
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"ab", "ba", 1}, {"lanes", "lane", 1}, {"abc", "abc", 0}, {"kitten", "sitting", 3}} {
		if d, e := editDistance(c.a, c.b), editDistance(c.b, c.a); d != c.want || e != c.want {
			t.Errorf("%q to %q is %d and %d, want %d", c.a, c.b, d, e, c.want)
		}
	}
}
