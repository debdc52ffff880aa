package line

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/slotline/slotline/replay"
)

// ReplayAgainst compares shards with an OLAP store: clickhouse or doris.
func (l *Line) ReplayAgainst(ctx context.Context, store string, o replay.AgainstOptions) (*Agreement, error) {
	store, err := l.olapStore(store)
	if err != nil {
		return nil, err
	}
	if err := l.loadLayout(ctx); err != nil {
		return nil, err
	}
	state, err := l.stateDB()
	if err != nil {
		return nil, err
	}
	sink, err := l.openOLAP(store, l.Config, l.layout, state, "")
	if err != nil {
		return nil, err
	}
	defer sink.Close()
	o.Config, o.Layout, o.State, o.Store, o.Logger = l.Config, l.layout, state, sink, l.Log
	a, err := replay.VerifyAgainst(ctx, o)
	if a == nil {
		return nil, err
	}
	return &Agreement{a}, err
}

// Agreement is what comparing shards with an OLAP store has found, for a person.
type Agreement struct{ *replay.Agreement }

// WriteText prints it in one line; the rows were named before.
func (a *Agreement) WriteText(w io.Writer) error {
	for _, text := range a.Skipped {
		fmt.Fprintf(w, "not compared: %s\n", text)
	}
	_, err := fmt.Fprintf(w, "%s and %s: %d rows in %d tables, %d equal, %d of them but for dead letters, %d differ\n",
		strings.Join(a.Shards, ", "), a.Store, a.Rows, a.Tables, a.Equal, a.Dead, a.Differ)
	return err
}
