package config

import (
	"encoding/json"
	"strings"
)

// JSONSchema is a JSON Schema (draft 7) of slotline.yaml, for editors: its keys, what each is for, and which values it
// takes. It accepts each file that Load does; what Load says of names, URLs and of keys that must fit each other it does
// not say. It ends with a newline.
func JSONSchema() []byte {
	root := keyTree.schema()
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	root["title"] = "slotline.yaml"
	data, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(err) // maps of texts
	}
	return append(data, '\n')
}

type schema = map[string]any

// schemaPatterns are of values in which people err most, by their keys.
var schemaPatterns = map[string]string{
	"line": `^[a-z][a-z0-9_-]{0,31}$`,
	"tables.<table>.columns.<column>": `^ *(bool|int32|int64|uint64|float64|text|date|datetime|json|(string|bytes)\( *[0-9]+ *\)|` +
		`decimal\( *[0-9]+ *, *[0-9]+ *\))\?? *$`,
	"rollups.<rollup>.measures.<measure>": `^ *(count|(sum|min|max|avg|distinct)\(.+\)) *$`,
}

func (n *keyNode) schema() schema {
	s := n.form()
	if pattern := schemaPatterns[n.path]; pattern != "" {
		s = schema{"type": "string", "pattern": pattern}
	}
	if n.meaning != "" {
		s["description"] = n.description()
	}
	if n.def != "" && !strings.HasPrefix(n.def, "<") {
		s["default"] = n.def
	}
	return s
}

func (n *keyNode) description() string {
	text := n.meaning
	if n.later != "" {
		text += ". Not yet: " + n.later
	}
	return text
}

// A value without quotes may be what YAML takes for a number or a bool: `line: 7`. Load reads its text.
var schemaText = []string{"string", "number", "boolean"}

func texts() schema { return schema{"type": schemaText} }

func anyOf(forms ...schema) schema { return schema{"anyOf": forms} }

// form is what a key takes.
func (n *keyNode) form() schema {
	switch n.kind {
	case section:
		properties, required := schema{}, []string{}
		for _, k := range n.kids {
			properties[k.name] = k.schema()
			if k.required {
				required = append(required, k.name)
			}
		}
		s := schema{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
		if len(required) > 0 {
			s["required"] = required
			s["type"] = "object"
		}
		return s
	case names:
		return schema{"type": "object", "additionalProperties": n.named.schema()}
	case count:
		return anyOf(schema{"type": "integer", "minimum": n.min, "maximum": n.max},
			schema{"type": "string", "pattern": `^(0|[1-9][0-9]*(_[0-9]+)*)$`})
	case size:
		return schema{"type": "string", "pattern": `^(0|[1-9][0-9]*(_[0-9]+)*) *(KiB|MiB|GiB) *$`}
	case span:
		return schema{"type": "string", "pattern": `^([0-9_]+d)?([0-9.]+(ns|us|µs|μs|ms|s|m|h))*$`}
	case choice:
		var values []any
		for _, c := range n.choices {
			values = append(values, c)
			if c == "true" || c == "false" {
				values = append(values, c == "true")
			}
		}
		return schema{"enum": values}
	case listOf:
		return schema{"type": "array", "items": texts()}
	case slotsOf:
		return anyOf(texts(), schema{"type": "array", "items": texts()})
	case placement:
		return schema{"type": "object", "additionalProperties": texts()}
	case monthRole:
		return anyOf(texts(), schema{"type": "object", "additionalProperties": false, "required": []string{"snowflake", "epoch"},
			"properties": schema{"snowflake": texts(), "epoch": texts()}})
	case indexList:
		return schema{"type": "array", "items": schema{"type": "array", "items": texts()}}
	}
	return texts()
}
