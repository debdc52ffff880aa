package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"

	"go.yaml.in/yaml/v3"
)

// render prints v to stdout as table, json or yaml. The yaml has the keys of the json.
func render(format string, v any, table func(io.Writer) error) error {
	return renderTo(os.Stdout, format, v, table)
}

func renderTo(w io.Writer, format string, v any, table func(io.Writer) error) error {
	if format == "table" {
		return table(w)
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	if format == "json" {
		_, err := w.Write(buf.Bytes())
		return err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(buf.Bytes(), &node); err != nil { // JSON is YAML; the node keeps the order of keys
		return err
	}
	plain(&node)
	out := yaml.NewEncoder(w)
	out.SetIndent(2)
	if err := out.Encode(&node); err != nil {
		return err
	}
	return out.Close()
}

// plain drops the flow style and the quotes that came with JSON.
func plain(n *yaml.Node) {
	n.Style &^= yaml.FlowStyle
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		n.Style = 0
	}
	for _, c := range n.Content {
		plain(c)
	}
}
