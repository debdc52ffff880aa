package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/integration/harness"
)

// archivePart is a partition as archive status prints it.
type archivePart struct {
	Partition int32
	Archived  int64
	Files     int
	Start     int64 `json:"log_start"`
	End       int64 `json:"log_end"`
	Problem   string
}

func (w *wholeLine) archiveParts(t *testing.T) []archivePart {
	t.Helper()
	var s struct{ Partitions []archivePart }
	if err := json.Unmarshal([]byte(w.run(t, 0, "archive", "status", "-o", "json")), &s); err != nil {
		t.Fatal(err)
	}
	return s.Partitions
}

// archiveCommand runs a command of slotline archive to its end, whatever its exit status.
func (w *wholeLine) archiveCommand(t *testing.T, args ...string) harness.Result {
	t.Helper()
	return harness.Command{Args: append([]string{"-c", w.file, "archive"}, args...), Name: "archive-" + args[0]}.Run(t, time.Minute)
}

// deleteRecords removes what lies below these offsets from the topic.
func (w *wholeLine) deleteRecords(t *testing.T, below map[int32]int64) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.kafka.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	offsets := kadm.Offsets{}
	for n, offset := range below {
		offsets.AddOffset(w.cfg.Kafka.Topic, n, offset, -1)
	}
	if _, err := kadm.NewClient(cl).DeleteRecords(t.Context(), offsets); err != nil {
		t.Fatal(err)
	}
}

// A log is archived by a run that is killed and one that goes on, and removed from the topic. A sink that had not applied it
// yet applies it from the archive, and a harmed shard is rebuilt from archive and topic: equal to the fold of all events. Where a file is missing or damaged, or offsets are in neither, that is
// said with its place, and nothing is swapped.
func TestP11_RebuildFromArchiveAndTopic(t *testing.T) {
	harness.Proof(t)
	dir := filepath.Join(t.TempDir(), "archive")
	w := newLine(t, sharedServers(t), fmt.Sprintf("archive: { dir: %q, older_than: 1s, file_bytes: 1MiB }\n", dir))
	flights, want := replayFlights(t, 200, 3)
	relay, sink := w.start(t, "relay"), w.start(t, "sink", "mysql")
	w.emit(t, flights[0], 1)
	w.waitShards(t)
	sink.Stop(t, time.Minute)
	w.emit(t, flights[1], 2)
	w.waitPublished(t)

	p := w.start(t, "archive", "run")
	p.WaitOutput(t, " archive ", time.Minute)
	p.Kill(t)
	var parts []archivePart
	until(t, "everything is archived", time.Minute, func() bool {
		w.run(t, 0, "archive", "run")
		parts = w.archiveParts(t)
		for _, p := range parts {
			if p.Archived < p.End {
				return false
			}
		}
		return true
	})
	if r := w.archiveCommand(t, "verify"); r.Code != 0 || strings.Contains(r.Stdout, "no manifest names it") {
		t.Errorf("archive verify ends with %d:\n%s%s", r.Code, r.Stdout, r.Stderr)
	} else {
		t.Logf("%s", r.Stdout)
	}
	files, err := filepath.Glob(dir + "/*/*/*.parquet")
	if err != nil {
		t.Fatal(err)
	}
	named, below := 0, map[int32]int64{}
	for _, p := range parts {
		named += p.Files
		below[p.Partition] = p.Archived
	}
	if left, _ := filepath.Glob(dir + "/tmp/*"); len(files) != named || len(left) > 0 {
		t.Errorf("%d files, the manifests name %d; half written are %v", len(files), named, left)
	}
	w.deleteRecords(t, below)
	sink = w.start(t, "sink", "mysql")
	w.waitShards(t)
	harmed := damage(t, w.shards["s1"])
	w.emit(t, flights[2], 3)
	w.waitShards(t)
	w.run(t, 0, "archive", "run") // goes on behind what was removed

	if r := w.replayCommand(t, "plan", "--shard", "s1"); r.Code != 0 || !strings.Contains(r.Stdout, " of them from the archive, complete from offset 0") {
		t.Errorf("plan ends with %d:\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	w.holesAreNamed(t, dir, files)

	p, job := w.replaying(t, "rebuild", "--shard", "s1", "--yes", "--detach")
	if r := p.Wait(t, time.Minute); r.Code != 0 {
		t.Fatalf("rebuild ends with %d:\n%s", r.Code, r.Stderr)
	}
	t.Logf("%s", p.Stderr())
	for _, name := range harmed {
		if !strings.Contains(p.Stderr(), name) {
			t.Errorf("verify does not name %q", name)
		}
	}
	w.run(t, 0, "replay", "accept", job)
	w.waitShards(t)
	relay.Stop(t, time.Minute)
	sink.Stop(t, time.Minute)
	compare(t, "shards after the rebuild", w.shardFigures(t), want)
	w.checkPlaces(t)
	w.nothingLeft(t, job)

	// What was removed before it was archived is in neither.
	for _, p := range w.archiveParts(t) {
		if p.Problem != "" {
			t.Errorf("partition %d: %s", p.Partition, p.Problem)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, w.cfg.Kafka.Topic, "00000")); err != nil {
		t.Fatal(err)
	}
	if r := w.archiveCommand(t, "run"); r.Code != 1 || !strings.Contains(r.Stderr, "SL7604") || !strings.Contains(r.Stderr, fmt.Sprintf("partition 0: offsets 0 to %d are neither", below[0]-1)) {
		t.Errorf("archive run of a shortened topic ends with %d:\n%s", r.Code, r.Stderr)
	}
	if r := w.replayCommand(t, "plan", "--shard", "s1"); r.Code != 1 || !strings.Contains(r.Stderr, "SL7503") || !strings.Contains(r.Stderr, "partition 0 begins at offset") {
		t.Errorf("plan without an archive of partition 0 ends with %d:\n%s", r.Code, r.Stderr)
	}
}

// holesAreNamed harms a file in turn, and mends it.
func (w *wholeLine) holesAreNamed(t *testing.T, dir string, files []string) {
	t.Helper()
	file := files[0] // of partition 0, which meets s1
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	name, err := filepath.Rel(dir, file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if r := w.replayCommand(t, "rebuild", "--shard", "s1", "--yes"); r.Code != 1 || !strings.Contains(r.Stderr, "SL7503") ||
		!strings.Contains(r.Stderr, "offsets 0 to ") || !strings.Contains(r.Stderr, name+" of archive "+dir+" is not there") {
		t.Errorf("rebuild without a file ends with %d:\n%s", r.Code, r.Stderr)
	}
	// The same size, and one byte is another: that is seen when the file is read, before any event of it is applied.
	bad := bytes.Clone(good)
	bad[len(bad)/2] ^= 1
	if err := os.WriteFile(file, bad, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := w.replayCommand(t, "rebuild", "--shard", "s1", "--yes"); r.Code != 1 || !strings.Contains(r.Stderr, "SL7512") || !strings.Contains(r.Stderr, name) {
		t.Errorf("rebuild from a damaged file ends with %d:\n%s", r.Code, r.Stderr)
	} else {
		t.Logf("%s", r.Stderr)
	}
	w.run(t, 0, "replay", "abort", jobLineOf(t, w.run(t, 0, "replay", "status")))
	if r := w.archiveCommand(t, "verify"); r.Code != 3 || !strings.Contains(r.Stdout, name) || !strings.Contains(r.Stdout, "1 damaged") {
		t.Errorf("verify of a damaged file ends with %d:\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	if err := os.WriteFile(file, good, 0o644); err != nil {
		t.Fatal(err)
	}
}
