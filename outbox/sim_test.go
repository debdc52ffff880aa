package outbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
)

// The simulation runs the deciding half of the relay (gapTracker, flow, judgeTail, generations and the texts of the
// stored state) against obvious models of MySQL and Kafka, one random step at a time: transactions begin, draw ids,
// write rows, commit and roll back in any order; partitions stall, refuse, and find records too large; answers are late;
// saves fail before or after they are carried out; the relay dies between any two steps and another takes over. What
// it asserts is P1 and P2: in the end the log holds each committed event exactly once and nothing else, and the events
// of each entity in the order of their commits.

// simSeeds is how many random runs a test makes; SIM_SEEDS changes it.
func simSeeds(t *testing.T, n int) []uint64 {
	if s := os.Getenv("SIM_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return []uint64{seed}
	}
	if s := os.Getenv("SIM_SEEDS"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	seeds := make([]uint64, n)
	for i := range seeds {
		seeds[i] = rand.Uint64()
	}
	return seeds
}

// simHistory is how many of the last steps a failure shows; SIM_HISTORY changes it.
func simHistory() int {
	if n, err := strconv.Atoi(os.Getenv("SIM_HISTORY")); err == nil {
		return n
	}
	return 60
}

type simRow struct {
	id        uint64
	eventID   event.ID
	entity    int
	part      int
	big, bad  bool
	written   bool // the INSERT has written its row; before it only drew the id
	committed bool
	gone      bool
	away      bool // in the purge's private table
	purged    bool // dropped with it, or with its partition
}

type simTx struct {
	rows   []*simRow
	entity int
	drawn  time.Time
	slow   bool
}

type simRecord struct {
	row    *simRow
	pos    event.OutboxPosition
	hidden bool // a transaction's marker, or a record of one that was aborted
}

type simSent struct {
	it      *item
	row     *simRow
	gen     int64
	written int64 // offset, once the broker has it; -1 before
	open    bool  // in a transaction that has not ended
}

type sim struct {
	t    *testing.T
	seed uint64
	rnd  *rand.Rand
	now  time.Time

	// MySQL
	nextID  uint64
	rows    []*simRow // by id - 1
	txs     []*simTx
	locked  map[int]bool
	stored  laneState
	storedD map[uint64]string // dead letters: id to reason
	uuid    string
	epoch   int

	// Kafka
	logs    [][]simRecord
	broken  []string // by partition: "", "stall", "refuse"
	names   []event.Partition
	history []string

	relay *simRelay
	opts  simOptions
	purge simPurge
}

type simOptions struct {
	slowInserts bool // beyond the margin: found by sweeps, out of order
	crashes     bool
	breakage    bool
	big         bool
	purge       bool
	handOvers   bool // to another relay, drained
	transact    bool // with Kafka transactions
	failovers   bool // another server answers some take-overs: generations begin, and events may be published again
	events      int
}

// simRelay is one ownership.
type simRelay struct {
	epoch  int
	gaps   gapTracker
	flow   *flow
	gens   generations
	client [][]*simSent // by partition
	sent   map[*item]*simSent
	fetch  []simFetch
	save   *saveState
	marks  map[int]uint64
	hotWas string
	drawn  uint64

	draining bool
	open     []*simSent // records of the open transaction
}

type simFetch struct {
	part int
	ids  []uint64
}

func newSim(t *testing.T, seed uint64, opts simOptions) *sim {
	s := &sim{t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 7)), now: time.Unix(1e9, 0), locked: map[int]bool{},
		opts: opts, storedD: map[uint64]string{}, uuid: "server-a"}
	parts := 1 + s.rnd.IntN(4)
	for i := range parts {
		s.names = append(s.names, event.Partition{Topic: "t.events", Number: int32(i)})
	}
	s.logs, s.broken = make([][]simRecord, parts), make([]string, parts)
	s.stored = laneState{parked: map[event.Partition]*bucketSet{}, offsets: map[event.Partition]int64{}, generations: generations{{1, 1}}}
	s.takeOver()
	return s
}

