package harness

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
)

// Every container of this package carries these labels: a later run recognises by them what a killed one has left.
const (
	ownerLabel = "slotline.harness.owner" // process id and start time of the test binary
	ownerSep   = "-"
)

// Main runs the tests of a binary and cleans up after them. Call it from TestMain:
//
//	func TestMain(m *testing.M) { harness.Main(m) }
func Main(m *testing.M) {
	Program(func() int {
		code := m.Run()
		printSkips(os.Stderr)
		return code
	})
}

// cleanups are run once, last first, when the binary ends.
var cleanups struct {
	sync.Mutex
	funcs []func()
}

func atEnd(f func()) {
	cleanups.Lock()
	cleanups.funcs = append(cleanups.funcs, f)
	cleanups.Unlock()
}

func cleanUp() {
	cleanups.Lock()
	defer cleanups.Unlock()
	for i := len(cleanups.funcs) - 1; i >= 0; i-- {
		cleanups.funcs[i]()
	}
	cleanups.funcs = nil
}

// sweep removes the containers whose test binary is gone, or all of this binary's own.
func sweep(ctx context.Context, docker *client.Client, own bool) error {
	list, err := docker.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", ownerLabel)})
	if err != nil {
		return err
	}
	for _, c := range list.Items {
		owner := c.Labels[ownerLabel]
		if alive(owner) && !(own && owner == self()) {
			continue
		}
		if _, err := docker.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
			fmt.Fprintf(os.Stderr, "harness: container %s of an ended run stays: %v\n", c.ID[:12], err)
		}
	}
	return nil
}

// self names this process; the start time tells it from a later one that was given the same id.
var self = sync.OnceValue(func() string {
	return strconv.Itoa(os.Getpid()) + ownerSep + startTime(os.Getpid())
})

func alive(owner string) bool {
	id, start, _ := strings.Cut(owner, ownerSep)
	pid, err := strconv.Atoi(id)
	if err != nil || syscall.Kill(pid, 0) != nil {
		return false
	}
	return startTime(pid) == start
}

// startTime is the 22nd field of /proc/PID/stat, in clock ticks since boot; empty where there is no /proc.
func startTime(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The second field is the command in parentheses and may hold spaces: count from the last parenthesis.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}

// startTimeout bounds the start of one container, once its image is there.
const startTimeout = 90 * time.Second
