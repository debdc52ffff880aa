// Package rowsum is a checksum of a row that every engine computes by itself, so that two stores are compared without
// sending their rows: the first eight bytes, big-endian, of the SHA-256 of a text that each of them makes of the row. The
// sum of a set of rows is that of its rows modulo 2^64.
//
// The text is `_ver`, a comma, and `_deleted`; then for each column, in the order of the file, a comma and the value:
//
//	NULL                                N
//	bool, int32, int64, uint64          in decimal; a bool is 0 or 1
//	decimal(p,s)                        canonical, at scale s: -12.50
//	float64                             its eight bytes, little-endian, as 16 upper-case hexadecimal digits; −0 is 0
//	date, datetime                      2026-11-30, 2026-11-30 23:59:59.123456
//	string(n), text, bytes(n)           the length in bytes, a colon, the bytes
//
// Of a deleted row only tenant and id count, since sinks fill the others as they please. A json column is not in the text,
// because engines write JSON differently: [WithJSON] adds its value to the sum of a row, by value.
package rowsum

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
)

// Item is what an engine tells of some rows: of one tenant's, or of a single one.
type Item struct {
	Month  partitioner.Month // where several are asked at once
	Key    string            // canonical text of the tenant, or of the id
	Rows   int64
	Sum    uint64
	Ver    int64  // _ver, of a single row
	Spread string // canonical text of the spread column, of a single row; "" without one
}

// Counts says whether a column is in the text of a row.
func Counts(t *event.Table, column int, deleted bool) bool {
	if t.Columns[column].Type.Kind == event.JSON {
		return false
	}
	return !deleted || column == t.Tenant || column == t.ID
}

// HasJSON says that a row's sum is not complete without WithJSON.
func HasJSON(t *event.Table) bool { return len(JSONColumns(t)) > 0 }

// JSONColumns are the indexes of the json columns.
func JSONColumns(t *event.Table) (list []int) {
	for i, c := range t.Columns {
		if c.Type.Kind == event.JSON {
			list = append(list, i)
		}
	}
	return list
}

// Of is the sum of a row at its _ver, its JSON included.
func Of(t *event.Table, row *event.Row, ver int64) uint64 {
	sum := hash(appendText(nil, t, row, ver))
	for _, i := range JSONColumns(t) {
		if v := row.Values[i]; v.Null {
			sum = WithJSON(sum, i, nil, ver)
		} else {
			sum = WithJSON(sum, i, v.Bytes, ver)
		}
	}
	return sum
}

func hash(text []byte) uint64 {
	digest := sha256.Sum256(text)
	return binary.BigEndian.Uint64(digest[:])
}

func appendText(dst []byte, t *event.Table, row *event.Row, ver int64) []byte {
	dst = strconv.AppendInt(dst, ver, 10)
	dst = append(dst, ',', byte('0'+ver&1))
	for i, c := range t.Columns {
		if Counts(t, i, ver&1 == 1) {
			dst = appendValue(append(dst, ','), c.Type.Kind, &row.Values[i])
		}
	}
	return dst
}

func appendValue(dst []byte, k event.Kind, v *event.Value) []byte {
	if v.Null {
		return append(dst, 'N')
	}
	switch k {
	case event.Bool, event.Int32, event.Int64:
		return strconv.AppendInt(dst, v.Int, 10)
	case event.Uint64:
		return strconv.AppendUint(dst, v.Uint, 10)
	case event.Float64:
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], math.Float64bits(v.Float+0))
		return fmt.Appendf(dst, "%X", b)
	case event.Decimal:
		return append(dst, v.Bytes...)
	case event.Date:
		return event.AppendDate(dst, v.Int)
	case event.Datetime:
		return event.AppendDatetimeText(dst, v.Int, ' ')
	}
	dst = strconv.AppendInt(dst, int64(len(v.Bytes)), 10)
	return append(append(dst, ':'), v.Bytes...)
}

// WithJSON adds the value of a json column to the sum of a row; nil is NULL. Of a deleted row nothing is added.
func WithJSON(sum uint64, column int, text []byte, ver int64) uint64 {
	if ver&1 == 1 {
		return sum
	}
	dst := binary.BigEndian.AppendUint64(nil, sum)
	dst = append(strconv.AppendInt(dst, int64(column), 10), ':')
	return hash(appendJSON(dst, text))
}

// appendJSON appends a JSON value in one form: sorted keys, integers within 64 bits as they are, other numbers as the
// nearest float64. A text that is no JSON stands for itself.
func appendJSON(dst, text []byte) []byte {
	if text == nil {
		return append(dst, 'N')
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return append(dst, text...)
	}
	return appendAny(dst, v)
}

func appendAny(dst []byte, v any) []byte {
	switch v := v.(type) {
	case json.Number:
		return appendNumber(dst, string(v))
	case map[string]any:
		dst = append(dst, '{')
		for _, key := range slices.Sorted(maps.Keys(v)) {
			dst = append(strconv.AppendQuote(dst, key), ':')
			dst = append(appendAny(dst, v[key]), ',')
		}
		return append(dst, '}')
	case []any:
		dst = append(dst, '[')
		for _, e := range v {
			dst = append(appendAny(dst, e), ',')
		}
		return append(dst, ']')
	case string:
		return strconv.AppendQuote(dst, v)
	}
	return fmt.Append(dst, v) // true, false, <nil>
}

func appendNumber(dst []byte, text string) []byte {
	if !strings.ContainsAny(text, ".eE") {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return strconv.AppendInt(dst, n, 10)
		}
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			return strconv.AppendUint(dst, n, 10)
		}
	}
	f, _ := strconv.ParseFloat(text, 64)
	return append(strconv.AppendFloat(dst, f+0, 'g', -1, 64), 'f')
}
