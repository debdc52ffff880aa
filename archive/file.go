package archive

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
	"github.com/twmb/franz-go/pkg/kgo"
)

// row is a record as a file holds it: docs/formats.md has the columns.
type row struct {
	Partition   int32    `parquet:"partition"`
	Offset      int64    `parquet:"offset,delta"`
	LeaderEpoch int32    `parquet:"leader_epoch"`
	Timestamp   int64    `parquet:"timestamp,timestamp(millisecond),delta"`
	Key         *[]byte  `parquet:"key,optional"`
	Value       *[]byte  `parquet:"value,optional"`
	Headers     []header `parquet:"headers,list"`
}

type header struct {
	Key   string  `parquet:"key,dict"`
	Value *[]byte `parquet:"value,optional"`
}

const (
	// A row group is what a writer holds in memory, and what a reader skips: so many bytes of keys, values and headers, or
	// so many rows.
	groupBytes = 8 << 20
	groupRows  = 64 << 10
	// readRows are decoded at once.
	readRows = 512
)

// text is a value that may be NULL, which is not the empty one.
func text(b []byte) *[]byte {
	if b == nil {
		return nil
	}
	return &b
}

func plain(b *[]byte) []byte {
	switch {
	case b == nil:
		return nil
	case *b == nil:
		return []byte{}
	}
	return *b
}

// recordBytes are those of a record's key, value and headers.
func recordBytes(r *kgo.Record) int64 {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return int64(n)
}

// fileWriter writes the records of one file into a spool file. It holds one row group in memory.
type fileWriter struct {
	file    *os.File
	out     *bufio.Writer
	hash    hash.Hash
	rows    *parquet.GenericWriter[row]
	one     [1]row
	entry   File // what is known of it so far; bytes and digest come with close, the name is the caller's
	bytes   int64
	inGroup int64 // bytes of the open row group
	records int64 // of the open row group
}

func newFileWriter(spool *os.File, topic string, from int64) *fileWriter {
	w := &fileWriter{file: spool, hash: sha256.New(), entry: File{From: from, To: from, LeaderEpoch: -1}}
	w.out = bufio.NewWriterSize(io.MultiWriter(spool, w.hash), 256<<10)
	w.rows = parquet.NewGenericWriter[row](w.out, parquet.Compression(&zstd.Codec{}), parquet.KeyValueMetadata("slotline.topic", topic),
		parquet.KeyValueMetadata("slotline.format", fmt.Sprint(format)), parquet.CreatedBy("slotline", "archive", fmt.Sprint(format)))
	return w
}

// add writes a record, which is the callee's until the next row group.
func (w *fileWriter) add(r *kgo.Record) error {
	w.one[0] = row{Partition: r.Partition, Offset: r.Offset, LeaderEpoch: r.LeaderEpoch, Timestamp: r.Timestamp.UnixMilli(),
		Key: text(r.Key), Value: text(r.Value), Headers: w.one[0].Headers[:0]}
	for _, h := range r.Headers {
		w.one[0].Headers = append(w.one[0].Headers, header{h.Key, text(h.Value)})
	}
	if _, err := w.rows.Write(w.one[:]); err != nil {
		return err
	}
	n := recordBytes(r)
	w.bytes, w.inGroup, w.records = w.bytes+n, w.inGroup+n, w.records+1
	e := &w.entry
	at := writable(r.Timestamp)
	if e.Records == 0 || at.Before(e.First) {
		e.First = at
	}
	if e.Records == 0 || at.After(e.Last) {
		e.Last = at
	}
	e.Records, e.To, e.LeaderEpoch = e.Records+1, r.Offset+1, r.LeaderEpoch
	if w.inGroup < groupBytes && w.records < groupRows {
		return nil
	}
	w.inGroup, w.records = 0, 0
	return w.rows.Flush()
}

// writable is the time, or the nearest that JSON can hold: another program may have written any into the topic.
func writable(t time.Time) time.Time {
	t = t.UTC()
	switch {
	case t.Year() < 1:
		return time.Time{}
	case t.Year() > 9999:
		return time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	}
	return t
}

// close ends the file at an offset, and says what is in it. The spool file is the caller's.
func (w *fileWriter) close(to int64) (File, error) {
	err := w.rows.Close()
	if err == nil {
		err = w.out.Flush()
	}
	if err != nil {
		return File{}, err
	}
	at, err := w.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return File{}, err
	}
	e := w.entry
	e.To, e.Bytes, e.Digest = max(to, e.To), at, hex.EncodeToString(w.hash.Sum(nil))
	return e, nil
}

// errDamaged is what a file fails with that is not as the manifest says.
var errDamaged = errors.New("it is not the file that was archived")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errDamaged, fmt.Sprintf(format, args...))
}

// readRecords calls each for the records of a file from an offset on, in order, some at a time; they are the callee's.
// What is not as the entry says is errDamaged.
func readRecords(f io.ReaderAt, e File, topic string, partition int32, from int64, each func([]*kgo.Record) error) error {
	file, err := parquet.OpenFile(f, e.Bytes, parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		return damaged("%v", err)
	}
	reader := parquet.NewGenericReader[row](file)
	defer reader.Close()
	if n := reader.NumRows(); n != e.Records {
		return damaged("%d records, the manifest says %d", n, e.Records)
	}
	rows := make([]row, readRows)
	last := e.From - 1
	for done := int64(0); done < e.Records; {
		clear(rows) // what a row points to is the record's from now on
		n, err := reader.Read(rows)
		if err != nil && (!errors.Is(err, io.EOF) || n == 0) {
			return damaged("%v", err)
		}
		done += int64(n)
		records := make([]*kgo.Record, 0, n)
		for i := range rows[:n] {
			r := &rows[i]
			if r.Partition != partition || r.Offset <= last || r.Offset >= e.To {
				return damaged("partition %d offset %d after offset %d", r.Partition, r.Offset, last)
			}
			if last = r.Offset; r.Offset < from {
				continue
			}
			records = append(records, r.record(topic))
		}
		if len(records) == 0 {
			continue
		}
		if err := each(records); err != nil {
			return err
		}
	}
	return nil
}

// record is the row as a record, which shares the row's memory.
func (r *row) record(topic string) *kgo.Record {
	rec := &kgo.Record{Topic: topic, Partition: r.Partition, Offset: r.Offset, LeaderEpoch: r.LeaderEpoch,
		Timestamp: time.UnixMilli(r.Timestamp), Key: plain(r.Key), Value: plain(r.Value)}
	if len(r.Headers) > 0 {
		rec.Headers = slices.Grow(rec.Headers, len(r.Headers))
	}
	for _, h := range r.Headers {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Key, Value: plain(h.Value)})
	}
	return rec
}
