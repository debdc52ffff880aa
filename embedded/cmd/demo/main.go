// Command demo plays a year of flights through a whole line and checks every figure against the CSV that they come from.
//
//	make demo            from the repository's root
//	make demo KEEP=1     leaves everything running and prints how to connect
//
// The servers are in this process (Kafka, MySQL) or its child (the ClickHouse engine); what runs between them is what
// `slotline run` runs, over real sockets. The figures are compared by code that shares nothing with the line. The exit
// status is 1 when one differs, or when the line stops.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/slotline/slotline/embedded/clickhouse"
)

func main() {
	clickhouse.RunIfChild()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	d := &demo{
		out:     os.Stdout,
		live:    isTerminal(os.Stdout),
		every:   everyDefault,
		keep:    os.Getenv("KEEP") != "" && os.Getenv("KEEP") != "0",
		library: clickhouse.EnsureLibrary,
	}
	agree, err := d.run(ctx)
	interrupted := ctx.Err() != nil && err != nil
	stop()
	switch {
	case interrupted:
		fmt.Fprintln(os.Stderr, "\ndemo: interrupted")
	case err != nil:
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
	}
	if err != nil || !agree {
		os.Exit(1)
	}
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}
