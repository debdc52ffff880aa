package doristest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// table is a unique-key table with a sequence column.
type table struct {
	name, comment, create string
	columns               []column
	keys                  []int
	sequence              int
	partition             int // column; -1 without
	rows                  map[string]row
	temporary             map[string]*temporary
	replaced              map[string]int // by month: how often its partition was
	dropped               bool
	changes               int // of rows or columns, so far
}

type column struct {
	name, typ string // typ in lower case, without spaces
	nullable  bool
	standard  *string // default
	bytes     int     // of a varchar
	precision int     // of a decimal
	scale     int
}

type view struct {
	name, create, table, where string
	columns                    []string
	join                       bool // of a table with itself: carried out by the engine
}

// refuse is an error in Doris's own words.
func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

type refusal string

func (r refusal) Error() string { return string(r) }

// row is values as text, by column; nil is NULL.
type row []*string

var (
	typeArgs  = regexp.MustCompile(`^([a-z0-9]+)\((\d+)(?:,(\d+))?\)$`)
	columnDef = regexp.MustCompile("(?i)^`([^`]+)`\\s+([a-z0-9]+(?:\\([0-9, ]+\\))?)\\s+(NOT NULL|NULL)(?:\\s+DEFAULT\\s+\"([^\"]*)\")?(?:\\s+COMMENT\\s+'[^']*')?$")
)

func parseColumn(def string) (column, error) {
	m := columnDef.FindStringSubmatch(strings.TrimSpace(def))
	if m == nil {
		return column{}, fmt.Errorf("mismatched input near %q", def)
	}
	c := column{name: m[1], typ: strings.ReplaceAll(strings.ToLower(m[2]), " ", ""), nullable: strings.EqualFold(m[3], "NULL")}
	if strings.Contains(def, "DEFAULT") {
		c.standard = &m[4]
	}
	if args := typeArgs.FindStringSubmatch(c.typ); args != nil {
		n, _ := strconv.Atoi(args[2])
		scale, _ := strconv.Atoi(args[3])
		switch args[1] {
		case "varchar":
			if c.bytes = n; n > 65533 {
				return c, refuse("Varchar size must be <= 65533: %d", n)
			}
		case "decimal":
			if c.precision, c.scale = n, scale; n > 38 {
				return c, refuse("Decimal precision must be <= 38: %d", n)
			}
		}
	}
	return c, nil
}

func (t *table) index(name string) int {
	return slices.IndexFunc(t.columns, func(c column) bool { return strings.EqualFold(c.name, strings.Trim(name, "` ")) })
}

// plan is the columns that a load names.
func (t *table) plan(header string) ([]int, error) {
	var list []int
	for name := range strings.SplitSeq(header, ",") {
		i := t.index(name)
		if i < 0 {
			return nil, fmt.Errorf("can not find column %s in table %s", name, t.name)
		}
		list = append(list, i)
	}
	if !slices.Contains(list, t.sequence) {
		return nil, refuse("Table %s has sequence column, need to specify the sequence column", t.name)
	}
	return list, nil
}

// parse reads one line of JSON under strict_mode.
func (t *table) parse(line []byte, columns []int) (row, error) {
	if !utf8.Valid(line) {
		return nil, refuse("Parse json data failed: invalid UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()
	fields := map[string]any{}
	if err := decoder.Decode(&fields); err != nil {
		return nil, refuse("Parse json data for JsonDoc failed: %v", err)
	}
	r := make(row, len(t.columns))
	for i, c := range t.columns {
		r[i] = c.standard
		if !slices.Contains(columns, i) {
			continue
		}
		v, there := fields[c.name]
		switch {
		case there && v == nil, !there && c.standard == nil:
			if !c.nullable {
				return nil, refuse("The column `%s` is not nullable, but it's not found in jsondata", c.name)
			}
			r[i] = nil
		case there:
			text, err := c.cast(v)
			if err != nil {
				return nil, fmt.Errorf("column(%s) value is incorrect while strict mode is true, %v", c.name, err)
			}
			r[i] = &text
		}
	}
	return r, nil
}

// cast is the text that a SELECT of the column gives.
func (c *column) cast(v any) (string, error) {
	var text string
	switch v := v.(type) {
	case bool:
		text = map[bool]string{false: "0", true: "1"}[v]
	case json.Number:
		text = v.String()
	case string:
		text = v
	default:
		b, _ := json.Marshal(v)
		text = string(b)
	}
	bad := fmt.Errorf("src value is %.40s", text)
	base, _, _ := strings.Cut(c.typ, "(")
	switch base {
	case "boolean":
		switch strings.ToLower(text) {
		case "1", "true":
			return "1", nil
		case "0", "false":
			return "0", nil
		}
		return "", bad
	case "int", "bigint", "largeint":
		n, ok := new(big.Int).SetString(text, 10)
		limit := new(big.Int).Lsh(big.NewInt(1), map[string]uint{"int": 31, "bigint": 63, "largeint": 127}[base])
		if !ok || n.Cmp(limit) >= 0 || n.Cmp(new(big.Int).Neg(limit)) < 0 {
			return "", bad
		}
		return n.String(), nil
	case "double":
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return "", bad
		}
		return strconv.FormatFloat(f, 'g', -1, 64), nil
	case "decimal":
		n, ok := new(big.Rat).SetString(text)
		if !ok {
			return "", bad
		}
		text = n.FloatString(c.scale)
		if len(strings.Trim(strings.Replace(text, ".", "", 1), "-")) > max(c.precision, c.scale+1) {
			return "", errors.New("decimal value is not valid for definition")
		}
		return text, nil
	case "varchar":
		if len(text) > c.bytes {
			return "", fmt.Errorf("the length of input is too long than schema. first 32 bytes of input str: [%.32s] schema length: %d; actual length: %d; ", text, c.bytes, len(text))
		}
		return text, nil
	case "string":
		if len(text) > 1<<20 {
			return "", fmt.Errorf("the length of input is too long than vec schema. first 32 bytes of input str: [%.32s]", text)
		}
		return text, nil
	case "date":
		d, err := time.Parse("2006-01-02", text)
		if err != nil {
			return "", bad
		}
		return d.Format("2006-01-02"), nil
	case "datetime":
		d, err := time.Parse("2006-01-02 15:04:05.999999", text)
		if err != nil {
			return "", bad
		}
		return d.Format("2006-01-02 15:04:05.000000"), nil
	}
	return "", fmt.Errorf("type %s is not known here", c.typ)
}

// apply makes rows visible: by key, a lower sequence is dropped, an equal one replaces.
func (t *table) apply(rows []row) {
	t.changes++
	t.merge(t.rows, rows)
}

func (t *table) merge(into map[string]row, rows []row) {
	for _, r := range rows {
		key := t.keyOf(r)
		if old, there := into[key]; !there || t.sequenceOf(r) >= t.sequenceOf(old) {
			into[key] = r
		}
	}
}

func (t *table) keyOf(r row) string {
	values := make(row, len(t.keys))
	for i, k := range t.keys {
		values[i] = r[k]
	}
	return keyText(values)
}

// keyText is the values of a key as one text.
func keyText(values row) string {
	var key strings.Builder
	for _, v := range values {
		if v != nil {
			fmt.Fprintf(&key, "%d:%s,", len(*v), *v)
		} else {
			key.WriteString("-,")
		}
	}
	return key.String()
}

func (t *table) sequenceOf(r row) int64 {
	if r[t.sequence] == nil {
		return -1 << 63
	}
	n, _ := strconv.ParseInt(*r[t.sequence], 10, 64)
	return n
}
