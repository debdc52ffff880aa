package integration

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/mysql"
)

// A shard that has switched to a newer layout is not written to by the older one any more, whoever owned it; what was not
// applied of a slot that comes to a shard is applied there, although the shard stood farther.
func TestP6_MySQLSinkFollowsTheLayoutOfItsShards(t *testing.T) {
	l := newShardLine(t, harness.MySQL(t), shardLineTables, "")
	for _, db := range l.dbs {
		if _, err := db.Exec("CREATE TABLE slotline_layout (line VARBINARY(64), epoch BIGINT, PRIMARY KEY (line, epoch))"); err != nil {
			t.Fatal(err)
		}
	}
	// Slots 0-99 have no rows and go from s1 to s2; partition 0 has them, before and after.
	spec := l.layout.Spec()
	spec.Epoch, spec.Partitions = 2, nil
	spec.Shards[0].Slots = []partitioner.SlotRange{{First: 100, Last: 511}}
	spec.Shards[1].Slots = []partitioner.SlotRange{{First: 0, Last: 99}, {First: 512, Last: 1023}}
	spec, err := spec.After(l.layout, l.layout.Partitions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	newer, err := partitioner.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	tenants := map[bool]string{} // of partition 0, by whether their slot moves
	for i := 0; len(tenants) < 2; i++ {
		tenant := string(rune('a'+i%26)) + string(rune('a'+i/26))
		if r := l.layout.Route(tenant, ""); r.Partition == 0 {
			tenants[r.Slot < 100] = tenant
		}
	}
	stays, moves := tenants[false], tenants[true]

	a := l.sink("a")
	o := l.takeOver(a, 0)
	l.applyBatch(o, l.batch(0, l.message(0, "items", event.Upsert, 1, item(stays, 1, "x"))))
	if _, err := l.dbs["s2"].Exec("UPDATE slotline_progress SET next_off = 5, applied_off = 5 WHERE part = 0"); err != nil {
		t.Fatal(err)
	}
	var seen []string
	refusal := errors.New("refused")
	w := mysql.Switch{Shards: []string{"s1", "s2"}, Gaining: []string{"s2"},
		Check:   func(shard, tenant string) { seen = append(seen, shard+" "+tenant) },
		Verdict: func() error { return refusal },
		Store: func(ctx context.Context, tx *sql.Tx, shard string) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO slotline_layout VALUES (?, 2)", l.cfg.Line)
			return err
		}}
	before := l.progress("s2", 0)
	switcher := l.sink("switcher")
	switcher.SetLayout(newer)
	if err := switcher.Switch(t.Context(), w); err != refusal || !slices.Equal(seen, []string{"s1 " + stays}) {
		t.Fatalf("a refused switch: %v; tenants %q", err, seen)
	}
	if after := l.progress("s2", 0); after != before {
		t.Errorf("a refused switch left %+v, it was %+v", after, before)
	}
	w.Verdict = func() error { return nil }
	if err := switcher.Switch(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if r := l.progress("s2", 0); r.Next != 1 || r.Applied != 5 || r.OwnerEpoch != before.OwnerEpoch+1 {
		t.Errorf("s2, which slots come to, stands at %+v", r)
	}

	message := l.message(0, "items", event.Upsert, 1, item(moves, 2, "y"))
	if _, err := applyAll(t.Context(), o, l.batch(1, message)); !fault.Is(err, fault.Fenced) {
		t.Fatalf("the owner of before: %v", err)
	}
	_, err = a.TakeOver(t.Context(), []event.Partition{l.part(0)})
	if older, ok := errors.AsType[*event.NewerLayout](err); !ok || older.Epoch != 2 || fault.CodeOf(err) != "SL3108" || !fault.Is(err, fault.Transient) {
		t.Fatalf("a take-over by the older layout: %v", err)
	}
	a.SetLayout(newer)
	a.SetLayout(l.layout) // an older one is ignored
	o = l.takeOver(a, 0)
	if at := o.Positions()[0].Next; at != 1 {
		t.Fatalf("the partition stands at %d", at)
	}
	l.applyBatch(o, l.batch(1, message))
	l.wantRows("s1", "items_202611", "owner,item", stays+"|1")
	l.wantRows("s2", "items_202611", "owner,item", moves+"|2")

	_, err = a.TakeOver(t.Context(), []event.Partition{l.part(7)})
	if _, ok := errors.AsType[*event.NewerLayout](err); !ok || fault.CodeOf(err) != "SL3109" {
		t.Errorf("a partition that the layout does not have: %v", err)
	}
}
