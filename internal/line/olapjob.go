package line

import (
	"context"

	"github.com/slotline/slotline/replay"
)

// ReplayOLAP rebuilds a table of an OLAP store, clickhouse, or a month of it.
func (l *Line) ReplayOLAP(ctx context.Context, store string, o replay.OLAPOptions) error {
	if err := l.checkClickHouse(store, "a rebuild of a table"); err != nil {
		return err
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
