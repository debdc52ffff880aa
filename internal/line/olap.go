package line

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/checkup"
	"github.com/slotline/slotline/internal/plan"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/replay"
	"github.com/slotline/slotline/sinks/olap"
	"github.com/slotline/slotline/sinks/olap/clickhouse"
	"github.com/slotline/slotline/sinks/olap/doris"
)

// olapSink is what a line needs of the sink of an OLAP engine.
type olapSink interface {
	replay.OLAPSink
	replay.Store
	SetLayout(*partitioner.Layout)
	Plan(context.Context) ([]plan.Change, error)
	Grants() []string
	Find(ctx context.Context, t *event.Table, tenant, id string) (ver int64, err error)
	Query(ctx context.Context, sql string, rowsMax int, columns func([]string) error, row func([]json.RawMessage) error) (more bool, err error)
	Checkup(context.Context) (*checkup.Server, error)
	Maintain(context.Context) // the rollups, until ctx ends
}

// olapSinks are the OLAP sinks that the file has.
func (l *Line) olapSinks() (names []string) {
	if l.Config.Sinks.ClickHouse != nil {
		names = append(names, "clickhouse")
	}
	if l.Config.Sinks.Doris != nil {
		names = append(names, "doris")
	}
	return names
}

// openOLAP makes one of them. The state may be nil where it is not asked; an empty owner is a new one.
func (l *Line) openOLAP(name string, cfg *config.Config, layout *partitioner.Layout, state *sql.DB, owner string) (olapSink, error) {
	if name == "doris" {
		return doris.New(doris.Options{Config: cfg, Layout: layout, State: state, Owner: owner, Logger: l.Log})
	}
	return clickhouse.New(clickhouse.Options{Config: cfg, Layout: layout, State: state, Owner: owner, Logger: l.Log})
}

// openOLAPBeside makes a sink of another name that fills a table beside the live one, of the store of a name.
func (l *Line) openOLAPBeside(store, sink string, state *sql.DB, shadow *olap.Shadow) (replay.OLAPSink, error) {
	if store == "doris" {
		return doris.New(doris.Options{Config: l.Config, Layout: l.layout, State: state, Sink: sink, Shadow: shadow, Logger: l.Log})
	}
	return clickhouse.New(clickhouse.Options{Config: l.Config, Layout: l.layout, State: state, Sink: sink, Shadow: shadow, Logger: l.Log})
}

// olapStore is the OLAP store that a person names; "" is the first that the file has.
func (l *Line) olapStore(name string) (string, error) {
	sinks := l.olapSinks()
	switch {
	case name == "" && len(sinks) > 0:
		return sinks[0], nil
	case slices.Contains(sinks, name):
		return name, nil
	case name == "":
		return "", &fault.Error{Code: "SL9023", Class: fault.Usage, What: l.Config.File + " has no OLAP sink", Do: "write sinks.clickhouse or sinks.doris into it, and slotline apply"}
	case name == "clickhouse" || name == "doris":
		return "", &fault.Error{Code: "SL9023", Class: fault.Usage, What: l.Config.File + " has no sinks." + name,
			Do: "write sinks." + name + " into it, and slotline apply; the sink then fills the store"}
	}
	return "", &fault.Error{Code: "SL9023", Class: fault.Usage, What: name + " is no OLAP store", Do: "name clickhouse or doris"}
}
