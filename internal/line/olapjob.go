package line

import (
	"context"

	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/replay"
)

// ReplayOLAP rebuilds a table of an OLAP store, clickhouse, or a month of it.
func (l *Line) ReplayOLAP(ctx context.Context, store string, o replay.OLAPOptions) error {
	if err := l.checkOLAP(store); err != nil {
		return err
	}
	if store == "doris" {
		return &fault.Error{Code: "SL9023", Class: fault.Usage, What: "a rebuild of a table is not built for Doris", Do: "name clickhouse"}
	}
	if err := l.loadLayout(ctx); err != nil {
		return err
	}
	state, err := l.stateDB()
	if err != nil {
		return err
	}
	o.Config, o.Layout, o.State, o.Logger = l.Config, l.layout, state, l.Log
	return replay.RebuildOLAP(ctx, o)
}
