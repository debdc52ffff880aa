package integration

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"testing"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/integration/harness"
)

// P4: whoever looks at a shard, at whatever moment, finds the fold of the events below applied_off: not a row more, not a
// row less, over all its tables. It is looked at all the time, in snapshots, while batches of any size are applied, bad
// events are left out, owners change, and progress is put back.
func TestP4_MySQLSinkEveryCommittedStateIsTheFold(t *testing.T) { everyCommittedState(t, -1) }

// The same where all rows of a table that has more than a few go by the staging path.
func TestP4_MySQLSinkEveryCommittedStateByStaging(t *testing.T) { everyCommittedState(t, 4) }

func everyCommittedState(t *testing.T, stagingRows int) {
	l := newShardLine(t, harness.MySQL(t), shardLineTables, "")
	l.stagingRows = stagingRows
	rnd := seeded(t)
	a := l.tenantIn(1, "s1")
	var log []event.Message
	folds := []map[string]int64{{}} // by applied_off: table and id → _ver
	for range 1500 {
		fold := maps.Clone(folds[len(folds)-1])
		id, version, op := rnd.Int64N(30), 1+rnd.Int64N(1000), event.Upsert
		if rnd.IntN(4) == 0 {
			op = event.Delete
		}
		key, values, table := fmt.Sprintf("items/%d", id), item(a, id, "x"), "items"
		if rnd.IntN(3) == 0 {
			key, table = fmt.Sprintf("notes/n%d", id), "notes"
			values = []event.Value{text(a), text(fmt.Sprintf("n%d", id)), text("body")}
		} else if rnd.IntN(20) == 0 {
			key, values[2] = "", moment(november.AddDate(80, 0, 0)) // no month that there can be: a dead letter
		}
		log = append(log, l.message(1, table, op, version, values))
		ver := version * 2
		if op == event.Delete {
			ver++
		}
		if key != "" && ver > fold[key] {
			fold[key] = ver
		}
		folds = append(folds, fold)
	}

	owners := 0
	takeOver := func() event.Owned {
		owners++
		return l.takeOver(l.sink(fmt.Sprintf("owner-%d", owners)), 1)
	}
	o := takeOver()
	at := int64(0)
	step := func(n int64) {
		t.Helper()
		to := min(at+n, int64(len(log)))
		l.applyBatch(o, l.batch(at, log[at:to]...))
		at = to
	}
	for range 40 {
		step(1) // until both tables are there
	}

	ctx, stop := context.WithCancel(t.Context())
	states, done := map[int64]bool{}, make(chan error, 1)
	go func() { done <- lookAtStates(ctx, l, folds, states) }()
	for at < int64(len(log)) {
		step(1 + rnd.Int64N(20))
		switch rnd.IntN(20) {
		case 0:
			o = takeOver()
		case 1:
			at = max(40, at-rnd.Int64N(60))
			if _, err := l.dbs["s1"].Exec("UPDATE slotline_progress SET next_off=? WHERE sink='mysql' AND part=1", at); err != nil {
				t.Fatal(err)
			}
			o = takeOver()
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(states) < 20 {
		t.Errorf("only %d states were seen", len(states))
	}
	t.Logf("%d different states of %d events", len(states), len(log))
	if applied, err := lookAtState(t.Context(), l.dbs["s1"], folds); err != nil || applied != int64(len(log)) {
		t.Errorf("at the end: applied_off %d, %v", applied, err)
	}
}

// lookAtStates compares one snapshot after the other until ctx ends.
func lookAtStates(ctx context.Context, l *shardLine, folds []map[string]int64, seen map[int64]bool) error {
	for {
		applied, err := lookAtState(ctx, l.dbs["s1"], folds)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		seen[applied] = true
	}
}

func lookAtState(ctx context.Context, db *sql.DB, folds []map[string]int64) (applied int64, err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	// The first read makes the snapshot of all that follow.
	if err := tx.QueryRowContext(ctx, "SELECT applied_off FROM slotline_progress WHERE sink='mysql' AND part=1").Scan(&applied); err != nil {
		return 0, err
	}
	rows, err := tx.QueryContext(ctx, "SELECT CONCAT('items/', item), _ver FROM items_202611 UNION ALL SELECT CONCAT('notes/', note), _ver FROM notes")
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	have := map[string]int64{}
	for rows.Next() {
		var key string
		var ver int64
		if err := rows.Scan(&key, &ver); err != nil {
			return 0, err
		}
		have[key] = ver
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	if want := folds[applied]; !maps.Equal(have, want) {
		return 0, fmt.Errorf("with applied_off %d the shard has\n  %v\nthe fold of the events below it is\n  %v", applied, have, want)
	}
	return applied, nil
}
