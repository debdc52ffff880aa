package line

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/replay"
	"github.com/slotline/slotline/sinks/olap/clickhouse"
	"github.com/slotline/slotline/sinks/olap/doris"
)

// ReplayAgainst compares shards with an OLAP store: clickhouse or doris.
func (l *Line) ReplayAgainst(ctx context.Context, store string, o replay.AgainstOptions) (*Agreement, error) {
	if err := l.checkOLAP(store); err != nil {
		return nil, err
	}
	if err := l.loadLayout(ctx); err != nil {
		return nil, err
	}
	state, err := l.stateDB()
	if err != nil {
		return nil, err
	}
	if store == "doris" {
		sink, err := doris.New(doris.Options{Config: l.Config, Layout: l.layout, State: state, Logger: l.Log})
		if err != nil {
			return nil, err
		}
		defer sink.Close()
		o.Store = sink
	} else {
		sink, err := clickhouse.New(clickhouse.Options{Config: l.Config, Layout: l.layout, State: state, Logger: l.Log})
		if err != nil {
			return nil, err
		}
		defer sink.Close()
		o.Store = sink
	}
	o.Config, o.Layout, o.State, o.Logger = l.Config, l.layout, state, l.Log
	a, err := replay.VerifyAgainst(ctx, o)
	if a == nil {
		return nil, err
	}
	return &Agreement{a}, err
}

// checkOLAP refuses what is no OLAP store, or one that the file does not have.
func (l *Line) checkOLAP(store string) error {
	have := map[string]bool{"clickhouse": l.Config.Sinks.ClickHouse != nil, "doris": l.Config.Sinks.Doris != nil}
	there, known := have[store]
	switch {
	case !known:
		return &fault.Error{Code: "SL9023", Class: fault.Usage, What: store + " is no OLAP store", Do: "name clickhouse or doris"}
	case !there:
		return &fault.Error{Code: "SL9023", Class: fault.Usage, What: l.Config.File + " has no sinks." + store,
			Do: "write sinks." + store + " into it, and slotline apply; the sink then fills the store"}
	}
	return nil
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
