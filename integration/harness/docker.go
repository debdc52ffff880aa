package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

// docker is the daemon of this machine, asked for once; the error says what to do.
var docker = sync.OnceValues(func() (*client.Client, error) {
	// The servers' ports are published on loopback, also where this process runs inside a container itself, and this
	// package removes its containers: the reaper's image may not be had.
	os.Setenv("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")
	os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
	// What it would tell is said here, in the errors.
	log.SetDefault(log.NewNoopLogger())
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err == nil {
		_, err = c.Ping(ctx, client.PingOptions{})
	}
	// testcontainers-go goes on to other daemons when the one that was named does not answer.
	if named := os.Getenv(client.EnvOverrideHost); err == nil && named != "" && c.DaemonHost() != named {
		err = fmt.Errorf("%s=%s does not", client.EnvOverrideHost, named)
	}
	if err != nil {
		return nil, fmt.Errorf("no Docker daemon answers: %w\n  do: start Docker (integration/images/docker.sh), or name servers in the environment (integration/README.md)", err)
	}
	if err := sweep(ctx, c.Client, false); err != nil {
		return nil, fmt.Errorf("listing what an earlier run left: %w", err)
	}
	atEnd(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := sweep(ctx, c.Client, true); err != nil {
			fmt.Fprintf(os.Stderr, "harness: containers of this run stay: %v\n", err)
		}
	})
	return c.Client, nil
})

// Root is the folder of the root module, found upwards from the working directory.
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "integration", "images", "build.sh")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not inside the repository: no folder above it has integration/images/build.sh", start)
		}
	}
}
