package archive

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
)

var part = event.Partition{Topic: "flights.events"}

// topicOf is a topic of one partition in the test's process, and a line with an archive.
type topicOf struct {
	*testing.T
	cfg  *config.Config
	cl   *kgo.Client
	have []*kgo.Record
}

func newTopic(t *testing.T, archive *config.Archive) *topicOf {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, part.Topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return &topicOf{T: t, cl: cl, cfg: &config.Config{File: "slotline.yaml", Line: "flights", Archive: archive,
		Kafka:  config.Kafka{Brokers: c.ListenAddrs(), Topic: part.Topic, Partitions: 1},
		Outbox: config.Outbox{EventBytesMax: 900 << 10}, Tables: []*event.Table{{Name: "flights"}}}}
}

func dirArchive(t *testing.T) *config.Archive {
	return &config.Archive{Dir: t.TempDir(), OlderThan: time.Hour, FileBytes: 2000}
}

// produce writes records that are as old as said.
func (k *topicOf) produce(n int, age time.Duration) {
	k.Helper()
	for range n {
		r := flightsRecord(int64(len(k.have)))
		r.Topic, r.Timestamp = part.Topic, time.Now().Add(-age).Truncate(time.Millisecond)
		if err := k.cl.ProduceSync(k.Context(), r).FirstErr(); err != nil {
			k.Fatal(err)
		}
		k.have = append(k.have, r)
	}
}

func (k *topicOf) open() *Archive {
	k.Helper()
	a, err := Open(k.cfg, nil)
	if err != nil {
		k.Fatal(err)
	}
	return a
}

func (k *topicOf) run() Written {
	k.Helper()
	w, err := k.open().Run(k.Context(), nil)
	if err != nil {
		k.Fatal(err)
	}
	return w
}

func (k *topicOf) manifest() *Manifest {
	k.Helper()
	m, _, err := k.open().load(k.Context(), part)
	if err != nil {
		k.Fatal(err)
	}
	return m
}

// same says how what the archive holds from an offset on differs from what was produced.
func (k *topicOf) same(from, to int64) {
	k.Helper()
	a := k.open()
	if until, err := a.Until(k.Context(), part, event.TopicID(k.manifest().TopicID), from); err != nil || until != to {
		k.Errorf("archived up to %d, want %d: %v", until, to, err)
	}
	at := from
	next, err := a.Read(k.Context(), part, from, func(records []*kgo.Record) error {
		for _, r := range records {
			want := k.have[at]
			if r.Offset != at || !bytes.Equal(r.Key, want.Key) || !bytes.Equal(r.Value, want.Value) || !r.Timestamp.Equal(want.Timestamp) ||
				fmt.Sprint(r.Headers) != fmt.Sprint(want.Headers) || r.Topic != part.Topic || r.LeaderEpoch != 0 {
				return fmt.Errorf("offset %d is read as %s at %s, was %s at %s", at, r.Value, r.Timestamp, want.Value, want.Timestamp)
			}
			at++
		}
		return nil
	})
	if err != nil || next != to || at != to {
		k.Errorf("read up to %d, next %d, want %d: %v", at, next, to, err)
	}
}

func (k *topicOf) deleteRecords(below int64) {
	k.Helper()
	cut := kadm.Offsets{}
	cut.AddOffset(part.Topic, part.Number, below, -1)
	if _, err := kadm.NewClient(k.cl).DeleteRecords(k.Context(), cut); err != nil {
		k.Fatal(err)
	}
}

// onEach runs a test on a directory and on a bucket.
func onEach(t *testing.T, test func(t *testing.T, a *config.Archive)) {
	t.Run("dir", func(t *testing.T) { test(t, dirArchive(t)) })
	t.Run("s3", func(t *testing.T) {
		_, host := newFakeS3(t)
		test(t, s3Archive(t, host))
	})
}

