package archive

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
)

// Where a log can begin is decided as a twin does that walks from offset to offset and asks of each whether it may go. Who is
// said to hold the rest does.
func TestDecideAgainstTwin(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	some, all := 0, 0
	for range 50_000 {
		end := rng.Int64N(20)
		start := rng.Int64N(end + 1)
		young := map[int64]bool{} // records that are not old enough; times need not be in order
		due := end                // as Kafka answers
		for o := range end {
			if young[o] = rng.IntN(12) == 0; young[o] && o >= start {
				due = min(due, o)
			}
		}
		if rng.IntN(4) == 0 {
			due = end // it has answered before the records came
		}
		var files []File
		damaged := map[int64]bool{} // by a file's first offset
		for at := int64(0); at < end && rng.IntN(8) > 0; {
			to := min(end, at+1+rng.Int64N(6))
			files = append(files, File{From: at, To: to})
			damaged[at] = rng.IntN(8) == 0
			at = to
		}
		var needs []Need
		for i := range rng.IntN(4) {
			needs = append(needs, Need{fmt.Sprint("sink", i), rng.Int64N(end + 3)})
		}
		read := func(f File, below int64) (int64, bool, error) {
			for o := max(start, f.From); o < min(f.To, below); o++ {
				if young[o] {
					return o, !damaged[f.From], nil
				}
			}
			return math.MaxInt64, !damaged[f.From], nil
		}
		becomes, by, err := decide(start, end, due, files, needs, read)
		if err != nil {
			t.Fatal(err)
		}

		keeps := func(o int64) (by []string) {
			if !slices.ContainsFunc(files, func(f File) bool { return f.From <= o && o < f.To && !damaged[f.From] }) {
				by = append(by, byArchive)
			}
			if young[o] || o >= due {
				by = append(by, byAge)
			}
			for _, n := range needs {
				if o >= n.From {
					by = append(by, n.By)
				}
			}
			return by
		}
		want := start
		for want < end && len(keeps(want)) == 0 {
			want++
		}
		good := becomes == want && (len(by) == 0) == (want == end)
		for _, name := range by {
			good = good && want < end && slices.Contains(keeps(want), name)
		}
		if !good {
			t.Fatalf("seed %d: a log of %d to %d, due %d, files %v, damaged %v, young %v, needs %v begins at %d, held by %v; the twin says %d, %v",
				seed, start, end, due, files, damaged, young, needs, becomes, by, want, keeps(want))
		}
		if want > start {
			some++
		}
		if want == end && want > start {
			all++
		}
	}
	if some < 5000 || all < 200 {
		t.Errorf("seed %d: only %d logs were shortened, %d to nothing", seed, some, all)
	}
}

// trims is what can go of the topic, older than an age.
func (k *topicOf) trims(age time.Duration, needs ...Need) []Trim {
	k.Helper()
	list, err := k.open().Trims(k.Context(), age, map[event.Partition][]Need{part: needs}, nil)
	if err != nil || len(list) != 1 {
		k.Fatalf("%+v, %v", list, err)
	}
	return list
}

func (k *topicOf) trim(list []Trim, needs ...Need) Trim {
	k.Helper()
	if err := k.open().Trim(k.Context(), list, map[event.Partition][]Need{part: needs}); err != nil {
		k.Fatal(err)
	}
	return list[0]
}

// start is the topic's first offset.
func (k *topicOf) start() int64 {
	k.Helper()
	list, err := kadm.NewClient(k.cl).ListStartOffsets(k.Context(), part.Topic)
	if err != nil {
		k.Fatal(err)
	}
	o, _ := list.Lookup(part.Topic, part.Number)
	return o.Offset
}

func (k *topicOf) expect(t Trim, becomes, records int64, by ...string) {
	k.Helper()
	if t.Becomes != becomes || t.Records != records || !slices.Equal(t.HeldBy, by) {
		k.Errorf("%+v, want %d, %d events, %v", t, becomes, records, by)
	}
}

