package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/kafka"
)

// Archive is a line's archive. Its methods may be called from any goroutine; each reads the manifests that it needs.
type Archive struct {
	cfg   *config.Config
	log   *slog.Logger
	store store
	parts []event.Partition // of the line, in order
}

// Open does no I/O. SL7607: the file has no archive.
func Open(cfg *config.Config, log *slog.Logger) (*Archive, error) {
	if cfg.Archive == nil {
		return nil, &fault.Error{Code: codeNoArchive, Class: fault.Usage, What: cfg.File + " has no archive", Write: "archive: { dir: /srv/archive/" + cfg.Line + " }"}
	}
	var s store = &dirStore{cfg.Archive.Dir}
	if cfg.Archive.S3 != nil {
		s = openS3(cfg.Archive.S3)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	a := &Archive{cfg: cfg, log: log, store: s}
	for _, topic := range cfg.Topics() {
		for n := range cfg.Kafka.Partitions {
			a.parts = append(a.parts, event.Partition{Topic: topic, Number: int32(n)})
		}
	}
	return a, nil
}

// Place is how a person names where the archive lies.
func (a *Archive) Place() string { return a.store.place() }

// load reads a partition's manifest; nil where there is none.
func (a *Archive) load(ctx context.Context, p event.Partition) (*Manifest, string, error) {
	data, tag, err := a.store.read(ctx, manifestName(p))
	if errors.Is(err, errNotThere) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", a.wrap(err, "read "+manifestName(p))
	}
	m, err := parseManifest(data, a.cfg.Line, p)
	if err != nil {
		return nil, "", &fault.Error{Code: codeManifest, Class: fault.Fatal, Err: err,
			What: fmt.Sprintf("archive %s: %s cannot be used: %v", a.Place(), manifestName(p), err),
			Why:  fmt.Sprintf("nothing of %s partition %d is read from the archive, or written to it, without its manifest", p.Topic, p.Number),
			Do:   "put the manifest back as it was, from a copy or an older version of the object"}
	}
	return m, tag, nil
}

// wrap makes a fault of the storage's error.
func (a *Archive) wrap(err error, doing string) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	return &fault.Error{Code: codeStorage, Class: fault.Transient, Err: err,
		What: fmt.Sprintf("archive %s: cannot %s: %v", a.Place(), doing, err),
		Why:  "nothing is lost: what no manifest names is archived by the next run",
		Do:   "see that it can be reached, that there is space, and that this user may read and write there"}
}

// Until says up to which offset the archive holds a partition of a topic without a hole, from an offset on: that offset
// itself where it does not hold it, or holds another topic of this name.
func (a *Archive) Until(ctx context.Context, p event.Partition, id event.TopicID, from int64) (int64, error) {
	m, _, err := a.load(ctx, p)
	if err != nil || m == nil || event.TopicID(m.TopicID) != id {
		return from, err
	}
	return max(from, m.End()), nil
}

// Lacks says why a partition, of which a topic holds what a Log says, cannot be read from offset 0 on by archive and topic
// together; "" where it can. It looks whether the files are there, not into them.
func (a *Archive) Lacks(ctx context.Context, p event.Partition, log kafka.Log) (string, error) {
	m, _, err := a.load(ctx, p)
	where := fmt.Sprintf("%s partition %d", p.Topic, p.Number)
	switch {
	case fault.CodeOf(err) == codeManifest:
		return where + ": " + firstLine(err), nil
	case err != nil:
		return "", err
	case m == nil || m.End() == 0:
		return fmt.Sprintf("%s begins at offset %d, and archive %s has nothing of it", where, log.Start, a.Place()), nil
	case event.TopicID(m.TopicID) != log.TopicID:
		return fmt.Sprintf("%s: archive %s holds another topic of this name", where, a.Place()), nil
	case m.End() < log.Start:
		return fmt.Sprintf("%s: offsets %d to %d are gone: archive %s ends there, the topic begins at %d", where, m.End(), log.Start-1, a.Place(), log.Start), nil
	}
	there, err := a.store.list(ctx, folder(p))
	if err != nil {
		return "", a.wrap(err, "list "+folder(p))
	}
	for i := range m.Files {
		if why := m.Files[i].misses(there); why != "" {
			return fmt.Sprintf("%s: offsets %d to %d are gone: %s of archive %s %s", where, m.Files[i].From, m.Files[i].To-1,
				folder(p)+m.Files[i].Name, a.Place(), why), nil
		}
	}
	return "", nil
}

// misses says what the listing of a folder shows of the file; "" where it is as large as it should be.
func (f *File) misses(there map[string]int64) string {
	size, ok := there[f.Name]
	switch {
	case !ok:
		return "is not there"
	case size != f.Bytes:
		return fmt.Sprintf("has %d bytes of %d", size, f.Bytes)
	}
	return ""
}

func firstLine(err error) string {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.What
	}
	return err.Error()
}

// Read calls each for the archived records of a partition from an offset on, in order, some at a time; they are the callee's.
// It says where they end. A file is compared with its digest before its first record is given. SL7602: it is another.
func (a *Archive) Read(ctx context.Context, p event.Partition, from int64, each func([]*kgo.Record) error) (next int64, err error) {
	m, _, err := a.load(ctx, p)
	if err != nil || m == nil {
		return from, err
	}
	for _, f := range m.Files {
		if f.To <= from {
			continue
		}
		if err := a.readFile(ctx, p, f, from, each); err != nil {
			return from, err
		}
		from = f.To
	}
	return from, nil
}

func (a *Archive) readFile(ctx context.Context, p event.Partition, f File, from int64, each func([]*kgo.Record) error) error {
	name := folder(p) + f.Name
	var callee error
	file, end, err := a.store.open(ctx, name)
	if err == nil {
		defer end()
		if err = sameFile(file, f); err == nil {
			err = readRecords(file, f, p.Topic, p.Number, from, func(records []*kgo.Record) error {
				if callee = ctx.Err(); callee == nil {
					callee = each(records)
				}
				return callee
			})
		}
	}
	if callee != nil {
		return callee
	}
	if errors.Is(err, errDamaged) || errors.Is(err, errNotThere) {
		return a.damaged(p, &f, err)
	}
	return a.wrap(err, "read "+name)
}

func (a *Archive) damaged(p event.Partition, f *File, err error) error {
	return &fault.Error{Code: codeDamaged, Class: fault.Fatal, Err: err,
		What: fmt.Sprintf("archive %s: %s, offsets %d to %d of %s partition %d: %v", a.Place(), folder(p)+f.Name, f.From, f.To-1, p.Topic, p.Number, err),
		Why:  "nothing of the file was used",
		Do:   "put the file back as it was, from a copy or an older version of the object; slotline archive verify names all that are damaged"}
}

// sameFile compares a file with its entry.
func sameFile(file *os.File, f File) error {
	sum := sha256.New()
	n, err := io.Copy(sum, io.NewSectionReader(file, 0, 1<<62))
	if err != nil {
		return err
	}
	if n != f.Bytes {
		return damaged("it has %d bytes, the manifest says %d", n, f.Bytes)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.Digest {
		return damaged("its SHA-256 is %.12s…, the manifest says %.12s…", got, f.Digest)
	}
	return nil
}
