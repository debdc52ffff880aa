package clickhouse

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// DefaultMemoryBytes lets an engine beside Kafka and MySQL fit a small machine. Over it a statement fails with
// ClickHouse's code 241 instead of the process being killed.
const DefaultMemoryBytes = 4 << 30

const (
	defaultDrainTimeout = 5 * time.Second
	// startTimeout covers loading half a gigabyte of library from a cold disk.
	startTimeout = 60 * time.Second
	// logTailBytes of the child's standard error are kept for error messages.
	logTailBytes = 8 << 10
)

// Options of an Engine. DataDir is required.
type Options struct {
	// DataDir holds the tables; made if missing.
	DataDir string
	// Library is the path of libchdb.so; "" takes EnsureLibrary's.
	Library string
	// Listen is an address; "" is 127.0.0.1 with a free port.
	Listen string
	// MemoryBytes caps the engine's memory; 0 is DefaultMemoryBytes.
	MemoryBytes uint64
	// Binary is a program that serves when it is started with the flags of clickhouse-engine; "" is this program
	// itself, whose main must call RunIfChild.
	Binary string
	// Log receives the child's standard error; nil drops it (the last of it is still in errors).
	Log io.Writer
}

// Engine is a running child process.
type Engine struct {
	command *exec.Cmd
	stdin   io.Closer // its end tells the child that the parent is gone
	addr    string
	version string
	tail    *tail
	done    chan struct{}
	err     error // how the process ended; read after done
}

// Start begins the child and waits until clients can connect. The child does not end with ctx: see Stop.
func Start(ctx context.Context, o Options) (*Engine, error) {
	if o.DataDir == "" {
		return nil, errors.New("clickhouse engine: Options.DataDir is empty")
	}
	if o.Library == "" {
		path, err := EnsureLibrary(ctx, "", nil)
		if err != nil {
			return nil, err
		}
		o.Library = path
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = DefaultMemoryBytes
	}
	binary := o.Binary
	if binary == "" {
		var err error
		if binary, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("clickhouse engine: find this program: %w", err)
		}
	}
	command := exec.Command(binary,
		"--listen", o.Listen, "--data", o.DataDir, "--library", o.Library,
		"--max_server_memory_usage", strconv.FormatUint(o.MemoryBytes, 10), "--until_stdin_closes")
	command.Env = append(os.Environ(), childEnv+"=1")
	e := &Engine{command: command, tail: &tail{next: o.Log}, done: make(chan struct{})}
	command.Stderr = e.tail
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("clickhouse engine: %w", err)
	}
	if e.stdin, err = command.StdinPipe(); err != nil {
		return nil, fmt.Errorf("clickhouse engine: %w", err)
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("clickhouse engine: start %s: %w", binary, err)
	}
	ready := make(chan error, 1)
	go func() { // owned by the engine; ends when the process has
		defer close(e.done)
		ready <- e.awaitReady(stdout)
		_, _ = io.Copy(io.Discard, stdout)
		e.err = command.Wait()
	}()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = fmt.Errorf("it was not ready in time: %w", ctx.Err())
	}
	if err != nil {
		e.Kill()
		return nil, fmt.Errorf("clickhouse engine on %s: %w%s", o.DataDir, err, e.said())
	}
	return e, nil
}

// awaitReady reads the child's one line.
func (e *Engine) awaitReady(stdout io.Reader) error {
	line, err := bufio.NewReader(io.LimitReader(stdout, 4096)).ReadString('\n')
	if err != nil {
		return errors.New("the process ended before it was ready")
	}
	fields := strings.Fields(strings.TrimPrefix(line, readyPrefix))
	if !strings.HasPrefix(line, readyPrefix) || len(fields) != 2 {
		return fmt.Errorf("the process printed %q instead of its ready line: does its main call clickhouse.RunIfChild first?", line)
	}
	e.addr, e.version = fields[0], fields[1]
	return nil
}

// Addr is where the native protocol is spoken.
func (e *Engine) Addr() string { return e.addr }

// Version is the engine's, such as "26.7.2.1".
func (e *Engine) Version() string { return e.version }

// Pid is the child's process id.
func (e *Engine) Pid() int { return e.command.Process.Pid }

// Done is closed when the process has ended, for whatever reason.
func (e *Engine) Done() <-chan struct{} { return e.done }

// Stop asks the child to end, lets running statements end, and kills it when ctx ends first. It returns nil when
// the child ended by itself with status 0.
func (e *Engine) Stop(ctx context.Context) error {
	_ = e.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-e.done:
	case <-ctx.Done():
		e.Kill()
		return fmt.Errorf("clickhouse engine: killed, it did not end in time: %w", ctx.Err())
	}
	_ = e.stdin.Close()
	if e.err != nil {
		return fmt.Errorf("clickhouse engine: %w%s", e.err, e.said())
	}
	return nil
}

// Kill ends the child at once (SIGKILL) and waits for it.
func (e *Engine) Kill() {
	_ = e.command.Process.Kill()
	<-e.done
	_ = e.stdin.Close()
}

// said returns the last lines of the child for an error message.
func (e *Engine) said() string {
	text := strings.TrimSpace(e.tail.String())
	if text == "" {
		return ""
	}
	return "\nit said:\n" + text
}

// tail passes on what it is given and keeps the last of it.
type tail struct {
	next io.Writer

	mu   sync.Mutex
	last []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.last = append(t.last, p...)
	if extra := len(t.last) - logTailBytes; extra > 0 {
		t.last = append(t.last[:0], t.last[extra:]...)
	}
	t.mu.Unlock()
	if t.next != nil {
		_, _ = t.next.Write(p)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.last)
}
