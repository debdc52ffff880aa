package clickhouse

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/slotline/slotline/embedded/clickhouse/internal/chdb"
	"github.com/slotline/slotline/embedded/clickhouse/internal/front"
)

// childEnv marks a process that Start began: RunIfChild takes it over.
const childEnv = "SLOTLINE_CLICKHOUSE_CHILD"

// readyPrefix begins the one line on standard output.
const readyPrefix = "ready "

// RunIfChild returns at once in an ordinary process. In one that Start began it serves the engine and exits. Call
// it first in main, or in TestMain.
func RunIfChild() {
	if os.Getenv(childEnv) == "" {
		return
	}
	_ = os.Unsetenv(childEnv)
	os.Exit(Serve(os.Args[1:], os.Stdout, os.Stderr))
}

// serveFlags are those of `clickhouse-engine`.
type serveFlags struct {
	listen       string
	data         string
	library      string
	memoryBytes  uint64
	drainTimeout time.Duration
	untilStdin   bool
	verbose      bool
}

func parseServeFlags(args []string, stderr io.Writer) (serveFlags, error) {
	var f serveFlags
	set := flag.NewFlagSet("clickhouse-engine", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&f.listen, "listen", "127.0.0.1:9000", "address of the native protocol; port 0 takes a free one")
	set.StringVar(&f.data, "data", "", "data directory, made if missing (required)")
	set.StringVar(&f.library, "library", "", "path of libchdb.so; without it the cached one is used, or fetched")
	set.Uint64Var(&f.memoryBytes, "max_server_memory_usage", DefaultMemoryBytes, "bytes that the engine may use in all")
	set.DurationVar(&f.drainTimeout, "drain_timeout", defaultDrainTimeout, "how long running statements may go on after SIGTERM")
	set.BoolVar(&f.untilStdin, "until_stdin_closes", false, "end when standard input does: the parent is gone")
	set.BoolVar(&f.verbose, "verbose", false, "log each connection")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("unexpected argument %q; see -help", set.Arg(0))
	}
	if f.data == "" {
		return f, errors.New("--data DIR is required: the directory that holds the tables")
	}
	return f, nil
}

// Serve runs the engine as the command clickhouse-engine does, until SIGTERM or SIGINT, and returns the exit status.
// It prints one line, "ready ADDRESS VERSION", on stdout when clients can connect.
func Serve(args []string, stdout, stderr io.Writer) int {
	f, err := parseServeFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "clickhouse-engine: %v\n", err)
		return 2
	}
	if err := f.serve(stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "clickhouse-engine: %v\n", err)
		return 1
	}
	return 0
}

func (f serveFlags) serve(stdout, stderr io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	level := slog.LevelWarn
	if f.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))

	if f.library == "" {
		path, err := EnsureLibrary(ctx, "", nil)
		if err != nil {
			return err
		}
		f.library = path
	}
	data, err := filepath.Abs(f.data)
	if err != nil {
		return fmt.Errorf("data directory %s: %w", f.data, err)
	}
	if err := os.MkdirAll(data, 0o755); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	unlock, err := lockData(data)
	if err != nil {
		return err
	}
	defer unlock()

	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer func() { _ = listener.Close() }()
	library, err := chdb.Open(f.library)
	if err != nil {
		return err
	}
	server, err := front.New(front.Config{
		Library: library,
		EngineArgs: []string{
			"--path=" + data,
			"--max_server_memory_usage=" + strconv.FormatUint(f.memoryBytes, 10),
		},
		Log:          log,
		DrainTimeout: f.drainTimeout,
	})
	if err != nil {
		return fmt.Errorf("%w\ndata directory: %s", err, data)
	}
	if f.untilStdin {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		go func() { // lives as long as the process
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
	}
	if _, err := fmt.Fprintf(stdout, "%s%s %s\n", readyPrefix, listener.Addr(), server.Version()); err != nil {
		return fmt.Errorf("print the ready line: %w", err)
	}
	return server.Serve(ctx, listener)
}

// lockData keeps a second process off the directory. The lock is the kernel's: it ends with the process.
func lockData(dir string) (unlock func(), err error) {
	name := filepath.Join(dir, "slotline-engine.lock")
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(file, 32))
		_ = file.Close()
		return nil, fmt.Errorf("data directory %s is in use by process %s: one engine per directory; stop that one or name another directory",
			dir, strings.TrimSpace(string(holder)))
	}
	_ = file.Truncate(0)
	_, _ = file.WriteString(strconv.Itoa(os.Getpid()) + "\n")
	return func() { _ = file.Close() }, nil
}
