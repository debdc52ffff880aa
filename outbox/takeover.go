package outbox

import (
	"context"
	"database/sql/driver"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
)

// takeOver reads the lane's state, the topic's tail and the rows of the same ids, and makes the flow and the reader of
// this ownership. The owner epoch was raised before, so that no earlier owner saves anything from here on.
func (s *session) takeOver(ctx context.Context) (*reader, *flow, error) {
	o := s.relay.o
	if err := s.writer.Fence(ctx); err != nil {
		return nil, nil, fmt.Errorf("outbox lane %02d: %w", s.lane, err)
	}
	// One that was paused since it got the lease has just fenced its successor, which recovers. It must not go on itself;
	// and whoever takes over after this renewal fences this owner.
	if err := s.held.Renew(ctx); err != nil {
		return nil, nil, err
	}
	if err := s.purger.recover(ctx); err != nil { // else rows that are away would look lost
		return nil, nil, laneError(err, s.lane, "settle what a purge has left")
	}
	state, uuid, err := loadLane(ctx, o.DB, s.lane)
	if err != nil {
		return nil, nil, laneError(err, s.lane, "load its state")
	}
	s.router = newRouter(o.Config, s.relay.layout.Load(), s.lane)
	for _, p := range slices.SortedFunc(maps.Keys(state.parked), comparePartitions) {
		s.router.add(p)
	}
	entries, err := s.scanTail(ctx, state)
	if err != nil {
		return nil, nil, err
	}
	found, err := s.askDatabase(ctx, entries)
	if err != nil {
		return nil, nil, laneError(err, s.lane, "look up the rows of the topic's tail")
	}
	found.serverUUID = uuid
	rule := judgeTail(entries, state, found, s.lane)
	if rule.newGeneration || state.serverUUID == "" {
		if err := s.beginGeneration(ctx, state, uuid, rule); err != nil {
			return nil, nil, err
		}
	}
	if _, err := o.DB.ExecContext(ctx, startLaneSQL, append([]any{s.lane}, s.held.Fence().Args()...)...); err != nil {
		return nil, nil, laneError(err, s.lane, "note that it runs")
	}
	s.log.Info("lane taken over", "owner_epoch", s.held.Epoch(), "cursor", state.cursor, "generation", state.generations.last(),
		"gaps_hot", countIDs(state.hot), "gaps_cold", countIDs(state.cold), "tail", len(entries), "in_topic_already", len(rule.skip))

	s.gens = state.generations
	r := &reader{db: o.DB, glance: s.relay.glance, lane: s.lane, router: s.router, gens: state.generations, sum: serverSum(uuid),
		time: o.Timing, wake: s.relay.wakes[s.lane], stats: s.stats, hotWas: string(appendRanges(nil, state.hot)),
		batchSize: batchBytes(o.Config.Limits.MemoryBytesMax, o.Config.Outbox.Lanes)}
	r.gaps = gapTracker{read: state.cursor, margin: o.Timing.GapMargin}
	now := time.Now()
	for _, h := range state.hot {
		r.gaps.hot = append(r.gaps.hot, hotRange{idRange: h, since: now})
	}
	for _, c := range state.cold {
		r.gaps.cold.idSet.add(c, nil)
	}
	s.stats.gaps(countIDs(state.hot), countIDs(state.cold))
	return r, newFlow(s.router.names, state, rule.skip, o.flow), nil
}

// TailBack records before the recorded offset are scanned too: events that are counted as published, by which the rows
// of the table are compared with those that were read.
const TailBack = 16

// scanTail reads each partition from TailBack records before the offset that the lane recorded, and returns the records
// of this lane. An offset beyond the partition's end is of a topic that was made anew since: it is forgotten.
func (s *session) scanTail(ctx context.Context, state *laneState) ([]tailEntry, error) {
	ends, err := s.writer.Ends(ctx, s.router.names[:s.router.routed])
	if err != nil {
		return nil, s.tailError(err)
	}
	var anew []string
	for p, end := range ends {
		if state.offsets[p] > end {
			state.offsets[p], state.forgot = 0, true
			anew = append(anew, partitionName(p))
		}
	}
	if len(anew) > 0 {
		slices.Sort(anew)
		s.log.Warn("partitions end before what was published to them: their topic was made anew", "partitions", anew)
	}
	from, index := map[event.Partition]int64{}, map[event.Partition]int{}
	for i, p := range s.router.names[:s.router.routed] {
		from[p], index[p] = max(0, state.offsets[p]-TailBack), i
	}
	var entries []tailEntry
	err = s.writer.Tail(ctx, from, func(p event.Partition, offset int64, rec *event.Record) {
		pos, eventID, ok := identify(rec, s.router.source)
		if !ok || pos.Lane != s.lane {
			return
		}
		entries = append(entries, tailEntry{ID: pos.ID, Generation: pos.Generation, EventID: eventID, Part: index[p],
			Offset: offset, Record: event.Record{Key: slices.Clone(rec.Key), Headers: cloneHeaders(rec.Headers)}})
	})
	if err != nil {
		return nil, s.tailError(err)
	}
	return entries, nil
}

