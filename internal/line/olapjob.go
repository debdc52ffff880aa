package line

import (
	"context"

	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/replay"
	"github.com/slotline/slotline/sinks/olap"
)

// ReplayOLAP rebuilds a table of an OLAP store, clickhouse or doris, or a month of it; "" is the first store of the file.
func (l *Line) ReplayOLAP(ctx context.Context, store string, o replay.OLAPOptions) error {
	store, err := l.olapStore(store)
	if err != nil {
		return err
	}
	if err := l.loadLayout(ctx); err != nil {
		return err
	}
	state, err := l.stateDB()
	if err != nil {
		return err
	}
	o.Config, o.Layout, o.State, o.Store, o.Logger = l.Config, l.layout, state, store, l.Log
	o.Open = func(sink string, shadow *olap.Shadow) (replay.OLAPSink, error) {
		return l.openOLAPBeside(store, sink, state, shadow)
	}
	if store == "doris" {
		o.Batch = consumers.Limits{Rows: l.Config.Sinks.Doris.BatchRows, Bytes: l.Config.Sinks.Doris.BatchBytes}
	} else {
		o.Batch = consumers.Limits{Rows: l.Config.Sinks.ClickHouse.BatchRows, Bytes: l.Config.Sinks.ClickHouse.BatchBytes}
	}
	return replay.RebuildOLAP(ctx, o)
}
