package integration

import (
	"encoding/json"
	"testing"
	"time"

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

// The swap of a rebuild fences the live sink. It takes its partitions back within seconds, also those that no event comes
// to, and once each.
func TestIdlePartitionsAreTakenBackAfterASwap(t *testing.T) {
	harness.Proof(t)
	w := newLine(t, sharedServers(t), "")
	flights, err := nyc.Flights(func(id uint64) bool { return id%1000 == 0 })
	if err != nil {
		t.Fatal(err)
	}
	run := w.start(t, "run")
	w.emit(t, flights, 1)
	w.waitDrained(t, time.Minute)
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
