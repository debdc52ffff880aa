package integration

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/slotline/slotline/examples/flights/nyc"
	"github.com/slotline/slotline/integration/harness"
	"github.com/slotline/slotline/internal/line"
)

// statusOf is what slotline status says, which ends with the given exit status.
func (w *wholeLine) statusOf(t *testing.T, status int) (s line.Status) {
	t.Helper()
	r := harness.Command{Args: []string{"-c", w.file, "status", "-o", "json"}, Name: "status"}.Run(t, time.Minute)
	if r.Code != status {
		t.Fatalf("slotline status: exit status %d, want %d\n%s%s", r.Code, status, r.Stdout, r.Stderr)
	}
	if err := json.Unmarshal([]byte(r.Stdout), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// drainedLine is a line that runs and has applied some hundreds of flights.
func drainedLine(t *testing.T) (w *wholeLine, run *harness.Process) {
	t.Helper()
	w = newLine(t, sharedServers(t), "")
	flights, err := nyc.Flights(func(id uint64) bool { return id%1000 == 0 })
	if err != nil {
		t.Fatal(err)
	}
	run = w.start(t, "run")
	w.emit(t, flights, 1)
	w.waitDrained(t, time.Minute)
	return w, run
}

// The swap of a rebuild fences the live sink. It takes its partitions back within seconds, also those that no event comes
// to, and once each.
func TestIdlePartitionsAreTakenBackAfterASwap(t *testing.T) {
	harness.Proof(t)
	w, run := drainedLine(t)
	epochs := func() (sum int) {
		return count(t, w.shards["s1"], "SELECT SUM(owner_epoch) FROM slotline_progress WHERE sink='mysql'")
	}
	before := epochs()
	p, job := w.replaying(t, "rebuild", "--shard", "s1", "--yes")
	p.WaitOutput(t, "observe ", time.Minute)
	parts := 0
	for deadline := harness.Deadline(15 * time.Second); ; time.Sleep(200 * time.Millisecond) { // a poll: the loop ends by the state it reads
		s := w.statusOf(t, 0)
		owned := 0
		for _, k := range s.Sinks {
			owned += k.Owned - k.Partitions
			if k.Name == "mysql/s1" {
				parts = k.Partitions
			}
		}
		if owned == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no sink has its partitions back: %+v", s.Sinks)
		}
	}
	time.Sleep(11 * time.Second) // two looks: what they do not change
	if n := epochs() - before; n != 2*parts {
		t.Errorf("the owner epochs of %d partitions have grown by %d, wanted one for the swap and one for the take-over each", parts, n)
	}
	w.run(t, 0, "replay", "accept", job)
	if r := p.Wait(t, time.Minute); r.Code != 0 {
		t.Errorf("the job's process ended with %d:\n%s", r.Code, r.Stderr)
	}
	run.Stop(t, time.Minute)
}

// A watch looks again and again until it is ended, and ends as its last look says.
func TestStatusWatch(t *testing.T) {
	t.Parallel()
	w := newLine(t, sharedServers(t), "")
	p := w.start(t, "status", "--watch=500ms", "-o", "json")
	within(t, "status has looked three times", func() bool { return strings.Count(p.Stdout(), `"layout_epoch"`) >= 3 })
	if _, err := w.shards["s1"].Exec("UPDATE slotline_progress SET halted_at = UTC_TIMESTAMP(6), halt_code = 'SL6001', halt_text = 'on purpose'"); err != nil {
		t.Fatal(err)
	}
	within(t, "status shows what was halted meanwhile", func() bool { return strings.Contains(p.Stdout(), "on purpose") })
	r := p.Stop(t, time.Minute)
	if r.Code != 4 || r.Stderr != "" {
		t.Errorf("exit status %d: %s", r.Code, r.Stderr)
	}
	looks := json.NewDecoder(strings.NewReader(r.Stdout))
	var first, last line.Status
	for n := 0; ; n++ {
		var s line.Status
		if err := looks.Decode(&s); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			first = s
		}
		last = s
	}
	if !last.At.After(first.At) || len(first.Halted) != 0 || len(last.Halted) == 0 {
		t.Errorf("first look %+v, last %+v", first, last)
	}
}

