package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slotline/slotline/event"
	"github.com/slotline/slotline/examples/flights/nyc"
	"github.com/slotline/slotline/fault"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/plan"
	"github.com/slotline/slotline/producer"
	"github.com/slotline/slotline/sinks/olap/doris/doristest"
)

// crashBeforeConfirm applies a batch by a process that dies when Doris has acknowledged everything and nothing is
// confirmed.
func (l *dorisLine) crashBeforeConfirm(b *event.Batch) {
	l.t.Helper()
	v := newValve(l.t, l.mysql.Addr)
	v.shutBefore(func(sent []byte) bool { return bytes.Contains(sent, []byte("SET `confirmed`=1")) })
	l.stateHost, l.lease = v.addr(), 2*time.Second
	o := l.takeOver(l.sink("dies"))
	l.stateHost = l.mysql.Addr
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

// P9: a crash after the rows were sent and before they were confirmed. The new owner sends the same rows under the same
// labels, which Doris refuses unread; or, where it has forgotten them, the sequence column decides.
func TestP9_DorisSinkCrashAfterSend(t *testing.T) {
	t.Parallel()
	for _, forgotten := range []bool{false, true} {
		t.Run(fmt.Sprintf("label forgotten %t", forgotten), func(t *testing.T) {
			server := newDoris(t)
			if forgotten && server.fake == nil {
				t.Skip("a running Doris forgets labels in its own time")
			}
			l := newDorisLine(t, server, olapTables)
			a, c := l.tenant(1), l.tenant(3)
			october := item(a, 2, "october")
			october[2] = moment(november.AddDate(0, -1, 0))
			log := []event.Message{
				l.message(1, "items", event.Upsert, 1, item(a, 1, "one")), l.message(1, "items", event.Upsert, 1, october),
				l.message(3, "items", event.Upsert, 1, item(c, 1, "other")),
				l.message(3, "notes", event.Upsert, 1, []event.Value{text(c), text("n"), text("body")}),
			}
			l.crashBeforeConfirm(&event.Batch{Messages: log, Ranges: []event.Range{
				{Partition: l.part(1), From: 0, To: 2, LeaderEpoch: 3}, {Partition: l.part(3), From: 0, To: 2, LeaderEpoch: 3}}})
			l.wantView("items_now", "owner,item,name", a+"|1|one", a+"|2|october", c+"|1|other")
			var loads []doristest.Load
			var uploaded int64
			if server.fake != nil {
				loads, uploaded = server.fake.Loads(), server.fake.BodyBytes()
			}
			if forgotten {
				server.fake.ForgetLabels(l.line)
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
			if r := l.applyBatch(o, l.batchOf(o, log...)); len(r) > 0 {
				t.Fatal(r)
			}
			if got := o.Pending(); len(got) != 0 {
				t.Errorf("pending %v after it was confirmed", got)
			}
			l.wantView("items_now", "owner,item,name", a+"|1|one", a+"|2|october", c+"|1|other")
			if server.fake != nil {
				again := server.fake.Loads()[len(loads):]
				for _, x := range again {
					if !slices.ContainsFunc(loads, func(y doristest.Load) bool { return y.Label == x.Label }) {
						t.Errorf("table %s was sent again under another label", x.Table)
					}
				}
				if len(again) != len(loads) || (server.fake.BodyBytes() == uploaded) == forgotten {
					t.Errorf("%d loads, then %d; %d bytes, then %d", len(loads), len(again), uploaded, server.fake.BodyBytes()-uploaded)
				}
			}
			for _, p := range []int32{1, 3} {
				if r := l.progressOf(p); r.Next != 2 || r.Applied != 2 || r.LeaderEpoch != 3 {
					t.Errorf("partition %d: %+v", p, r)
				}
			}
			l.applyBatch(o, l.batchOf(o, l.message(1, "items", event.Upsert, 2, item(a, 1, "two"))))
			l.wantView("items_now", "owner,item,name,_ver", a+"|1|two|4", a+"|2|october|2", c+"|1|other|2")
		})
	}
}

// P5: a process that was stopped while its load was on the way is replaced, and wakes. Its load arrives at last, after
// its successor has gone on and also where Doris has forgotten the label: the view does not change.
func TestP5_DorisSinkZombieLoadArrivesLate(t *testing.T) {
	for _, forgotten := range []bool{false, true} {
		t.Run(fmt.Sprintf("label forgotten %t", forgotten), func(t *testing.T) {
			server := faulty(t)
			l := newDorisLine(t, server, olapTables)
			a := l.tenant(1)
			log := []event.Message{l.message(1, "items", event.Upsert, 1, item(a, 1, "one")), l.message(1, "items", event.Upsert, 1, item(a, 2, "gone later"))}

			wake, asleep := make(chan struct{}), make(chan struct{})
			server.fake.Inject(func(x doristest.Load) doristest.Fault {
				if len(server.fake.Loads()) == 0 { // on its way to the frontend
					close(asleep)
					<-wake
				}
				return doristest.Fault{}
			})
			state := newValve(t, l.mysql.Addr)
			l.stateHost, l.lease = state.addr(), 2*time.Second
			zombie := l.takeOver(l.sink("zombie"))
			l.stateHost = l.mysql.Addr
			p, err := zombie.Prepare(l.batch(0, log...))
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				_, err := p.Apply(t.Context())
				ended <- err
			}()
			<-asleep
			server.fake.Inject(nil)
			state.set(true) // it renews its lease no more

			next := l.takeOver(l.sink("next"))
			l.applyBatch(next, l.batchOf(next, log...))
			for v := range int64(3) {
				l.applyBatch(next, l.batchOf(next, l.message(1, "items", event.Upsert, v+2, item(a, 1, fmt.Sprint("newer", v))),
					l.message(1, "items", event.Delete, v+2, item(a, 2, ""))))
			}
			want := []string{"1|newer2|8"}
			l.wantView("items_now", "item,name,_ver", want...)
			if forgotten {
				server.fake.ForgetLabels(l.line)
			}
			uploaded := server.fake.BodyBytes()

			close(wake)
			state.set(false)
			if err := <-ended; !fault.Is(err, fault.Fenced) {
				t.Errorf("the replaced owner's batch: %v", err)
			}
			if _, err := p.Apply(t.Context()); !fault.Is(err, fault.Fenced) {
				t.Errorf("the replaced owner's batch, again: %v", err)
			}
			if late := server.fake.BodyBytes() > uploaded; late != forgotten {
				t.Errorf("the late load's rows were taken: %t", late)
			}
			l.wantView("items_now", "item,name,_ver", want...)
			if r := l.progressOf(1); r.Next != 8 {
				t.Errorf("progress %+v", r)
			}
			l.applyBatch(next, l.batchOf(next, l.message(1, "items", event.Upsert, 9, item(a, 2, "back"))))
			l.wantView("items_now", "item,name,_ver", append(want, "2|back|18")...)
		})
	}
}

// P3: the state database comes back from an older backup: batches are cut anew and loaded again, under labels of their
// own, and nothing changes.
func TestP3_DorisSinkStateRestored(t *testing.T) {
	l := newDorisLine(t, newDoris(t), olapTables)
	a := l.tenant(1)
	o := l.takeOver(l.sink("first"))
	log := []event.Message{l.message(1, "items", event.Upsert, 1, item(a, 1, "one")), l.message(1, "items", event.Upsert, 2, item(a, 1, "two")),
		l.message(1, "items", event.Delete, 3, item(a, 1, "")), l.message(1, "items", event.Upsert, 1, item(a, 2, "other"))}
	for i := range log {
		l.applyBatch(o, l.batchOf(o, log[i]))
	}
	want := []string{"2|other|2"}
	l.wantView("items_now", "item,name,_ver", want...)
	if _, err := l.state.Exec("UPDATE slotline_progress SET next_off=0 WHERE sink='doris' AND part=1"); err != nil {
		t.Fatal(err)
	}
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	o = l.takeOver(l.sink("second"))
	if got := o.Positions(); got[0].Next != 0 {
		t.Fatalf("stands at %v", got)
	}
	l.applyBatch(o, l.batchOf(o, log[:2]...))
	l.wantView("items_now", "item,name,_ver", want...)
	l.applyBatch(o, l.batchOf(o, log[2:]...))
	l.wantView("items_now", "item,name,_ver", want...)
	l.wantView("items", "item,_ver,_deleted", "1|7|1", "2|2|0")
}

// A slow server slows the sink down and fills no memory: one batch waits, and the next is prepared.
func TestP10_DorisSlowServerIsBackPressure(t *testing.T) {
	server := faulty(t)
	l := newDorisLine(t, server, olapTables)
	a := l.tenant(1)
	o := l.takeOver(l.sink("slow"))
	release, held := make(chan struct{}), make(chan struct{}, 1)
	server.fake.Inject(func(doristest.Load) doristest.Fault {
		select {
		case held <- struct{}{}:
		default:
		}
		return doristest.Fault{Hold: release}
	})
	batch := func(from int64) *event.Batch {
		b := &event.Batch{Ranges: []event.Range{{Partition: l.part(1), From: from, To: from + 2000, LeaderEpoch: 3}}}
		for i := range int64(2000) {
			m := l.message(1, "notes", event.Upsert, 1, []event.Value{text(a), text(fmt.Sprint(from + i)), text(strings.Repeat("x", 1000))})
			m.Offset = from + i
			b.Messages = append(b.Messages, m)
		}
		return b
	}
	first, err := o.Prepare(batch(0))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := first.Apply(t.Context())
		ended <- err
	}()
	<-held
	second := batch(2000)
	var before, after runtime.MemStats
	if _, err := o.Prepare(second); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 20 { // prepared again and again, as after each reload: into the same buffers
		p, err := o.Prepare(second)
		if err != nil {
			t.Fatal(err)
		}
		_ = p
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 {
		t.Errorf("%d bytes more are held while the server is slow", grown)
	}
	select {
	case err := <-ended:
		t.Fatalf("the batch ended while the server held it: %v", err)
	default:
	}
	close(release)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if r := l.progressOf(1); r.Next != 2000 {
		t.Errorf("progress %+v", r)
	}
}

// apply makes what is missing, once; a column that comes later is added and the view made anew; what it cannot mend it
// says, and changes nothing.
func TestDorisSinkApply(t *testing.T) {
	l := newDorisLine(t, newDoris(t), olapTables)
	signs := func(changes []plan.Change) (text string) {
		for _, c := range changes {
			text += string(c.Sign) + c.What + " " + c.Note + "\n"
		}
		return text
	}
	again, err := l.sink("applier").Plan(t.Context())
	if err != nil || len(again) > 0 {
		t.Fatalf("a second apply: %v\n%s", err, signs(again))
	}
	o := l.takeOver(l.sink("before"))
	a := l.tenant(1)
	l.applyBatch(o, l.batchOf(o, l.message(1, "notes", event.Upsert, 1, []event.Value{text(a), text("n"), text("body")})))
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}

	wider := strings.Replace(olapTables, "body: text }", "body: text, more: \"int32?\", flag: bool }", 1)
	l.tables = wider
	l.cfg = l.config()
	s := l.sink("after")
	if _, err := s.TakeOver(t.Context(), s.Groups()[1]); fault.CodeOf(err) != "SL4404" || !strings.Contains(err.Error(), "slotline apply") {
		t.Errorf("a table without a column of the file: %v", err)
	}
	if got := signs(applyDorisPlan(t, s)); got != "~notes ADD COLUMN `more` int NULL\n~notes ADD COLUMN `flag` boolean NOT NULL DEFAULT \"0\"\n~view notes_now ALTER VIEW\n" {
		t.Errorf("the plan:\n%s", got)
	}
	l.wantView("notes_now", "note,body,more,flag", "n|body|-|0")
	o = l.takeOver(s)
	l.applyBatch(o, l.batchOf(o, l.message(1, "notes", event.Upsert, 1, []event.Value{text(a), text("m"), text("x"), {Int: 7}, {Int: 1}})))
	l.wantView("notes_now", "note,body,more,flag", "m|x|7|1", "n|body|-|0")

	l.tables = strings.Replace(wider, "name: string(20)", "name: string(30)", 1)
	changes, err := l.sink("narrow").Plan(t.Context())
	if got := signs(changes); err != nil || !strings.Contains(got, "xitems.name is varchar(80) NOT NULL, file says string(30) (varchar(120) NOT NULL)") {
		t.Errorf("%v, the plan:\n%s", err, got)
	}
}

