package mysql

import (
	"fmt"
	"testing"

	"github.com/slotline/slotline/event"
)

// A key is compared as its column's type: the text of an integer would go by way of floating point, and find another row.
func TestFindSQL(t *testing.T) {
	table := &event.Table{Name: "items", Tenant: 0, ID: 1, Columns: []event.Column{
		{Name: "owner", Type: event.Type{Kind: event.String, Length: 9}}, {Name: "item", Type: event.Type{Kind: event.Uint64}}}}
	query, args := findSQL(table, []string{"items_202610", "items_202611"}, "o'x", "18446744073709551615")
	if want := "SELECT 'items_202610', `_ver` FROM `items_202610` WHERE `owner` = ? AND `item` = ? UNION ALL " +
		"SELECT 'items_202611', `_ver` FROM `items_202611` WHERE `owner` = ? AND `item` = ?"; query != want {
		t.Errorf("%s\nwant %s", query, want)
	}
	if got := fmt.Sprintf("%T %T %v", args[0], args[1], args); len(args) != 4 || got != "string uint64 [o'x 18446744073709551615 o'x 18446744073709551615]" {
		t.Errorf("arguments %s", got)
	}
	table.Tenant = event.None
	if query, args := findSQL(table, []string{"items"}, "", "7"); query != "SELECT 'items', `_ver` FROM `items` WHERE `item` = ?" || len(args) != 1 {
		t.Errorf("%s %v", query, args)
	}
}
