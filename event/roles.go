package event

import (
	"bytes"
	"strconv"

	"github.com/slotline/slotline/partitioner"
)

// Bounds of the texts by which an entity is known, in bytes.
const (
	TenantBytesMax   = 64
	EntityIDBytesMax = 255
	SpreadBytesMax   = 255
)

// Keeps reports whether a delete's body holds column col: tenant, id, month and spread.
func (t *Table) Keeps(col int) bool {
	return col == t.Tenant || col == t.ID || col == t.Month || col == t.Spread
}

// checkRoles says what a value, valid for its column's type, may not be for the column's roles. The month is not among
// them: who needs it computes it, and sees then that there is none.
func (t *Table) checkRoles(col int, v *Value) (reason, detail string) {
	if col == t.Tenant && t.Columns[col].Type.Kind == String {
		if reason, detail = checkText("a tenant", v.Bytes, TenantBytesMax); reason != "" {
			return reason, detail
		}
		if bytes.IndexByte(v.Bytes, 0) >= 0 {
			return ReasonBadText, "a tenant holds no NUL byte: " + quoteBounded(v.Bytes)
		}
	}
	if col == t.ID && t.Columns[col].Type.Kind == String {
		if reason, detail = checkText("an entity id", v.Bytes, EntityIDBytesMax); reason != "" {
			return reason, detail
		}
	}
	if col == t.Spread && len(v.Bytes) > SpreadBytesMax {
		return ReasonTooLong, "a spread field has at most " + strconv.Itoa(SpreadBytesMax) + " bytes, this one " + strconv.Itoa(len(v.Bytes))
	}
	if col == t.Version {
		version := v.Int
		if t.Columns[col].Type.Kind == Uint64 {
			version = int64(min(v.Uint, VersionMax+1))
		}
		if version < 1 || version > VersionMax {
			return ReasonOutOfRange, "a version is from 1 to 2^62-1"
		}
	}
	return "", ""
}

const namesNoMonth = "names no month of the years 1000 to 9999"

func checkText(what string, text []byte, bytesMax int) (reason, detail string) {
	switch {
	case len(text) == 0:
		return ReasonEmpty, what + " has at least one byte"
	case len(text) > bytesMax:
		return ReasonTooLong, what + " has at most " + strconv.Itoa(bytesMax) + " bytes, this one " + strconv.Itoa(len(text))
	}
	return "", ""
}

// MonthOf is the month that the month column's value names; NoMonth for a table without months.
func (t *Table) MonthOf(v Value) (partitioner.Month, error) {
	if t.Month == None {
		return partitioner.NoMonth, nil
	}
	m, ok := t.monthOf(&v)
	if !ok {
		return m, &DataError{Code: codeRow, Table: t.Name, Column: t.Columns[t.Month].Name, Reason: ReasonOutOfRange,
			Detail: namesNoMonth}
	}
	return m, nil
}

func (t *Table) monthOf(v *Value) (m partitioner.Month, ok bool) {
	var days int64
	switch t.Columns[t.Month].Type.Kind {
	case Date:
		days = v.Int
	case Datetime:
		days = floorDays(v.Int)
	case Uint64:
		m = partitioner.Snowflake(v.Uint, *t.SnowflakeEpoch)
		return m, m.Valid()
	default:
		if v.Int < 0 {
			return partitioner.InvalidMonth, false
		}
		m = partitioner.Snowflake(uint64(v.Int), *t.SnowflakeEpoch)
		return m, m.Valid()
	}
	year, month, _ := civil(days)
	m = partitioner.Month(year*100 + month)
	return m, m.Valid()
}
