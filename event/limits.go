package event

import (
	"fmt"
	"strconv"
)

// Limits are what one engine can hold of each type, where that is less than the type itself; docs/types.md prints
// them, and says where they come from. A sink checks its table once with CheckTable, and each row with Check: what
// does not fit is a dead letter for that sink alone.
type Limits struct {
	Sink                     string // name of the sink
	DateMin, DateMax         int64  // days since 1970-01-01
	DatetimeMin, DatetimeMax int64  // microseconds since the Unix epoch
	DecimalPrecisionMax      int
	TextBytesMax             int64 // of one text value; 0: bounded by the event's size alone
	JSONBytesMax             int64 // of one json value; 0: bounded by the event's size alone
	RowBytesMax              int   // of a row, as the engine counts declared columns; 0: none
	IndexBytesMax            int   // of a secondary index, as the engine counts declared columns; 0: none
}

var (
	// LimitsMySQL are MySQL 8.0 to 9.7's, and MariaDB's.
	LimitsMySQL = Limits{
		Sink:    "mysql",
		DateMin: daysOf(1000, 1, 1), DateMax: dateMax,
		DatetimeMin: daysOf(1000, 1, 1) * dayMicros, DatetimeMax: datetimeMax,
		DecimalPrecisionMax: 65,
		TextBytesMax:        1<<32 - 1, // LONGTEXT
		RowBytesMax:         65_535,    // error 1118
		IndexBytesMax:       3_072,     // InnoDB, DYNAMIC rows; error 1071
	}
	// LimitsClickHouse are those of Date32, DateTime64(6) and Decimal.
	LimitsClickHouse = Limits{
		Sink:    "clickhouse",
		DateMin: daysOf(1900, 1, 1), DateMax: daysOf(2299, 12, 31),
		DatetimeMin: daysOf(1900, 1, 1) * dayMicros, DatetimeMax: daysOf(2300, 1, 1)*dayMicros - 1,
		DecimalPrecisionMax: 76,
	}
	// LimitsDoris are those of Doris with its settings as they come.
	LimitsDoris = Limits{
		Sink:    "doris",
		DateMin: dateMin, DateMax: dateMax,
		DatetimeMin: datetimeMin, DatetimeMax: datetimeMax,
		DecimalPrecisionMax: 38,        // 76 with enable_decimal256
		TextBytesMax:        1_048_576, // string_type_length_soft_limit_bytes
		JSONBytesMax:        1_048_576, // jsonb_type_length_soft_limit_bytes
	}
)

// CheckTable finds what the engine cannot declare. The error is Problems.
func (l *Limits) CheckTable(t *Table) error {
	var problems Problems
	add := func(key, what, why string) {
		problems = append(problems, Problem{Code: "SL1106", Table: t.Name, Key: key, What: what, Why: why})
	}
	row := 0
	for i := range t.Columns {
		c := &t.Columns[i]
		if c.Type.Kind == Decimal && c.Type.Precision > l.DecimalPrecisionMax {
			add("columns."+c.Name, fmt.Sprintf("column %s is %s, sink %s holds a precision of up to %d", c.Name, c.TypeText(), l.Sink, l.DecimalPrecisionMax), "")
		}
		row += declaredBytes(&c.Type)
	}
	if l.RowBytesMax > 0 && row > l.RowBytesMax {
		add("columns", fmt.Sprintf("the columns take up to %d bytes, sink %s allows %d in a row", row, l.Sink, l.RowBytesMax),
			"string(n) counts four bytes for each code point, text and json next to nothing: make long strings text")
	}
	for i, index := range t.Indexes {
		bytes := 0
		for _, name := range index {
			if col := t.Column(name); col != None {
				bytes += declaredBytes(&t.Columns[col].Type)
			}
		}
		if l.IndexBytesMax > 0 && bytes > l.IndexBytesMax {
			add("indexes."+strconv.Itoa(i), fmt.Sprintf("index %v takes up to %d bytes, sink %s allows %d", index, bytes, l.Sink, l.IndexBytesMax),
				"string(n) counts four bytes for each code point")
		}
	}
	if len(problems) > 0 {
		return problems
	}
	return nil
}

// declaredBytes is what MySQL counts for a column: the most that a value takes, with its length.
func declaredBytes(t *Type) int {
	switch t.Kind {
	case Bool:
		return 1
	case Int32:
		return 4
	case Date:
		return 3
	case String:
		return 4*t.Length + 2
	case Bytes:
		return t.Length + 2
	case Decimal:
		return (t.Precision-t.Scale+8)/9*4 + (t.Scale+8)/9*4 // nine digits in four bytes
	case Text, JSON:
		return 12 // a reference to pages elsewhere
	}
	return 8
}

// codeLimit is the code of a value that one engine cannot hold.
const codeLimit = "SL1122"

// Check finds the first value that the engine cannot hold: a *DataError, or nil.
func (l *Limits) Check(t *Table, r *Row) error {
	for col := range r.Values {
		v := &r.Values[col]
		if v.Null {
			continue
		}
		switch t.Columns[col].Type.Kind {
		case Date:
			if v.Int < l.DateMin || v.Int > l.DateMax {
				return l.outside(t, col, AppendDate(nil, v.Int), AppendDate(nil, l.DateMin), AppendDate(nil, l.DateMax))
			}
		case Datetime:
			if v.Int < l.DatetimeMin || v.Int > l.DatetimeMax {
				return l.outside(t, col, AppendDatetime(nil, v.Int), AppendDatetime(nil, l.DatetimeMin), AppendDatetime(nil, l.DatetimeMax))
			}
		case Text:
			if l.TextBytesMax > 0 && int64(len(v.Bytes)) > l.TextBytesMax {
				return l.tooLong(t, col, len(v.Bytes), l.TextBytesMax)
			}
		case JSON:
			if l.JSONBytesMax > 0 && int64(len(v.Bytes)) > l.JSONBytesMax {
				return l.tooLong(t, col, len(v.Bytes), l.JSONBytesMax)
			}
		}
	}
	return nil
}

func (l *Limits) outside(t *Table, col int, value, least, most []byte) error {
	return t.dataError(codeLimit, col, ReasonOutOfRange, fmt.Sprintf("%s; sink %s holds %s to %s", value, l.Sink, least, most))
}

func (l *Limits) tooLong(t *Table, col, length int, most int64) error {
	return t.dataError(codeLimit, col, ReasonTooLong, fmt.Sprintf("%d bytes; sink %s holds %d", length, l.Sink, most))
}
