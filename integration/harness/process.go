package harness

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Command is a program to run, with the environment of the tests unless Env replaces parts of it.
type Command struct {
	Path string   // the slotline binary unless set
	Args []string //
	Env  []string // "NAME=value", added to the environment of the tests
	Dir  string   // a working directory; that of the test unless set
	// Name tells several processes of one test apart, in messages and file names; the first argument unless set.
	Name string
}

// Result is what a Command that ended has left.
type Result struct {
	Stdout, Stderr string
	Code           int // exit code; -1 after a signal
}

// Process is a running Command.
type Process struct {
	name   string
	cmd    *exec.Cmd
	stdout *output
	stderr *output
	file   string        // both streams, as they came
	done   chan struct{} // closed when the process has ended and its output is complete
}

// Run runs a command to its end, which must come within the limit.
func (c Command) Run(t testing.TB, limit time.Duration) Result {
	t.Helper()
	p := c.Start(t)
	select {
	case <-p.done:
	case <-time.After(Patience * limit):
		p.Kill(t)
		t.Fatalf("%s has not ended after %s\n%s", p.name, Patience*limit, p.tail())
	}
	return p.result()
}

// Start starts a command. It is killed when the test ends, if it still runs then; the end of what it wrote is in the
// test's log where the test failed.
func (c Command) Start(t testing.TB) *Process {
	t.Helper()
	if c.Path == "" {
		c.Path = Binary(t)
	}
	if c.Name == "" {
		c.Name = filepath.Base(c.Path)
		if len(c.Args) > 0 {
			c.Name = c.Args[0]
		}
	}
	file, err := os.CreateTemp(t.ArtifactDir(), strings.ReplaceAll(c.Name, "/", "_")+"-*.log")
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{name: c.Name, file: file.Name(), done: make(chan struct{})}
	shared := &lockedWriter{w: file}
	p.stdout, p.stderr = newOutput(shared), newOutput(shared)
	p.cmd = exec.Command(c.Path, c.Args...)
	p.cmd.Dir = c.Dir
	p.cmd.Env = append(os.Environ(), c.Env...)
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	p.cmd.WaitDelay = 5 * time.Second // a grandchild may hold the pipes
	if err := p.cmd.Start(); err != nil {
		file.Close()
		t.Fatalf("starting %s: %v", c.Name, err)
	}
	go func() {
		p.cmd.Wait() // its outcome is read from ProcessState
		file.Close()
		close(p.done)
	}()
	t.Cleanup(func() {
		if p.Running() {
			p.Kill(t)
		}
		if t.Failed() {
			t.Logf("%s (pid %d, %s) wrote, whole in %s:\n%s", p.name, p.cmd.Process.Pid, p.cmd.ProcessState, p.file, p.tail())
		}
	})
	return p
}

// Pid is the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// PeakBytes is the most memory that the process, which must still run, has had resident.
func (p *Process) PeakBytes(t testing.TB) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("%s has no VmHWM in its status", p.name)
	return 0
}

// CPU is the time that the process, which must still run, has computed for.
func (p *Process) CPU(t testing.TB) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] { // utime and stime, in hundredths of a second
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running tells whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Stdout and Stderr return what was written so far.
func (p *Process) Stdout() string { return p.stdout.text() }
func (p *Process) Stderr() string { return p.stderr.text() }

// Signal sends a signal to the process, which must still run.
func (p *Process) Signal(t testing.TB, sig os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("%v to %s (pid %d): %v\n%s", sig, p.name, p.Pid(), err, p.tail())
	}
}

// Kill sends SIGKILL and waits for the end. A process that has ended already is left as it is.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("SIGKILL to %s (pid %d): %v", p.name, p.Pid(), err)
	}
	<-p.done
}

// Stop sends SIGTERM and waits for the end, which must come within the limit.
func (p *Process) Stop(t testing.TB, limit time.Duration) Result {
	t.Helper()
	p.Signal(t, syscall.SIGTERM)
	return p.Wait(t, limit)
}

// Wait waits for the end, which must come within the limit.
func (p *Process) Wait(t testing.TB, limit time.Duration) Result {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(Patience * limit):
		t.Fatalf("%s (pid %d) has not ended after %s\n%s", p.name, p.Pid(), Patience*limit, p.tail())
	}
	return p.result()
}

// WaitOutput waits until the process has written the text to stdout or stderr; it fails the test when the process ends
// without it or the limit passes.
func (p *Process) WaitOutput(t testing.TB, text string, limit time.Duration) {
	t.Helper()
	deadline := time.NewTimer(Patience * limit)
	defer deadline.Stop()
	for {
		// Taken before the look, so that what is written in between is not missed.
		out, err := p.stdout.changed(), p.stderr.changed()
		ended := !p.Running()
		if strings.Contains(p.Stdout(), text) || strings.Contains(p.Stderr(), text) {
			return
		}
		if ended {
			t.Fatalf("%s ended (%s) without writing %q\n%s", p.name, p.cmd.ProcessState, text, p.tail())
		}
		select {
		case <-out:
		case <-err:
		case <-p.done:
		case <-deadline.C:
			t.Fatalf("%s has not written %q after %s\n%s", p.name, text, Patience*limit, p.tail())
		}
	}
}

func (p *Process) result() Result {
	return Result{Stdout: p.Stdout(), Stderr: p.Stderr(), Code: p.cmd.ProcessState.ExitCode()}
}

func (p *Process) tail() string {
	b, err := os.ReadFile(p.file)
	if err != nil {
		return fmt.Sprintf("(its output: %v)", err)
	}
	return lastLines(string(b), 40)
}

// output keeps one stream, and wakes who waits for more of it.
type output struct {
	copy io.Writer

	mu   sync.Mutex
	buf  bytes.Buffer
	more chan struct{} // closed and replaced at each write
}

func newOutput(copy io.Writer) *output { return &output{copy: copy, more: make(chan struct{})} }

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	o.buf.Write(b)
	close(o.more)
	o.more = make(chan struct{})
	o.mu.Unlock()
	return o.copy.Write(b)
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func (o *output) changed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.more
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