func (s *sim) note(format string, args ...any) {
	s.history = append(s.history, fmt.Sprintf(format, args...))
	if n := len(s.history); n > 40000 {
		s.history = s.history[n-20000:]
	}
}

func parkedText(parked map[event.Partition]*bucketSet) string {
	var text string
	for _, p := range slices.SortedFunc(maps.Keys(parked), comparePartitions) {
		if !parked[p].empty() {
			text += fmt.Sprintf("p%d:%s ", p.Number, appendRanges(nil, parked[p].ranges))
		}
	}
	return text
}

func (s *sim) fatalf(format string, args ...any) {
	s.t.Helper()
	tail := s.history
	if n := simHistory(); len(tail) > n {
		tail = tail[len(tail)-n:]
	}
	for _, h := range tail {
		s.t.Log(h)
	}
	s.t.Fatalf("SIM_SEED=%d: %s", s.seed, fmt.Sprintf(format, args...))
}

// --- MySQL ---

func (s *sim) begin() {
	if len(s.rows) >= s.opts.events || len(s.txs) > 12 || s.purge.stage == simWaiting {
		return // emitters queue behind the purge's lock
	}
	entity := s.rnd.IntN(10)
	if s.locked[entity] {
		return
	}
	s.locked[entity] = true
	tx := &simTx{entity: entity, drawn: s.now, slow: s.opts.slowInserts && (s.rnd.IntN(10) == 0 || s.opts.purge && s.rnd.IntN(4) == 0)}
	for range 1 + s.rnd.IntN(3) {
		s.nextID++
		if s.rnd.IntN(50) == 0 {
			s.nextID += uint64(s.rnd.IntN(40)) // the counter jumps
			for uint64(len(s.rows)) < s.nextID-1 {
				s.rows = append(s.rows, nil)
			}
		}
		row := &simRow{id: s.nextID, entity: entity, part: entity % len(s.names), big: s.opts.big && s.rnd.IntN(40) == 0, bad: s.rnd.IntN(60) == 0}
		binary.BigEndian.PutUint64(row.eventID[:], s.rnd.Uint64())
		s.rows = append(s.rows, row)
		tx.rows = append(tx.rows, row)
	}
	s.txs = append(s.txs, tx)
	s.note("begin %s", ids(tx.rows))
}

func ids(rows []*simRow) (text string) {
	for _, r := range rows {
		text += fmt.Sprintf("%d/p%d ", r.id, r.part)
	}
	return text
}

const simMargin = 100 * time.Millisecond

// write finishes the INSERT of transactions: within the margin unless slow.
func (s *sim) writeDue(all bool) {
	for _, tx := range s.txs {
		late := s.now.Sub(tx.drawn) > simMargin/2 && !tx.slow
		if late || all || s.rnd.IntN(3) == 0 && !tx.slow || tx.slow && s.rnd.IntN(200) == 0 {
			for _, r := range tx.rows {
				r.written = true
			}
		}
	}
}

func (s *sim) end(commit bool) {
	if len(s.txs) == 0 {
		return
	}
	i := s.rnd.IntN(len(s.txs))
	tx := s.txs[i]
	if !tx.rows[0].written {
		return
	}
	s.txs = slices.Delete(s.txs, i, i+1)
	delete(s.locked, tx.entity)
	for _, r := range tx.rows {
		r.committed, r.gone = commit, !commit
	}
	s.note("end %s commit=%v", ids(tx.rows), commit)
}

func (s *sim) row(id uint64) *simRow {
	if id == 0 || id > uint64(len(s.rows)) {
		return nil
	}
	return s.rows[id-1]
}

// visible is a read: committed rows that pred selects, and with dirty also written ones.
func (s *sim) visible(dirty bool, pred func(id uint64) bool, limit int) (list []*simRow) {
	for _, r := range s.rows {
		if r != nil && !r.gone && !r.away && !r.purged && (r.committed || dirty && r.written) && pred(r.id) && len(list) < limit {
			list = append(list, r)
		}
	}
	return list
}

// --- relay ---

