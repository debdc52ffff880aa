package replay

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/lease"
)

// ErrDiffers is what Run returns when a job that only verifies has found rows that are wrong, and they still are.
var ErrDiffers = errors.New("the shard and the log differ")

// verifyOnly is a job that compares the live tables with the log, mends them if that is wanted, and leaves nothing behind.
func (r *Replay) verifyOnly(ctx context.Context, h *lease.Held, j *Job) error {
	f, err := r.fill(ctx, h, j)
	if err != nil {
		return err
	}
	defer f.stop()
	differs := false
	err = f.beside(ctx, func(ctx context.Context) error {
		c, err := r.verify(ctx, j)
		if err != nil {
			return err
		}
		if differs = c.Differs() > 0 || len(c.Altered) > 0; !differs || !j.Spec.Repair {
			return nil
		}
		if r.o.Confirm != nil && !r.o.Confirm(fmt.Sprintf("Repair %d live rows?", c.Differs())) {
			r.say("repair", "declined: the live rows are as they were")
			return nil
		}
		mended, err := r.compare(ctx, j, true)
		if err != nil {
			return err
		}
		r.say("repair", fmt.Sprintf("%d live rows are as the log makes them now; each is in slotline_repair under %s", mended.Mended, j.Name))
		if c, err = r.verify(ctx, j); err != nil {
			return err
		}
		differs = c.Differs() > 0 || len(c.Altered) > 0
		return nil
	})
	if err != nil {
		return err
	}
	f.stop()
	if err := r.end(ctx, h, j, shadowSuffix(j.Name), StageVerified); err != nil {
		return err
	}
	if differs {
		return ErrDiffers
	}
	return nil
}

// repair has live rows be as the log makes them, and writes each down, in one transaction. A row that a sink has written
// since it was looked at stays as the sink wrote it.
func (c *comparer) repair(ctx context.Context, list []Difference) error {
	tx, err := c.r.long.BeginTx(ctx, nil)
	if err != nil {
		return c.r.wrap(err)
	}
	defer tx.Rollback()
	var columns []string
	for _, col := range c.pair.live.Columns {
		columns = append(columns, mysqldb.Ident(col.Name))
	}
	columns = append(columns, "`_ver`")
	names, live := strings.Join(columns, ","), mysqldb.Ident(c.pair.live.Name)
	for i := range list {
		d := &list[i]
		is, args := c.keyIs(d)
		if d.LiveVer != 0 {
			if _, err := tx.ExecContext(ctx, "DELETE FROM "+live+" WHERE "+is+" AND `_ver`=?", append(args, d.LiveVer)...); err != nil {
				return c.r.wrap(err)
			}
		}
		if d.LogVer != 0 {
			_, err := tx.ExecContext(ctx, "INSERT INTO "+live+" ("+names+") SELECT "+names+" FROM "+mysqldb.Ident(c.pair.beside.Name)+" AS `_n` WHERE "+is+
				" ON DUPLICATE KEY UPDATE `_ver`="+live+".`_ver`", args...)
			if err != nil {
				return c.r.wrap(err)
			}
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO `slotline_repair` (`job`,`tbl`,`tenant`,`entity_id`,`live_ver`,`log_ver`,`repaired_at`) "+
			"VALUES (?,?,?,?,?,?,UTC_TIMESTAMP(6))", c.job.Name, d.Table, d.Tenant, d.ID, d.LiveVer, d.LogVer)
		if err != nil {
			return c.r.wrap(err)
		}
	}
	return c.r.wrap(tx.Commit())
}
