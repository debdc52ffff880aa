package archive

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/slotline/slotline/event"
)

// format is the number of the form of manifests and files that this release writes; it refuses greater ones.
const format = 1

// Manifest says which files hold one partition's log, from offset 0 on. It is what counts: a file that it does not name is
// none of the archive's.
type Manifest struct {
	Format    int     `json:"format"`
	Line      string  `json:"line"`
	Cluster   string  `json:"cluster"` // Kafka's id of itself
	Topic     string  `json:"topic"`
	TopicID   topicID `json:"topic_id"`
	Partition int32   `json:"partition"`
	// Run is the run that wrote it last, 128 random bits. A run that finds another's here has been replaced.
	Run   string `json:"run"`
	Files []File `json:"files"` // by offsets, without a hole
}

// topicID is Kafka's id of a topic, in hex: a topic that was made again has another.
type topicID event.TopicID

// MarshalText writes 32 hex digits.
func (id topicID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, id[:]), nil }

// UnmarshalText reads what MarshalText writes.
func (id *topicID) UnmarshalText(text []byte) error {
	if n, err := hex.Decode(id[:], text); err != nil || n != len(id) || len(text) != 2*len(id) {
		return fmt.Errorf("%q is not 32 hex digits", text)
	}
	return nil
}

// File is one file of a manifest.
type File struct {
	Name        string    `json:"name"`
	From        int64     `json:"from"`    // the first offset that it covers
	To          int64     `json:"to"`      // one past the last
	Records     int64     `json:"records"` // at most To-From: transactions leave offsets without one
	Bytes       int64     `json:"bytes"`   // of the file
	Digest      string    `json:"sha256"`  // of the file, hex
	First       time.Time `json:"first"`   // the earliest and the latest time of a record: what retention goes by
	Last        time.Time `json:"last"`
	LeaderEpoch int32     `json:"leader_epoch"` // of the last record
}

// runInName is how many digits of its run's id a file's name has: no run writes over, or removes, what one that came after
// it has written.
const runInName = 12

// fileName is the name of a file that a run writes.
func fileName(from, to int64, run string) string {
	return fmt.Sprintf("%020d-%020d-%.*s.parquet", from, to, runInName, run)
}

// rangeOf is what a file's name says that it covers; false for one that no run wrote.
func rangeOf(name string) (from, to int64, ok bool) {
	base, ok := strings.CutSuffix(name, ".parquet")
	parts := strings.Split(base, "-")
	if !ok || len(parts) != 3 || len(parts[0]) != 20 || len(parts[1]) != 20 || len(parts[2]) != runInName {
		return 0, 0, false
	}
	from, err := strconv.ParseInt(parts[0], 10, 64)
	if err == nil {
		to, err = strconv.ParseInt(parts[1], 10, 64)
	}
	return from, to, err == nil
}

func (f *File) named() bool {
	from, to, ok := rangeOf(f.Name)
	return ok && from == f.From && to == f.To
}

// End is one past the last offset that is archived.
func (m *Manifest) End() int64 {
	if len(m.Files) == 0 {
		return 0
	}
	return m.Files[len(m.Files)-1].To
}

// Records is how many there are in all files.
func (m *Manifest) Records() (n int64) {
	for i := range m.Files {
		n += m.Files[i].Records
	}
	return n
}

// Bytes is how large all files are.
func (m *Manifest) Bytes() (n int64) {
	for i := range m.Files {
		n += m.Files[i].Bytes
	}
	return n
}

// position is where the log must go on.
func (m *Manifest) position() event.Position {
	at := event.Position{Partition: m.partition(), Next: m.End(), LeaderEpoch: -1, TopicID: event.TopicID(m.TopicID)}
	if n := len(m.Files); n > 0 {
		at.LeaderEpoch = m.Files[n-1].LeaderEpoch
	}
	return at
}

func (m *Manifest) partition() event.Partition {
	return event.Partition{Topic: m.Topic, Number: m.Partition}
}

// check says what of the manifest cannot be: it names the offsets.
func (m *Manifest) check() error {
	next := int64(0)
	for i := range m.Files {
		f := &m.Files[i]
		switch {
		case f.From > next:
			return fmt.Errorf("it has no file for offsets %d to %d", next, f.From-1)
		case f.From < next:
			return fmt.Errorf("two of its files hold offset %d", f.From)
		case f.To <= f.From:
			return fmt.Errorf("its file %s ends at offset %d, before it begins", f.Name, f.To)
		case f.Records < 1 || f.Records > f.To-f.From:
			return fmt.Errorf("its file %s is to hold %d records in %d offsets", f.Name, f.Records, f.To-f.From)
		case f.Bytes < 1 || len(f.Digest) != 64 || !f.named():
			return fmt.Errorf("the name, size or digest of its file for offsets %d to %d is none", f.From, f.To-1)
		}
		next = f.To
	}
	return nil
}

// parseManifest reads one; what is wrong with it is the error's text.
func parseManifest(data []byte, line string, p event.Partition) (*Manifest, error) {
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	if head.Format > format || head.Format < 1 {
		return nil, fmt.Errorf("it is of format %d, this release reads %d", head.Format, format)
	}
	m := &Manifest{}
	if err := json.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("it is no manifest: %w", err)
	}
	if m.Line != line || m.partition() != p {
		return nil, fmt.Errorf("it is that of line %s, %s partition %d", m.Line, m.Topic, m.Partition)
	}
	return m, m.check()
}

func (m *Manifest) encode() []byte {
	data, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		panic("archive: a manifest is not JSON: " + err.Error()) // all its fields are
	}
	return append(data, '\n')
}

// Names of a partition's objects.
func folder(p event.Partition) string       { return fmt.Sprintf("%s/%05d/", p.Topic, p.Number) }
func manifestName(p event.Partition) string { return folder(p) + "manifest.json" }
