package outbox

import (
	"strconv"

	"github.com/slotline/slotline/event"
)

// tailEntry is one record of this lane that a scan of the topic's tail found.
type tailEntry struct {
	ID         uint64
	Generation int64
	EventID    event.ID
	Part       int // index of the partition
	Offset     int64
	Record     event.Record // without its value; kept until the entry is judged
}

// skipped is an event that is in the topic already.
type skipped struct {
	id   uint64
	part int
}

// tailRule is what a take-over concludes from the tail and the database.
type tailRule struct {
	newGeneration bool
	why           string
	// tailGeneration is the greatest generation in the tail.
	tailGeneration int64
	// back says that ids at or below the cursor were given out again: the cursor goes back to agreed, the greatest id
	// of which the topic and the table hold the same event. Ids are given out upwards, so what lies below it is as it
	// was read; 0 where no such id was found, and then the whole table is read.
	back   bool
	agreed uint64
	// skip holds the events that are in the topic already and that the stored state does not count as published.
	skip map[event.ID]skipped
	// lost are the events in the topic whose commits the database does not have.
	lost []tailEntry
}

// database is what a take-over asks of the database, to compare it with the stored state and the topic.
type database struct {
	serverUUID string
	stored     map[uint64]event.ID // event ids of the rows that the tail names; absent where there is no such row
	next       uint64              // the id that the lane table gives out next; 0 where the server does not tell
	suspect    string              // why the last session found that it went back; "" if it did not
}

func (r *tailRule) begin(why string) {
	if !r.newGeneration {
		r.newGeneration, r.why = true, why
	}
}

// judgeTail compares the tail with the stored state and with the database. The tail begins some records before the
// recorded offsets, so that a lane which is drained has something to be compared by.
//
// An entry of an earlier generation that the database lacks was judged by the take-over that began the present one, so
// it says nothing new. Nor does a missing row whose event is counted as published: rows may be deleted.
func judgeTail(entries []tailEntry, s *laneState, db database, lane int) tailRule {
	r := tailRule{skip: map[event.ID]skipped{}}
	now := s.generations.last()
	switch {
	case db.suspect != "":
		r.back = true
		r.begin(db.suspect)
	case db.next > 0 && db.next <= s.cursor:
		r.back = true
		r.begin(counterWentBack(lane, db.next, s.cursor))
	case s.serverUUID != "" && s.serverUUID != db.serverUUID:
		r.begin("server_uuid was " + s.serverUUID + ", now another server answers: " + db.serverUUID)
	}
	for _, e := range entries {
		r.tailGeneration = max(r.tailGeneration, e.Generation)
		if e.Generation > now {
			r.begin("the topic holds generation " + strconv.FormatInt(e.Generation, 10) + ", the lane's row knows " +
				strconv.FormatInt(now, 10) + " at most: an earlier state of the database answers")
		}
		id, ok := db.stored[e.ID]
		counted := s.counted(e.ID)
		if ok && id == e.EventID {
			if counted && e.Generation == s.generations.at(e.ID) {
				r.agreed = max(r.agreed, e.ID)
			}
			continue
		}
		if e.Generation < now || counted && !ok && (db.next == 0 || e.ID < db.next) {
			continue
		}
		if counted && e.Generation == now { // of a later generation, it is another history's, and the table is as it was read
			r.back = true
		} else {
			r.lost = append(r.lost, e)
		}
		r.begin("the topic holds outbox id " + strconv.FormatUint(e.ID, 10) + ", which the database " +
			map[bool]string{true: "gave to another event", false: "does not have"}[ok] + ": it went back")
	}
	if r.newGeneration {
		return r // it skips nothing: what is published again gets a greater version
	}
	for _, e := range entries {
		// A record of a generation that its id no longer has is published again, with the greater version.
		if e.Generation == s.generations.at(e.ID) && !s.counted(e.ID) {
			r.skip[e.EventID] = skipped{e.ID, e.Part}
		}
	}
	return r
}
