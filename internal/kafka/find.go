package kafka

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
)

// FoundRecord is a record of a key.
type FoundRecord struct {
	Offset int64
	At     time.Time // of the write
	Record event.Record
}

// KeySearch is what a search for a key has found in one partition.
type KeySearch struct {
	Partition  event.Partition
	Start, End int64         // of the log, as committed
	From       int64         // offsets below this were not looked at
	Records    []FoundRecord // the newest first
}

const (
	// The first step of a search back is short, for a key that was written just now; each is twice the one before.
	searchStepMin = 1000
	searchStepMax = 50_000
)

// FindKey reads a partition backwards from its end until it has found so many records of a key, has looked at
// offsetsMax offsets, or is at the log's start. progress, which may be nil, is told how many offsets were looked at.
func FindKey(ctx context.Context, cfg *config.Config, log *slog.Logger, cl *kgo.Client, p event.Partition, key []byte,
	records int, offsetsMax int64, progress func(offsets int64)) (*KeySearch, error) {
	logs, err := Inspect(ctx, cl, []event.Position{{Partition: p, LeaderEpoch: -1}})
	if err != nil {
		return nil, err
	}
	at := logs[p]
	if at.Err != nil {
		return nil, at.Err
	}
	s := &KeySearch{Partition: p, Start: at.Start, End: at.Stable, From: at.Stable}
	end := max(at.Start, at.Stable-offsetsMax)
	for step := int64(searchStepMin); s.From > end && len(s.Records) < records; step = min(2*step, searchStepMax) {
		from := max(end, s.From-step)
		var found []FoundRecord
		err := Scan(ctx, cfg, "where", log, map[event.Partition]int64{p: from}, map[event.Partition]int64{p: s.From}, func(r *kgo.Record) {
			if !bytes.Equal(r.Key, key) {
				return
			}
			f := FoundRecord{Offset: r.Offset, At: r.Timestamp, Record: event.Record{Key: key, Value: bytes.Clone(r.Value)}}
			for _, h := range r.Headers {
				f.Record.Headers = append(f.Record.Headers, event.Header{Key: h.Key, Value: bytes.Clone(h.Value)})
			}
			found = append(found, f)
			if len(found) > records { // a key that fills the log
				found = slices.Delete(found, 0, 1)
			}
		})
		if err != nil {
			return nil, err
		}
		slices.Reverse(found)
		s.Records = append(s.Records, found...)
		s.From = from
		if progress != nil {
			progress(s.End - s.From)
		}
	}
	return s, nil
}
