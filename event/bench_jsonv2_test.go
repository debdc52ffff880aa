//go:build goexperiment.jsonv2

package event

import (
	"bytes"
	"encoding/json/jsontext"
	jsonv2 "encoding/json/v2"
	"io"
	"testing"
)

// Baselines that need GOEXPERIMENT=jsonv2: the standard library's next JSON, into a struct and as bare tokens.

func BenchmarkDecodeBaselineJSONv2Struct(b *testing.B) {
	body := []byte(flightBody)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		var v baseline
		if err := jsonv2.Unmarshal(body, &v); err != nil {
			b.Fatal(err)
		}
	}
	rowsPerSecond(b)
}

func BenchmarkDecodeBaselineJSONv2Tokens(b *testing.B) {
	body := []byte(flightBody)
	source := bytes.NewReader(body)
	d := jsontext.NewDecoder(source)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		source.Reset(body)
		d.Reset(source)
		for {
			if _, err := d.ReadToken(); err == io.EOF {
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
	}
	rowsPerSecond(b)
}
