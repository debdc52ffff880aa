package clickhouse

import (
	"testing"

	"github.com/slotline/slotline/event"
)

func TestFindSQL(t *testing.T) {
	table := &event.Table{Name: "items", Tenant: 0, ID: 1, Columns: []event.Column{
		{Name: "owner", Type: event.Type{Kind: event.String, Length: 9}}, {Name: "item", Type: event.Type{Kind: event.Int64}}}}
	if got, want := findSQL(table, `o'x\`, "-7"), "SELECT toString(max(_ver)) FROM `items` WHERE `owner` = 'o\\'x\\\\' AND `item` = -7"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
