package outbox

import (
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
)

const (
	codecJSON = 1

	// insertBytesMax bounds one INSERT: well below max_allowed_packet's default of 64 MiB, and below the 16 MiB that
	// some servers are set to.
	insertBytesMax = 8 << 20
	insertRowsMax  = 1000 // more rows in one statement are not faster
)

// columnList is a lane table's columns without id.
var columnList = func() string {
	var names []string
	for _, c := range laneColumns[1:] {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}()

// Insert is one multi-row INSERT into a lane's table.
type Insert struct {
	Lane int
	Rows int
	SQL  string
}

// Inserts makes the statements that append events in their order: one per lane, or several where one would be too
// large. lanes is the number of lanes. The row format is public (docs/formats.md): other languages write the same.
//
// Values stand in the text as hexadecimal literals: they mean the same under every sql_mode and character set of the
// caller's connection, and spare the two round trips of a prepared statement.
func Inserts(events []event.Event, lanes int) []Insert {
	byLane := make([][]*event.Event, lanes)
	for i := range events {
		lane := partitioner.Lane(events[i].Tenant, lanes)
		byLane[lane] = append(byLane[lane], &events[i])
	}
	var inserts []Insert
	for lane, list := range byLane {
		for len(list) > 0 {
			b := make([]byte, 0, 256+len(list[0].Body)*2*min(len(list), 64))
			b = append(b, "INSERT INTO "+LaneTable(lane)+" ("+columnList+") VALUES "...)
			n := 0
			for n < len(list) && n < insertRowsMax && (n == 0 || len(b)+rowBytes(list[n]) <= insertBytesMax) {
				if n > 0 {
					b = append(b, ',')
				}
				b = appendRow(b, list[n])
				n++
			}
			inserts = append(inserts, Insert{Lane: lane, Rows: n, SQL: string(b)})
			list = list[n:]
		}
	}
	return inserts
}

// rowBytes is an upper bound of what appendRow adds.
func rowBytes(e *event.Event) int {
	return 256 + 2*(len(e.Table)+len(e.Tenant)+len(e.EntityID)+len(e.Spread)+len(e.TraceParent)+len(e.Body))
}

func appendRow(b []byte, e *event.Event) []byte {
	b = append(b, '(')
	b = appendBinary(b, e.ID[:])
	b = append(b, ',')
	b = appendBinary(b, e.Table)
	b = append(b, ',')
	b = appendBinary(b, e.Tenant)
	b = append(b, ',')
	b = appendBinary(b, e.EntityID)
	b = append(b, ',')
	b = strconv.AppendInt(b, int64(e.Op), 10)
	b = append(b, ',')
	b = appendNumber(b, e.Version)
	b = append(b, ',')
	b = appendNumber(b, int64(e.Month))
	b = append(b, ',')
	b = appendOptional(b, e.Spread)
	b = append(b, ',')
	b = strconv.AppendInt(b, codecJSON, 10)
	b = append(b, ",'"...)
	b = e.Time.UTC().Truncate(time.Microsecond).AppendFormat(b, timeFormat)
	b = append(b, "',"...)
	b = appendOptional(b, e.TraceParent)
	b = append(b, ',')
	b = appendBinary(b, e.Body)
	return append(b, ')')
}

const timeFormat = "2006-01-02 15:04:05.000000"

// appendNumber writes 0 as NULL: an automatic version, a table without months.
func appendNumber(b []byte, n int64) []byte {
	if n == 0 {
		return append(b, "NULL"...)
	}
	return strconv.AppendInt(b, n, 10)
}

// appendOptional writes "" as NULL.
func appendOptional(b []byte, text string) []byte {
	if text == "" {
		return append(b, "NULL"...)
	}
	return appendBinary(b, text)
}

func appendBinary[T string | []byte](b []byte, v T) []byte {
	if len(v) == 0 {
		return append(b, "''"...)
	}
	b = append(b, "x'"...)
	b = hex.AppendEncode(b, []byte(v))
	return append(b, '\'')
}
