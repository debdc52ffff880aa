package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Program runs a program that uses this package outside of a test binary, and cleans up after it: also when it is
// interrupted. It does not return; run's result is the exit status.
func Program(run func() int) {
	if _, err := parseMode(os.Getenv(modeVariable)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		cleanUp()
		os.Exit(130)
	}()
	code := run()
	cleanUp()
	os.Exit(code)
}

// Part runs f as a test would be run: what f registers with Cleanup is done when it ends, and what it fails or skips
// with is the error. The TB has what this package and tests like its own call; TempDir, Setenv and what else the
// testing package keeps to itself are not there.
func Part(name string, f func(t testing.TB)) error {
	p := &part{name: name}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.guard(func() { f(p) })
	p.cancel()
	for len(p.cleanups) > 0 {
		last := p.cleanups[len(p.cleanups)-1]
		p.cleanups = p.cleanups[:len(p.cleanups)-1]
		p.guard(last)
	}
	return errors.Join(p.errs...)
}

// part is a testing.TB outside of the testing package. Methods that it does not have end in a nil dereference.
type part struct {
	testing.TB
	name     string
	ctx      context.Context
	cancel   context.CancelFunc
	cleanups []func() // of the goroutine that runs f alone

	mu      sync.Mutex
	errs    []error
	skipped bool
}

// guard runs f in a goroutine of its own, which FailNow and SkipNow may end.
func (p *part) guard(f func()) {
	done := make(chan struct{})
	go func() { // owned here
		defer close(done)
		f()
	}()
	<-done
}

func (p *part) add(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errs = append(p.errs, fmt.Errorf("%s: %s", p.name, strings.TrimSuffix(text, "\n")))
}

func (p *part) Failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.errs) > 0
}

func (p *part) Skipped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.skipped
}

func (p *part) SkipNow() {
	p.mu.Lock()
	p.skipped = true
	p.mu.Unlock()
	runtime.Goexit()
}

func (p *part) Name() string                 { return p.name }
func (p *part) Context() context.Context     { return p.ctx }
func (p *part) Helper()                      {}
func (p *part) Cleanup(f func())             { p.cleanups = append(p.cleanups, f) }
func (p *part) Log(args ...any)              { fmt.Fprintln(os.Stderr, args...) }
func (p *part) Logf(f string, args ...any)   { fmt.Fprintf(os.Stderr, f+"\n", args...) }
func (p *part) Fail()                        { p.add("failed") }
func (p *part) FailNow()                     { p.add("failed"); runtime.Goexit() }
func (p *part) Error(args ...any)            { p.add(fmt.Sprintln(args...)) }
func (p *part) Errorf(f string, args ...any) { p.add(fmt.Sprintf(f, args...)) }
func (p *part) Fatal(args ...any)            { p.add(fmt.Sprintln(args...)); runtime.Goexit() }
func (p *part) Fatalf(f string, args ...any) { p.add(fmt.Sprintf(f, args...)); runtime.Goexit() }
func (p *part) Skip(args ...any)             { p.add("left out: " + fmt.Sprintln(args...)); p.SkipNow() }
func (p *part) Skipf(f string, args ...any) {
	p.add("left out: " + fmt.Sprintf(f, args...))
	p.SkipNow()
}
