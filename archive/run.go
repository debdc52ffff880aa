package archive

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
)

// Part is how one partition stands.
type Part struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Archived  int64  `json:"archived"` // offsets below this are archived
	Files     int    `json:"files"`
	Records   int64  `json:"records"`
	Bytes     int64  `json:"bytes"`
	Start     int64  `json:"log_start"` // of the topic
	Due       int64  `json:"due"`       // offsets below this are old enough to be archived
	End       int64  `json:"log_end"`
	Problem   string `json:"problem,omitempty"` // why the next run does not archive it
}

// standing is what a partition's topic and manifest say.
type standing struct {
	m   *Manifest // of the archive; never nil where err is
	log kafka.Log
	due int64
	err error
}

// stand is look for what archive.older_than says, by a client of its own.
func (a *Archive) stand(ctx context.Context) (map[event.Partition]*standing, error) {
	cl, err := a.client(ctx)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	return a.look(ctx, cl, a.cfg.Archive.OlderThan)
}

func (a *Archive) client(ctx context.Context) (*kgo.Client, error) {
	return kafka.Open(ctx, a.cfg, "archive", a.log)
}

// look asks how the topics stand, against the manifests. due is before what is not older than so much.
func (a *Archive) look(ctx context.Context, cl *kgo.Client, olderThan time.Duration) (map[event.Partition]*standing, error) {
	adm := kadm.NewClient(cl)
	meta, err := adm.BrokerMetadata(ctx)
	if err != nil {
		return nil, kafka.Wrap(err, a.cfg.Kafka.Brokers, "ask for the cluster's id")
	}
	old, err := adm.ListOffsetsAfterMilli(ctx, time.Now().Add(-olderThan).UnixMilli(), a.cfg.Topics()...)
	if err != nil {
		return nil, kafka.Wrap(err, a.cfg.Kafka.Brokers, "ask for the age of offsets")
	}
	all := map[event.Partition]*standing{}
	var at []event.Position
	for _, p := range a.parts {
		s := &standing{}
		if s.m, _, s.err = a.load(ctx, p); s.err != nil && fault.CodeOf(s.err) != codeManifest {
			return nil, s.err
		}
		if s.m == nil {
			s.m = &Manifest{Format: format, Line: a.cfg.Line, Cluster: meta.Cluster, Topic: p.Topic, Partition: p.Number}
		}
		all[p] = s
		at = append(at, s.m.position())
	}
	logs, err := kafka.Inspect(ctx, cl, at)
	if err != nil {
		return nil, err
	}
	for _, p := range a.parts {
		s := all[p]
		s.log = logs[p]
		o, ok := old.Lookup(p.Topic, p.Number)
		if s.err == nil && !s.log.Gone {
			if s.err = s.log.Err; s.err == nil && ok {
				s.err = kafka.Wrap(o.Err, a.cfg.Kafka.Brokers, fmt.Sprintf("ask for the age of offsets of %s partition %d", p.Topic, p.Number))
			}
		}
		if s.err == nil {
			s.err = continues(s.m, s.log, meta.Cluster, a.Place())
		}
		s.due = min(o.Offset, s.log.Stable)
		if len(s.m.Files) == 0 {
			s.m.TopicID = topicID(s.log.TopicID)
		}
	}
	return all, nil
}

// continues says why a topic's log does not go on from what is archived; nil where it does.
func continues(m *Manifest, log kafka.Log, cluster, place string) error {
	where := fmt.Sprintf("%s partition %d", m.Topic, m.Partition)
	other := func(what string) error {
		return &fault.Error{Code: codeOtherLog, Class: fault.Fatal,
			What: where + ": " + what + ". Nothing more is archived.",
			Why:  "offsets of the two logs say different things; a rebuild would mix them",
			Do:   fmt.Sprintf("find out why; to archive the log that there is now, move %s of archive %s away while the topic still has offset 0", folder(m.partition()), place)}
	}
	archived, at := len(m.Files) > 0, m.position()
	switch {
	case log.Gone:
		return other("the topic, or this partition of it, is not there")
	case archived && m.Cluster != cluster:
		return other(fmt.Sprintf("cluster %s was archived, this is %s", m.Cluster, cluster))
	case archived && log.TopicID != at.TopicID:
		return other("the topic was deleted and made again since it was archived")
	case log.Start > m.End():
		return &fault.Error{Code: codeHole, Class: fault.Fatal,
			What: fmt.Sprintf("%s: offsets %d to %d are neither in the topic nor in archive %s. Nothing more is archived.", where, m.End(), log.Start-1, place),
			Why:  "the topic's retention, or a DeleteRecords, removed what was not archived yet",
			Do:   "slotline archive verify names a manifest that was lost: put it back; else see that the topic keeps its records until they are archived, and rebuild shards from a backup"}
	case log.End < m.End():
		return other(fmt.Sprintf("the topic ends at offset %d, offsets below %d are archived", log.End, m.End()))
	case !archived || at.LeaderEpoch < 0 || log.Start == log.End: // nothing to compare
	case log.EpochEnd < 0:
		return other(fmt.Sprintf("the leader does not know leader epoch %d, in which offset %d was written", at.LeaderEpoch, m.End()-1))
	case log.EpochEnd < m.End():
		return other(fmt.Sprintf("the log was cut at offset %d, offsets below %d are archived", log.EpochEnd, m.End()))
	}
	return nil
}