func s3Archive(t *testing.T, host string) *config.Archive {
	t.Helper()
	t.Setenv("S3_SECRET", "hunter2")
	cfg, err := config.Parse("slotline.yaml", fmt.Appendf(nil, `
line: flights
kafka: { brokers: [kafka1:9092] }
outbox: { dsn: "mysql://app:x@db0/flights" }
shards: { s1: { dsn: "mysql://slotline:x@db1/flights_s1", slots: 0-1023 } }
tables: { orders: { tenant: carrier, id: order_id, columns: { carrier: string(2), order_id: uint64 } } }
archive: { s3: { endpoint: "http://%s", bucket: archive, access_key: AK, secret_key: "${S3_SECRET}" }, older_than: 1h }`, host))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Archive.FileBytes = 2000
	return cfg.Archive
}

// What is old enough is archived, once, in files of the size that is asked for; younger events wait for a later run.
func TestRunArchivesWhatIsOld(t *testing.T) {
	onEach(t, func(t *testing.T, c *config.Archive) {
		k := newTopic(t, c)
		if w := k.run(); w != (Written{}) {
			t.Errorf("of an empty topic %+v is archived", w)
		}
		k.produce(10, 2*time.Hour)
		k.produce(5, time.Minute)
		if w := k.run(); w.Files != 3 || w.Records != 10 || w.Partitions != 1 { // of some 505 bytes each: 4, 4 and 2
			t.Errorf("%+v", w)
		}
		k.same(0, 10)
		k.same(7, 10)
		if w := k.run(); w != (Written{}) {
			t.Errorf("archived again: %+v", w)
		}
		c.OlderThan = time.Second
		k.run()
		k.same(0, 15)
		v, err := k.open().Verify(t.Context(), nil)
		if err != nil || len(v.Damaged)+len(v.Unnamed) > 0 || v.Records != 15 || v.Files != 5 {
			t.Errorf("%+v, %v", v, err)
		}
		// What is archived is read also when the topic has nothing left.
		k.deleteRecords(15)
		k.same(0, 15)
		k.produce(3, time.Hour)
		k.run()
		k.same(0, 18)
	})
}

// A run that is cut off at any request has archived what its manifest says; the next one goes on and leaves no second copy.
func TestRunGoesOnAfterAKill(t *testing.T) {
	f, host := newFakeS3(t)
	k := newTopic(t, s3Archive(t, host))
	k.produce(12, 2*time.Hour)
	requests := 0
	for cut := 0; ; cut++ {
		clear(f.objects)
		ctx, kill := context.WithCancel(t.Context())
		requests = 0
		f.before = func(method, name string) int {
			if requests++; requests > cut {
				kill() // as late as the request is on its way, or before
				if cut%2 == 0 {
					return 500
				}
			}
			return 0
		}
		a, err := Open(k.cfg, nil)
		if err == nil {
			_, err = a.Run(ctx, nil)
		}
		kill()
		f.before = nil
		if err == nil {
			if cut < 8 {
				t.Fatalf("a run makes %d requests only", cut)
			}
			break
		}
		k.run()
		k.same(0, 12)
		if files, named := len(f.objects)-1, len(k.manifest().Files); files != named {
			t.Errorf("cut off at request %d: %d files, the manifest names %d", cut, files, named)
		}
	}
}

