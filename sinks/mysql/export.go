package mysql

import (
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
)

const (
	// A statement of an export has so many rows and bytes, as a server with any max_allowed_packet takes it.
	exportRows  = 500
	exportBytes = 512 << 10
	// exportBuffered is what all tables together keep before it is passed on.
	exportBuffered = 8 << 20
)

// Export makes SQL of rows: the tables as the sink has them, and statements that write the rows unless a newer version is
// there. Rows are of one goroutine.
type Export struct {
	d     dialect
	open  map[exportTable]*exportRowsOf
	order []*exportRowsOf
	bytes int
}

type exportTable struct {
	table *event.Table
	month partitioner.Month
}

type exportRowsOf struct {
	u      *upsert
	tuples []byte
	rows   int
}

// NewExport begins an export to MySQL 8.0.19 or later, or to MariaDB.
func NewExport(mariaDB bool) *Export {
	return &Export{d: dialect{MariaDB: mariaDB, RowAlias: !mariaDB}, open: map[exportTable]*exportRowsOf{}}
}

// Add takes a row that is not deleted, and returns the statements that are to be run by now: the definition of its table
// before its first.
func (x *Export) Add(t *event.Table, row *event.Row, ver int64) (statements []string) {
	key := exportTable{t, row.Month}
	o := x.open[key]
	if o == nil {
		o = &exportRowsOf{u: newUpsert(t, row.Month, x.d)}
		x.open[key], x.order = o, append(x.order, o)
		statements = append(statements, tableDDL(t, row.Month, x.d))
	}
	before := len(o.tuples)
	if o.rows > 0 {
		o.tuples = append(o.tuples, ',')
	}
	o.tuples = appendTuple(o.tuples, t, nil, row, ver)
	o.rows++
	x.bytes += len(o.tuples) - before
	if o.rows >= exportRows || len(o.tuples) >= exportBytes {
		statements = append(statements, x.statement(o))
	}
	if x.bytes >= exportBuffered {
		statements = append(statements, x.Rest()...)
	}
	return statements
}

// Rest returns the statements of the rows that are left.
func (x *Export) Rest() (statements []string) {
	for _, o := range x.order {
		if o.rows > 0 {
			statements = append(statements, x.statement(o))
		}
	}
	return statements
}

func (x *Export) statement(o *exportRowsOf) string {
	text := o.u.head + string(o.tuples) + o.u.tail
	x.bytes -= len(o.tuples)
	o.tuples, o.rows = o.tuples[:0], 0
	return text
}
