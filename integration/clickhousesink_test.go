package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/plan"
	"github.com/slotline/slotline/internal/progress"
)

// stopMerges makes a doubled row visible: nothing is merged away meanwhile.
func (l *olapLine) stopMerges(tables ...string) {
	l.t.Helper()
	for _, table := range tables {
		l.run("SYSTEM STOP MERGES " + table)
	}
}

// crashBeforeConfirm applies a batch by a process that dies when the engine has acknowledged everything and nothing is
// confirmed.
func (l *olapLine) crashBeforeConfirm(b *event.Batch, exclude ...int) {
	l.t.Helper()
	v := newValve(l.t, l.mysql.Addr)
	v.shutBefore(func(sent []byte) bool { return bytes.Contains(sent, []byte("SET `confirmed`=1")) })
	l.stateHost, l.lease = v.addr(), time.Second
	s := l.sink("dies")
	l.stateHost = l.mysql.Addr
	o := l.takeOver(s)
	for _, i := range exclude {
		if b.Excluded == nil {
			b.Excluded = map[int]bool{}
		}
		b.Excluded[i] = true
	}
	p, err := o.Prepare(b)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(l.t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := p.Apply(ctx)
		ended <- err
	}()
	select {
	case <-v.seen:
	case err := <-ended:
		l.t.Fatalf("the batch ended before it was confirmed: %v", err)
	}
	cancel()
	if err := <-ended; err == nil {
		l.t.Fatal("the batch was confirmed")
	}
}

// P9: a crash after the rows were sent and before they were confirmed. The new owner sends the same blocks again; they
// are counted once by the view, and stored once by their tokens.
func TestP9_ClickHouseSinkCrashAfterSend(t *testing.T) {
	l := newOLAPLine(t, harness.ClickHouse(t), olapTables)
	l.stopMerges("items", "notes")
	a, c := l.tenant(1), l.tenant(3)
	october := item(a, 2, "october")
	october[2] = moment(november.AddDate(0, -1, 0))
	log := []event.Message{
		l.message(1, "items", event.Upsert, 1, item(a, 1, "one")), l.message(1, "items", event.Upsert, 1, october),
		l.message(3, "items", event.Upsert, 1, item(c, 1, "other")),
		l.message(3, "notes", event.Upsert, 1, []event.Value{text(c), text("n"), text("body")}),
	}
	first := &event.Batch{Messages: log, Ranges: []event.Range{
		{Partition: l.part(1), From: 0, To: 2, LeaderEpoch: 3}, {Partition: l.part(3), From: 0, To: 2, LeaderEpoch: 3}}}
	l.crashBeforeConfirm(first)
	if got := l.stored("items"); got != 3 {
		t.Fatalf("%d rows were sent, wanted 3", got)
	}

	o := l.takeOver(l.sink("next"))
	if got := o.Positions(); got[0].Next != 0 || got[1].Next != 0 {
		t.Errorf("progress %v before anything was confirmed", got)
	}
	if got := o.Pending(); len(got) != 2 || got[0].To != 2 || got[1].To != 2 {
		t.Fatalf("pending %v", got)
	}
	// Another batch than the stored one is refused.
	if p, err := o.Prepare(l.batch(0, log[0])); err == nil {
		if _, err = p.Apply(t.Context()); fault.CodeOf(err) != "SL4206" {
			t.Errorf("another batch than the stored one: %v", err)
		}
	}
	if r := l.applyBatch(o, l.pendingBatch(o, log)); len(r) > 0 {
		t.Fatal(r)
	}
	if got := o.Pending(); len(got) != 0 {
		t.Errorf("pending %v after it was confirmed", got)
	}
	l.wantView("items_now", "owner,item,name", a+"|1|one", a+"|2|october", c+"|1|other")
	if got := l.stored("items"); got != 3 {
		t.Errorf("%d rows are stored, wanted 3: the tokens differ, or were forgotten", got)
	}
	if got := l.stored("notes"); got != 1 {
		t.Errorf("%d notes are stored, wanted 1", got)
	}
	for _, p := range []int32{1, 3} {
		if r := l.progressOf(p); r.Next != 2 || r.Applied != 2 || r.LeaderEpoch != 3 {
			t.Errorf("partition %d: %+v", p, r)
		}
	}
	l.applyBatch(o, l.cut(o, l.message(1, "items", event.Upsert, 2, item(a, 1, "two"))))
	l.wantView("items_now", "owner,item,name,_ver", a+"|1|two|4", a+"|2|october|2", c+"|1|other|2")
}

