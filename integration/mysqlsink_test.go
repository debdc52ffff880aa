package integration

import (
	"testing"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/integration/harness"
)

// The newest version of an entity wins, in its shard and month table, whatever the order and however often it comes.
func TestP3_MySQLSinkFoldsToTheGreatestVersion(t *testing.T) {
	l := newShardLine(t, harness.MySQL(t), shardLineTables, "")
	o := l.takeOver(l.sink("a"), 1)
	a := l.tenantIn(1, "s1")
	first := []event.Message{
		l.message(1, "items", event.Upsert, 5, item(a, 1, "five")),
		l.message(1, "items", event.Upsert, 3, item(a, 1, "three")),
		l.message(1, "items", event.Upsert, 4, item(a, -2, "minus")),
		l.message(1, "items", event.Delete, 4, item(a, -2, "")),
		l.message(1, "notes", event.Delete, 9, []event.Value{text(a), text("n1"), {}}),
	}
	if r := l.applyBatch(o, l.batch(0, first...)); len(r) > 0 {
		t.Fatal(r)
	}
	columns := "owner,item,name,amount,n,_ver,_deleted"
	l.wantRows("s1", "items_202611", columns, a+"|1|five|1.00|7|10|0", a+"|-2||9|1")
	l.wantRows("s1", "notes", "owner,note,body,_ver", a+"|n1||19")

	second := []event.Message{
		l.message(1, "items", event.Upsert, 4, item(a, 1, "four, late")),
		l.message(1, "notes", event.Upsert, 8, []event.Value{text(a), text("n1"), text("late")}),
		l.message(1, "notes", event.Upsert, 8, []event.Value{text(a), text("N1 "), text("it's a \\ \n \x00")}),
	}
	l.applyBatch(o, l.batch(5, second...))
	l.wantRows("s1", "items_202611", columns, a+"|1|five|1.00|7|10|0", a+"|-2||9|1")
	l.wantRows("s1", "notes", "owner,note,body,_ver", a+"|n1||19", a+"|N1 |it's a \\ \n \x00|16")
	if r := l.progress("s1", 1); r.Next != 8 || r.Applied != 8 || r.LeaderEpoch != 3 {
		t.Errorf("progress %+v", r)
	}
}
