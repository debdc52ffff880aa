package main

import (
	"math/rand/v2"
	"testing"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
)

// The sizes are part of what the benches say that they measure.
func TestRowImagesHaveTheSizeThatIsPrinted(t *testing.T) {
	image := func(tables, table string, encode func(*event.Table) (event.Event, error)) int {
		cfg, err := config.Parse("slotline.yaml", []byte("line: bench\nkafka: { brokers: [k:9092] }\noutbox: { dsn: \"mysql://u@h/d\" }\n"+
			"shards: { s1: { dsn: \"mysql://u@h/s\", slots: 0-1023 } }\n"+tables))
		if err != nil {
			t.Fatal(err)
		}
		e, err := encode(cfg.Table(table))
		if err != nil {
			t.Fatal(err)
		}
		return len(e.Body)
	}
	random := rand.New(rand.NewPCG(1, 1))
	if n := image(orderTable, "orders", func(table *event.Table) (event.Event, error) {
		s, err := event.StructOf[order](table)
		if err != nil {
			return event.Event{}, err
		}
		o := newOrder(random, "t00042", 1_000_042)
		return o.event(s, 1)
	}); n < orderBytes-8 || n > orderBytes+8 {
		t.Errorf("an order's row image has %d bytes, %d are printed", n, orderBytes)
	}
	if n := image(flightTable, "flights", func(table *event.Table) (event.Event, error) {
		s, err := event.StructOf[flight](table)
		if err != nil {
			return event.Event{}, err
		}
		f := newFlight(random, "t00042", 123_456, 1)
		return f.event(s, 1)
	}); n < 180 || n > 205 {
		t.Errorf("a flight's row image has %d bytes, about 190 are printed", n)
	}
}