// P7, P9: the offsets that were excluded are part of what is sent again: a dead letter stays one, is not made a second
// time, and the next lower version of its entity is there.
func TestP7_ClickHouseSinkExcludedOffsetsAreStored(t *testing.T) {
	l := newOLAPLine(t, harness.ClickHouse(t), olapTables)
	l.stopMerges("items")
	a := l.tenant(1)
	bad := l.message(1, "items", event.Upsert, 3, item(a, 1, "x"))
	bad.Value = bytes.Replace(bad.Value, []byte(`"name":"x"`), []byte(`"name":"`+strings.Repeat("x", 21)+`"`), 1)
	log := []event.Message{
		l.message(1, "items", event.Upsert, 1, item(a, 1, "one")), l.message(1, "items", event.Upsert, 2, item(a, 1, "two")),
		bad, l.message(1, "items", event.Upsert, 1, item(a, 2, "neighbour")),
	}
	for i := range log {
		log[i].Offset = int64(i)
	}
	o := l.takeOver(l.sink("looks"))
	p, err := o.Prepare(l.batch(0, log...))
	if err != nil {
		t.Fatal(err)
	}
	rejected, err := p.Apply(t.Context())
	if err != nil || len(rejected) != 1 || rejected[0].Index != 2 || rejected[0].Reason != event.ReasonTooLong {
		t.Fatalf("rejected %v, %v", rejected, err)
	}
	if l.stored("items") != 0 || len(l.view("items", "item")) != 0 {
		t.Error("something was sent with a rejected event")
	}
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.crashBeforeConfirm(l.batch(0, log...), 2)

	o = l.takeOver(l.sink("next"))
	if r := l.applyBatch(o, l.pendingBatch(o, log)); len(r) > 0 {
		t.Errorf("rejected again: %v", r)
	}
	l.wantView("items_now", "item,name,_ver", "1|two|4", "2|neighbour|2")
	if got := l.stored("items"); got != 2 {
		t.Errorf("%d rows are stored, wanted 2", got)
	}
}