// Status says how all partitions stand.
func (a *Archive) Status(ctx context.Context) ([]Part, error) {
	all, err := a.stand(ctx)
	if err != nil {
		return nil, err
	}
	var list []Part
	for _, p := range a.parts {
		list = append(list, all[p].part())
	}
	return list, nil
}

func (s *standing) part() Part {
	p := Part{Topic: s.m.Topic, Partition: s.m.Partition, Archived: s.m.End(), Files: len(s.m.Files), Records: s.m.Records(), Bytes: s.m.Bytes(),
		Start: s.log.Start, Due: max(s.due, s.m.End()), End: s.log.Stable}
	if s.err != nil {
		p.Problem = firstLine(s.err)
	}
	return p
}

// Written is what a run did.
type Written struct {
	Partitions int   `json:"partitions"` // that it wrote to
	Files      int   `json:"files"`
	Records    int64 `json:"records"`
	Bytes      int64 `json:"bytes"`
	Removed    int   `json:"removed"` // files of a run that was cut off
}

// Run archives what is old enough, one partition after the other, and returns. say is told of each file. A partition that
// cannot be archived does not hold up the others: its error comes at the end. It may be run again after any error, and by
// another process after a kill.
func (a *Archive) Run(ctx context.Context, say func(string)) (Written, error) {
	var done Written
	end, err := a.store.alone()
	if errors.Is(err, errTaken) {
		return done, a.taken()
	}
	if err != nil {
		return done, a.wrap(err, "begin")
	}
	defer end()
	all, err := a.stand(ctx)
	if err != nil {
		return done, err
	}
	var failed []error
	for _, p := range a.parts {
		s := all[p]
		switch {
		case ctx.Err() != nil:
			return done, ctx.Err()
		case s.err != nil:
			failed = append(failed, s.err)
		case s.due > s.m.End():
			files := done.Files
			if err := a.extend(ctx, p, s.due, s.m, &done, say); err != nil {
				failed = append(failed, err)
			}
			if done.Files > files {
				done.Partitions++
			}
		}
	}
	return done, errors.Join(failed...)
}

func (a *Archive) taken() error {
	return &fault.Error{Code: codeTaken, Class: fault.Fenced,
		What: fmt.Sprintf("archive %s: another run is at work; this one ends", a.Place()), Do: "nothing: the other goes on"}
}

// extend archives a partition up to an offset.
func (a *Archive) extend(ctx context.Context, p event.Partition, due int64, m *Manifest, done *Written, say func(string)) error {
	w := &writer{a: a, p: p, m: m, done: done, say: say}
	if err := w.claim(ctx); err != nil {
		return err
	}
	defer w.drop()
	from, to := map[event.Partition]int64{p: m.End()}, map[event.Partition]int64{p: due}
	err := kafka.Copy(ctx, a.cfg, "archive", a.log, from, to, func(r *kgo.Record) error {
		if err := w.add(r); err != nil {
			return err
		}
		if w.file.bytes < a.cfg.Archive.FileBytes {
			return nil
		}
		return w.finish(ctx, r.Offset+1)
	})
	if err != nil {
		return err
	}
	return w.finish(ctx, due)
}

// writer writes one partition's files.
type writer struct {
	a    *Archive
	p    event.Partition
	m    *Manifest
	tag  string // of the manifest as it was read or written last
	done *Written
	say  func(string)

	file *fileWriter // nil between files
	end  func()      // of its spool file
}

