package intent

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/internal/progress"
	"github.com/slotline/slotline/lease"
	"github.com/slotline/slotline/sinks/olap/rollup"
)

// hold is the lease of a group; *lease.Held is one.
type hold interface {
	Fence() lease.Fence
	Lost() <-chan struct{}
	Keep(ctx context.Context) error
	Release(ctx context.Context) error
}

// store is what a group needs of the database; tests put an obvious twin in its place.
type store interface {
	// acquire takes the lease of a group.
	acquire(ctx context.Context, group int, owner string, ttl time.Duration) (hold, error)
	// takeProgress bumps the owner epoch of a progress row, and returns it.
	takeProgress(ctx context.Context, p event.Partition, owner string) (progress.Row, error)
	// releaseProgress takes the owner's name out of a progress row, if owner and epoch are still these.
	releaseProgress(ctx context.Context, p event.Partition, fence lease.Fence) error
	// read returns a group's row, and the progress rows of the partitions.
	read(ctx context.Context, group int, parts []event.Partition) (row, []progress.Row, error)
	// put stores an unconfirmed intent if the fence is the row's; found says whether it is.
	put(ctx context.Context, group int, fence lease.Fence, i Intent) (found bool, err error)
	// commit moves the progress rows, and marks what was touched, in one transaction, if the fence is the row's. With a confirmation it also requires the
	// intent stored to be that one, and confirms it. It changes all or nothing; done says which.
	commit(ctx context.Context, group int, fence lease.Fence, confirm *Intent, advances []progress.Advance, touched []rollup.Touched) (done bool, err error)
	// takeRollups tells the rollups of a take-over: package rollup's TakeGroup.
	takeRollups(ctx context.Context, group int, digest string, left bool) error
}

var errNotSeeded = errors.New("the row is not there")

type sqlStore struct {
	db   *sql.DB
	sink string
}

func (s sqlStore) key(p event.Partition) progress.Key {
	return progress.Key{Sink: s.sink, Partition: p}
}

func (s sqlStore) acquire(ctx context.Context, group int, owner string, ttl time.Duration) (hold, error) {
	held, err := lease.Acquire(ctx, s.db, lease.Row{Table: Table, Where: "sink = ? AND grp = ?", Args: []any{s.sink, group}}, owner, ttl)
	if err != nil {
		return nil, err // not a hold of a nil lease
	}
	return held, nil
}

func (s sqlStore) takeProgress(ctx context.Context, p event.Partition, owner string) (progress.Row, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return progress.Row{}, err
	}
	defer conn.Close()
	r, err := progress.TakeOver(ctx, conn, s.key(p), owner)
	if errors.Is(err, sql.ErrNoRows) {
		err = errNotSeeded
	}
	return r, err
}

func (s sqlStore) releaseProgress(ctx context.Context, p event.Partition, fence lease.Fence) error {
	return progress.Release(ctx, s.db, s.key(p), fence.Owner, fence.Epoch)
}

const readSQL = "SELECT `owner`,`owner_epoch`,`run_id`,`seq`,`codec`,`ranges`,`excluded`,`confirmed` FROM `slotline_intent` " +
	"WHERE `sink`=? AND `grp`=?"

func (s sqlStore) read(ctx context.Context, group int, parts []event.Partition) (row, []progress.Row, error) {
	var r row
	var owner, run []byte
	var ranges, excluded string
	err := s.db.QueryRowContext(ctx, readSQL, s.sink, group).
		Scan(&owner, &r.fence.Epoch, &run, &r.intent.Seq, &r.intent.Codec, &ranges, &excluded, &r.confirmed)
	if errors.Is(err, sql.ErrNoRows) {
		return r, nil, errNotSeeded
	}
	if err != nil {
		return r, nil, err
	}
	r.fence.Owner = string(owner)
	copy(r.intent.Run[:], run) // a server that cuts trailing zero bytes still yields the same
	if r.intent.Ranges, err = parseRanges(ranges); err != nil {
		return r, nil, unreadable(s.sink, group, "ranges", err)
	}
	if r.intent.Excluded, err = parseExcluded(excluded); err != nil {
		return r, nil, unreadable(s.sink, group, "excluded", err)
	}
	stand := make([]progress.Row, len(parts))
	for i, p := range parts {
		stand[i], err = progress.Read(ctx, s.db, s.key(p))
		if errors.Is(err, sql.ErrNoRows) {
			return r, nil, errNotSeeded
		}
		if err != nil {
			return r, nil, err
		}
	}
	return r, stand, nil
}

const putSQL = "UPDATE `slotline_intent` SET `run_id`=?,`seq`=?,`codec`=?,`ranges`=?,`excluded`=?,`confirmed`=0," +
	"`updated_at`=UTC_TIMESTAMP(6) WHERE `sink`=? AND `grp`=? AND " + lease.Guard

func (s sqlStore) put(ctx context.Context, group int, fence lease.Fence, i Intent) (bool, error) {
	return found(s.db.ExecContext(ctx, putSQL, i.Run[:], i.Seq, i.Codec, rangesText(i.Ranges), excludedTexts(i.Excluded),
		s.sink, group, fence.Owner, fence.Epoch))
}

const (
	confirmSQL = "UPDATE `slotline_intent` SET `confirmed`=1,`updated_at`=UTC_TIMESTAMP(6) WHERE `sink`=? AND `grp`=? AND " +
		lease.Guard + " AND `seq`=? AND `run_id`=?"
	// guardSQL locks the row and compares the fence, for a batch without rows: nothing was sent, nothing is confirmed.
	guardSQL = "UPDATE `slotline_intent` SET `updated_at`=UTC_TIMESTAMP(6) WHERE `sink`=? AND `grp`=? AND " + lease.Guard
)

func (s sqlStore) commit(ctx context.Context, group int, fence lease.Fence, confirm *Intent, advances []progress.Advance, touched []rollup.Touched) (bool, error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	query, args := guardSQL, []any{s.sink, group, fence.Owner, fence.Epoch}
	if confirm != nil {
		query, args = confirmSQL, append(args, confirm.Seq, confirm.Run[:])
	}
	if ok, err := found(tx.ExecContext(ctx, query, args...)); err != nil || !ok {
		return false, err
	}
	for i := range advances {
		if ok, err := found(tx.ExecContext(ctx, string(advances[i].AppendSQL(nil)))); err != nil || !ok {
			return false, err
		}
	}
	if err := rollup.Mark(ctx, tx, s.sink, touched); err != nil {
		return false, err
	}
	return true, tx.Commit()
}

func (s sqlStore) takeRollups(ctx context.Context, group int, digest string, left bool) error {
	return rollup.TakeGroup(ctx, s.db, s.sink, group, digest, left)
}

// found says whether an UPDATE found its row, changed or not.
func found(result sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}
