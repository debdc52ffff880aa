package sinktest

import (
	"testing"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/partitioner"
)

// Setup is a line: what the factory made its databases for.
type Setup struct {
	Config *config.Config      // parsed from YAML, with the factory's addresses
	Layout *partitioner.Layout // that of Config, with its partitions
}

// Factory makes a fresh, empty state (databases with their tables, as `slotline apply` leaves them) for the suite's
// tables, and removes it by t.Cleanup. It makes the Setup of YAML and its own addresses, by NewSetup.
type Factory func(t testing.TB) (Store, Setup)

// Store is the state of one sink, and how the suite reads it.
type Store interface {
	// Open makes a sink over this state, as one process does. It is called several times: the second sink is another
	// owner. Sinks are closed by t.Cleanup. The sink must have SetLayout(*partitioner.Layout).
	Open(t testing.TB) consumers.Sink
	// Rows returns every row of a table, deleted ones too, in any order; where the engine keeps several versions of
	// a row, the one that readers see.
	Rows(t testing.TB, table *event.Table) []Row
}

// Row is a row as the engine holds it.
type Row struct {
	Shard  string            // "" where a sink has no shards
	Month  partitioner.Month // of the month table it was found in; NoMonth where the sink has none
	Values []event.Value     // by column, as event.Row has them; of a deleted row only tenant, id, month and spread are looked at
	Ver    int64             // _ver: version*2, plus 1 when deleted
}

// Run runs every case of the suite.
func Run(t *testing.T, factory Factory) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(newHarness(t, factory)) })
	}
}
