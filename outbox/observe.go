package outbox

import (
	"context"
	"database/sql"

	"github.com/slotline/slotline/event"
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

// Views reads what is stored of all lanes.
func Views(ctx context.Context, db *sql.DB, lanes int) ([]View, error) {
	backlogs, err := Backlogs(ctx, db, lanes)
	if err != nil {
		return nil, err
	}
	views := make([]View, len(backlogs))
	for i, b := range backlogs {
		s, _, err := loadLane(ctx, db, b.Lane)
		if err != nil {
			return nil, err
		}
		hot, cold := idSet{s.hot}, idSet{s.cold}
		views[i] = View{Backlog: b, GapsHot: hot.count(), GapsCold: cold.count(), Ends: s.offsets}
		for _, set := range s.parked {
			views[i].Parked += set.count()
		}
	}
	return views, nil
}
