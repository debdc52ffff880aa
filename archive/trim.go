package archive

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
)

// Need says that somebody needs a partition's topic from an offset on.
type Need struct {
	By   string // as a person names it: mysql/s2, outbox
	From int64  // 0: all of it; also of one that could not be asked
}

// What holds a partition back beside the needs of others.
const (
	byArchive = "archive"
	byAge     = "age"
)

// Trim is what can go of one partition's topic.
type Trim struct {
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Start     int64    `json:"log_start"` // of the topic, as it was looked at
	End       int64    `json:"log_end"`
	Becomes   int64    `json:"becomes"` // where the topic begins without the events; Start: nothing goes
	Records   int64    `json:"events"`  // that go
	HeldBy    []string `json:"held_by"` // why it is no more; none where nothing is left
	Problem   string   `json:"problem,omitempty"`
	Removed   bool     `json:"removed"`

	id    event.TopicID
	files []File // of the manifest
}

func (t *Trim) partition() event.Partition {
	return event.Partition{Topic: t.Topic, Number: t.Partition}
}

// keep has nothing go.
func (t *Trim) keep(problem error, by ...string) {
	t.Becomes, t.Records, t.HeldBy = t.Start, 0, append([]string{}, by...)
	if problem != nil {
		t.Problem = problem.Error()
	}
}

// least is the lowest offset that somebody needs of a log from start to end, and who needs it.
func least(start, end int64, needs []Need) (from int64, by []string) {
	from, by = end, []string{}
	for _, n := range needs {
		from = min(from, max(start, n.From))
	}
	for _, n := range needs {
		if n.From <= from && from < end && !slices.Contains(by, n.By) {
			by = append(by, n.By)
		}
	}
	return from, by
}

// decide says where a log from start to end can begin: below that all is in the archive's files, which begin at offset 0 and have
// no hole, was read there, is old enough, and is needed by nobody. due is before the first offset that is not old enough. read
// looks into a file, below an offset: what it holds from there on does not matter. It gives the offset of its first record that
// is not old enough after all, or one above; ok is false where the file cannot be used.
func decide(start, end, due int64, files []File, needs []Need, read func(f File, below int64) (young int64, ok bool, err error)) (becomes int64, by []string, err error) {
	archived := int64(0)
	if n := len(files); n > 0 {
		archived = files[n-1].To
	}
	all := func() []Need { return append([]Need{{byArchive, archived}, {byAge, due}}, needs...) }
	below, _ := least(start, end, all())
	for _, f := range files {
		if f.To <= start {
			continue
		}
		if f.From >= below {
			break
		}
		young, ok, err := read(f, below)
		if err != nil {
			return start, nil, err
		}
		if !ok {
			archived = f.From
			break
		}
		if young < below {
			due = young
			break
		}
	}
	becomes, by = least(start, end, all())
	return becomes, by, nil
}

// Trims says for each partition of the line what can go of its topic: the events that are older than so much by their records'
// own time, lie in files of the archive that were read here and compared with their digests, and that nobody needs. A partition
// that cannot be shortened for a fault has it as Problem, and holds up no other. It changes nothing. say is told of each partition
// whose files were read.
func (a *Archive) Trims(ctx context.Context, olderThan time.Duration, needs map[event.Partition][]Need, say func(string)) ([]Trim, error) {
	cl, err := a.client(ctx)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	if err := kafka.MayDelete(ctx, cl, a.cfg); err != nil {
		return nil, err
	}
	young := time.Now().Add(-olderThan)
	all, err := a.look(ctx, cl, olderThan)
	if err != nil {
		return nil, err
	}
	trims := make([]Trim, 0, len(a.parts))
	for _, p := range a.parts {
		t := Trim{Topic: p.Topic, Partition: p.Number}
		if err := a.fill(ctx, &t, all[p], needs[p], young, say); err != nil {
			return nil, err
		}
		trims = append(trims, t)
	}
	return trims, nil
}

