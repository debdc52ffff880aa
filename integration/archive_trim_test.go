package integration

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/archive"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/line"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/outbox"
)

// addressForm is a server's address in a dsn.
var addressForm = regexp.MustCompile(`@[^/]+/`)

// trimWith runs slotline archive trim with a file of the line.
func trimWith(t *testing.T, file string, status int, args ...string) (trimmed line.Trim, said string) {
	t.Helper()
	r := harness.Command{Args: append([]string{"-c", file, "archive", "trim", "--older-than", "1s", "-o", "json"}, args...), Name: "archive-trim"}.Run(t, time.Minute)
	if r.Code != status {
		t.Fatalf("slotline archive trim %v: exit status %d, want %d\n%s%s", args, r.Code, status, r.Stdout, r.Stderr)
	}
	if r.Stdout != "" {
		if err := json.Unmarshal([]byte(r.Stdout), &trimmed); err != nil {
			t.Fatal(err)
		}
	}
	return trimmed, r.Stdout + r.Stderr
}

// starts are the topic's first offsets.
func (w *wholeLine) starts(t *testing.T) map[int32]int64 {
	t.Helper()
	list := map[int32]int64{}
	for _, p := range w.archiveParts(t) {
		list[p.Partition] = p.Start
	}
	return list
}

// meets says whether a partition meets a shard.
func (w *wholeLine) meets(shard string, partition int32) bool {
	at, _ := w.layout.ShardIndex(shard)
	return slices.Contains(w.layout.ShardPartitions(at), partition)
}

