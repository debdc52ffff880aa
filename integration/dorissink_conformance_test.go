package integration

import (
	"database/sql"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/consumers"
	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/partitioner"
	"github.com/slotline/slotline/sinks/olap/doris"
	"github.com/slotline/slotline/sinks/sinktest"
)

func TestDorisSinkConforms(t *testing.T) {
	harness.Proof(t)
	server, state := newDoris(t), harness.MySQL(t)
	sinktest.Run(t, func(t testing.TB) (sinktest.Store, sinktest.Setup) {
		name := harness.Name(t)
		server.newDatabase(t, name)
		state.NewDatabase(t, name)
		setup := sinktest.NewSetup(t, sinktest.YAML(state.URL(name+"_s1"), state.URL(name+"_s2"), state.URL(name),
			"sinks: { "+server.yaml(t, name, 3)+" }"))
		store := &dorisStore{setup: setup, owner: name, db: server.open(t, name)}
		applyDorisPlan(t, store.open(t))
		return store, setup
	})
}

// dorisStore is the database of one case.
type dorisStore struct {
	setup sinktest.Setup
	owner string // of all sinks of a case, as clickhouseStore's
	db    *sql.DB
}

func (s *dorisStore) Open(t testing.TB) consumers.Sink { return s.open(t) }

func (s *dorisStore) open(t testing.TB) *doris.Sink {
	t.Helper()
	return openDorisSink(t, doris.Options{Config: s.setup.Config, Layout: s.setup.Layout, Owner: s.owner})
}

func (s *dorisStore) Rows(t testing.TB, table *event.Table) []sinktest.Row {
	t.Helper()
	names := []string{"_ver", "_deleted"}
	if table.Month != event.None {
		names = append(names, "_month")
	}
	own := len(names)
	for _, c := range table.Columns {
		names = append(names, c.Name)
	}
	var list []sinktest.Row
	for _, f := range dorisRows(t, s.db, table.Name, names...) {
		row := sinktest.Row{Values: make([]event.Value, len(table.Columns))}
		var err error
		if row.Ver, err = strconv.ParseInt(f[0][1:], 10, 64); err != nil {
			t.Fatal(err)
		}
		if want := "V" + strconv.FormatInt(row.Ver&1, 10); f[1] != want {
			t.Errorf("table %s: _ver is %d and _deleted %s", table.Name, row.Ver, f[1])
		}
		if own > 2 {
			if row.Month, err = partitioner.ParseMonth(strings.ReplaceAll(f[2][1:8], "-", "")); err != nil {
				t.Fatal(err)
			}
		}
		for i, c := range table.Columns {
			row.Values[i] = dorisValue(t, c, f[own+i])
		}
		list = append(list, row)
	}
	return list
}

func dorisValue(t testing.TB, c event.Column, text string) (v event.Value) {
	t.Helper()
	if text == "N" {
		return event.Value{Null: true}
	}
	text = text[1:]
	var err error
	var at time.Time
	switch c.Type.Kind {
	case event.Bool, event.Int32, event.Int64:
		v.Int, err = strconv.ParseInt(text, 10, 64)
	case event.Uint64:
		v.Uint, err = strconv.ParseUint(text, 10, 64)
	case event.Float64:
		v.Float, err = strconv.ParseFloat(text, 64)
	case event.Date:
		at, err = time.Parse("2006-01-02", text)
		v.Int = at.Unix() / 86400
	case event.Datetime:
		at, err = time.Parse("2006-01-02 15:04:05.999999", text)
		v.Int = at.UnixMicro()
	case event.Bytes:
		v.Bytes, err = base64.StdEncoding.DecodeString(text)
	default:
		v.Bytes = []byte(text)
	}
	if err != nil {
		t.Fatal(fmt.Errorf("column %s holds %q: %w", c.Name, text, err))
	}
	return v
}
