package outbox

import (
	"bytes"
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

// parseOutbox reads the header ce_outbox, "generation.lane/id".
func parseOutbox(value []byte) (pos event.OutboxPosition, ok bool) {
	head, idText, ok := bytes.Cut(value, []byte{'/'})
	if !ok {
		return pos, false
	}
	genText, laneText, ok := bytes.Cut(head, []byte{'.'})
	if !ok {
		return pos, false
	}
	gen, err1 := strconv.ParseInt(string(genText), 10, 64)
	lane, err2 := strconv.Atoi(string(laneText))
	id, err3 := strconv.ParseUint(string(idText), 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || gen < 1 || lane < 0 || id < 1 {
		return pos, false
	}
	return event.OutboxPosition{Generation: gen, Lane: lane, ID: id}, true
}

// tailRule is what a take-over concludes from the tail and the database.
type tailRule struct {
	newGeneration bool
	why           string
	// tailGeneration is the greatest generation in the tail.
	tailGeneration int64
	// skip holds the events that are in the topic already and that the stored state does not count as published.
	skip map[event.ID]skipped
	// lost are the events in the topic whose commits the database does not have.
	lost []tailEntry
}

// judgeTail compares the tail with the stored state and with the rows of the same ids, stored, as the database has
// them now (event ids by outbox id; absent where there is no such row).
//
// An entry of an earlier generation that the database lacks was judged by the take-over that began the present one, so
// it says nothing new.
func judgeTail(entries []tailEntry, stored map[uint64]event.ID, s *laneState, serverUUID string) tailRule {
	r := tailRule{skip: map[event.ID]skipped{}}
	now := s.generations.last()
	if s.serverUUID != "" && s.serverUUID != serverUUID {
		r.newGeneration, r.why = true, "server_uuid was "+s.serverUUID+", now another server answers: "+serverUUID
	}
	for _, e := range entries {
		r.tailGeneration = max(r.tailGeneration, e.Generation)
		if e.Generation > now {
			if !r.newGeneration {
				r.newGeneration = true
				r.why = "the topic holds generation " + strconv.FormatInt(e.Generation, 10) + ", the lane's row knows " +
					strconv.FormatInt(now, 10) + " at most: an earlier state of the database answers"
			}
		}
		id, ok := stored[e.ID]
		if ok && id == e.EventID {
			continue
		}
		if e.Generation >= now {
			r.lost = append(r.lost, e)
			if !r.newGeneration {
				r.newGeneration = true
				r.why = "the topic holds outbox id " + strconv.FormatUint(e.ID, 10) + ", which the database " +
					map[bool]string{true: "gave to another event", false: "does not have"}[ok] + ": it went back"
			}
		}
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
