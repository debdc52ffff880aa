package mysql

import (
	"context"
	"database/sql"
	"errors"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
)

// rejectedMax ends a search: what else is bad is found when the rest is tried again.
const rejectedMax = 1000

// search finds which rows, or which table, the server refuses: it sends the rows without the progress, halves what is
// refused for its data, and rolls everything back. A statement that fails undoes itself, so one transaction will do.
// It returns nil with t.rejected filled, or an error that names the table.
func (t *task) search(ctx context.Context, cause error) error {
	conn, err := t.shard.apply.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := exec(ctx, conn, "START TRANSACTION"); err != nil {
		mysqldb.Discard(conn)
		return err
	}
	err = t.trials(ctx, conn)
	rollback(ctx, conn)
	if err != nil || len(t.rejected) > 0 {
		return err
	}
	if fault.Is(cause, fault.Fatal) || mysqldb.Classify(cause) == fault.Fatal {
		return cause // it is not a row's: the progress table's
	}
	return errors.Join(errAgain, cause)
}

func (t *task) trials(ctx context.Context, conn *sql.Conn) error {
	limit := packetBytesMax
	if e := t.shard.engine.Load(); e != nil {
		limit = int(min(packetBytesMax, e.packetBytes-packetSpareBytes))
	}
	for rest := t.entries; len(rest) > 0 && len(t.rejected) < rejectedMax; {
		up := t.shard.upsert(rest[0].place)
		n, _ := cut(rest, len(up.head)+len(up.tail), limit)
		if err := t.trial(ctx, conn, up, rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// trial sends rows of one table and descends to those that are refused for their data.
func (t *task) trial(ctx context.Context, conn *sql.Conn, up *upsert, entries []entry) error {
	if len(t.rejected) >= rejectedMax {
		return nil
	}
	_, err := exec(ctx, conn, string(t.buffer.appendStatement(nil, up, entries)))
	where := t.shard.where() + ", table " + up.table
	switch mysqldb.Classify(err) {
	case fault.Data:
		if half := len(entries) / 2; half > 0 {
			if err := t.trial(ctx, conn, up, entries[:half]); err != nil {
				return err
			}
			return t.trial(ctx, conn, up, entries[half:])
		}
		t.rejected = append(t.rejected, event.Rejected{Index: int(entries[0].message), Reason: serverReason(err),
			Err: mysqldb.Wrap(err, codeRowRefused, where)})
		return nil
	case fault.Fatal:
		switch mysqldb.Number(err) {
		case 1146: // it was retired, or dropped by hand
			t.shard.catalog.forget(places(entries))
			return errors.Join(errAgain, err)
		case 1062:
			if unique := t.shard.uniqueKey(ctx, up.table); unique != nil {
				return unique
			}
		case 1044, 1142, 1143, 1227:
			return err
		}
		return mysqldb.Wrap(err, codeTableRefused, where)
	}
	return err
}

// serverReason is what a dead letter is listed under: in the words that package event has for the same fault.
func serverReason(err error) string {
	switch mysqldb.Number(err) {
	case 1048, 1263, 3673:
		return event.ReasonNull
	case 1264, 1690, 1441:
		return event.ReasonOutOfRange
	case 1265, 1406:
		return event.ReasonTooLong
	case 1300, 1366, 3854:
		return event.ReasonBadText
	case 3819, 4025:
		return event.ReasonCheckConstraint
	}
	return event.ReasonRefusedByServer
}