func (s *sim) takeOver() {
	// What the dead owner had sent is either in the log or never will be.
	s.epoch++
	handedOver := false
	if s.relay != nil {
		handedOver = s.relay.draining && len(s.relay.flow.skip) == 0 && s.drained()
		s.endTransaction(s.rnd.IntN(3) == 0) // its commit may have been on the way; else the new owner's first request aborts it
	}
	s.recoverPurge()
	if s.opts.failovers && s.rnd.IntN(3) == 0 {
		s.uuid += "'"
	}
	state := s.load()
	var entries []tailEntry
	for p, log := range s.logs {
		for off := max(0, state.offsets[s.names[p]]-TailBack); off < int64(len(log)); off++ {
			rec := log[off]
			if rec.hidden {
				continue
			}
			entries = append(entries, tailEntry{ID: rec.pos.ID, Generation: rec.pos.Generation, EventID: rec.row.eventID, Part: p, Offset: off})
		}
	}
	stored := map[uint64]event.ID{}
	for _, e := range entries {
		if r := s.row(e.ID); r != nil && r.committed && !r.away && !r.purged {
			stored[e.ID] = r.eventID
		}
	}
	rule := judgeTail(entries, state, database{serverUUID: s.uuid, stored: stored, next: s.nextID + 1}, 0)
	if rule.newGeneration {
		if state.serverUUID == s.uuid || rule.back || len(rule.lost) > 0 {
			s.fatalf("a new generation without a reason: %s", rule.why)
		}
		gens, err := state.generations.begin(state.cursor+1, rule.tailGeneration)
		if err != nil {
			s.fatalf("%v", err)
		}
		state.generations, s.stored.generations = gens, gens
	}
	if handedOver && len(rule.skip) > 0 {
		s.fatalf("a drained lane leaves %d records that its state does not count", len(rule.skip))
	}
	s.stored.serverUUID = s.uuid
	r := &simRelay{epoch: s.epoch, gens: state.generations, client: make([][]*simSent, len(s.names)), sent: map[*item]*simSent{},
		hotWas: string(appendRanges(nil, state.hot))}
	r.gaps = gapTracker{read: state.cursor, margin: simMargin}
	for _, h := range state.hot {
		r.gaps.hot = append(r.gaps.hot, hotRange{idRange: h, since: s.now})
	}
	for _, c := range state.cold {
		r.gaps.cold.idSet.add(c, nil)
	}
	limits := flowLimits{refuseAfter: 50 * time.Millisecond, retryMin: 5 * time.Millisecond, retryMax: 40 * time.Millisecond,
		flightsMax: 1 + s.rnd.IntN(3), refillRows: 1 + s.rnd.IntN(5), parkedRangeMax: 1 << 20}
	r.flow = newFlow(s.names, state, rule.skip, limits)
	s.relay = r
	s.note("take over: cursor %d hot %v cold %v parked %v offsets %v skip %d", state.cursor, state.hot, len(state.cold), parkedText(state.parked), state.offsets, len(rule.skip))
}

// load goes through the texts, as the database would.
func (s *sim) load() *laneState {
	must := func(err error) {
		if err != nil {
			s.fatalf("stored state: %v", err)
		}
	}
	state := &laneState{serverUUID: s.stored.serverUUID, cursor: s.stored.cursor, parked: map[event.Partition]*bucketSet{}}
	var err error
	state.hot, err = parseRanges(string(appendRanges(nil, s.stored.hot)))
	must(err)
	state.cold, err = parseRanges(string(appendRanges(nil, s.stored.cold)))
	must(err)
	state.offsets, err = parseOffsets(offsetsText(s.stored.offsets))
	must(err)
	state.generations, err = parseGenerations(s.stored.generations.String())
	must(err)
	for p, set := range s.stored.parked {
		q, ok := parsePartitionName(partitionName(p))
		if !ok {
			s.fatalf("partition name %q", partitionName(p))
		}
		state.parked[q] = &bucketSet{idSet: set.clone()}
	}
	state.settleParked()
	return state
}

