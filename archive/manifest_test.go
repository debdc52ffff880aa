package archive

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
)

var update = flag.Bool("update", false, "rewrite golden files")

// The formats, as docs/formats.md shows them.
func TestGolden(t *testing.T) {
	for name, got := range map[string][]byte{
		"testdata/manifest.golden.json": testManifest(5, 1, 3).encode(),
		"testdata/file.golden.schema":   []byte(parquet.SchemaOf(row{}).String() + "\n"),
	} {
		if *update {
			if err := os.WriteFile(name, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: is\n%s\nwas (-update rewrites it)\n%s", name, got, want)
		}
	}
}

// Whatever is read as a manifest is one: it can be written and read again, and has no hole.
func FuzzParseManifest(f *testing.F) {
	f.Add(testManifest(5, 1, 3).encode())
	f.Add(testManifest().encode())
	p := event.Partition{Topic: "flights.events", Number: 3}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseManifest(data, "flights", p)
		if err != nil {
			return
		}
		again, err := parseManifest(m.encode(), "flights", p)
		if err != nil || fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", m) {
			t.Errorf("%+v\nread again is %+v, %v", m, again, err)
		}
	})
}

func testManifest(lengths ...int64) *Manifest {
	m := &Manifest{Format: format, Line: "flights", Cluster: "c", Topic: "flights.events", TopicID: topicID{1}, Partition: 3, Run: "r"}
	at := int64(0)
	for i, n := range lengths {
		f := File{From: at, To: at + n, Records: n, Bytes: 100, Digest: fmt.Sprintf("%064x", i), First: time.Unix(1, 0).UTC(), Last: time.Unix(2, 0).UTC(), LeaderEpoch: 4}
		f.Name = fileName(f.From, f.To, "0123456789abcdef")
		m.Files = append(m.Files, f)
		at += n
	}
	return m
}

// A manifest is good if and only if each offset from 0 to its end is in one file. The twin counts each offset's files.
func TestManifestCoversEachOffsetOnce(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	good := 0
	for range 20_000 {
		m := testManifest(make([]int64, rng.IntN(5))...)
		for i := range m.Files {
			f := &m.Files[i]
			if i > 0 {
				f.From = m.Files[i-1].To
			}
			f.To = f.From + 1 + rng.Int64N(4)
			if rng.IntN(6) == 0 {
				f.From = rng.Int64N(12)
			}
			if rng.IntN(6) == 0 {
				f.To = rng.Int64N(12)
			}
			f.Records, f.Name = max(1, f.To-f.From), fileName(f.From, f.To, "0123456789abcdef")
		}
		files := map[int64]int{}
		want := true
		for _, f := range m.Files {
			want = want && f.From < f.To
			for o := f.From; o < f.To; o++ {
				files[o]++
			}
		}
		for o := range m.End() {
			want = want && files[o] == 1
		}
		want = want && len(files) == int(m.End()) && slices.IsSortedFunc(m.Files, func(a, b File) int { return int(a.From - b.From) })
		if err := m.check(); (err == nil) != want {
			t.Fatalf("seed %d: %+v is judged %v, want good %v", seed, m.Files, err, want)
		}
		if want {
			good++
		}
	}
	if good < 1000 {
		t.Fatalf("seed %d: only %d manifests were good", seed, good)
	}
}