// backUp copies all tables of a database, and gives what brings them back as they were.
func backUp(t *testing.T, db *sql.DB) (restore func()) {
	t.Helper()
	exec := func(query string) {
		t.Helper()
		if _, err := db.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	tables := func() (names []string) {
		each(t, db, "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_TYPE = 'BASE TABLE' AND TABLE_NAME NOT LIKE 'backup\\_%'", func(scan func(...any)) {
			var name string
			scan(&name)
			names = append(names, name)
		})
		return names
	}
	saved, columns := tables(), map[string]string{}
	for _, name := range saved {
		var list []string
		each(t, db, "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND GENERATION_EXPRESSION = '' AND TABLE_NAME = '"+name+"'", func(scan func(...any)) {
			var column string
			scan(&column)
			list = append(list, "`"+column+"`")
		})
		columns[name] = strings.Join(list, ",")
		exec("CREATE TABLE `backup_" + name + "` AS SELECT " + columns[name] + " FROM `" + name + "`")
	}
	return func() {
		for _, name := range tables() {
			exec("DELETE FROM `" + name + "`")
			if slices.Contains(saved, name) {
				exec("INSERT INTO `" + name + "` (" + columns[name] + ") SELECT * FROM `backup_" + name + "`")
			}
		}
	}
}

// The topics are shortened behind the archive and everybody who needs them: not past a sink that lags, a shard or a store that
// is not there, a job that has not ended, or a file that is damaged; and not unless somebody says yes. What is needed again is
// read from the archive: by a rebuild, by verify, and by a shard that is restored to before what was removed.
func TestP8_TopicTrimmedBehindTheArchive(t *testing.T) {
	harness.Proof(t)
	dir := filepath.Join(t.TempDir(), "archive")
	w := newLine(t, sharedServers(t), fmt.Sprintf("archive: { dir: %q, older_than: 1s }\n", dir))
	flights, want := replayFlights(t, 200, 3)
	archiveAll := func() {
		t.Helper()
		until(t, "everything is archived", time.Minute, func() bool {
			w.run(t, 0, "archive", "run")
			return !slices.ContainsFunc(w.archiveParts(t), func(p archivePart) bool { return p.Archived < p.End })
		})
	}
	relay, sink, olap := w.start(t, "relay"), w.start(t, "sink", "mysql"), w.start(t, "sink", "clickhouse")
	w.emit(t, flights[0], 1)
	w.waitDrained(t, time.Minute)
	restore := backUp(t, w.shards["s1"])
	archiveAll()

	// The shards' sink stands still; the store's goes on.
	sink.Stop(t, time.Minute)
	w.emit(t, flights[1], 2)
	w.waitPublished(t)
	until(t, "ClickHouse has applied it", time.Minute, func() bool {
		sinks := w.status(t).Sinks
		return sinks[len(sinks)-1].Lag == 0
	})
	archiveAll()
	stands := map[int32]int64{}
	for _, db := range w.shards {
		rows, err := progress.List(t.Context(), db, "mysql")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if at, ok := stands[r.Number]; !ok || r.Next < at {
				stands[r.Number] = r.Next
			}
		}
	}
	w.waitTrim(t, func(p archive.Trim) int64 { return min(stands[p.Partition], p.End-outbox.TailBack) })
	if _, said := trimWith(t, w.file, 1); !strings.Contains(said, "WOULD BEGIN AT") || !strings.Contains(said, "[y/N]") || !strings.Contains(said, "Nothing was changed.") {
		t.Errorf("asked without a terminal it says:\n%s", said)
	}
	for p, start := range w.starts(t) {
		if start != 0 {
			t.Errorf("partition %d begins at %d, and nobody said yes", p, start)
		}
	}
	trimmed, _ := trimWith(t, w.file, 0, "--yes")
	starts := w.starts(t)
	for _, p := range trimmed.Parts {
		byShard := slices.ContainsFunc(p.HeldBy, func(by string) bool { return strings.HasPrefix(by, "mysql/s") })
		if starts[p.Partition] != p.Becomes || byShard != (stands[p.Partition] <= p.End-outbox.TailBack) {
			t.Errorf("partition %d begins at %d, the shards stand at %d: %+v", p.Partition, starts[p.Partition], stands[p.Partition], p)
		}
	}
	sink = w.start(t, "sink", "mysql")
	w.waitDrained(t, time.Minute)
	tail := func(p archive.Trim) int64 { return p.End - outbox.TailBack }
	w.waitTrim(t, tail)

	// Who is not there keeps all that it meets.
	dead := func(sink string) string {
		text := w.text(t)
		for line := range strings.SplitSeq(text, "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), sink) {
				return w.write(t, strings.Replace(text, line, addressForm.ReplaceAllString(line, "@127.0.0.1:1/"), 1))
			}
		}
		t.Fatalf("the file has no %s", sink)
		return ""
	}
	trimmed, said := trimWith(t, dead("clickhouse:"), 1, "--yes")
	if !strings.Contains(said, "clickhouse") || len(trimmed.NotAsked) != 1 {
		t.Errorf("without ClickHouse: %s", said)
	}
	for _, p := range trimmed.Parts {
		if p.Becomes != p.Start || !slices.Contains(p.HeldBy, "clickhouse") {
			t.Errorf("without ClickHouse: %+v", p)
		}
	}
	// A job that a person has not ended holds its shard's partitions, whatever became of its process.
	job := func() string {
		p, job := w.replaying(t, "rebuild", "--shard", "s1", "--rate", "100", "--yield-above", "0", "--yes")
		p.WaitOutput(t, "replay   [", time.Minute)
		p.Kill(t)
		return job
	}()
	for _, p := range w.planTrim(t) {
		if held := p.Becomes == p.Start && slices.Contains(p.HeldBy, "job "+job); held != w.meets("s1", p.Partition) {
			t.Errorf("job %s of s1: %+v", job, p)
		}
	}
	w.run(t, 0, "replay", "abort", job)
	// A file that is not as it was archived holds its partition, and is named.
	var victim archive.Trim
	for _, p := range w.planTrim(t) {
		if !w.meets("s2", p.Partition) && p.Becomes > p.Start {
			victim = p
		}
	}
	files, err := filepath.Glob(fmt.Sprintf("%s/*/%05d/*.parquet", dir, victim.Partition))
	if err != nil {
		t.Fatal(err)
	}
	var file string // that has the last event which would go
	var from, to int64
	for _, file = range files {
		if _, err := fmt.Sscanf(filepath.Base(file), "%d-%d-", &from, &to); err != nil {
			t.Fatal(err)
		}
		if to >= victim.Becomes {
			break
		}
	}
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bad := slices.Clone(good)
	bad[len(bad)/2] ^= 1
	if err := os.WriteFile(file, bad, 0o644); err != nil {
		t.Fatal(err)
	}
	// Together with a shard that is down: what neither holds goes.
	trimmed, said = trimWith(t, dead("s2:"), 1, "--yes")
	if len(trimmed.NotAsked) != 1 || trimmed.NotAsked[0].Stage != "mysql/s2" {
		t.Errorf("not asked: %+v", trimmed.NotAsked)
	}
	gone := 0
	for _, p := range trimmed.Parts {
		switch {
		case w.meets("s2", p.Partition):
			if p.Becomes != p.Start || !slices.Contains(p.HeldBy, "mysql/s2") {
				t.Errorf("without s2: %+v", p)
			}
		case p.Partition == victim.Partition:
			if p.Becomes != max(p.Start, from) || !slices.Contains(p.HeldBy, "archive") || !strings.Contains(p.Problem, filepath.Base(file)) || !strings.Contains(p.Problem, "SL7602") {
				t.Errorf("with a damaged file: %+v", p)
			}
		case p.Removed:
			gone++
		}
	}
	if gone == 0 {
		t.Errorf("a shard that is down, and a file of another partition, hold all: %s", said)
	}
	if err := os.WriteFile(file, good, 0o644); err != nil {
		t.Fatal(err)
	}

	trimmed, _ = trimWith(t, w.file, 0, "--yes")
	starts = w.starts(t)
	for _, p := range trimmed.Parts {
		if starts[p.Partition] != max(0, tail(p)) {
			t.Errorf("partition %d begins at %d of %d", p.Partition, starts[p.Partition], p.End)
		}
	}
	if again, _ := trimWith(t, w.file, 0); again.Any() {
		t.Errorf("a second one finds %+v", again.Parts)
	}

	// Everything goes on, and what is needed again comes from archive and topic.
	harmed := damage(t, w.shards["s1"])
	p, job := w.replaying(t, "rebuild", "--shard", "s1", "--yes", "--detach")
	if r := p.Wait(t, time.Minute); r.Code != 0 {
		t.Fatalf("rebuild ends with %d:\n%s", r.Code, r.Stderr)
	}
	for _, name := range harmed {
		if !strings.Contains(p.Stderr(), name) {
			t.Errorf("the rebuild does not name %q", name)
		}
	}
	w.emit(t, flights[2], 3)
	w.waitDrained(t, time.Minute)
	archiveAll()
	w.run(t, 0, "status")
	f := flights[0][0]
	if found := w.where(t, 0, "flights", f.Carrier, fmt.Sprint(f.ID)); len(found.Stores) == 0 || slices.ContainsFunc(found.Stores, func(s line.StoreRow) bool { return len(s.Rows) != 1 }) {
		t.Errorf("where: %+v", found)
	}
	// The old tables are kept for undo: what they lack stays, though nobody feeds them now.
	old, err := progress.List(t.Context(), w.shards["s1"], "mysql__old_"+job)
	if err != nil || len(old) == 0 {
		t.Fatalf("%v, %v", old, err)
	}
	stands = map[int32]int64{}
	for _, r := range old {
		stands[r.Number] = r.Next
	}
	w.waitTrim(t, func(p archive.Trim) int64 {
		if w.meets("s1", p.Partition) {
			return min(tail(p), stands[p.Partition])
		}
		return tail(p)
	})
	w.run(t, 0, "replay", "accept", job)
	w.waitTrim(t, tail)
	trimWith(t, w.file, 0, "--yes")
	sink.Stop(t, time.Minute)
	restore()
	sink = w.start(t, "sink", "mysql")
	w.waitDrained(t, 2*time.Minute)
	w.run(t, 0, "replay", "verify", "--shard", "s1")
	olap.Stop(t, time.Minute)
	w.stopShards(t, relay, sink, want)
	compare(t, "ClickHouse", w.clickhouseFigures(t), want)
	w.checkPlaces(t)
}

// planTrim is what trim would do, and does not.
func (w *wholeLine) planTrim(t *testing.T) []archive.Trim {
	t.Helper()
	l, err := line.Open(w.file, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	trim, err := l.Trim(t.Context(), time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	if trim.Failed() {
		t.Errorf("%+v", trim)
	}
	return trim.Parts
}

// waitTrim waits until each partition would begin at an offset, or begins above it: lanes record the topic's ends some 10 s after
// the last event.
func (w *wholeLine) waitTrim(t *testing.T, at func(p archive.Trim) int64) {
	t.Helper()
	var last []archive.Trim
	defer func() {
		if t.Failed() {
			t.Logf("%+v", last)
		}
	}()
	until(t, "the partitions would begin where they should", time.Minute, func() bool {
		last = w.planTrim(t)
		return !slices.ContainsFunc(last, func(p archive.Trim) bool { return p.Becomes != max(p.Start, at(p)) })
	})
}