func (s *sim) item(r *simRow) *item {
	it := &item{id: r.id, eventID: r.eventID, part: r.part, bytes: 1}
	if r.bad {
		it.reason = ReasonBadRow
	}
	return it
}

func (s *sim) produce(send []*item) {
	for _, it := range send {
		sent := &simSent{it: it, row: s.row(it.id), gen: s.relay.gens.at(it.id), written: -1}
		s.relay.sent[it] = sent
		s.relay.client[it.part] = append(s.relay.client[it.part], sent)
		s.note("send %d to p%d", it.id, it.part)
	}
}

func (s *sim) read() {
	r := s.relay
	if r.draining || r.flow.full(1<<40) {
		return
	}
	ranges, through := r.gaps.ask()
	hot := idSet{ranges}
	limit := 1 + s.rnd.IntN(12)
	rows := s.visible(false, func(id uint64) bool {
		return id > r.gaps.read && (through == 0 || id <= through) || hot.contains(id)
	}, limit)
	var list []uint64
	var items []*item
	for _, row := range rows {
		list = append(list, row.id)
		items = append(items, s.item(row))
	}
	upto := ^uint64(0)
	if len(rows) == limit {
		upto = list[len(list)-1]
	}
	r.gaps.observe(list, upto, r.drawn, s.now)
	r.drawn = 0
	cold := r.gaps.cold.takeDirty()
	hotText := string(appendRanges(nil, r.gaps.hotRanges()))
	if len(items) == 0 && cold == nil && hotText == r.hotWas {
		return
	}
	r.hotWas = hotText
	s.note("read %v, then cursor %d hot %s", list, r.gaps.read, hotText)
	s.produce(r.flow.accept(items, readerState{cursor: r.gaps.read, hot: r.gaps.hotRanges(), cold: cold}, s.now))
}

func (s *sim) lookUncommitted() {
	g := &s.relay.gaps
	g.askAll()
	suspects, _ := g.suspects(s.now, 1+s.rnd.IntN(5))
	if len(suspects) == 0 {
		return
	}
	set := idSet{suspects}
	limit := 1 + s.rnd.IntN(6)
	upto := ^uint64(0)
	var found []uint64
	for _, r := range s.visible(true, set.contains, limit) {
		found = append(found, r.id)
	}
	if len(found) == limit {
		upto = found[len(found)-1]
	}
	g.uncommitted(suspects, found, upto)
}

func (s *sim) sweep() {
	g := &s.relay.gaps
	var found []uint64
	for _, r := range s.visible(false, g.cold.contains, 1+s.rnd.IntN(10)) {
		found = append(found, r.id)
	}
	if len(found) > 0 {
		s.note("sweep finds %v", found)
		g.swept(found, s.now)
	}
}

// broker takes records of one partition, or refuses them.
func (s *sim) broker(p int) {
	q := s.relay.client[p]
	switch {
	case len(q) == 0 || s.broken[p] == "stall":
		return
	case s.broken[p] == "refuse":
		if q[0].written < 0 {
			s.failAll(p, errors.New("refused"))
		}
		return
	}
	first := slices.IndexFunc(q, func(e *simSent) bool { return e.written < 0 })
	if first < 0 {
		return
	}
	n := 1 + s.rnd.IntN(len(q)-first) // one request's worth
	for _, e := range q[first : first+n] {
		if e.row.big {
			if first == 0 { // the client sends one request at a time
				s.failAll(p, fmt.Errorf("%w: in a batch of %d", ErrRecordTooLarge, n))
			}
			return
		}
	}
	for _, e := range q[first : first+n] {
		e.written = int64(len(s.logs[p]))
		s.logs[p] = append(s.logs[p], simRecord{row: e.row, pos: event.OutboxPosition{Generation: e.gen, ID: e.it.id}})
		s.note("p%d offset %d is %d", p, e.written, e.it.id)
		if s.opts.transact {
			e.open = true
			s.relay.open = append(s.relay.open, e)
		}
	}
}

