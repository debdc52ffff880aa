package line

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/replay"
	"github.com/slotline/slotline/sinks/olap/clickhouse"
)

// ReplayAgainst compares shards with an OLAP store: clickhouse.
func (l *Line) ReplayAgainst(ctx context.Context, store string, o replay.AgainstOptions) (*Agreement, error) {
	if err := l.checkClickHouse(store, "a comparison with the shards"); err != nil {
		return nil, err
	}
	if err := l.loadLayout(ctx); err != nil {
		return nil, err
	}
	state, err := l.stateDB()
	if err != nil {
		return nil, err
	}
	sink, err := clickhouse.New(clickhouse.Options{Config: l.Config, Layout: l.layout, State: state, Logger: l.Log})
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

// checkClickHouse refuses a store for which something is not built, or that the file does not have.
func (l *Line) checkClickHouse(store, what string) error {
	switch {
	case store == "doris":
		return &fault.Error{Code: "SL9023", Class: fault.Usage, What: what + " is not built for Doris", Do: "name clickhouse"}
	case store != "clickhouse":
		return &fault.Error{Code: "SL9023", Class: fault.Usage, What: fmt.Sprintf("%s is no store that %s is built for", store, what), Do: "name clickhouse"}
	case l.Config.Sinks.ClickHouse == nil:
		return &fault.Error{Code: "SL9023", Class: fault.Usage, What: l.Config.File + " has no sinks.clickhouse", Do: "write sinks.clickhouse into it, and slotline apply; the sink then fills the store"}
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
