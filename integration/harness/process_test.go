package harness

import (
	"syscall"
	"testing"
	"time"
)

func shell(script string, env ...string) Command {
	return Command{Name: "shell", Path: "/bin/sh", Args: []string{"-c", script}, Env: env}
}

func TestRunReportsStreamsAndCode(t *testing.T) {
	r := shell(`echo "$WORD"; echo why >&2; exit 3`, "WORD=yes").Run(t, 10*time.Second)
	if r.Stdout != "yes\n" || r.Stderr != "why\n" || r.Code != 3 {
		t.Errorf("%+v, want yes, why, 3", r)
	}
}

func TestStopSendsSIGTERMAndWaits(t *testing.T) {
	p := shell(`trap 'echo drained; exit 7' TERM; echo up; while :; do sleep 0.02; done`).Start(t)
	p.WaitOutput(t, "up", 10*time.Second)
	if r := p.Stop(t, 10*time.Second); r.Code != 7 || r.Stdout != "up\ndrained\n" {
		t.Errorf("%+v, want up, drained, 7", r)
	}
	if p.Running() {
		t.Error("still running after Stop")
	}
}

func TestKillCannotBeCaught(t *testing.T) {
	p := shell(`trap '' TERM; echo up; while :; do sleep 0.02; done`).Start(t)
	p.WaitOutput(t, "up", 10*time.Second)
	p.Signal(t, syscall.SIGTERM)
	p.Kill(t)
	if r := p.Wait(t, time.Second); r.Code != -1 {
		t.Errorf("exit code %d after SIGKILL, want -1", r.Code)
	}
	p.Kill(t) // of one that has ended is no error
}

func TestAProcessEndsWithItsTest(t *testing.T) {
	var p *Process
	t.Run("inner", func(t *testing.T) { p = shell(`exec sleep 60`).Start(t) })
	if p.Running() || syscall.Kill(p.Pid(), 0) == nil {
		t.Error("the process outlived its test")
	}
}
