package config

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

var compileSchema = sync.OnceValues(func() (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(JSONSchema()))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("slotline.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("slotline.json")
})

// compiled is the schema as a validator that is not ours reads it.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := compileSchema()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// plain is a YAML node as JSON's types, as an editor sees it.
func plain(t *testing.T, n *yaml.Node) any {
	t.Helper()
	switch n.Kind {
	case yaml.DocumentNode:
		return plain(t, n.Content[0])
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			m[n.Content[i].Value] = plain(t, n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		list := []any{}
		for _, c := range n.Content {
			list = append(list, plain(t, c))
		}
		return list
	}
	if n.Tag == "!!str" || n.Tag == "!!timestamp" { // JSON has no times
		return n.Value
	}
	var v any
	if err := n.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func schemaError(t *testing.T, s *jsonschema.Schema, text string) error {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	return s.Validate(plain(t, &doc))
}

func TestJSONSchemaRefuses(t *testing.T) {
	s := compiled(t)
	for _, text := range []string{Example(), ExampleFull()} {
		if err := schemaError(t, s, text); err != nil {
			t.Errorf("the schema refuses an example: %v", err)
		}
	}
	for _, c := range []struct{ from, to, at string }{
		{"outbox: {", "outbox: { lane: 4,", "/outbox"},
		{"outbox: {", "outbox: { lanes: 65,", "/outbox/lanes"},
		{"outbox: {", "outbox: { lanes: [4],", "/outbox/lanes"},
		{"outbox: {", "outbox: { backlog_age_max: 10 minutes,", "/outbox/backlog_age_max"},
		{"outbox: {", "outbox: { event_bytes_max: 900,", "/outbox/event_bytes_max"},
		{"outbox: {", "outbox: { transactional: maybe,", "/outbox/transactional"},
		{"line: flights", "lin: flights", ""},
		{"line: flights", "line: Flights", "/line"},
		{"carrier: string(2)", "carrier: varchar(2)", "/tables/orders/columns/carrier"},
		{"carrier: string(2)", "carrier: string", "/tables/orders/columns/carrier"},
		{"order_id: uint64", "order_id: int23", "/tables/orders/columns/order_id"},
		{"id: order_id", "id: [order_id]", "/tables/orders/id"},
		{"replication: 1", "partitions: many", "/kafka/partitions"},
		{"columns: {", "indexes: [carrier]\n    columns: {", "/tables/orders/indexes/0"},
		{"month: placed_at", "month: { snowflake: order_id }", "/tables/orders/month"},
		{"line: flights", "layout: { tenants: { big: { slots: 1 } } }\nline: flights", "/layout/tenants/big/slots"},
	} {
		text := strings.Replace(Example(), c.from, c.to, 1)
		if text == Example() {
			t.Fatalf("the example has no %q", c.from)
		}
		if err := schemaError(t, s, text); err == nil {
			t.Errorf("%s: taken", c.to)
		} else if !strings.Contains(err.Error(), "at '"+c.at+"'") {
			t.Errorf("%s: the error is not at %q:\n%v", c.to, c.at, err)
		}
		if _, err := Parse("slotline.yaml", []byte(text)); err == nil {
			t.Errorf("%s: Load takes what the schema refuses", c.to)
		}
	}
}

// What Load takes the schema takes, too: parse, which reads the good files of all tests, holds each against it.
func TestJSONSchemaNamesEveryKey(t *testing.T) {
	for path := range schemaPatterns {
		if !slices.ContainsFunc(keys, func(k keySpec) bool { return k.path == path }) {
			t.Errorf("a pattern is of %s, which is no key", path)
		}
	}
	for _, k := range keys {
		n := keyTree
		for part := range strings.SplitSeq(k.path, ".") {
			if n = n.kid(part); n == nil {
				t.Fatalf("%s is not in the tree", k.path)
			}
		}
		if got := n.schema()["description"]; got == nil || !strings.HasPrefix(got.(string), k.meaning) {
			t.Errorf("%s is described as %v", k.path, got)
		}
	}
}