// A run that looked before another one archived more writes nothing: its manifest would not name the other's files.
func TestRunThatLookedTooEarlyWritesNothing(t *testing.T) {
	for name, made := range map[string]bool{"there was a manifest": true, "there was none": false} {
		t.Run(name, func(t *testing.T) {
			k := newTopic(t, dirArchive(t))
			if made {
				k.produce(4, 2*time.Hour)
				k.run()
			}
			a := k.open()
			looked, err := a.stand(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			k.produce(4, 2*time.Hour)
			k.run()
			was := k.manifest()
			w := &writer{a: a, p: part, m: looked[part].m, done: &Written{}}
			if err := w.claim(t.Context()); fault.CodeOf(err) != codeTaken {
				t.Errorf("%v", err)
			}
			if is := k.manifest(); is.End() != was.End() || is.Run != was.Run {
				t.Errorf("the manifest ends at %d now, at %d before", is.End(), was.End())
			}
		})
	}
}

// A directory's run that was killed leaves a file half written, and one that no manifest names.
func TestRunRemovesWhatAKilledOneLeft(t *testing.T) {
	c := dirArchive(t)
	k := newTopic(t, c)
	k.produce(4, 2*time.Hour)
	k.run()
	left := filepath.Join(c.Dir, folder(part), "00000000000000000004-00000000000000000006-0123456789ab.parquet")
	half, other := filepath.Join(c.Dir, tmpFolder, "spool-1"), filepath.Join(c.Dir, folder(part), "note.txt")
	for _, name := range []string{left, half, other} {
		if err := os.WriteFile(name, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if v, err := k.open().Verify(t.Context(), nil); err != nil || len(v.Unnamed) != 1 {
		t.Errorf("%+v, %v", v, err)
	}
	k.produce(4, 2*time.Hour)
	if w := k.run(); w.Removed != 1 {
		t.Errorf("%+v", w)
	}
	for name, want := range map[string]bool{left: false, half: false, other: true} {
		if _, err := os.Stat(name); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	k.same(0, 8)
}

// Of two runs at once one ends without harm, whichever wakes first.
func TestTwoRunsAtOnce(t *testing.T) {
	t.Run("dir", func(t *testing.T) {
		k := newTopic(t, dirArchive(t))
		k.produce(4, 2*time.Hour)
		end, err := k.open().store.alone()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.open().Run(t.Context(), nil); fault.CodeOf(err) != codeTaken {
			t.Errorf("a second run: %v", err)
		}
		end()
		k.run()
		k.same(0, 4)
	})
	t.Run("s3", func(t *testing.T) {
		f, host := newFakeS3(t)
		k := newTopic(t, s3Archive(t, host))
		k.produce(12, 2*time.Hour)
		// The first sleeps at each of its writes in turn while a second runs from its beginning to its end.
		for at := 1; ; at++ {
			clear(f.objects)
			puts, slept := 0, false
			f.before = func(method, name string) int {
				if method == "PUT" {
					if puts++; puts == at && !slept {
						slept = true
						k.run()
					}
				}
				return 0
			}
			_, err := k.open().Run(t.Context(), nil)
			f.before = nil
			if !slept {
				if at < 6 {
					t.Fatalf("a run has %d writes only", at-1)
				}
				break
			}
			if fault.CodeOf(err) != codeTaken { // another has written the manifest since, whichever write it was
				t.Errorf("asleep at write %d: %v", at, err)
			}
			k.run()
			k.same(0, 12)
			if v, err := k.open().Verify(t.Context(), nil); err != nil || len(v.Damaged) > 0 {
				t.Errorf("asleep at write %d: %+v, %v", at, v, err)
			}
		}
	})
}

// An answer that was lost is not taken for another run's write, and a service without conditions is refused.
func TestBucketConditions(t *testing.T) {
	f, host := newFakeS3(t)
	k := newTopic(t, s3Archive(t, host))
	k.produce(4, 2*time.Hour)
	lost := 0
	f.after = func(method, name string) bool { lost++; return lost == 1 || lost == 3 }
	k.run()
	k.same(0, 4)
	f.after, f.unguarded = nil, true
	k.produce(4, 2*time.Hour)
	if _, err := k.open().Run(t.Context(), nil); fault.CodeOf(err) != codeUnguarded {
		t.Errorf("a service that knows no conditions: %v", err)
	}
	k.same(0, 4)
}

// Whatever byte of a file is changed, or however it is cut, no record of it is read, and its place is named.
func TestDamageIsNamed(t *testing.T) {
	c := dirArchive(t)
	k := newTopic(t, c)
	k.produce(8, 2*time.Hour)
	k.run()
	a := k.open()
	f := k.manifest().Files[1]
	name := filepath.Join(c.Dir, folder(part), f.Name)
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range 60 {
		bad := bytes.Clone(good)
		switch i % 3 {
		case 0:
			bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
		case 1:
			bad = bad[:rng.IntN(len(bad))]
		case 2:
			bad = append(bad, 0)
		}
		if err := os.WriteFile(name, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := a.Read(t.Context(), part, f.From, func([]*kgo.Record) error { t.Errorf("seed %d: records of a damaged file", seed); return nil })
		if fault.CodeOf(err) != codeDamaged || !strings.Contains(err.Error(), fmt.Sprintf("offsets %d to %d of flights.events partition 0", f.From, f.To-1)) {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if v, err := a.Verify(t.Context(), nil); err != nil || len(v.Damaged) != 1 || v.Files != 1 {
		t.Errorf("%+v, %v", v, err)
	}
	lacks := func() string {
		why, err := k.open().Lacks(t.Context(), part, kafka.Log{TopicID: event.TopicID(k.manifest().TopicID), Start: 8, End: 8, Stable: 8})
		if err != nil {
			t.Fatal(err)
		}
		return why
	}
	// Another topic of the same name, made again: what is archived is not its history.
	again := event.TopicID{9}
	if why, err := k.open().Lacks(t.Context(), part, kafka.Log{TopicID: again, Start: 8, End: 8, Stable: 8}); err != nil || !strings.Contains(why, "another topic") {
		t.Errorf("a topic that was made again: %q, %v", why, err)
	}
	if until, err := k.open().Until(t.Context(), part, again, 3); err != nil || until != 3 {
		t.Errorf("of a topic that was made again offsets up to %d are archived, %v", until, err)
	}
	if until, err := k.open().Until(t.Context(), part, event.TopicID(k.manifest().TopicID), 3); err != nil || until != k.manifest().End() {
		t.Errorf("offsets up to %d are archived, %v", until, err)
	}
	if why := lacks(); !strings.Contains(why, "offsets 4 to 7 are gone") {
		t.Errorf("a file of another size: %q", why)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if why := lacks(); !strings.Contains(why, "is not there") {
		t.Errorf("a file that is gone: %q", why)
	}
	if err := os.WriteFile(name, good, 0o644); err != nil {
		t.Fatal(err)
	}
	if why := lacks(); why != "" {
		t.Errorf("whole again: %q", why)
	}
	k.same(0, 8)
}

// A topic that was shortened past what is archived is refused, and nothing of the archive is touched.
func TestRunRefusesAHole(t *testing.T) {
	c := dirArchive(t)
	k := newTopic(t, c)
	k.produce(12, 2*time.Hour)
	k.deleteRecords(2)
	if _, err := k.open().Run(t.Context(), nil); fault.CodeOf(err) != codeHole || !strings.Contains(err.Error(), "offsets 0 to 1 are neither") {
		t.Errorf("a topic without its beginning: %v", err)
	}
	if m := k.manifest(); m != nil {
		t.Errorf("there is a manifest: %+v", m)
	}
}

// An archive of which nothing, or a manifest, is there is not taken for a sound one.
func TestVerifyMissesWhatIsNotThere(t *testing.T) {
	c := dirArchive(t)
	k := newTopic(t, c)
	if v, err := k.open().Verify(t.Context(), nil); fault.CodeOf(err) != codeEmpty {
		t.Errorf("of an empty directory: %+v, %v", v, err)
	}
	k.produce(4, 2*time.Hour)
	k.run()
	if err := os.Remove(filepath.Join(c.Dir, manifestName(part))); err != nil {
		t.Fatal(err)
	}
	v, err := k.open().Verify(t.Context(), nil)
	if err != nil || len(v.Damaged) != 1 || !strings.Contains(v.Damaged[0], manifestName(part)) || len(v.Unnamed) > 0 {
		t.Errorf("without its manifest: %+v, %v", v, err)
	}
}