// endTransaction commits or aborts the open transaction; each of its partitions gets a marker. What was aborted is sent
// again.
func (s *sim) endTransaction(commit bool) {
	touched := map[int]bool{}
	for _, e := range s.relay.open {
		p := e.it.part
		touched[p], e.open = true, false
		if !commit {
			s.logs[p][e.written].hidden = true
			e.written = -1
		}
	}
	s.relay.open = nil
	for p := range s.names {
		if touched[p] {
			s.note("p%d offset %d ends a transaction, commit=%v", p, len(s.logs[p]), commit)
			s.logs[p] = append(s.logs[p], simRecord{hidden: true})
		}
	}
}

// drained says that nothing is under way: the lane can be given back.
func (s *sim) drained() bool {
	r := s.relay
	return r.flow.idle() && r.flow.inFlight() == 0 && r.save == nil && len(r.fetch) == 0
}

func (s *sim) failAll(p int, err error) {
	s.endTransaction(false)
	q := s.relay.client[p]
	s.relay.client[p] = nil
	for _, e := range q {
		s.note("p%d refuses %d: %v", p, e.it.id, err)
		s.relay.flow.answered(e.it, 0, err, s.now)
	}
}

func (s *sim) ack(p int) {
	q := s.relay.client[p]
	for n := 1 + s.rnd.IntN(4); n > 0 && len(q) > 0 && q[0].written >= 0 && !q[0].open; n-- {
		s.note("ack %d", q[0].it.id)
		s.relay.flow.answered(q[0].it, q[0].written, nil, s.now)
		q = q[1:]
	}
	s.relay.client[p] = q
}

func (s *sim) refill() {
	r := s.relay
	if p, ids := r.flow.wanted(s.now); p >= 0 {
		r.fetch = append(r.fetch, simFetch{p, ids})
	}
	if len(r.fetch) == 0 || s.rnd.IntN(2) == 0 || s.purge.stage == simAway {
		return
	}
	f := r.fetch[0]
	r.fetch = r.fetch[1:]
	if s.opts.breakage && s.rnd.IntN(10) == 0 {
		r.flow.refill(f.part, nil, nil, s.now)
		return
	}
	var items []*item
	for _, id := range f.ids {
		if row := s.row(id); row != nil && row.committed && !row.away && !row.purged {
			items = append(items, s.item(row))
		}
	}
	send, vanished := r.flow.refill(f.part, f.ids, items, s.now)
	if len(vanished) > 0 {
		s.fatalf("parked ids %v have no committed row", vanished)
	}
	s.produce(send)
}

func (s *sim) saveStep() {
	r := s.relay
	if r.save == nil {
		r.save = r.flow.save()
		return
	}
	save := r.save
	if len(save.dead) > 0 && s.purge.stage == simAway {
		return
	}
	r.save = nil
	// 0: not carried out, failed; 1: carried out, answer lost; else carried out.
	what := 2
	if s.opts.breakage {
		what = s.rnd.IntN(8)
	}
	if what != 0 {
		s.store(save)
	}
	r.flow.saved(what > 1)
}

func (s *sim) store(save *saveState) {
	st := &s.stored
	if save.state.cursor < st.cursor {
		s.fatalf("the cursor goes back from %d to %d", st.cursor, save.state.cursor)
	}
	st.cursor, st.hot = save.state.cursor, slices.Clone(save.state.hot)
	st.offsets = map[event.Partition]int64{}
	for i, next := range save.offsets {
		st.offsets[s.names[i]] = next
	}
	cold := idSet{slices.Clone(st.cold)}
	st.cold = s.replaceBuckets(&cold, save.state.cold)
	for i, buckets := range save.parked {
		set := st.parked[s.names[i]]
		if set == nil {
			set = &bucketSet{}
		}
		set.ranges = s.replaceBuckets(&set.idSet, buckets)
		st.parked[s.names[i]] = set
	}
	for _, d := range save.dead {
		if r := s.row(d.ID); (r.away || r.purged) && s.storedD[d.ID] == "" {
			s.fatalf("dead letter %d has no row to copy", d.ID)
		}
		s.storedD[d.ID] = d.Reason
	}
	s.note("stored cursor %d hot %v cold %v parked %v offsets %v", st.cursor, st.hot, len(st.cold), parkedText(st.parked), st.offsets)
}

