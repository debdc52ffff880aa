package lease

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slotline/slotline/internal/mysqldb"
)

// Columns is the DDL of the columns that the row needs.
const Columns = "owner VARBINARY(128) NOT NULL DEFAULT '', " +
	"owner_epoch BIGINT UNSIGNED NOT NULL DEFAULT 0, " +
	"lease_until DATETIME(6) NOT NULL DEFAULT '1970-01-01 00:00:01'"

// Fence is what a take-over changed in the row: who took it, and the how-manieth that was. The epoch alone would do as
// long as the table only moves on; a restored table gives out the epochs of the lost time a second time, and then the
// owner tells the two apart.
type Fence struct {
	Owner string
	Epoch int64
}

// Guard is the condition of every statement that changes other columns of the row; its arguments are Fence.Args.
const Guard = "owner = ? AND owner_epoch = ?"

// Args are Guard's.
func (f Fence) Args() []any { return []any{f.Owner, f.Epoch} }

// Row names one row of a table that has Columns.
type Row struct {
	Table string // unquoted
	Where string // "lane = ?"
	Args  []any  // of Where
}

// String is "slotline_lane (lane = 0)".
func (r Row) String() string {
	where := r.Where
	for _, a := range r.Args {
		if b, ok := a.([]byte); ok {
			a = string(b)
		}
		where = strings.Replace(where, "?", fmt.Sprint(a), 1)
	}
	return r.Table + " (" + where + ")"
}

// The statements. Each is one statement in autocommit, so that no lock outlives it; UTC_TIMESTAMP(6) is the
// database's time, the only one that lease_until is compared with.
func (r Row) readSQL() string {
	return fmt.Sprintf("SELECT owner, owner_epoch, lease_until, UTC_TIMESTAMP(6) FROM %s WHERE %s",
		mysqldb.Ident(r.Table), r.Where)
}

func (r Row) takeSQL() string {
	return fmt.Sprintf("UPDATE %s SET owner = ?, owner_epoch = owner_epoch + 1, lease_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND"+
		" WHERE %s AND owner_epoch = ? AND (owner = '' OR owner = ? OR lease_until <= UTC_TIMESTAMP(6))",
		mysqldb.Ident(r.Table), r.Where)
}

func (r Row) renewSQL() string {
	return fmt.Sprintf("UPDATE %s SET lease_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND"+
		" WHERE %s AND owner = ? AND owner_epoch = ? AND lease_until > UTC_TIMESTAMP(6)",
		mysqldb.Ident(r.Table), r.Where)
}

func (r Row) releaseSQL() string {
	return fmt.Sprintf("UPDATE %s SET owner = '', lease_until = '1970-01-01 00:00:01' WHERE %s AND owner = ? AND owner_epoch = ?",
		mysqldb.Ident(r.Table), r.Where)
}

// store is what the lease needs of the database; tests put an obvious twin in its place.
type store interface {
	read(ctx context.Context) (state, error)
	take(ctx context.Context, owner string, epoch int64, ttl time.Duration) (bool, error)
	renew(ctx context.Context, owner string, epoch int64, ttl time.Duration) (bool, error)
	release(ctx context.Context, owner string, epoch int64) error
}

type sqlStore struct {
	db  *sql.DB
	row Row
}

var errNoRow = errors.New("no such row")

func (s sqlStore) read(ctx context.Context) (state, error) {
	var st state
	var owner []byte
	err := s.db.QueryRowContext(ctx, s.row.readSQL(), s.row.Args...).Scan(&owner, &st.epoch, &st.until, &st.now)
	if errors.Is(err, sql.ErrNoRows) {
		return st, errNoRow
	}
	st.owner = string(owner)
	return st, err
}

func (s sqlStore) take(ctx context.Context, owner string, epoch int64, ttl time.Duration) (bool, error) {
	return s.changed(ctx, s.row.takeSQL(), []any{owner, ttl.Microseconds()}, []any{epoch, owner})
}

func (s sqlStore) renew(ctx context.Context, owner string, epoch int64, ttl time.Duration) (bool, error) {
	return s.changed(ctx, s.row.renewSQL(), []any{ttl.Microseconds()}, []any{owner, epoch})
}

func (s sqlStore) release(ctx context.Context, owner string, epoch int64) error {
	_, err := s.changed(ctx, s.row.releaseSQL(), nil, []any{owner, epoch})
	return err
}

// changed runs an UPDATE whose arguments stand before and after those of the row's Where.
func (s sqlStore) changed(ctx context.Context, query string, before, after []any) (bool, error) {
	args := append(append(append([]any{}, before...), s.row.Args...), after...)
	res, err := s.db.ExecContext(ctx, query, args...)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}
