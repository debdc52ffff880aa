package sinktest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
)

// fold is the slow, obvious twin of every sink: a map from entity to the greatest version.
type fold map[entity]folded

type entity struct{ table, tenant, id string }

type folded struct {
	ver int64
	row event.Row
}

// add takes one event that no sink rejected.
func (f fold) add(e entity, ver int64, row event.Row) {
	if old, ok := f[e]; !ok || ver > old.ver {
		f[e] = folded{ver, row}
	}
}

// wanted is what the sink must hold of a table, as text: one line for each row, sorted. shards and months say whether
// the engine has any.
func (f fold) wanted(t *event.Table, l *partitioner.Layout, shards, months bool) []string {
	var lines []string
	for e, w := range f {
		if e.table != t.Name {
			continue
		}
		at := []string{""}
		if shards {
			at = l.Shards()
			if !t.Broadcast() {
				at = []string{l.ShardName(l.RouteBytes(w.row.Tenant, w.row.Spread).Shard)}
			}
		}
		for _, shard := range at {
			row := Row{Shard: shard, Values: w.row.Values, Ver: w.ver}
			if months {
				row.Month = w.row.Month
			}
			lines = append(lines, row.text(t))
		}
	}
	slices.Sort(lines)
	return lines
}

// text is a row as one line in which equal rows are equal (P12): json by value, everything else exactly.
func (r Row) text(t *event.Table) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", t.Name, r.Shard)
	if r.Month != partitioner.NoMonth {
		fmt.Fprintf(&b, " %s", r.Month)
	}
	deleted := r.Ver&1 == 1
	fmt.Fprintf(&b, " v%d", r.Ver>>1)
	if deleted {
		b.WriteString(" deleted")
	}
	for i, c := range t.Columns {
		if deleted && i != t.Tenant && i != t.ID && i != t.Month && i != t.Spread {
			continue
		}
		fmt.Fprintf(&b, " %s=%s", c.Name, valueText(c.Type.Kind, r.Values[i]))
	}
	return b.String()
}

func valueText(k event.Kind, v event.Value) string {
	if v.Null {
		return "NULL"
	}
	switch k {
	case event.Bool, event.Int32, event.Int64, event.Date, event.Datetime:
		return strconv.FormatInt(v.Int, 10)
	case event.Uint64:
		return strconv.FormatUint(v.Uint, 10)
	case event.Float64:
		if v.Float == 0 {
			return "0" // -0 and 0 are one value
		}
		return strconv.FormatFloat(v.Float, 'g', -1, 64)
	case event.JSON:
		return jsonText(v.Bytes)
	case event.Decimal:
		return string(v.Bytes)
	}
	return strconv.Quote(string(v.Bytes))
}

// jsonText is a JSON value with its members sorted, its numbers exact, and no spaces.
func jsonText(text []byte) string {
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "not json: " + strconv.Quote(string(text))
	}
	var b strings.Builder
	appendJSONText(&b, v)
	return b.String()
}

func appendJSONText(b *strings.Builder, v any) {
	switch v := v.(type) {
	case map[string]any:
		b.WriteByte('{')
		for i, k := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strconv.Quote(k) + ":")
			appendJSONText(b, v[k])
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			appendJSONText(b, e)
		}
		b.WriteByte(']')
	case json.Number:
		if r, ok := new(big.Rat).SetString(v.String()); ok {
			b.WriteString(r.RatString())
		} else {
			b.WriteString(v.String())
		}
	case string:
		b.WriteString(strconv.Quote(v))
	default:
		fmt.Fprint(b, v)
	}
}

// difference says how got differs from want; both sorted. It is short: a sink that is wrong is wrong in many rows.
func difference(want, got []string) string {
	missing, extra := subtract(want, got), subtract(got, want)
	if len(missing)+len(extra) == 0 {
		return ""
	}
	var b strings.Builder
	for _, list := range []struct {
		name  string
		lines []string
	}{{"missing", missing}, {"extra", extra}} {
		for i, line := range list.lines {
			if i == 5 {
				fmt.Fprintf(&b, "\n  %s: … %d more", list.name, len(list.lines)-i)
				break
			}
			fmt.Fprintf(&b, "\n  %s: %.600s", list.name, line)
		}
	}
	return b.String()
}

// subtract is a multiset difference of sorted lists.
func subtract(a, b []string) []string {
	var left []string
	for _, s := range a {
		for len(b) > 0 && b[0] < s {
			b = b[1:]
		}
		if len(b) > 0 && b[0] == s {
			b = b[1:]
			continue
		}
		left = append(left, s)
	}
	sort.Strings(left)
	return left
}
