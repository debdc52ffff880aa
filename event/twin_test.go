package event

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slotline/slotline/partitioner"
)

// This file is DecodeRow once more, slow and by other means: encoding/json's tokens, regular expressions, big numbers
// and package time.

var integerForm = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

// slowDecode returns the row, or false for what DecodeRow must refuse.
func slowDecode(t *Table, body []byte, op Op) (*Row, bool) {
	if !utf8.Valid(body) {
		return nil, false
	}
	fields, ok := slowFields(body)
	if !ok {
		return nil, false
	}
	row := &Row{Op: op, Values: make([]Value, len(t.Columns))}
	for name := range fields {
		col := t.Column(name)
		if col == None || op == Delete && !t.Keeps(col) {
			return nil, false
		}
	}
	for col, c := range t.Columns {
		raw, there := fields[c.Name]
		if !there || string(raw) == "null" {
			if !c.Nullable && (there || op != Delete || t.Keeps(col)) {
				return nil, false
			}
			row.Values[col].Null = true
			continue
		}
		v, ok := slowValue(c.Type, raw)
		if !ok {
			return nil, false
		}
		row.Values[col] = v
	}
	return row, slowRoles(t, row)
}

// slowFields splits an object; a field that comes twice is refused.
func slowFields(body []byte) (map[string]json.RawMessage, bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return nil, false
	}
	fields := map[string]json.RawMessage{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, false
		}
		name, ok := token.(string)
		if _, twice := fields[name]; !ok || twice {
			return nil, false
		}
		var raw json.RawMessage
		if d.Decode(&raw) != nil {
			return nil, false
		}
		fields[name] = raw
	}
	if _, err := d.Token(); err != nil {
		return nil, false
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, false
	}
	return fields, true
}

func slowValue(t Type, raw json.RawMessage) (v Value, ok bool) {
	switch t.Kind {
	case Bool:
		if string(raw) == "true" {
			v.Int = 1
		}
		return v, string(raw) == "true" || string(raw) == "false"
	case Int32, Int64, Uint64:
		return slowInteger(t, string(raw))
	case Float64:
		if json.Unmarshal(raw, &v.Float) != nil {
			return v, false
		}
		return v, true
	case JSON:
		var compact bytes.Buffer
		if json.Compact(&compact, raw) != nil || !slowJSON(raw) {
			return v, false
		}
		v.Bytes = compact.Bytes()
		return v, true
	}
	var s string
	if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return v, false
	}
	v.Bytes = []byte(s)
	switch t.Kind {
	case String:
		return v, len([]rune(s)) <= t.Length
	case Text:
		return v, true
	case Decimal:
		canonical, ok := slowDecimal(s, t)
		v.Bytes = []byte(canonical)
		return v, ok
	case Bytes:
		decoded, err := base64.StdEncoding.Strict().DecodeString(s)
		v.Bytes = decoded
		return v, err == nil && !strings.ContainsAny(s, "\r\n") && len(decoded) <= t.Length
	case Date:
		at, ok := slowTime("2006-01-02", s)
		return Value{Int: at.Unix() / 86400}, ok
	}
	at, ok := slowTime("2006-01-02T15:04:05.000000Z", s)
	return Value{Int: at.UnixMicro()}, ok
}

func slowInteger(t Type, text string) (v Value, ok bool) {
	if !integerForm.MatchString(text) {
		return v, false
	}
	n, _ := new(big.Int).SetString(text, 10)
	bits := map[Kind]int{Int32: 32, Int64: 64}[t.Kind]
	if t.Kind == Uint64 {
		v.Uint = n.Uint64()
		return v, n.IsUint64()
	}
	v.Int = n.Int64()
	least := new(big.Int).Lsh(big.NewInt(-1), uint(bits-1))
	most := new(big.Int).Not(least)
	return v, n.Cmp(least) >= 0 && n.Cmp(most) <= 0
}

func slowTime(layout, text string) (time.Time, bool) {
	at, err := time.Parse(layout, text)
	return at, err == nil && at.Format(layout) == text && at.Year() >= 1
}

// slowJSON checks what encoding/json lets pass: keys that come twice, numbers that no float64 holds, depth.
func slowJSON(raw []byte) bool {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	type level struct {
		keys map[string]bool // nil in a list
		key  bool            // the next token is a key
	}
	var stack []level
	for {
		token, err := d.Token()
		if err == io.EOF {
			return true
		}
		if err != nil {
			return false
		}
		top := len(stack) - 1
		switch token := token.(type) {
		case json.Delim:
			switch token {
			case '{', '[':
				if top >= 0 {
					stack[top].key = true
				}
				stack = append(stack, level{key: true})
				if token == '{' {
					stack[top+1].keys = map[string]bool{}
				}
				if len(stack) > JSONDepthMax {
					return false
				}
			default:
				stack = stack[:top]
			}
			continue
		case json.Number:
			if _, err := strconv.ParseFloat(string(token), 64); err != nil {
				return false
			}
		case string:
			if top >= 0 && stack[top].keys != nil && stack[top].key {
				if stack[top].keys[token] || len(token) > JSONKeyBytesMax {
					return false
				}
				stack[top].keys[token], stack[top].key = true, false
				continue
			}
		}
		if top >= 0 {
			stack[top].key = true
		}
	}
}

// slowRoles sets tenant, id, spread and month, and checks them.
func slowRoles(t *Table, row *Row) bool {
	text := func(col int) []byte {
		switch v := row.Values[col]; t.Columns[col].Type.Kind {
		case Int32, Int64:
			return []byte(strconv.FormatInt(v.Int, 10))
		case Uint64:
			return []byte(strconv.FormatUint(v.Uint, 10))
		default:
			return v.Bytes
		}
	}
	if t.Tenant != None {
		row.Tenant = text(t.Tenant)
		if n := len(row.Tenant); n < 1 || n > 64 || bytes.IndexByte(row.Tenant, 0) >= 0 {
			return false
		}
	}
	row.ID = text(t.ID)
	if n := len(row.ID); n < 1 || n > 255 {
		return false
	}
	if t.Spread != None {
		row.Spread = text(t.Spread)
		if len(row.Spread) > 255 {
			return false
		}
	}
	if t.Version != None && row.Op == Upsert {
		version, _ := new(big.Int).SetString(string(text(t.Version)), 10)
		if version.Sign() < 1 || version.BitLen() > 62 {
			return false
		}
	}
	if t.Month == None {
		return true
	}
	at := time.UnixMicro(row.Values[t.Month].Int)
	if t.Columns[t.Month].Type.Kind == Date {
		at = time.Unix(row.Values[t.Month].Int*86400, 0)
	}
	row.Month = partitioner.MonthOf(at)
	return row.Month.Valid()
}