// P5: a process that was stopped while its block was on the way is replaced, and wakes. Its block arrives at last, after
// its successor has gone on: the view does not change; within the window nothing is stored twice, and beyond it versions
// decide.
func TestP5_ClickHouseSinkZombieBlockArrivesLate(t *testing.T) {
	for name, window := range map[string]int{"within the window": 1000, "after the window": 1} {
		t.Run(name, func(t *testing.T) {
			l := newOLAPLine(t, harness.ClickHouse(t), olapTables)
			l.stopMerges("items")
			l.run(fmt.Sprintf("ALTER TABLE items MODIFY SETTING non_replicated_deduplication_window = %d", window))
			a := l.tenant(1)
			log := []event.Message{l.message(1, "items", event.Upsert, 1, item(a, 1, "one")), l.message(1, "items", event.Upsert, 1, item(a, 2, "gone later"))}

			blocks, state := newValve(t, l.server.Addr), newValve(t, l.mysql.Addr)
			l.hosts, l.stateHost, l.lease = blocks.addr(), state.addr(), time.Second
			zombie := l.takeOver(l.sink("zombie"))
			l.hosts, l.stateHost = l.server.Addr, l.mysql.Addr
			p, err := zombie.Prepare(l.batch(0, log...))
			if err != nil {
				t.Fatal(err)
			}
			query := false
			blocks.shutBefore(func(sent []byte) bool { // the block itself, which follows the statement
				if bytes.Contains(sent, []byte("INSERT INTO `items`")) {
					query = true
					return false
				}
				return query
			})
			ended := make(chan error, 1)
			go func() {
				_, err := p.Apply(t.Context())
				ended <- err
			}()
			<-blocks.seen
			state.set(true) // it renews its lease no more

			next := l.takeOver(l.sink("next"))
			l.applyBatch(next, l.pendingBatch(next, log))
			for v := range int64(3) {
				l.applyBatch(next, l.cut(next, l.message(1, "items", event.Upsert, v+2, item(a, 1, fmt.Sprint("newer", v))),
					l.message(1, "items", event.Delete, v+2, item(a, 2, ""))))
			}
			want := []string{"1|newer2|8"}
			l.wantView("items_now", "item,name,_ver", want...)
			stored := l.stored("items")

			blocks.set(false)
			state.set(false)
			if err := <-ended; !fault.Is(err, fault.Fenced) {
				t.Errorf("the replaced owner's batch: %v", err)
			}
			if _, err := p.Apply(t.Context()); !fault.Is(err, fault.Fenced) {
				t.Errorf("the replaced owner's batch, again: %v", err)
			}
			select {
			case <-zombie.Lost():
			case <-time.After(10 * time.Second):
				t.Error("the replaced owner does not know that its lease is lost")
			}
			l.wantView("items_now", "item,name,_ver", want...)
			late := l.stored("items") - stored
			if window == 1 && late != 2 || window > 1 && late != 0 {
				t.Errorf("the late block added %d rows", late)
			}
			l.run("SYSTEM START MERGES items")
			l.run("OPTIMIZE TABLE items FINAL")
			l.wantView("items_now", "item,name,_ver", want...)
			if r := l.progressOf(1); r.Next != 8 {
				t.Errorf("progress %+v", r)
			}
			l.applyBatch(next, l.cut(next, l.message(1, "items", event.Upsert, 9, item(a, 2, "back"))))
			l.wantView("items_now", "item,name,_ver", append(want, "2|back|18")...)
		})
	}
}