// fill fills in what can go of a partition. Its error is one that ends the command.
func (a *Archive) fill(ctx context.Context, t *Trim, s *standing, needs []Need, young time.Time, say func(string)) error {
	p := t.partition()
	t.Start, t.End, t.id, t.files = s.log.Start, s.log.End, s.log.TopicID, s.m.Files
	if s.err != nil {
		t.keep(s.err, byArchive)
		return nil
	}
	// What lies below the log's start is in the archive alone: it was read before it went, and is looked for here.
	err := a.present(ctx, p, s.m.Files, t.Start)
	if fault.CodeOf(err) == codeDamaged {
		t.keep(err, byArchive)
		return nil
	}
	if err != nil {
		return err
	}
	files := 0
	t.Becomes, t.HeldBy, err = decide(t.Start, t.End, s.due, s.m.Files, needs, func(f File, below int64) (int64, bool, error) {
		first, records := int64(math.MaxInt64), int64(0)
		err := a.readFile(ctx, p, f, t.Start, func(list []*kgo.Record) error {
			for _, r := range list {
				switch {
				case r.Offset >= min(first, below):
				case !r.Timestamp.Before(young):
					first = r.Offset
				default:
					records++
				}
			}
			return nil
		})
		if fault.CodeOf(err) == codeDamaged {
			t.Problem = err.Error()
			return 0, false, nil
		}
		files, t.Records = files+1, t.Records+records
		return first, true, err
	})
	if err == nil && say != nil && files > 0 {
		say(fmt.Sprintf("%s partition %d  %d files read", t.Topic, t.Partition, files))
	}
	return err
}

// present looks whether the files of a partition that begin below an offset are there, not into them. SL7602: one is not, or
// has another size.
func (a *Archive) present(ctx context.Context, p event.Partition, files []File, below int64) error {
	there, err := a.store.list(ctx, folder(p))
	if err != nil {
		return a.wrap(err, "list "+folder(p))
	}
	for i := range files {
		f := &files[i]
		if why := f.misses(there); why != "" && f.From < below {
			return a.damaged(p, f, errors.New(why))
		}
	}
	return nil
}

// Trim has the topics begin where the trims say, and marks those that do. needs are what is needed now, which may be long after
// Trims: a partition of which somebody needs what was to go is kept, and so is one whose topic or archive is not what Trims has
// looked at. A partition that fails is kept as it is, has the fault as Problem, and holds up no other.
func (a *Archive) Trim(ctx context.Context, trims []Trim, needs map[event.Partition][]Need) error {
	cl, err := a.client(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	all, err := a.look(ctx, cl, a.cfg.Archive.OlderThan) // of the age nobody asks again: events become no younger
	if err != nil {
		return err
	}
	below := map[event.Partition]int64{}
	for i := range trims {
		t := &trims[i]
		if t.Becomes == t.Start {
			continue
		}
		if err := a.changed(ctx, t, all[t.partition()]); err != nil {
			t.keep(err, byArchive)
		} else if start := all[t.partition()].log.Start; start >= t.Becomes { // somebody else was faster
			t.Start = start
			t.keep(nil)
		} else if from, by := least(t.Start, t.End, needs[t.partition()]); from < t.Becomes {
			t.keep(nil, by...)
		} else {
			below[t.partition()] = t.Becomes
		}
	}
	failed := kafka.DeleteBelow(ctx, cl, below)
	for i := range trims {
		t := &trims[i]
		if _, asked := below[t.partition()]; !asked {
			continue
		}
		if err := failed[t.partition()]; err != nil {
			t.keep(err)
		} else {
			t.Removed = true
		}
	}
	return nil
}

// changed says how a partition's topic and archive differ from what Trims has looked at.
func (a *Archive) changed(ctx context.Context, t *Trim, s *standing) error {
	same := func(a, b File) bool {
		return a.Name == b.Name && a.Digest == b.Digest && a.From == b.From && a.To == b.To
	}
	changed := func(what string) error {
		return &fault.Error{Code: codeChanged, Class: fault.Usage,
			What: fmt.Sprintf("%s partition %d: %s since it was looked at; nothing of it was removed", t.Topic, t.Partition, what),
			Do:   "run slotline archive trim again"}
	}
	switch {
	case s.err != nil:
		return s.err
	case s.log.TopicID != t.id:
		return changed("the topic was deleted and made again")
	case len(s.m.Files) < len(t.files) || !slices.EqualFunc(s.m.Files[:len(t.files)], t.files, same):
		return changed("the archive's manifest names other files")
	}
	return a.present(ctx, t.partition(), t.files, t.Becomes)
}