func (s *sim) replaceBuckets(set *idSet, buckets map[uint64]string) []idRange {
	var out idSet
	for _, r := range set.ranges {
		if _, replaced := buckets[r.From>>bucketShift]; !replaced {
			out.add(r, nil)
		}
	}
	for _, text := range buckets {
		ranges, err := parseRanges(text)
		if err != nil {
			s.fatalf("bucket %q: %v", text, err)
		}
		for _, r := range ranges {
			out.add(r, nil)
		}
	}
	return out.ranges
}

func (s *sim) ends() {
	r := s.relay
	if r.marks == nil {
		r.marks = maps.Clone(r.flow.quiet())
		return
	}
	ends := map[event.Partition]int64{}
	for i := range s.logs {
		ends[s.names[i]] = int64(len(s.logs[i]))
	}
	r.flow.moveEnds(r.marks, ends)
	r.marks = nil
}

func (s *sim) step() {
	s.now = s.now.Add(time.Duration(s.rnd.IntN(3000)) * time.Microsecond)
	p := s.rnd.IntN(len(s.names))
	switch k := s.rnd.IntN(100); {
	case k < 12:
		s.begin()
	case k < 18:
		s.writeDue(false)
	case k < 27:
		s.end(s.rnd.IntN(5) > 0)
	case k < 40:
		s.read()
	case k < 42:
		s.lookUncommitted()
	case k < 43: // what the next read may take as drawn; other steps come in between
		s.relay.drawn = 0
		if rows := s.visible(false, func(uint64) bool { return true }, len(s.rows)); len(rows) > 0 {
			s.relay.drawn = rows[len(rows)-1].id
		}
	case k < 45:
		s.sweep()
	case k < 60:
		s.broker(p)
	case k < 75:
		s.ack(p)
	case k < 80:
		s.relay.flow.tick(s.now)
	case k < 88:
		s.refill()
	case k < 95:
		s.saveStep()
	case k < 97:
		s.ends()
	case k < 98 && s.opts.breakage:
		s.broken[p] = []string{"", "", "stall", "refuse"}[s.rnd.IntN(4)]
		s.note("p%d is %q now", p, s.broken[p])
	case k == 98 && s.opts.crashes && s.rnd.IntN(4) == 0:
		s.note("crash")
		s.takeOver()
	}
	if s.opts.transact && s.rnd.IntN(8) == 0 {
		s.endTransaction(s.rnd.IntN(6) > 0)
	}
	if s.opts.handOvers {
		if s.rnd.IntN(300) == 0 {
			s.relay.draining = true
		}
		if s.relay.draining && s.drained() {
			s.note("hand-over")
			s.takeOver()
		}
	}
	s.writeDue(false)
	if s.opts.purge && s.rnd.IntN(4) == 0 {
		s.purgeStep()
	}
}

// settle lets everything come to rest.
func (s *sim) settle() {
	clear(s.broken)
	s.opts.breakage, s.relay.draining = false, false
	s.writeDue(true)
	for len(s.txs) > 0 {
		s.end(s.rnd.IntN(2) == 0)
	}
	for i := 0; ; i++ {
		s.now = s.now.Add(time.Millisecond)
		s.read()
		s.lookUncommitted()
		s.sweep()
		for p := range s.names {
			s.broker(p)
			s.ack(p)
		}
		s.endTransaction(true)
		s.relay.flow.tick(s.now)
		s.refill()
		s.saveStep()
		if s.opts.purge {
			s.purgeStep()
		}
		if i > 500 && (!s.opts.purge || s.purged()) && s.relay.flow.idle() && s.relay.flow.inFlight() == 0 && s.relay.save == nil && len(s.relay.fetch) == 0 && len(s.relay.gaps.hot) == 0 {
			return
		}
		if i > 100_000 {
			s.fatalf("does not come to rest: hot %v, flow %+v", s.relay.gaps.hot, s.relay.flow.parts)
		}
	}
}

