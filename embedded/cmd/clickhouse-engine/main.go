// Command clickhouse-engine serves the ClickHouse engine over the native protocol, from one process and one data
// directory. It is for demos and tests: see package embedded/clickhouse for what it is not.
//
//	clickhouse-engine --listen 127.0.0.1:9000 --data DIR [--library PATH] [--max_server_memory_usage BYTES]
//	clickhouse-engine fetch      fetch the library into the cache, print its path
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
	if len(os.Args) > 1 && os.Args[1] == "fetch" {
		os.Exit(fetch(os.Args[2:]))
	}
	os.Exit(clickhouse.Serve(os.Args[1:], os.Stdout, os.Stderr))
}

func fetch(args []string) int {
	if len(args) > 0 {
		fmt.Fprintln(os.Stderr, "usage: clickhouse-engine fetch      (the cache directory is $SLOTLINE_CACHE)")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var lastTenth int64 = -1
	path, err := clickhouse.EnsureLibrary(ctx, "", func(stage clickhouse.Stage, done, total int64) {
		if stage == clickhouse.StageFetch {
			fmt.Fprintln(os.Stderr, "fetching the ClickHouse library through npm (178 MB)")
		} else if tenth := done * 10 / total; tenth != lastTenth {
			lastTenth = tenth
			fmt.Fprintf(os.Stderr, "unpacking and checking it: %d of %d MB\n", done>>20, total>>20)
		}
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "clickhouse-engine: %v\n", err)
		return 1
	}
	fmt.Println(path)
	return 0
}
