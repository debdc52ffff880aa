package mysql

import (
	"strings"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/partitioner"
)

// upsert is the text around the tuples of one physical table's statement:
//
//	INSERT INTO `orders_202611` (`tenant`,…,`_ver`) VALUES (…),(…) AS `_n` ON DUPLICATE KEY UPDATE
//	  `c`=IF(`_n`.`_ver`>`orders_202611`.`_ver`,`_n`.`c`,`orders_202611`.`c`),…,
//	  `_ver`=GREATEST(`_n`.`_ver`,`orders_202611`.`_ver`)
//
// Names that begin with _ are reserved, so the alias is nobody's table.
// `_ver` is assigned last: MySQL evaluates from left to right, and a later expression reads the new value.
type upsert struct {
	table string // physical
	head  string // up to and with "VALUES "
	tail  string // from after the last tuple
}

func newUpsert(t *event.Table, m partitioner.Month, d dialect) *upsert {
	name := d.name(t, m)
	table := mysqldb.Ident(name)
	columns := make([]string, 0, len(t.Columns)+1)
	for _, c := range t.Columns {
		columns = append(columns, c.Name)
	}
	columns = append(columns, "_ver")

	tail := ""
	fresh := func(c event.Column) string { return "VALUES(" + mysqldb.Ident(c.Name) + ")" }
	if d.RowAlias {
		tail = " AS `_n`"
		fresh = func(c event.Column) string { return "`_n`." + mysqldb.Ident(c.Name) }
	}
	return &upsert{
		table: name,
		head:  "INSERT INTO " + table + " (" + identList(columns) + ") VALUES ",
		tail:  tail + guard(t, table, fresh),
	}
}

// guard lets the greater version win. fresh is how a column of the new row is written.
func guard(t *event.Table, table string, fresh func(c event.Column) string) string {
	var b strings.Builder
	ver := fresh(event.Column{Name: "_ver"})
	b.WriteString(" ON DUPLICATE KEY UPDATE ")
	for i, c := range t.Columns {
		if i == t.Tenant || i == t.ID {
			continue // the key is what made it a duplicate
		}
		column := mysqldb.Ident(c.Name)
		b.WriteString(column + "=IF(" + ver + ">" + table + ".`_ver`," + fresh(c) + "," + table + "." + column + "),")
	}
	b.WriteString("`_ver`=GREATEST(" + ver + "," + table + ".`_ver`)")
	return b.String()
}

// appendTuple appends one row as "(…,_ver)". zeros are the literals of a deleted row's columns that cannot be NULL.
func appendTuple(dst []byte, t *event.Table, zeros []string, row *event.Row, ver int64) []byte {
	dst = append(dst, '(')
	for i := range t.Columns {
		v := &row.Values[i]
		switch {
		case !v.Null:
			dst = appendValue(dst, t.Columns[i].Type.Kind, v)
		case t.Columns[i].Nullable:
			dst = append(dst, "NULL"...)
		default:
			dst = append(dst, zeros[i]...)
		}
		dst = append(dst, ',')
	}
	dst = appendInt(dst, ver)
	return append(dst, ')')
}