// What is archived, old enough and applied goes, and nothing else; the archive goes on from there, and has all of it.
func TestTrimRemovesWhatNobodyNeeds(t *testing.T) {
	onEach(t, func(t *testing.T, c *config.Archive) {
		k := newTopic(t, c)
		k.expect(k.trims(time.Second)[0], 0, 0)
		k.produce(12, 3*time.Hour)
		k.expect(k.trims(time.Second)[0], 0, 0, byArchive)
		k.run()
		k.produce(6, 2*time.Hour)
		k.produce(2, time.Minute)
		k.expect(k.trims(time.Second)[0], 12, 12, byArchive)
		k.run() // up to 18
		k.expect(k.trims(time.Second)[0], 18, 18, byArchive)
		k.expect(k.trims(150 * time.Minute)[0], 12, 12, byAge)
		k.expect(k.trims(time.Second, Need{"mysql/s2", 7}, Need{"outbox", 9})[0], 7, 7, "mysql/s2")
		k.expect(k.trims(time.Second, Need{"mysql/s2", 0})[0], 0, 0, "mysql/s2")
		c.OlderThan = time.Second
		k.run() // up to 20
		k.expect(k.trims(time.Hour)[0], 18, 18, byAge)
		k.expect(k.trims(time.Second)[0], 20, 20)
		if at := k.start(); at != 0 {
			t.Fatalf("looking removes what lies below offset %d", at)
		}

		list := k.trims(time.Second, Need{"mysql/s2", 7})
		if got := k.trim(list, Need{"mysql/s2", 9}); !got.Removed || got.Problem != "" || k.start() != 7 {
			t.Errorf("%+v, the topic begins at %d", got, k.start())
		}
		k.expect(k.trims(time.Second, Need{"mysql/s2", 3})[0], 7, 0, "mysql/s2") // it was restored
		list[0].Start, list[0].Becomes = 0, 5
		if got := k.trim(list); got.Problem != "" || got.Start != 7 || got.Becomes != 7 { // one that began before the last, and comes after it
			t.Errorf("%+v", got)
		}
		k.expect(k.trims(time.Second, Need{"mysql/s2", 11})[0], 11, 4, "mysql/s2")
		k.trim(k.trims(time.Second))
		k.same(0, 20)
		k.produce(4, time.Hour)
		k.run()
		k.same(0, 24)
		if k.start() != 20 {
			t.Errorf("the topic begins at %d", k.start())
		}
	})
}

// A record that is young lies before older ones: it stays, and so do they.
func TestTrimGoesByEachRecordsTime(t *testing.T) {
	k := newTopic(t, dirArchive(t))
	k.cfg.Archive.OlderThan = time.Second
	k.produce(5, 3*time.Hour)
	k.produce(1, time.Hour)
	k.produce(6, 3*time.Hour)
	k.run()
	k.expect(k.trims(2 * time.Hour)[0], 5, 5, byAge)
	k.expect(k.trims(30 * time.Minute)[0], 12, 12)
}

// Of a file that is damaged or gone nothing is removed, nor of what comes after; it is named. One below the log's start keeps all:
// the archive alone has what it held.
func TestTrimStopsAtADamagedFile(t *testing.T) {
	c := dirArchive(t)
	k := newTopic(t, c)
	k.produce(12, 2*time.Hour)
	k.run() // files of four
	name := filepath.Join(c.Dir, folder(part), k.manifest().Files[1].Name)
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	write := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	bad := slices.Clone(good)
	bad[len(bad)/2] ^= 1
	sound := k.trims(time.Second)
	write(bad)
	got := k.trims(time.Second)[0]
	k.expect(got, 4, 4, byArchive)
	if !strings.Contains(got.Problem, "SL7602") || !strings.Contains(got.Problem, filepath.Base(name)) || !strings.Contains(got.Problem, "offsets 4 to 7") {
		t.Errorf("the problem is %q", got.Problem)
	}
	k.expect(k.trims(time.Second, Need{"mysql/s1", 4})[0], 4, 4, "mysql/s1") // the file need not be read
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if got := k.trim(sound); got.Removed || !strings.Contains(got.Problem, "SL7602") || k.start() != 0 {
		t.Errorf("a file that went while somebody was asked: %+v, the topic begins at %d", got, k.start())
	}
	k.expect(k.trims(time.Second)[0], 4, 4, byArchive)
	write(good)
	k.trim(k.trims(time.Second, Need{"mysql/s1", 9}))
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if got := k.trims(time.Second)[0]; got.Becomes != 9 || !strings.Contains(got.Problem, "is not there") {
		t.Errorf("a file below the log's start is gone: %+v", got)
	}
}

