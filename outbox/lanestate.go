package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/internal/mysqldb"
	"github.com/slotline/slotline/lease"
)

// laneState is what the database stores of a lane: a row of slotline_lane, and its rows of slotline_lane_gap.
type laneState struct {
	serverUUID  string // of the server that the cursor was last saved on; "" before the first take-over
	cursor      uint64
	hot         []idRange
	cold        []idRange
	parked      map[event.Partition]*bucketSet
	offsets     map[event.Partition]int64
	forgot      bool // some of offsets were, since they were loaded: that is to be stored
	generations generations
}

// counted says that the state counts an id as published, or as gone for good.
func (s *laneState) counted(id uint64) bool {
	if id > s.cursor || contains(s.hot, id) || contains(s.cold, id) {
		return false
	}
	for _, set := range s.parked {
		if set.contains(id) {
			return false
		}
	}
	return true
}

func contains(ranges []idRange, id uint64) bool { s := idSet{ranges}; return s.contains(id) }

// settleParked drops parked ids that the state also holds as unread or as gaps: they were parked by batches that were
// not saved, and will be read again. The buckets that change so must be stored with the next save.
func (s *laneState) settleParked() {
	for _, set := range s.parked {
		var drop []uint64
		for _, r := range set.ranges {
			for id := r.From; id <= r.To; id++ {
				if id > s.cursor || contains(s.hot, id) || contains(s.cold, id) {
					drop = append(drop, id)
				}
			}
		}
		set.removeAll(drop)
	}
}

// goBack makes a cursor that lies lower the state's: whatever lies above it is to be read again.
func (s *laneState) goBack(cursor uint64) {
	above := idRange{cursor + 1, ^uint64(0)}
	cut := func(ranges []idRange) []idRange {
		var kept []idRange
		for _, r := range ranges {
			if r.From < above.From {
				kept = append(kept, idRange{r.From, min(r.To, cursor)})
			}
		}
		return kept
	}
	s.cursor, s.hot, s.cold = cursor, cut(s.hot), cut(s.cold)
	for _, set := range s.parked {
		*set = bucketSet{idSet: idSet{cut(set.ranges)}}
	}
}

// Kinds of slotline_lane_gap rows.
const coldKind = "cold" // the others are "<topic>/<partition>": parked ids

func partitionName(p event.Partition) string { return p.Topic + "/" + strconv.Itoa(int(p.Number)) }

func parsePartitionName(text string) (event.Partition, bool) {
	i := strings.LastIndexByte(text, '/')
	if i < 1 {
		return event.Partition{}, false
	}
	n, err := strconv.ParseInt(text[i+1:], 10, 32)
	return event.Partition{Topic: text[:i], Number: int32(n)}, err == nil && n >= 0
}

// offsetsText is the next offsets as JSON, {"flights.events":[12,0,7]}: by topic, in order of partitions; -1 where
// none is recorded.
func offsetsText(offsets map[event.Partition]int64) string {
	lists := map[string][]int64{}
	for _, p := range slices.SortedFunc(maps.Keys(offsets), comparePartitions) {
		list := lists[p.Topic]
		for int32(len(list)) < p.Number {
			list = append(list, -1)
		}
		lists[p.Topic] = append(list, offsets[p])
	}
	text, err := json.Marshal(lists)
	if err != nil {
		panic(err) // strings and integers always marshal
	}
	return string(text)
}

func comparePartitions(a, b event.Partition) int {
	if c := strings.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	return int(a.Number) - int(b.Number)
}

func parseOffsets(text string) (map[event.Partition]int64, error) {
	var lists map[string][]int64
	if err := json.Unmarshal([]byte(text), &lists); err != nil {
		return nil, fmt.Errorf("next offsets %.80q: %w", text, err)
	}
	offsets := map[event.Partition]int64{}
	for topic, list := range lists {
		for i, next := range list {
			if next >= 0 {
				offsets[event.Partition{Topic: topic, Number: int32(i)}] = next
			}
		}
	}
	return offsets, nil
}

