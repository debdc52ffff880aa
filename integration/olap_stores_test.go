package integration

import (
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/ClickHouse/ch-go"

	"github.com/slotline/slotline/config"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/replay"
	"github.com/slotline/slotline/sinks/olap/clickhouse"
	"github.com/slotline/slotline/sinks/olap/doris"
	"github.com/slotline/slotline/sinks/olap/doris/doristest"
)

// eachOLAP runs a test once for each OLAP store.
func eachOLAP(t *testing.T, test func(t *testing.T, store string)) {
	for _, store := range []string{"clickhouse", "doris"} {
		t.Run(store, func(t *testing.T) { test(t, store) })
	}
}

// storeLine is a line with one OLAP store, and a hand that harms it.
type storeLine struct {
	*wholeLine
	store string
	ch    *ch.Client
	doris *sql.DB
	fake  *doristest.Server // nil for a running Doris
	harms int

	reader *ch.Client // of watchOLAP
}

// newLineOnAt is newLineAt with the store.
func newLineOnAt(t *testing.T, store, extra string) *storeLine {
	t.Helper()
	name := harness.Name(t)
	w := &storeLine{wholeLine: newLineAt(t, sharedServers(t), name, extra), store: store}
	if store == "clickhouse" {
		w.ch = w.wholeLine.ch.Dial(t, w.chDB)
		return w
	}
	server := newDoris(t)
	server.newDatabase(t, name)
	w.file = w.write(t, regexp.MustCompile(`(?m)^  clickhouse: .*$`).ReplaceAllLiteralString(w.text(t), "  "+server.yaml(t, name, 2)))
	var err error
	if w.cfg, err = config.Load(w.file); err != nil {
		t.Fatal(err)
	}
	w.doris, w.fake = server.open(t, name), server.fake
	return w
}

// newLineOn is newLine with the store.
func newLineOn(t *testing.T, store, extra string) *storeLine {
	t.Helper()
	w := newLineOnAt(t, store, extra)
	w.applied(t)
	return w
}

// sink is the store as a comparison sees it.
func (w *storeLine) sink(t *testing.T) replay.Store {
	t.Helper()
	if w.store == "clickhouse" {
		return openClickHouseSink(t, clickhouse.Options{Config: w.cfg, Layout: w.layout, Owner: "test"})
	}
	return openDorisSink(t, doris.Options{Config: w.cfg, Layout: w.layout, Owner: "test"})
}

// try runs a statement in the line's database of the store, exec one that must not fail.
func (w *storeLine) try(t *testing.T, statement string) error {
	t.Helper()
	if w.store == "clickhouse" {
		return w.ch.Do(t.Context(), ch.Query{Body: statement})
	}
	_, err := w.doris.Exec(statement)
	return err
}

func (w *storeLine) exec(t *testing.T, statement string) {
	t.Helper()
	if err := w.try(t, statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// read returns the rows of a query as text.
func (w *storeLine) read(t *testing.T, columns, from string) (list [][]string) {
	t.Helper()
	names := strings.Split(columns, ", ")
	if w.store == "clickhouse" {
		for i, name := range names {
			names[i] = "toString(" + name + ")"
		}
		return clickhouseRows(t, w.ch, "SELECT "+strings.Join(names, ", ")+" FROM "+from, len(names))
	}
	rows, err := w.doris.Query("SELECT " + columns + " FROM " + from)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		row, into := make([]string, len(names)), make([]any, len(names))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		list = append(list, row)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// inMonth is the condition that a row of flights is in a month, 201303.
func (w *storeLine) inMonth(month string) string {
	if w.store == "clickhouse" {
		return "toYYYYMM(sched_dep)=" + month
	}
	return fmt.Sprintf("_month='%s-%s-01'", month[:4], month[4:])
}

// remove, change and insert harm rows of flights by hand.
func (w *storeLine) remove(t *testing.T, where string) {
	t.Helper()
	if w.store == "clickhouse" {
		w.exec(t, "ALTER TABLE flights DELETE WHERE "+where+" SETTINGS mutations_sync=1")
	} else {
		w.exec(t, "DELETE FROM `flights` WHERE "+where)
	}
}

func (w *storeLine) change(t *testing.T, column, value, where string) {
	t.Helper()
	if w.store == "clickhouse" {
		w.exec(t, "ALTER TABLE flights UPDATE "+column+"="+value+" WHERE "+where+" SETTINGS mutations_sync=1")
	} else {
		w.exec(t, "UPDATE `flights` SET `"+column+"` = "+value+" WHERE "+where)
	}
}

// insert takes rows of a SELECT, whose columns stand in their order.
func (w *storeLine) insert(t *testing.T, columns, values, from string) {
	t.Helper()
	w.harms++
	if w.store == "clickhouse" {
		w.exec(t, "INSERT INTO flights ("+columns+") SELECT "+values+" "+from)
	} else {
		w.exec(t, fmt.Sprintf("INSERT INTO `flights` WITH LABEL `harm_%s_%d` (%s)\nSELECT %s %s", w.name, w.harms, columns, values, from))
	}
}