func (s *sim) verify() {
	s.t.Helper()
	count := map[uint64]int{}
	for p, log := range s.logs {
		last := map[int]uint64{}
		for off, rec := range log {
			if rec.hidden {
				continue
			}
			count[rec.pos.ID]++
			if rec.row.part != p {
				s.fatalf("row %d of partition %d is in partition %d", rec.pos.ID, rec.row.part, p)
			}
			if count[rec.pos.ID] > 1 && !s.opts.failovers {
				s.fatalf("row %d is in the log twice, again at partition %d offset %d", rec.pos.ID, p, off)
			}
			if before := last[rec.row.entity]; before > rec.pos.ID && !s.opts.slowInserts && !s.opts.failovers {
				s.fatalf("entity %d: row %d comes after %d", rec.row.entity, rec.pos.ID, before)
			}
			last[rec.row.entity] = rec.pos.ID
		}
	}
	for _, r := range s.rows {
		if r == nil {
			continue
		}
		reason, dead := s.storedD[r.id]
		switch {
		case r.bad || r.big:
			if r.committed != dead {
				s.fatalf("row %d (committed %v, bad %v, big %v) is a dead letter: %v", r.id, r.committed, r.bad, r.big, dead)
			}
			if want := map[bool]string{true: ReasonBadRow, false: ReasonTooLarge}[r.bad]; dead && reason != want {
				s.fatalf("row %d is a dead letter for %s", r.id, reason)
			}
			if count[r.id] > 0 {
				s.fatalf("row %d is a dead letter and in the log", r.id)
			}
		case dead:
			s.fatalf("row %d is a dead letter (%s) without a reason", r.id, reason)
		case r.committed && count[r.id] != 1 && !(s.opts.failovers && count[r.id] > 1):
			s.fatalf("committed row %d is in the log %d times", r.id, count[r.id])
		case !r.committed && count[r.id] != 0:
			s.fatalf("row %d did not commit and is in the log", r.id)
		}
	}
	// What is stored must say the same: another owner would publish nothing.
	if st := s.load(); len(st.hot) > 0 || parkedText(st.parked) != "" {
		s.fatalf("at rest hot %v and parked %v are stored", st.hot, st.parked)
	}
}

func runSim(t *testing.T, seeds int, steps int, opts simOptions) {
	for _, seed := range simSeeds(t, seeds) {
		simulate(t, seed, steps, opts)
	}
}

// simulate runs one simulation to its end.
func simulate(t *testing.T, seed uint64, steps int, opts simOptions) *sim {
	s := newSim(t, seed, opts)
	for range steps {
		s.step()
	}
	s.settle()
	s.verify()
	return s
}

func TestP2_SimulatedCommitsInAnyOrder(t *testing.T) {
	runSim(t, 60, 4000, simOptions{events: 400})
}

func TestP2_SimulatedInsertsSlowerThanTheMargin(t *testing.T) {
	runSim(t, 60, 4000, simOptions{events: 300, slowInserts: true, crashes: true})
}

func TestP1_SimulatedCrashesAndTakeOvers(t *testing.T) {
	runSim(t, 100, 4000, simOptions{events: 400, crashes: true})
}

func TestP1_SimulatedPartitionsRefuse(t *testing.T) {
	runSim(t, 100, 5000, simOptions{events: 400, crashes: true, breakage: true, big: true})
}

// Relays join and leave: each hand-over is drained, and the next owner finds nothing that its state does not count.
func TestP1_SimulatedHandOvers(t *testing.T) {
	runSim(t, 30, 4000, simOptions{events: 300, handOvers: true, crashes: true, breakage: true})
}

// With Kafka transactions: records of transactions that were aborted are in nobody's way, and offsets have holes.
func TestP1_SimulatedTransactions(t *testing.T) {
	runSim(t, 50, 4000, simOptions{events: 300, transact: true, handOvers: true, crashes: true, breakage: true, big: true})
}