// A process that dies without a word is replaced when its lease has run out, and not before.
func TestClickHouseSinkLeaseRunsOut(t *testing.T) {
	l := newOLAPLine(t, harness.ClickHouse(t), olapTables)
	a := l.tenant(1)
	state := newValve(t, l.mysql.Addr)
	l.stateHost, l.lease = state.addr(), 1500*time.Millisecond
	first := l.takeOver(l.sink("first"))
	l.stateHost, l.lease = l.mysql.Addr, time.Minute // so that a take-over within less has not waited for it to run out
	second := l.sink("second")
	_, err := second.TakeOver(t.Context(), second.Groups()[1])
	if !fault.Is(err, fault.Fenced) || !strings.Contains(err.Error(), "first") {
		t.Fatalf("a held group was taken over: %v", err)
	}
	// The other group is free.
	other, err := second.TakeOver(t.Context(), second.Groups()[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	state.set(true)
	o := l.takeOver(second)
	select {
	case <-first.Lost():
	case <-time.After(10 * time.Second):
		t.Error("the first owner does not know that its lease ran out")
	}
	l.applyBatch(o, l.cut(o, l.message(1, "items", event.Upsert, 1, item(a, 1, "one"))))
	state.set(false)
	if p, err := first.Prepare(l.batch(1, l.message(1, "items", event.Upsert, 9, item(a, 1, "late")))); err != nil {
		t.Error(err)
	} else if _, err := p.Apply(t.Context()); !fault.Is(err, fault.Fenced) {
		t.Errorf("the first owner applied: %v", err)
	}
	l.wantView("items_now", "item,name", "1|one")
	owners := func(when, want string) {
		t.Helper()
		for _, p := range []int32{1, 3} {
			if r := l.progressOf(p); r.Owner != want {
				t.Errorf("%s partition %d is owned by %q, wanted %q", when, p, r.Owner, want)
			}
		}
	}
	owners("taken over,", "second")
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	owners("released,", "")
	started := time.Now()
	l.takeOver(l.sink("third"))
	if took := time.Since(started); took > l.lease {
		t.Errorf("a released group was taken over after %s", took)
	}
	// One that lets go late takes nobody else's name.
	if err := first.Release(t.Context()); err != nil {
		t.Error(err)
	}
	owners("released by the first,", "third")
}

// Hosts are tried in order; one that goes away during the work is left for the next, and nothing is lost or doubled.
func TestClickHouseSinkFailsOver(t *testing.T) {
	server := harness.ClickHouse(t)
	l := newOLAPLine(t, server, olapTables)
	l.stopMerges("items")
	a := l.tenant(1)
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := gone.Addr().String()
	gone.Close()
	var armed atomic.Bool
	query := false
	first := newWire(t, server.Addr, func(sent []byte) bool {
		if bytes.Contains(sent, []byte("INSERT INTO")) {
			query = true
			return false
		}
		return query && armed.CompareAndSwap(true, false) // the answer to the block never comes
	})
	second := newWire(t, server.Addr, func([]byte) bool { return false })
	l.hosts = nobody + "," + first.addr() + "," + second.addr()
	o := l.takeOver(l.sink("a"))
	l.applyBatch(o, l.cut(o, l.message(1, "items", event.Upsert, 1, item(a, 1, "one"))))
	armed.Store(true)
	first.listener.Close()
	p, err := o.Prepare(l.cut(o, l.message(1, "items", event.Upsert, 1, item(a, 2, "two"))))
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Apply(t.Context())
	if !fault.Is(err, fault.Transient) || fault.CodeOf(err) != "SL4101" || !strings.Contains(err.Error(), "tries: 1") {
		t.Fatalf("a cut connection: %v", err)
	}
	if _, err := p.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.wantView("items_now", "item,name", "1|one", "2|two")
	if got := l.stored("items"); got != 2 {
		t.Errorf("%d rows are stored, wanted 2", got)
	}
}

// P7: the server is killed in the middle of inserts and comes back. Nothing is rejected, lost or doubled.
func TestP7_ClickHouseSinkServerKilledInInserts(t *testing.T) {
	t.Parallel()
	server := harness.PrivateClickHouse(t)
	l := newOLAPLine(t, server, olapTables)
	a := l.tenant(1)
	o := l.takeOver(l.sink("a"))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const rounds, rows = 12, 2000
	inside := make(chan struct{}, rounds)
	killed := make(chan struct{})
	go func() { // ends with the rounds
		defer close(killed)
		for range 3 {
			for range rounds / 4 {
				<-inside
			}
			server.Kill(t)
			server.Start(t)
		}
	}()
	outages := 0
	for round := range rounds {
		var messages []event.Message
		for i := range rows {
			messages = append(messages, l.message(1, "items", event.Upsert, int64(round+1), item(a, int64(i), fmt.Sprint(round))))
		}
		p, err := o.Prepare(l.cut(o, messages...))
		if err != nil {
			t.Fatal(err)
		}
		inside <- struct{}{}
		for {
			rejected, err := p.Apply(ctx)
			if err == nil && len(rejected) == 0 {
				break
			}
			if len(rejected) > 0 || !fault.Is(err, fault.Transient) || ctx.Err() != nil {
				t.Fatalf("rejected %v, error %v", rejected, err)
			}
			outages++
			time.Sleep(20 * time.Millisecond)
		}
	}
	<-killed
	t.Logf("%d tries failed", outages)
	if outages == 0 {
		t.Error("the server was never missed: nothing was shown")
	}
	l.conn = server.Dial(t, l.line)
	if got := l.view("items_now", "count(),uniqExact(item),min(name),max(name),min(_ver)"); got[0] != "2000|2000|11|11|24" {
		t.Errorf("count, ids, names, version: %s", got[0])
	}
}

// What a person gave up is not sent again, and the rest of the group goes on.
func TestP8_ClickHouseSinkAcceptedGap(t *testing.T) {
	l := newOLAPLine(t, harness.ClickHouse(t), olapTables)
	a, c := l.tenant(1), l.tenant(3)
	log := []event.Message{l.message(1, "items", event.Upsert, 1, item(a, 1, "expires")), l.message(3, "items", event.Upsert, 1, item(c, 1, "stays"))}
	first := &event.Batch{Messages: log, Ranges: []event.Range{
		{Partition: l.part(1), From: 0, To: 1, LeaderEpoch: 3}, {Partition: l.part(3), From: 0, To: 1, LeaderEpoch: 3}}}
	l.crashBeforeConfirm(first)

	s := l.sink("next")
	o := l.takeOver(s)
	if len(o.Pending()) != 2 {
		t.Fatalf("pending %v", o.Pending())
	}
	// The log of partition 1 begins at 5 by now.
	if err := s.Halt(t.Context(), l.part(1), &fault.Error{Code: "SL6004", Class: fault.Fatal, What: "offsets 0 to 4 are gone"}); err != nil {
		t.Fatal(err)
	}
	if r := l.progressOf(1); r.HaltCode != "SL6004" || r.HaltedAt.IsZero() || !strings.Contains(r.HaltText, "offsets 0 to 4") {
		t.Errorf("halted %+v", r)
	}
	err := progress.AcceptGap(t.Context(), l.state, progress.Gap{Key: progress.Key{Sink: "clickhouse", Partition: l.part(1)},
		From: 0, To: 5, LeaderEpoch: 4, By: "someone", Reason: "expired"})
	if err != nil {
		t.Fatal(err)
	}
	// The owner that was there is fenced, and whoever takes over knows of nothing to send again.
	if p, err := o.Prepare(l.pendingBatch(o, log)); err != nil {
		t.Error(err)
	} else if _, err := p.Apply(t.Context()); !fault.Is(err, fault.Fenced) {
		t.Errorf("a batch across an accepted gap: %v", err)
	}
	o.Release(t.Context())
	o = l.takeOver(l.sink("third"))
	if len(o.Pending()) != 0 {
		t.Errorf("pending %v after the gap was accepted", o.Pending())
	}
	l.next[1] = 5
	l.applyBatch(o, l.cut(o, l.message(1, "items", event.Upsert, 1, item(a, 2, "after")), log[1]))
	l.wantView("items_now", "owner,item,name", a+"|1|expires", a+"|2|after", c+"|1|stays") // the first had been sent
	if r := l.progressOf(1); r.Next != 6 || !r.HaltedAt.IsZero() {
		t.Errorf("progress %+v", r)
	}
}

// The state database is restored to an earlier moment: the sink says where it stands, and what it applies again counts
// once.
func TestP3_ClickHouseSinkStateRestored(t *testing.T) {
	l := newOLAPLine(t, harness.ClickHouse(t), olapTables)
	a := l.tenant(1)
	o := l.takeOver(l.sink("a"))
	var log []event.Message
	for i := range int64(3) {
		m := l.message(1, "items", event.Upsert, i+1, item(a, i, "x"))
		log = append(log, m)
		l.applyBatch(o, l.cut(o, m))
	}
	if _, err := l.state.Exec("UPDATE slotline_progress SET next_off=1 WHERE part=1"); err != nil {
		t.Fatal(err)
	}
	p, err := o.Prepare(l.cut(o, l.message(1, "items", event.Upsert, 9, item(a, 3, "x"))))
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Apply(t.Context())
	rewound, ok := errors.AsType[*event.Rewound](err)
	if !ok || len(rewound.Positions) != 2 {
		t.Fatalf("after a restore: %v", err)
	}
	for _, at := range o.Positions() {
		if at.Number == 1 && at.Next != 1 {
			t.Errorf("stands at %+v, wanted 1", at)
		}
	}
	l.applyBatch(o, l.batch(1, log[1:]...))
	l.next[1] = 3
	l.applyBatch(o, l.cut(o, l.message(1, "items", event.Upsert, 9, item(a, 3, "x"))))
	l.wantView("items_now", "item,_ver", "0|2", "1|4", "2|6", "3|18")
}

// A second plan finds nothing to do; a column that was added to the file is added to table and view; a type that differs
// is for a person to decide, and the sink refuses the table until then.
func TestClickHouseSinkPlan(t *testing.T) {
	l := newOLAPLine(t, harness.ClickHouse(t), olapTables)
	lines := func(changes []plan.Change) (list []string) {
		for _, c := range changes {
			list = append(list, fmt.Sprintf("%c %s  %s", c.Sign, c.What, c.Note))
		}
		return list
	}
	planned := func() []plan.Change {
		t.Helper()
		changes, err := l.sink("planner").Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return changes
	}
	if got := planned(); len(got) > 0 {
		t.Errorf("a second plan: %q", lines(got))
	}
	a := l.tenant(1)
	o := l.takeOver(l.sink("a"))
	l.applyBatch(o, l.cut(o, l.message(1, "items", event.Upsert, 1, item(a, 1, "one"))))
	o.Release(t.Context())

	l.tables = strings.Replace(l.tables, `n: "int32?" }`, `n: "int32?", more: string(9), since: "date?" }`, 1)
	changes := planned()
	if got, want := lines(changes), []string{"~ items  ADD COLUMN IF NOT EXISTS `more` String AFTER `n`",
		"~ items  ADD COLUMN IF NOT EXISTS `since` Nullable(Date32) AFTER `more`", "~ view items_now  CREATE OR REPLACE"}; !slices.Equal(got, want) {
		t.Errorf("%q, wanted %q", got, want)
	}
	s := l.sink("too early")
	_, err := s.TakeOver(t.Context(), s.Groups()[1])
	if fault.CodeOf(err) != "SL4004" || !fault.Is(err, fault.Fatal) || !strings.Contains(err.Error(), "column more is not there") || !strings.Contains(err.Error(), "slotline apply") {
		t.Errorf("before apply: %v", err)
	}
	for range 2 { // applying again is no fault
		for _, c := range changes {
			if err := c.Apply(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := planned(); len(got) > 0 {
		t.Errorf("after apply: %q", lines(got))
	}
	l.wantView("items_now", "item,name,more,since", "1|one||NULL")

	l.run("ALTER TABLE items ADD COLUMN theirs String DEFAULT 'x'")
	l.run("ALTER TABLE items MODIFY COLUMN n Nullable(Int64)")
	if got, want := lines(planned()), []string{"x items.n  is Nullable(Int64), file says int32? (Nullable(Int32)): see docs/clickhouse-sink.md",
		"! items.theirs  is not in the file; left as it is"}; !slices.Equal(got, want) {
		t.Errorf("%q, wanted %q", got, want)
	}
	_, err = s.TakeOver(t.Context(), s.Groups()[1])
	if fault.CodeOf(err) != "SL4004" || !strings.Contains(err.Error(), "column n is Nullable(Int64)") {
		t.Errorf("a type that differs: %v", err)
	}
}

// A column is changed under a running sink: the block would be converted in silence, and is refused instead.
func TestP12_ClickHouseSinkColumnChangedUnderIt(t *testing.T) {
	l := newOLAPLine(t, harness.ClickHouse(t), olapTables)
	a := l.tenant(1)
	o := l.takeOver(l.sink("a"))
	l.applyBatch(o, l.cut(o, l.message(1, "items", event.Upsert, 1, item(a, 1, "one"))))
	l.run("ALTER TABLE items MODIFY COLUMN amount Nullable(Decimal(12, 1))")
	p, err := o.Prepare(l.cut(o, l.message(1, "items", event.Upsert, 2, item(a, 1, "two"))))
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	_, err = p.Apply(t.Context())
	if !fault.Is(err, fault.Fatal) || fault.CodeOf(err) != "SL4102" || !strings.Contains(err.Error(), "table items: column amount is Nullable(Decimal(12, 1))") {
		t.Errorf("%v", err)
	}
	if took := time.Since(started); took > 20*time.Second {
		t.Errorf("it took %s to notice", took)
	}
	l.wantView("items_now", "item,name", "1|one")

	// A table that is gone is fatal too, and the next take-over looks again.
	l.run("DROP TABLE items")
	if _, err = p.Apply(t.Context()); !fault.Is(err, fault.Fatal) || !strings.Contains(err.Error(), "code 60") {
		t.Errorf("%v", err)
	}
}

// A database that is not there, and a server that is not, are told apart, at start.
func TestClickHouseSinkWrongAddress(t *testing.T) {
	l := newOLAPLine(t, harness.ClickHouse(t), olapTables)
	right := l.line
	l.line += "_nowhere"
	l.mysql.NewDatabase(t, l.line)
	s := l.sink("a")
	_, err := s.TakeOver(t.Context(), s.Groups()[0])
	if fault.CodeOf(err) != "SL4002" || !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), "CREATE DATABASE") {
		t.Errorf("no database: %v", err)
	}
	if _, err := s.Plan(t.Context()); fault.CodeOf(err) != "SL4002" {
		t.Errorf("plan without a database: %v", err)
	}
	l.line = right
	l.hosts = "127.0.0.1:1"
	s = l.sink("b")
	_, err = s.TakeOver(t.Context(), s.Groups()[0])
	if !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("no server: %v", err)
	}
	// The record of a halt is in the state database, whatever ClickHouse is like.
	if err := s.Halt(t.Context(), l.part(1), &fault.Error{Code: "SL4004", Class: fault.Fatal, What: "column n differs"}); err != nil {
		t.Errorf("recording a halt: %v", err)
	}
	if r := l.progressOf(1); r.HaltCode != "SL4004" || r.HaltedAt.IsZero() {
		t.Errorf("halted %+v", r)
	}
	if err := s.Resume(t.Context(), l.part(1)); err != nil {
		t.Errorf("ending it: %v", err)
	}
	if r := l.progressOf(1); r.HaltCode != "" || !r.HaltedAt.IsZero() {
		t.Errorf("resumed %+v", r)
	}
}

// P12: what one column type of ClickHouse holds less than the event's type is a dead letter for this sink; its
// neighbours go on.
func TestP12_ClickHouseSinkNarrowerRanges(t *testing.T) {
	l := newOLAPLine(t, harness.ClickHouse(t), `
tables:
  facts: { tenant: owner, id: fact, columns: { owner: string(20), fact: int64, day: date, at: datetime } }
`)
	o := l.takeOver(l.sink("a"))
	a := l.tenant(1)
	days := func(at time.Time) event.Value { return integer(at.Unix() / 86400) }
	fact := func(id int64, day, at time.Time) event.Message {
		return l.message(1, "facts", event.Upsert, 1, []event.Value{text(a), integer(id), days(day), moment(at)})
	}
	date := func(y int, m time.Month, d int) time.Time { return time.Date(y, m, d, 0, 0, 0, 0, time.UTC) }
	rejected := l.applyBatch(o, l.cut(o,
		fact(0, date(1900, 1, 1), date(1900, 1, 1)), fact(1, date(1899, 12, 31), november), fact(2, november, date(1900, 1, 1).Add(-time.Microsecond)),
		fact(3, date(2299, 12, 31), date(2300, 1, 1).Add(-time.Microsecond)), fact(4, date(2300, 1, 1), november), fact(5, november, date(2300, 1, 1))))
	got := map[int]string{}
	for i, r := range rejected {
		got[i] = r.Reason
	}
	if want := map[int]string{1: "out_of_range", 2: "out_of_range", 4: "out_of_range", 5: "out_of_range"}; !maps.Equal(got, want) {
		t.Errorf("rejected %v, wanted %v", got, want)
	}
	l.wantView("facts_now", "fact,day,at", "0|1900-01-01|1900-01-01 00:00:00.000000", "3|2299-12-31|2299-12-31 23:59:59.999999")
}

// A broadcast table is there once, though every shard of the MySQL sink has it.
func TestP6_ClickHouseSinkBroadcastOnce(t *testing.T) {
	l := newOLAPLine(t, harness.ClickHouse(t), olapTables)
	s := l.sink("a")
	o, err := s.TakeOver(t.Context(), s.Groups()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer o.Release(t.Context())
	stray := l.message(2, "places", event.Upsert, 1, []event.Value{text("JFK"), text("stray")})
	rejected := l.applyBatch(o, l.cut(o, l.message(0, "places", event.Upsert, 1, []event.Value{text("HAM"), text("Hamburg")}), stray))
	if len(rejected) != 1 || rejected[1].Reason != "wrong_partition" {
		t.Errorf("rejected %v", rejected)
	}
	l.wantView("places_now", "code,name,_ver", "HAM|Hamburg|2")
	if got := l.stored("places"); got != 1 {
		t.Errorf("%d rows are stored", got)
	}
}
