package harness

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

// server is one container with published ports, the same over its whole life.
type server struct {
	kind   string
	port   int
	more   []int // further ones
	id     string
	docker *client.Client
	// ready returns nil once the server answers a real request.
	ready func(context.Context) error
}

// spec is what the kinds of server differ in.
type spec struct {
	image imageSpec
	port  int                                           // inside the container
	more  []int                                         // further ports inside the container
	env   func(port int, more ...int) map[string]string // ports are the published ones
	args  []string
	files map[string][]byte // what lies in the container, by path
	tmpfs map[string]string // options by directory, as Docker takes them
	ready func(port int) func(context.Context) error
}

// start makes and starts the container and waits until the server answers.
func (s spec) start() (*server, error) {
	docker, err := docker()
	if err != nil {
		return nil, err
	}
	image, err := s.image.find(docker)
	if err != nil {
		return nil, err
	}
	// Another process may take the port between the choice and the start: choose again, twice.
	for try := 1; ; try++ {
		srv, err := s.startOnce(docker, image)
		if err == nil {
			return srv, nil
		}
		if try == 3 || !strings.Contains(err.Error(), "address already in use") && !strings.Contains(err.Error(), "port is already allocated") {
			return nil, fmt.Errorf("%s: %w", s.image.name, err)
		}
	}
}

func (s spec) startOnce(docker *client.Client, image string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	srv := &server{kind: s.image.name, port: port, docker: docker, ready: s.ready(port)}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	bindings, inside := network.PortMap{}, []string{}
	publish := func(in, out int) {
		at := network.MustParsePort(strconv.Itoa(in) + "/tcp")
		bindings[at] = []network.PortBinding{{HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: strconv.Itoa(out)}}
		inside = append(inside, at.String())
	}
	publish(s.port, port)
	for _, in := range s.more {
		out, err := freePort()
		if err != nil {
			return nil, err
		}
		srv.more = append(srv.more, out)
		publish(in, out)
	}
	var files []testcontainers.ContainerFile
	for path, data := range s.files {
		files = append(files, testcontainers.ContainerFile{Reader: bytes.NewReader(data), ContainerFilePath: path, FileMode: 0o644})
	}
	c, err := testcontainers.Run(ctx, image,
		testcontainers.WithEnv(s.env(port, srv.more...)),
		testcontainers.WithFiles(files...),
		testcontainers.WithCmd(s.args...),
		testcontainers.WithLabels(map[string]string{ownerLabel: self()}),
		testcontainers.WithExposedPorts(inside...),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			h.Tmpfs = s.tmpfs
			h.PortBindings = bindings
		}),
		testcontainers.WithLogger(log.NewNoopLogger()),
	)
	if c != nil {
		srv.id = c.GetContainerID()
	}
	if err != nil {
		srv.remove()
		return nil, err
	}
	if err := srv.wait(ctx); err != nil {
		logs := srv.logs(30)
		srv.remove()
		return nil, fmt.Errorf("%w; its last lines:\n%s", err, logs)
	}
	return srv, nil
}

// wait returns when the server answers, with the last failure when it does not before ctx ends or its process is gone.
func (s *server) wait(ctx context.Context) error {
	started := time.Now()
	for {
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := s.ready(once)
		cancel()
		if err == nil {
			return nil
		}
		if state, inspectErr := s.docker.ContainerInspect(ctx, s.id, client.ContainerInspectOptions{}); inspectErr == nil && !state.Container.State.Running {
			return fmt.Errorf("the server ended with status %d after %s", state.Container.State.ExitCode, time.Since(started).Round(time.Millisecond))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no answer on 127.0.0.1:%d after %s: %w", s.port, time.Since(started).Round(time.Millisecond), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *server) remove() {
	if s.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s.docker.ContainerUnpause(ctx, s.id, client.ContainerUnpauseOptions{}) // a paused one cannot be ended; fails on all others
	if _, err := s.docker.ContainerRemove(ctx, s.id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
		fmt.Fprintf(os.Stderr, "harness: %s container %s stays: %v\n", s.kind, s.id[:12], err)
	}
}

func (s *server) logs(lines int) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := s.docker.ContainerLogs(ctx, s.id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: strconv.Itoa(lines)})
	if err != nil {
		return err.Error()
	}
	defer r.Close()
	b, _ := io.ReadAll(r)
	return string(b)
}

// Outage is what a test may do to a server of its own. The address stays the same throughout.
type Outage struct{ s *server }

// act runs one request to Docker and, where the server must answer afterwards, waits for that.
func (o Outage) act(t testing.TB, what string, do func(ctx context.Context, docker *client.Client, id string) error, awaitReady bool) {
	t.Helper()
	if o.s == nil {
		t.Fatalf("%s: this server is shared or comes from the environment; use the Private one", what)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := do(ctx, o.s.docker, o.s.id); err != nil {
		t.Fatalf("%s %s: %v", what, o.s.kind, err)
	}
	if awaitReady {
		if err := o.s.wait(ctx); err != nil {
			t.Fatalf("%s %s: %v; its last lines:\n%s", what, o.s.kind, err, o.s.logs(30))
		}
	}
}

// Stop ends the server as its operator would, with up to 30 seconds to shut down.
func (o Outage) Stop(t testing.TB) {
	t.Helper()
	o.act(t, "stop", func(ctx context.Context, d *client.Client, id string) error {
		grace := 30
		_, err := d.ContainerStop(ctx, id, client.ContainerStopOptions{Timeout: &grace})
		return err
	}, false)
}

// Kill ends the server with SIGKILL.
func (o Outage) Kill(t testing.TB) {
	t.Helper()
	o.act(t, "kill", func(ctx context.Context, d *client.Client, id string) error {
		_, err := d.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"})
		return err
	}, false)
}

// Start starts a stopped or killed server again, with its data and at the same address, and waits until it answers.
func (o Outage) Start(t testing.TB) {
	t.Helper()
	o.act(t, "start", func(ctx context.Context, d *client.Client, id string) error {
		// A killed container may still be ending: Docker answers a start in that moment with success and does nothing.
		for {
			state, err := d.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
			if err != nil {
				return err
			}
			if !state.Container.State.Running {
				break
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(20 * time.Millisecond):
			}
		}
		_, err := d.ContainerStart(ctx, id, client.ContainerStartOptions{})
		return err
	}, true)
}

// Restart is Stop and Start.
func (o Outage) Restart(t testing.TB) {
	t.Helper()
	o.Stop(t)
	o.Start(t)
}

// Pause freezes the server: connections stay open and nothing answers.
func (o Outage) Pause(t testing.TB) {
	t.Helper()
	o.act(t, "pause", func(ctx context.Context, d *client.Client, id string) error {
		_, err := d.ContainerPause(ctx, id, client.ContainerPauseOptions{})
		return err
	}, false)
}

// Resume ends a Pause.
func (o Outage) Resume(t testing.TB) {
	t.Helper()
	o.act(t, "resume", func(ctx context.Context, d *client.Client, id string) error {
		_, err := d.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
		return err
	}, true)
}

// Logs returns the last lines that the server wrote.
func (o Outage) Logs(lines int) string {
	if o.s == nil {
		return ""
	}
	return o.s.logs(lines)
}