// SQL of the state. @@server_uuid stands in every save, so that a proxy which changed servers cannot let a cursor of
// one server be saved on another.
const (
	loadLaneSQL = "SELECT server_uuid, cursor_id, hot, offsets, generations, @@server_uuid FROM slotline_lane WHERE lane = ?"
	loadGapSQL  = "SELECT kind, ids FROM slotline_lane_gap WHERE lane = ? ORDER BY kind, bucket"
	saveLaneSQL = "UPDATE slotline_lane SET cursor_id = ?, hot = ?, offsets = ?, saved_at = UTC_TIMESTAMP(6) " +
		"WHERE lane = ? AND " + lease.Guard + " AND server_uuid = @@server_uuid"
	beginGenerationSQL = "UPDATE slotline_lane SET generations = ?, server_uuid = @@server_uuid, saved_at = UTC_TIMESTAMP(6) " +
		"WHERE lane = ? AND " + lease.Guard + " AND @@server_uuid = ?"
	goBackSQL    = "UPDATE slotline_lane SET cursor_id = ?, hot = ? WHERE lane = ? AND " + lease.Guard
	clearGapsSQL = "DELETE FROM slotline_lane_gap WHERE lane = ?"
	saveGapSQL   = "INSERT INTO slotline_lane_gap (lane, kind, bucket, ids) VALUES (?, ?, ?, ?) ON DUPLICATE KEY UPDATE ids = VALUES(ids)"
	deleteGapSQL = "DELETE FROM slotline_lane_gap WHERE lane = ? AND kind = ? AND bucket = ?"
	haltLaneSQL  = "UPDATE slotline_lane SET halted_at = UTC_TIMESTAMP(6), halt_code = ?, halt_text = ? WHERE lane = ? AND " + lease.Guard
	startLaneSQL = "UPDATE slotline_lane SET halted_at = NULL, halt_code = NULL, halt_text = NULL WHERE lane = ? AND " + lease.Guard
)

// errMoved says that a save changed nothing: another owner took the lane over, or another server answered.
var errMoved = errors.New("the lane's row belongs to another owner or another server now")

// loadLane reads a lane's state, in one snapshot, and the uuid of the server that answered.
func loadLane(ctx context.Context, db *sql.DB, lane int) (s *laneState, serverUUID string, err error) {
	// Gaps move between the lane's row and the others: two read views could show one nowhere.
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, "", err
	}
	defer tx.Rollback()
	s = &laneState{parked: map[event.Partition]*bucketSet{}}
	var hot, offsets, gens string
	err = tx.QueryRowContext(ctx, loadLaneSQL, lane).Scan(&s.serverUUID, &s.cursor, &hot, &offsets, &gens, &serverUUID)
	if err != nil {
		return nil, "", err
	}
	if s.hot, err = parseRanges(hot); err == nil {
		if s.offsets, err = parseOffsets(offsets); err == nil {
			s.generations, err = parseGenerations(gens)
		}
	}
	if err != nil {
		return nil, "", damaged(lane, err)
	}
	rows, err := tx.QueryContext(ctx, loadGapSQL, lane)
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	var cold idSet
	for rows.Next() {
		var kind, text string
		if err := rows.Scan(&kind, &text); err != nil {
			return nil, "", err
		}
		ranges, err := parseRanges(text)
		if err != nil {
			return nil, "", damaged(lane, err)
		}
		set := &cold
		if kind != coldKind {
			p, ok := parsePartitionName(kind)
			if !ok {
				return nil, "", damaged(lane, fmt.Errorf("slotline_lane_gap holds kind %.80q", kind))
			}
			if s.parked[p] == nil {
				s.parked[p] = &bucketSet{}
			}
			set = &s.parked[p].idSet
		}
		for _, r := range ranges {
			set.add(r, nil)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, "", err
	}
	s.cold = cold.ranges
	s.settleParked()
	return s, serverUUID, nil
}