func TestManifestReadsBack(t *testing.T) {
	m := testManifest(5, 1, 3)
	p := event.Partition{Topic: "flights.events", Number: 3}
	data := m.encode()
	got, err := parseManifest(data, "flights", p)
	if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", m) {
		t.Fatalf("%+v, %v", got, err)
	}
	for n := range len(data) - 1 { // without its last brace it is none, and no shorter part is one
		if _, err := parseManifest(data[:n], "flights", p); err == nil {
			t.Fatalf("the first %d of %d bytes are taken", n, len(data))
		}
	}
	for _, c := range []struct{ old, new, want string }{
		{`"format": 1`, `"format": 2`, "format 2"},
		{`"line": "flights"`, `"line": "boats"`, "line boats"},
		{`"partition": 3`, `"partition": 4`, "partition 4"},
		{`"topic_id": "01`, `"topic_id": "0x`, "hex"},
		{`"from": 5,`, `"from": 6,`, "no file for offsets 5 to 5"},
		{`"from": 5,`, `"from": 4,`, "two of its files hold offset 4"},
		{`"records": 3,`, `"records": 4,`, "4 records in 3 offsets"},
		{`"bytes": 100,`, `"bytes": 0,`, "the name, size or digest"},
		{`-00000000000000000006-0123`, `-00000000000000000007-0123`, "the name, size or digest"},
		{`0123456789ab.parquet"`, `0123456789ab"`, "the name, size or digest"},
	} {
		text := strings.Replace(string(data), c.old, c.new, 1)
		if text == string(data) {
			t.Fatalf("%s is not in\n%s", c.old, data)
		}
		if _, err := parseManifest([]byte(text), "flights", p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("with %s: %v", c.new, err)
		}
	}
}

// A log goes on from what is archived, or its difference is named.
func TestContinues(t *testing.T) {
	is := testManifest(5, 5)
	good := kafka.Log{TopicID: event.TopicID{1}, Start: 0, End: 20, Stable: 20, Epoch: 4, EpochEnd: 12}
	for _, c := range []struct {
		name   string
		m      *Manifest
		change func(*kafka.Log)
		code   string
		what   string
	}{
		{"goes on", is, func(*kafka.Log) {}, "", ""},
		{"shortened to the archive's end", is, func(l *kafka.Log) { l.Start = 10 }, "", ""},
		{"emptied", is, func(l *kafka.Log) { l.Start, l.End, l.Stable, l.Epoch, l.EpochEnd = 10, 10, 10, -1, -1 }, "", ""},
		{"nothing archived", testManifest(), func(l *kafka.Log) { l.TopicID, l.Epoch, l.EpochEnd = event.TopicID{9}, -1, -1 }, "", ""},
		{"nothing archived, shortened", testManifest(), func(l *kafka.Log) { l.Start = 2 }, codeHole, "offsets 0 to 1 are neither"},
		{"shortened by one offset past the archive", is, func(l *kafka.Log) { l.Start = 11 }, codeHole, "offsets 10 to 10 are neither"},
		{"shortened past the archive", is, func(l *kafka.Log) { l.Start = 13 }, codeHole, "offsets 10 to 12 are neither"},
		{"made again", is, func(l *kafka.Log) { l.TopicID = event.TopicID{2} }, codeOtherLog, "made again"},
		{"gone", is, func(l *kafka.Log) { *l = kafka.Log{Gone: true} }, codeOtherLog, "not there"},
		{"lost its end", is, func(l *kafka.Log) { l.End = 9 }, codeOtherLog, "ends at offset 9"},
		{"cut by one offset", is, func(l *kafka.Log) { l.EpochEnd = 9 }, codeOtherLog, "cut at offset 9"},
		{"cut", is, func(l *kafka.Log) { l.EpochEnd = 8 }, codeOtherLog, "cut at offset 8"},
		{"of another history", is, func(l *kafka.Log) { l.Epoch, l.EpochEnd = -1, -1 }, codeOtherLog, "does not know leader epoch 4"},
	} {
		l := good
		c.change(&l)
		err := continues(c.m, l, "c", "/srv/archive")
		if fault.CodeOf(err) != c.code || err != nil && !strings.Contains(err.Error(), c.what) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := continues(is, good, "d", "/srv/archive"); fault.CodeOf(err) != codeOtherLog || !strings.Contains(err.Error(), "cluster c was archived, this is d") {
		t.Errorf("another cluster: %v", err)
	}
}
