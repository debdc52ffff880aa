package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
)

// View is how a lane stands by what is stored of it, for status.
type View struct {
	Backlog
	GapsHot  uint64
	GapsCold uint64
	Parked   uint64
	// Ends are the offsets after this lane's last acknowledged event in each partition that it has published to.
	Ends map[event.Partition]int64
}

// Views reads what is stored of all lanes. A lane whose state cannot be read is shown as halted, and so is one whose
// table went back until its relay notices.
func Views(ctx context.Context, db *sql.DB, lanes int) ([]View, error) {
	backlogs, err := Backlogs(ctx, db, lanes)
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer mysqldb.Discard(conn) // its statistics setting is its own
	if err := freshStatistics(ctx, conn); err != nil {
		return nil, err
	}
	views := make([]View, len(backlogs))
	for i, b := range backlogs {
		v := &views[i]
		v.Backlog = b
		next, known, err := nextID(ctx, conn, b.Lane)
		if err != nil {
			return nil, err
		}
		if known && next <= b.Cursor {
			v.WentBack = true
			v.halted(&fault.Error{Code: codeWentBack, Class: fault.Transient,
				What: fmt.Sprintf("outbox lane %02d: %s", b.Lane, counterWentBack(b.Lane, next, b.Cursor)),
				Why:  "the table was emptied by TRUNCATE, or restored: events that get the ids up to there are not read before a relay notices",
				Do:   "nothing while a relay owns the lane, it looks every 10 s; else start one: slotline relay"})
		}
		s, _, err := loadLane(ctx, db, b.Lane)
		if f, ok := errors.AsType[*fault.Error](err); ok && f.Code == codeLaneDamaged {
			v.halted(f) // it hides none of the others
			continue
		}
		if err != nil {
			return nil, err
		}
		hot, cold := idSet{s.hot}, idSet{s.cold}
		v.GapsHot, v.GapsCold, v.Ends = hot.count(), cold.count(), s.offsets
		for _, set := range s.parked {
			v.Parked += set.count()
		}
	}
	return views, nil
}

// halted shows a fault that no relay has recorded; what one did record stays.
func (v *View) halted(f *fault.Error) {
	if v.HaltedAt != nil {
		return
	}
	at := time.Now().UTC()
	v.HaltedAt, v.HaltCode, v.HaltText = &at, f.Code, f.Error()
}