// silence is the address of a server that takes connections and never says anything, as one that is paused.
func silence(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// A MySQL server that takes connections and says nothing is named within seconds by each command that asks it, with what to
// do; what the other servers say is shown.
func TestCommandsNameAServerThatSaysNothing(t *testing.T) {
	harness.Proof(t)
	servers := sharedServers(t)
	w := newLine(t, servers, "")
	w.append(t, rawEvent("UA", 1, 201302, flightBody("UA", 1, "2013-02-03T04:05:06.000000Z", `"LAX"`, "1")))
	run := w.start(t, "run")
	w.waitDrained(t, time.Minute)
	run.Stop(t, time.Minute)
	silent := silence(t)
	instead := func(address, rest string) *wholeLine {
		file := filepath.Join(t.TempDir(), "slotline.yaml")
		text := strings.Replace(w.text(t), address+rest, silent+rest, 1)
		if text == w.text(t) {
			t.Fatalf("the file does not name %s", address+rest)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		other := *w
		other.file = file
		return &other
	}
	outbox, s2 := instead(servers.s1.Addr, "/"+namedDatabase(t, w.outbox)), instead(servers.s1.Addr, "/"+namedDatabase(t, w.shards["s2"]))
	kafka := instead(w.kafka.Brokers[0], "")
	for _, c := range []struct {
		line *wholeLine
		args string
		says string // on stdout or stderr
	}{
		{outbox, "status", ""},
		{outbox, "where flights UA 1", "mysql/s1: "},
		{outbox, "dlq list", "SL9012"},
		{outbox, "outbox status", "SL9006"},
		{outbox, "outbox gaps", "outbox "},
		{outbox, "apply --dry-run", "SL1807"},
		{outbox, "replay status", "SL1807"},
		{outbox, "run", "SL1807"},
		{s2, "status", ""},
		{s2, "tables", "mysql/s2"},
		{s2, "apply --dry-run", "shard s2"},
		{s2, "replay status", "shard s2"},
		{kafka, "run", `msg="waits for an answer of Kafka" part=mysql host=` + silent},
		{kafka, "apply --dry-run", "SL2"},
	} {
		name := map[*wholeLine]string{outbox: "outbox ", s2: "s2 ", kafka: "kafka "}[c.line]
		t.Run(name+c.args, func(t *testing.T) {
			t.Parallel()
			if c.args == "status" {
				c.line.statusWithout(t, name, silent)
				return
			}
			began := time.Now()
			r := harness.Command{Args: append([]string{"-c", c.line.file}, strings.Fields(c.args)...), Name: "silent"}.Run(t, time.Minute)
			if took := time.Since(began); took > 40*time.Second { // a statement is waited for for 70 s
				t.Errorf("it took %v", took)
			}
			all := r.Stdout + r.Stderr
			if r.Code != 1 || !strings.Contains(all, c.says) || !strings.Contains(all, "no answer") && !strings.Contains(all, "did not answer") ||
				strings.Contains(all, "context deadline") {
				t.Errorf("exit status %d\n%s", r.Code, all)
			}
		})
	}
}

// A database whose secret is missing, or wrong, is one that does not answer: it is named with what to do, and hides none of
// the others.
func TestCommandsWithoutASecretShowTheRest(t *testing.T) {
	harness.Proof(t)
	w := newLine(t, sharedServers(t), "")
	w.append(t, rawEvent("UA", 1, 201302, flightBody("UA", 1, "2013-02-03T04:05:06.000000Z", `"LAX"`, "1")))
	run := w.start(t, "run")
	w.waitDrained(t, time.Minute)
	run.Stop(t, time.Minute)
	with := func(db *sql.DB, password string) *wholeLine {
		database := namedDatabase(t, db)
		dsn := regexp.MustCompile(`mysql://[^"]*/` + database + `\b`).FindString(w.text(t))
		u, err := url.Parse(dsn)
		if dsn == "" || err != nil {
			t.Fatalf("the file does not name %s: %v", database, err)
		}
		other := *w
		other.file = w.write(t, strings.Replace(w.text(t), dsn, "mysql://"+u.User.Username()+":"+password+"@"+u.Host+u.Path, 1))
		return &other
	}
	for name, c := range map[string]struct {
		line   *wholeLine
		silent string // the sink that cannot be asked
		says   string
		lanes  int
		other  string // a command that asks the same database
	}{
		"s2 unset":     {with(w.shards["s2"], "${SLOTLINE_TEST_UNSET}"), "mysql/s2", "SLOTLINE_TEST_UNSET", 4, "tables"},
		"s2 wrong":     {with(w.shards["s2"], "wrong"), "mysql/s2", "error 1045", 4, "tables"},
		"outbox unset": {with(w.outbox, "${SLOTLINE_TEST_UNSET}"), "clickhouse", "SLOTLINE_TEST_UNSET", 0, "where flights UA 1"},
		"outbox wrong": {with(w.outbox, "wrong"), "clickhouse", "error 1045", 0, "where flights UA 1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.line.statusOf(t, 1)
			if len(s.Lanes) != c.lanes || len(s.Sinks) != 3 {
				t.Errorf("%d lanes, sinks %+v", len(s.Lanes), s.Sinks)
			}
			for _, k := range s.Sinks {
				if down := k.Name == c.silent; down != (k.Unreachable != "") || down && !strings.Contains(k.Unreachable, c.says) ||
					down && !strings.Contains(k.Unreachable, "do: ") || !down && k.Partitions == 0 {
					t.Errorf("%+v", k)
				}
			}
			r := harness.Command{Args: append([]string{"-c", c.line.file}, strings.Fields(c.other)...), Name: "secret"}.Run(t, time.Minute)
			if r.Code != 1 || !strings.Contains(r.Stdout, c.says) || !strings.Contains(r.Stdout, "do: ") || !strings.Contains(r.Stdout, "mysql/s") {
				t.Errorf("%s: exit status %d\n%s%s", c.other, r.Code, r.Stdout, r.Stderr)
			}
		})
	}
}

// After a topic was deleted and made again, and every halted partition was accepted, status counts by the topic that is
// there: what the lanes had published to the one before is no lag.
func TestStatusAfterATopicWasMadeAnew(t *testing.T) {
	harness.Proof(t)
	w, run := drainedLine(t)
	run.Stop(t, time.Minute)
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.kafka.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm, topic := kadm.NewClient(cl), w.cfg.Kafka.Topic
	if _, err := adm.DeleteTopics(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	for deadline := harness.Deadline(15 * time.Second); ; time.Sleep(100 * time.Millisecond) { // a poll: the loop ends by the state it reads
		if topics, err := adm.ListTopics(t.Context(), topic); err == nil && topics[topic].Err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the topic does not go")
		}
	}
	w.run(t, 0, "apply")
	run = w.start(t, "run")
	accepted := 0
	for deadline := harness.Deadline(20 * time.Second); ; time.Sleep(300 * time.Millisecond) { // a poll: the loop ends by the state it reads
		s := w.status(t)
		for _, h := range s.Halted {
			sink, _, _ := strings.Cut(h.Sink, "/")
			which := "all"
			if sink == "mysql" && accepted == 0 {
				which = fmt.Sprintf("%d,%[1]d", h.Partition) // one by its number first
			}
			r := harness.Command{Args: []string{"-c", w.file, "sink", "accept-gap", "--sink", sink, "--partition", which,
				"--why", "made anew", "--who", "the test", "--yes"}, Name: "accept"}.Run(t, time.Minute)
			if r.Code == 0 { // others may be accepted with it
				accepted++
			}
		}
		lag := int64(0)
		for _, k := range s.Sinks {
			lag += k.Lag
		}
		if accepted > 0 && len(s.Halted) == 0 && lag == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d partitions were accepted, and status says %+v", accepted, s)
		}
	}
	w.append(t, rawEvent("UA", 1, 201302, flightBody("UA", 1, "2013-02-03T04:05:06.000000Z", `"LAX"`, "1")))
	w.waitDrained(t, time.Minute)
	run.Stop(t, time.Minute)
}