// claim writes the manifest as this run's, so that another run that is still at work cannot write it any more, and removes
// files that a run put there and did not live to name.
func (w *writer) claim(ctx context.Context) error {
	now, tag, err := w.a.load(ctx, w.p)
	if err != nil {
		return err
	}
	if now != nil && now.End() != w.m.End() || now == nil && len(w.m.Files) > 0 { // since it was looked at
		return w.a.taken()
	}
	// What is there before the claim and is not named then will never be: the run that wrote it cannot write the manifest
	// any more. What comes after it may be of a run that has claimed in its turn.
	there, err := w.a.store.list(ctx, folder(w.p))
	if err != nil {
		return w.a.wrap(err, "list "+folder(w.p))
	}
	var run [16]byte
	rand.Read(run[:]) // never fails (crypto/rand)
	w.m.Run, w.tag = hex.EncodeToString(run[:]), tag
	if err := w.save(ctx); err != nil {
		return err
	}
	// A service that knows no conditions would let two runs write over each other.
	if _, err := w.a.store.swap(ctx, manifestName(w.p), append(w.m.encode(), '\n'), "0123456789abcdef0123456789abcdef"); !errors.Is(err, errMoved) {
		if err != nil {
			return w.a.wrap(err, "write "+manifestName(w.p))
		}
		return &fault.Error{Code: codeUnguarded, Class: fault.Fatal,
			What: fmt.Sprintf("archive %s: the service writes over an object though its tag does not match (If-Match)", w.a.Place()),
			Why:  "two runs at once would write over each other's manifests",
			Do:   "take a service that has conditional writes, or a directory"}
	}
	for name := range there {
		if !w.leftover(name) {
			continue
		}
		if err := w.a.store.remove(ctx, folder(w.p)+name); err != nil {
			return w.a.wrap(err, "remove "+folder(w.p)+name)
		}
		w.done.Removed++
	}
	return nil
}

// leftover says that a run wrote this file and no manifest names it: what it holds lies past the archived offsets, all of
// which the topic still has.
func (w *writer) leftover(name string) bool {
	from, _, ok := rangeOf(name)
	return ok && from >= w.m.End()
}

func (w *writer) save(ctx context.Context) error {
	tag, err := w.a.store.swap(ctx, manifestName(w.p), w.m.encode(), w.tag)
	if errors.Is(err, errMoved) {
		return w.a.taken()
	}
	if err != nil {
		return w.a.wrap(err, "write "+manifestName(w.p))
	}
	w.tag = tag
	return nil
}

func (w *writer) add(r *kgo.Record) error {
	if w.file == nil {
		spool, end, err := w.a.store.spool()
		if err != nil {
			return w.a.wrap(err, "write a file")
		}
		w.file, w.end = newFileWriter(spool, w.p.Topic, w.m.End()), end
	}
	return w.a.wrap(w.file.add(r), "write a file")
}

// finish puts the file, then has the manifest name it. Without a record there is no file.
func (w *writer) finish(ctx context.Context, to int64) error {
	if w.file == nil {
		return nil
	}
	defer w.drop()
	f, err := w.file.close(to)
	if err != nil {
		return w.a.wrap(err, "write a file")
	}
	f.Name = fileName(f.From, f.To, w.m.Run)
	if err := w.a.store.put(ctx, folder(w.p)+f.Name, w.file.file); err != nil {
		return w.a.wrap(err, "write "+folder(w.p)+f.Name)
	}
	w.m.Files = append(w.m.Files, f)
	if err := w.m.check(); err != nil {
		return fmt.Errorf("archive %s: %s: %w", w.a.Place(), manifestName(w.p), err) // a fault of this package
	}
	if err := w.save(ctx); err != nil {
		return err
	}
	w.done.Files, w.done.Records, w.done.Bytes = w.done.Files+1, w.done.Records+f.Records, w.done.Bytes+f.Bytes
	if w.say != nil {
		w.say(fmt.Sprintf("%s partition %d  offsets %d to %d, %d events, %d bytes", w.p.Topic, w.p.Number, f.From, f.To-1, f.Records, f.Bytes))
	}
	return nil
}

func (w *writer) drop() {
	if w.file != nil {
		w.end()
		w.file = nil
	}
}