// What has changed since it was looked at is not removed: the topic, the manifest, or who needs it.
func TestTrimKeepsWhatHasChanged(t *testing.T) {
	c := dirArchive(t)
	k := newTopic(t, c)
	k.produce(12, 2*time.Hour)
	k.run()
	list := k.trims(time.Second)
	if got := k.trim(list, Need{"job rb0001", 5}); got.Removed || got.Problem != "" {
		t.Errorf("a job that began: %+v", got)
	} else {
		k.expect(got, 0, 0, "job rb0001")
	}

	list = k.trims(time.Second)
	manifest := filepath.Join(c.Dir, manifestName(part))
	good, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	m := k.manifest()
	m.Files = m.Files[:1]
	if err := os.WriteFile(manifest, m.encode(), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := k.trim(list); got.Removed || !strings.Contains(got.Problem, "SL7610") {
		t.Errorf("another manifest: %+v", got)
	}
	if err := os.WriteFile(manifest, []byte(strings.Replace(string(good), `"line": "flights"`, `"line": "trains"`, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := k.trims(time.Second)[0]; got.Becomes != 0 || !strings.Contains(got.Problem, "SL7603") {
		t.Errorf("another line's archive: %+v", got)
	}
	if err := os.WriteFile(manifest, []byte(strings.Replace(string(good), `"cluster": "`, `"cluster": "other-`, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := k.trims(time.Second)[0]; got.Becomes != 0 || !strings.Contains(got.Problem, "SL7605") || !strings.Contains(got.Problem, "cluster other-") {
		t.Errorf("another cluster: %+v", got)
	}
	if err := os.WriteFile(manifest, good, 0o644); err != nil {
		t.Fatal(err)
	}

	list = k.trims(time.Second)
	adm := kadm.NewClient(k.cl)
	if _, err := adm.DeleteTopic(t.Context(), part.Topic); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, part.Topic); err != nil {
		t.Fatal(err)
	}
	again, err := kgo.NewClient(kgo.SeedBrokers(k.cfg.Kafka.Brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.Close)
	k.cl = again // the other knows the old topic
	k.produce(15, 2*time.Hour)
	if got := k.trim(list); got.Removed || got.Problem == "" || k.start() != 0 {
		t.Errorf("a topic that was made again: %+v, it begins at %d", got, k.start())
	}
	if got := k.trims(time.Second)[0]; got.Becomes != 0 || !strings.Contains(got.Problem, "SL7605") {
		t.Errorf("a topic that was made again: %+v", got)
	}
	// Nothing of it is archived: only the ids tell it from the one that was looked at.
	if err := os.RemoveAll(filepath.Join(c.Dir, part.Topic)); err != nil {
		t.Fatal(err)
	}
	if got := k.trim([]Trim{{Topic: part.Topic, Becomes: 12, id: list[0].id}}); got.Removed || !strings.Contains(got.Problem, "SL7610") || k.start() != 0 {
		t.Errorf("a topic that was made again, and an archive that is gone: %+v", got)
	}
}

// An answer of Kafka's that is an error keeps that partition, and is said.
func TestTrimSaysWhatKafkaRefuses(t *testing.T) {
	k := newTopic(t, dirArchive(t))
	k.produce(4, 2*time.Hour)
	k.run()
	list := k.trims(time.Second)
	list[0].Becomes, list[0].End = 99, 99 // above the log's end
	if got := k.trim(list); got.Removed || got.Becomes != 0 || !strings.Contains(got.Problem, "cannot remove what lies below offset 99 of flights.events partition 0") {
		t.Errorf("%+v", got)
	}
	k.cfg.Archive = nil
	if _, err := Open(k.cfg, nil); fault.CodeOf(err) != codeNoArchive {
		t.Errorf("a file without an archive: %v", err)
	}
}