func (s *session) tailError(err error) error {
	class := fault.ClassOf(err)
	if class == fault.Unknown {
		class = fault.Transient
	}
	return &fault.Error{Code: codeTailScanFailed, Class: class, Err: err,
		What: fmt.Sprintf("outbox lane %02d: cannot read the tail of its topics: %v", s.lane, err),
		Why:  "without it events might be published twice, so nothing is published",
		Do:   "see whether all partitions have a leader that is up"}
}

func cloneHeaders(headers []event.Header) []event.Header {
	list := slices.Clone(headers)
	for i := range list {
		list[i].Value = slices.Clone(list[i].Value)
	}
	return list
}

// identify reads what the tail scan needs of a record; ok is false for a record that no relay of this line wrote, and
// for positions that no relay gives. Whoever may write to the topic can put anything there: it must not halt a lane.
func identify(rec *event.Record, source string) (pos event.OutboxPosition, id event.ID, ok bool) {
	var view event.View
	if event.ParseView(*rec, &view) != nil {
		return pos, id, false
	}
	ours := slices.ContainsFunc(rec.Headers, func(h event.Header) bool { return h.Key == "ce_source" && string(h.Value) == source })
	pos = view.Outbox
	given := pos.Generation >= 1 && pos.Generation <= generationMax && pos.ID >= 1 && pos.ID <= idMax
	return pos, view.ID, ours && given
}

// askDatabase asks for the rows that the tail names, and for the table's counter.
func (s *session) askDatabase(ctx context.Context, entries []tailEntry) (d database, err error) {
	d.suspect, d.stored = s.suspect, map[uint64]event.ID{}
	ids := make([]uint64, len(entries))
	for i, e := range entries {
		ids[i] = e.ID
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	conn, err := s.relay.o.DB.Conn(ctx)
	if err != nil {
		return d, err
	}
	defer mysqldb.Discard(conn) // its statistics setting is its own
	if err := freshStatistics(ctx, conn); err != nil {
		return d, err
	}
	if d.next, _, err = nextID(ctx, conn, s.lane); err != nil {
		return d, err
	}
	for chunk := range slices.Chunk(ids, hotTermsMax) {
		ranges := make([]idRange, len(chunk))
		for i, id := range chunk {
			ranges[i] = idRange{id, id}
		}
		err := query(ctx, conn, findIDsSQL(s.lane, ranges, len(chunk)), 2, func(v []driver.Value) (bool, error) {
			var sc valueScanner
			id, raw := sc.uint(v[0]), sc.bytes(v[1])
			var eventID event.ID
			copy(eventID[:], raw)
			d.stored[id] = eventID
			return true, sc.err
		})
		if err != nil {
			return d, err
		}
	}
	return d, nil
}

// beginGeneration stores the server's uuid, and with it a new generation where the rule demands one, from the cursor on
// or from where it goes back to; it lists what was lost.
func (s *session) beginGeneration(ctx context.Context, state *laneState, uuid string, rule tailRule) error {
	gens, passed := state.generations, state.cursor
	if rule.newGeneration {
		if rule.back {
			state.goBack(min(rule.agreed, state.cursor))
		}
		var err error
		if gens, err = gens.begin(state.cursor+1, rule.tailGeneration); err != nil {
			return &fault.Error{Code: codeGenerations, Class: fault.Fatal, Err: err,
				What: fmt.Sprintf("outbox lane %02d: %v", s.lane, err),
				Why:  "automatic versions have no room for another one",
				Do:   "move this line's tables to a version column of the service's own"}
		}
		s.log.Warn("a new generation begins: every event after the cursor is published under greater versions",
			"generation", gens.last(), "from", state.cursor+1, "cursor_was", passed, "why", rule.why,
			"lost_commits", len(rule.lost), "listed_in", "slotline_dead, reason "+ReasonLost)
		for _, e := range rule.lost {
			if err := s.listLost(ctx, e); err != nil {
				return laneError(err, s.lane, "list an event that the database lost")
			}
		}
	}
	if err := storeGeneration(ctx, s.relay.o.DB, s.lane, s.held.Fence(), gens, uuid, state, rule.back); err != nil {
		return laneError(err, s.lane, "begin a generation")
	}
	state.generations, state.serverUUID = gens, uuid
	if rule.newGeneration {
		s.stats.update(func(st *LaneStatus) { st.Lost += uint64(len(rule.lost)) })
	}
	return nil
}

// listLost keeps an event that was published although a failover or a restore lost its transaction.
func (s *session) listLost(ctx context.Context, e tailEntry) error {
	p := s.router.names[e.Part]
	var view event.View
	rec := e.Record
	rec.Value = []byte{} // the body stays in the topic
	if err := event.ParseView(rec, &view); err != nil {
		s.log.Warn("an event in the topic whose transaction is lost cannot be read", "partition", partitionName(p), "offset", e.Offset, "error", err)
		return nil
	}
	detail := fmt.Sprintf("%s partition %d offset %d holds the event; its transaction was lost by a failover or restore", p.Topic, p.Number, e.Offset)
	_, err := s.relay.o.DB.ExecContext(ctx, lostSQL(s.lane), e.Generation, e.ID, detail, e.EventID[:], view.Table, view.Tenant,
		view.EntityID, int(view.Op), view.Version, view.Time, []byte{})
	if mysqldb.Classify(err) == fault.Data {
		s.log.Warn("an event that has lost its transaction cannot be listed", "error", err)
		return nil
	}
	return err
}
