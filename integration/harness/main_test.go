package harness

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
)

func TestMain(m *testing.M) { Main(m) }

// childVariable makes this test binary the subject of its own tests, as a process that they may switch off or kill.
const childVariable = "SLOTLINE_HARNESS_CHILD"

// TestChildUsesAServer is what the child processes run.
func TestChildUsesAServer(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		return // only of use to the tests below
	}
	m := PrivateMySQL(t)
	t.Logf("container %s", m.s.id)
	os.Stdout.WriteString("container " + m.s.id + "\n")
	if os.Getenv(childVariable) == "hang" {
		time.Sleep(time.Minute) // until it is killed
	}
}

func child(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestChildUsesAServer$")
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

func TestTheSwitchHasThreeStates(t *testing.T) {
	noDocker := []string{childVariable + "=1", "DOCKER_HOST=tcp://127.0.0.1:1"}
	for _, c := range []struct {
		mode, says string
		code       int
	}{
		{"off", "TestChildUsesAServer\n  because SLOTLINE_INTEGRATION=off", 0},
		{"auto", "TestChildUsesAServer\n  because no Docker daemon answers", 0},
		{"", "TestChildUsesAServer\n  because no Docker daemon answers", 0},
		{"must", "this test may not be skipped", 1},
		{"maybe", "write: off, auto or must", 2},
	} {
		cmd := child(t, append(noDocker, modeVariable+"="+c.mode)...)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.says) {
			t.Errorf("%s=%s: exit %d, want %d; want %q in:\n%s", modeVariable, c.mode, code, c.code, c.says, out)
		}
	}
}

func TestAKilledRunIsCleanedUpByTheNext(t *testing.T) {
	MySQL(t) // skips where there is no Docker
	d, err := docker()
	if err != nil {
		t.Skip("servers come from the environment; there is no container to clean up") // listed by MySQL where it matters
	}
	cmd := child(t, childVariable+"=hang")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id := ""
	for lines := bufio.NewScanner(stdout); id == "" && lines.Scan(); {
		id, _ = strings.CutPrefix(lines.Text(), "container ")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	inspect := func() error {
		_, err := d.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		return err
	}
	if err := inspect(); err != nil {
		t.Fatalf("the killed run left no container %q to clean up: %v", id, err)
	}
	if err := sweep(ctx, d, false); err != nil {
		t.Fatal(err)
	}
	if inspect() == nil {
		t.Errorf("container %s of a killed run is still there", id)
	}
	if m := MySQL(t); m.ready(ctx) != nil {
		t.Error("the sweep removed a server of this run")
	}
}

func TestAProcessIsAliveOnlyWithItsStartTime(t *testing.T) {
	if startTime(os.Getpid()) == "" {
		t.Log("no /proc here: start times are not compared")
		return
	}
	if !alive(self()) {
		t.Errorf("this process (%s) counts as ended", self())
	}
	if other := self() + "0"; alive(other) {
		t.Errorf("a process that had this id before (%s) counts as alive", other)
	}
	if alive("x-1") || alive("") {
		t.Error("a label that names no process counts as alive")
	}
}

func TestPortsLieBelowTheRangeOfOutgoingConnections(t *testing.T) {
	seen := make(map[int]bool)
	for range 50 {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		if port < portMin || port >= portMax || seen[port] {
			t.Fatalf("port %d: outside %d..%d, or given out twice", port, portMin, portMax)
		}
		seen[port] = true
	}
}
