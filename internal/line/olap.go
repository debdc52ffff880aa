package line

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/plan"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/olap/clickhouse"
	"github.com/slotline/slotline/sinks/olap/doris"
)

// olapSink is what a line needs of the sink of an OLAP engine.
type olapSink interface {
	consumers.Sink
	SetLayout(*partitioner.Layout)
	Plan(context.Context) ([]plan.Change, error)
	Grants() []string
	Find(ctx context.Context, t *event.Table, tenant, id string) (ver int64, err error)
	Query(ctx context.Context, sql string, rowsMax int, columns func([]string) error, row func([]json.RawMessage) error) (more bool, err error)
	Maintain(context.Context) // the rollups, until ctx ends
	Close() error
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