// A start without Kafka says what it waits for, and then what it ends for; not that it runs, nor that it has drained.
func TestRunWithoutKafkaSaysSo(t *testing.T) {
	t.Parallel()
	w := newLine(t, sharedServers(t), "")
	away, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	broker := away.Addr().String()
	away.Close() // nobody listens there
	file := filepath.Join(t.TempDir(), "slotline.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(w.text(t), w.kafka.Brokers[0], broker, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := harness.Command{Args: []string{"-c", file, "run"}, Name: "run"}.Run(t, 30*time.Second)
	for _, says := range []string{"msg=starting", "a part cannot go on; the process ends", "SL2", "do: "} {
		if !strings.Contains(r.Stderr, says) {
			t.Errorf("the log does not say %q", says)
		}
	}
	if r.Code != 1 || strings.Contains(r.Stderr, "msg=running") || strings.Contains(r.Stderr, "msg=drained") {
		t.Errorf("exit status %d\n%s", r.Code, r.Stderr)
	}
	relay := harness.Command{Args: []string{"-c", file, "relay"}, Name: "relay"}.Start(t) // it publishes nothing yet, and loses nothing
	relay.WaitOutput(t, broker, 30*time.Second)
	if r := relay.Stop(t, 30*time.Second); r.Code != 0 {
		t.Errorf("a relay without Kafka ended with %d", r.Code)
	}
}

// statusWithout shows what status says while the outbox, or s2, is silent.
func (w *wholeLine) statusWithout(t *testing.T, what, place string) {
	t.Helper()
	s := w.statusOf(t, 1)
	for _, k := range s.Sinks {
		down := what == "outbox " && k.Name == "clickhouse" || what == "s2 " && k.Name == "mysql/s2"
		if down != (k.Unreachable != "") || down && !strings.Contains(k.Unreachable, place) || !down && k.Partitions == 0 {
			t.Errorf("%s: %+v", k.Name, k)
		}
	}
	if down := what == "outbox "; down != (s.Unreachable != "") || down != (len(s.Lanes) == 0) || len(s.Sinks) != 3 {
		t.Errorf("outbox %q, %d lanes, sinks %+v", s.Unreachable, len(s.Lanes), s.Sinks)
	}
}

func namedDatabase(t *testing.T, db *sql.DB) (name string) {
	t.Helper()
	if err := db.QueryRow("SELECT DATABASE()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}
