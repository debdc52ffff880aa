// Command slotline is the operators' program: flags, wiring and signals. What it does is in internal/line.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/slotline/slotline/fault"
)

// Exit statuses, as every command's help says.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitDifferences = 3
	exitHalted      = 4
)

// exit is an error that carries its own status and has printed all there is to say.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

var errInterrupted = errors.New("interrupted")

func main() {
	// The first signal drains; a second one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	status := run(ctx, os.Args[1:])
	stop()
	os.Exit(status)
}

func run(ctx context.Context, args []string) int {
	root := rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var e exit
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &e):
		return int(e)
	}
	if ctx.Err() != nil && err.Error() == ctx.Err().Error() {
		err = errInterrupted // not "context canceled", which says nothing to a person
	}
	fmt.Fprintln(os.Stderr, err)
	if fault.Is(err, fault.Usage) || errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailed
}