// emitAirports commits the first count airports, again if they were, in one transaction.
func emitAirports(t *testing.T, w *wholeLine, count int) int {
	t.Helper()
	p := producer.New(w.cfg)
	airports := producer.MustRegister[nyc.Airport](p, "airports")
	err := p.Run(t.Context(), w.outbox, func(tx *producer.Tx) error {
		for i := range count {
			if err := p.Emit(t.Context(), tx, airports.Upsert(nyc.Airport{Code: fmt.Sprintf("%03d", i), Flights: int32(count)})); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return count
}

// waitUntil asks until done says so.
func waitUntil(t *testing.T, limit time.Duration, what string, done func() bool) {
	t.Helper()
	for end := harness.Deadline(limit); !done(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("within %v not: %s", limit, what)
		}
	}
}

// Both engines at once, in processes: apply plans Doris, run starts it, status shows it, sink olap runs both, and each
// has all rows.
func TestDorisBesideClickHouse(t *testing.T) {
	harness.Proof(t)
	server := newDoris(t)
	servers := sharedServers(t)
	name := harness.Name(t)
	server.newDatabase(t, name)
	w := newLineAt(t, servers, name, "")
	w.file = w.write(t, strings.Replace(w.text(t), "sinks:\n", "sinks:\n  "+server.yaml(t, name, 2)+"\n", 1))
	if out := w.run(t, 3, "apply", "--dry-run"); !strings.Contains(out, "sinks mysql clickhouse doris") || !strings.Contains(out, "table flights") || !strings.Contains(out, "doris "+server.fe) {
		t.Errorf("apply --dry-run says\n%s", out)
	}
	out := w.run(t, 0, "apply")
	if strings.Contains(out, server.password) {
		t.Error("apply prints the password")
	}
	if out := w.run(t, 0, "apply", "--grants"); !strings.Contains(out, "LOAD_PRIV") || strings.Contains(out, server.password) {
		t.Errorf("apply --grants says\n%s", out)
	}
	emitted := emitAirports(t, w, 50)

	relay := w.start(t, "relay")
	olap := w.start(t, "sink", "olap")
	db := server.open(t, name)
	waitUntil(t, 2*time.Minute, "Doris has all airports", func() bool { return len(dorisRows(t, db, "airports_now", "code")) == emitted })
	waitUntil(t, time.Minute, "status shows Doris drained", func() bool {
		var s struct {
			Sinks []struct {
				Name  string `json:"name"`
				Lag   int64  `json:"lag"`
				Owned int    `json:"owned"`
			} `json:"sinks"`
		}
		r := harness.Command{Args: []string{"-c", w.file, "status", "-o", "json"}, Name: "status"}.Run(t, time.Minute)
		if err := json.Unmarshal([]byte(r.Stdout), &s); err != nil {
			t.Fatalf("%v\n%s%s", err, r.Stdout, r.Stderr)
		}
		drained := 0
		for _, k := range s.Sinks {
			if (k.Name == "doris" || k.Name == "clickhouse") && k.Lag == 0 && k.Owned == 8 {
				drained++
			}
		}
		return drained == 2
	})
	if r := olap.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("sink olap ended with status %d\n%s", r.Code, r.Stderr)
	}
	if r := relay.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("relay ended with status %d", r.Code)
	}
	run := w.start(t, "run")
	run.WaitOutput(t, "doris", time.Minute)
	more := emitAirports(t, w, 70)
	waitUntil(t, 2*time.Minute, "Doris has more airports", func() bool { return len(dorisRows(t, db, "airports_now", "code")) == more })
	if r := run.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("run ended with status %d", r.Code)
	}
	for _, p := range []*harness.Process{olap, run} {
		if strings.Contains(p.Stderr(), server.password) {
			t.Error("a log holds the password")
		}
	}
}