func damaged(lane int, err error) error {
	return &fault.Error{Code: codeLaneDamaged, Class: fault.Fatal, Err: err,
		What: fmt.Sprintf("outbox lane %02d: its stored state cannot be read: %v", lane, err),
		Why:  "slotline_lane and slotline_lane_gap are written by the relay alone",
		Do:   "restore the two tables' rows of this lane from a backup; events stay in the outbox meanwhile"}
}

// saveLane stores what a flow allows to be stored, in one transaction where more than the lane's row changes.
func saveLane(ctx context.Context, db *sql.DB, lane int, fence lease.Fence, gens generations, names []event.Partition, s *saveState) error {
	offsets := map[event.Partition]int64{}
	for i, next := range s.offsets {
		offsets[names[i]] = next
	}
	args := []any{s.state.cursor, string(appendRanges(nil, s.state.hot)), offsetsText(offsets), lane, fence.Owner, fence.Epoch}
	if len(s.state.cold) == 0 && len(s.parked) == 0 && len(s.dead) == 0 {
		return oneRow(db.ExecContext(ctx, saveLaneSQL, args...))
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := oneRow(tx.ExecContext(ctx, saveLaneSQL, args...)); err != nil {
		return err
	}
	for _, d := range s.dead {
		if _, err := tx.ExecContext(ctx, deadSQL(lane), gens.at(d.ID), d.Reason, cutText(d.Detail, deadDetailBytesMax), d.ID); err != nil {
			return err
		}
	}
	if err := saveBuckets(ctx, tx, lane, coldKind, s.state.cold); err != nil {
		return err
	}
	for i, buckets := range s.parked {
		if err := saveBuckets(ctx, tx, lane, partitionName(names[i]), buckets); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// storeGeneration stores generations and the server's uuid; with back, also a cursor that went back and what is left of
// the gaps and the parked ids.
func storeGeneration(ctx context.Context, db *sql.DB, lane int, fence lease.Fence, gens generations, uuid string, s *laneState, back bool) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := oneRow(tx.ExecContext(ctx, beginGenerationSQL, gens.String(), lane, fence.Owner, fence.Epoch, uuid)); err != nil {
		return err
	}
	if back {
		if err := oneRow(tx.ExecContext(ctx, goBackSQL, s.cursor, string(appendRanges(nil, s.hot)), lane, fence.Owner, fence.Epoch)); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, clearGapsSQL, lane); err != nil {
			return err
		}
		if err := saveBuckets(ctx, tx, lane, coldKind, allBuckets(s.cold)); err != nil {
			return err
		}
		for p, set := range s.parked {
			if err := saveBuckets(ctx, tx, lane, partitionName(p), allBuckets(set.ranges)); err != nil {
				return err
			}
		}
	}
	return tx.Commit()
}

func allBuckets(ranges []idRange) map[uint64]string {
	set := bucketSet{idSet: idSet{ranges}}
	for _, r := range ranges {
		set.touch(r.From)
	}
	return set.takeDirty()
}

func saveBuckets(ctx context.Context, tx *sql.Tx, lane int, kind string, buckets map[uint64]string) error {
	for _, b := range slices.Sorted(maps.Keys(buckets)) {
		var err error
		if text := buckets[b]; text == "" {
			_, err = tx.ExecContext(ctx, deleteGapSQL, lane, kind, b)
		} else {
			_, err = tx.ExecContext(ctx, saveGapSQL, lane, kind, b, text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// oneRow makes errMoved of an update that found no row.
func oneRow(res sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n != 1 {
		return errMoved
	}
	return err
}

// cutText cuts text to bytesMax without splitting a code point.
func cutText(text string, bytesMax int) string {
	if len(text) <= bytesMax {
		return text
	}
	return strings.ToValidUTF8(text[:bytesMax], "")
}

// laneError gives a database error its code and lane.
func laneError(err error, lane int, doing string) error {
	return mysqldb.Wrap(err, codeDatabase, fmt.Sprintf("outbox lane %02d: cannot %s", lane, doing))
}
