package languages

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/outbox/outboxtest"
	"github.com/slotline/slotline/partitioner"
)

var update = flag.Bool("update", false, "rewrite rows.jsonl")

// row is a line of rows.jsonl: a lane table's columns without id, event_id and created_at.
type row struct {
	Lane     int     `json:"lane"`
	Table    string  `json:"tbl"`
	Tenant   string  `json:"tenant"`
	EntityID string  `json:"entity_id"`
	Op       int     `json:"op"`
	Version  *int64  `json:"version"`
	Month    *int64  `json:"month"`
	Spread   *string `json:"spread"`
	Codec    int     `json:"codec"`
	Trace    *string `json:"trace"`
	Payload  string  `json:"payload"`
}

func optional[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

func rowOf(e *event.Event, lanes int) row {
	return row{partitioner.Lane(e.Tenant, lanes), e.Table, e.Tenant, e.EntityID, int(e.Op), optional(e.Version), optional(int64(e.Month)),
		optional(e.Spread), 1, optional(e.TraceParent), string(e.Body)}
}

// rows.jsonl is what package producer writes.
func TestGoldenRows(t *testing.T) {
	cfg, err := config.Load("slotline.yaml")
	if err != nil {
		t.Fatal(err)
	}
	out := outboxtest.New(t, cfg)
	if err := Emit(t.Context(), cfg, out.DB); err != nil {
		t.Fatal(err)
	}
	events := out.Take()
	slices.SortStableFunc(events, func(a, b event.Event) int {
		return cmp.Compare(partitioner.Lane(a.Tenant, cfg.Outbox.Lanes), partitioner.Lane(b.Tenant, cfg.Outbox.Lanes))
	})
	var got bytes.Buffer
	enc := json.NewEncoder(&got)
	enc.SetEscapeHTML(false)
	for i := range events {
		if err := enc.Encode(rowOf(&events[i], cfg.Outbox.Lanes)); err != nil {
			t.Fatal(err)
		}
	}
	if *update {
		if err := os.WriteFile("rows.jsonl", got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("rows.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("rows.jsonl is not what Emit writes (-update rewrites it):\n%s", got.Bytes())
	}
}
