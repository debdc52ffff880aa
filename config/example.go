package config

import _ "embed"

//go:embed example.yaml
var example string

//go:embed example_full.yaml
var exampleFull string

// Example is the file that a first user writes: 12 lines, one table; everything else has its default.
func Example() string { return example }

// ExampleFull is the same with every key that works today, its default, and a comment each.
func ExampleFull() string { return exampleFull }
