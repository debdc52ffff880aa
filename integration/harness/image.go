package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"
)

const (
	registryTimeout = 6 * time.Second  // for one answer of the registry of images
	pullTimeout     = 5 * time.Minute  // for one image, once the registry has answered
	buildTimeout    = 12 * time.Minute // for one image from package registries, all caches cold
)

// imageSpec names where the image of one kind of server comes from.
type imageSpec struct {
	name     string // of the script in integration/images
	variable string // of the environment, replaces the official image
	official string
}

var (
	kafkaImage      = imageSpec{"kafka", "SLOTLINE_KAFKA_IMAGE", "apache/kafka:4.3.1"}
	mysqlImage      = imageSpec{"mysql", "SLOTLINE_MYSQL_IMAGE", "mysql:8.4"}
	mariadbImage    = imageSpec{"mariadb", "SLOTLINE_MARIADB_IMAGE", "mariadb:11.8"}
	clickhouseImage = imageSpec{"clickhouse", "SLOTLINE_CLICKHOUSE_IMAGE", "clickhouse/clickhouse-server:26.7"}
)

// images remembers the answer for each kind; a failure is remembered as well, so that a run asks once.
var images struct {
	sync.Mutex
	found map[string]foundImage
	// registry is the first failure to reach the registry; the other images are then not asked for.
	registry error
}

// Images finds or builds the images that every run needs and returns them by the variable of the environment that would name each. What was
// found is returned beside the errors of the others.
func Images() (map[string]string, error) {
	docker, err := docker()
	if err != nil {
		return nil, err
	}
	found := make(map[string]string)
	var errs []error
	for _, s := range []imageSpec{kafkaImage, mysqlImage, clickhouseImage} {
		ref, err := s.find(docker)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found[s.variable] = ref
	}
	return found, errors.Join(errs...)
}

type foundImage struct {
	ref string
	err error
}

// find returns an image that is on this machine.
func (s imageSpec) find(docker *client.Client) (string, error) {
	images.Lock()
	defer images.Unlock()
	if f, ok := images.found[s.name]; ok {
		return f.ref, f.err
	}
	ref, err := s.look(docker)
	if images.found == nil {
		images.found = make(map[string]foundImage)
	}
	images.found[s.name] = foundImage{ref, err}
	if err == nil {
		fmt.Fprintf(os.Stderr, "harness: %s from image %s\n", s.name, ref)
	}
	return ref, err
}

func (s imageSpec) look(docker *client.Client) (string, error) {
	if ref := os.Getenv(s.variable); ref != "" {
		if err := ensure(docker, ref); err != nil {
			return "", fmt.Errorf("%s=%s: %w", s.variable, ref, err)
		}
		return ref, nil
	}
	pullErr := ensure(docker, s.official)
	if pullErr == nil {
		return s.official, nil
	}
	ref, err := s.build()
	if err != nil {
		return "", fmt.Errorf("no image for %s\n  %s: %w\n  integration/images/build.sh %s: %w", s.name, s.official, pullErr, s.name, err)
	}
	return ref, nil
}

// ensure pulls an image that is not here yet.
func ensure(docker *client.Client, ref string) error {
	ctx, cancel := context.WithTimeout(context.Background(), registryTimeout)
	defer cancel()
	if _, err := docker.ImageInspect(ctx, ref); err == nil {
		return nil
	}
	if images.registry != nil {
		return images.registry
	}
	if _, err := docker.DistributionInspect(ctx, ref, client.DistributionInspectOptions{}); err != nil {
		images.registry = fmt.Errorf("the registry of images gave no answer within %s: %w", registryTimeout, err)
		return images.registry
	}
	ctx, cancel = context.WithTimeout(context.Background(), pullTimeout)
	defer cancel()
	progress, err := docker.ImagePull(ctx, ref, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	defer progress.Close()
	// The pull has ended when its progress has; its outcome is whether the image is there.
	if _, err := io.Copy(io.Discard, progress); err != nil {
		return err
	}
	_, err = docker.ImageInspect(ctx, ref)
	return err
}

// build runs the image script, which prints the reference of a kept image or of the one it makes.
func (s imageSpec) build() (string, error) { return script("build.sh", s.name) }

// script runs one of integration/images and returns what it prints.
func script(name string, args ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(root, "integration", "images", name), args...)
	var out, said bytes.Buffer
	cmd.Stdout = &out
	cmd.Stderr = io.MultiWriter(&said, os.Stderr)
	// A child that keeps the pipes open must not hold the run past its limit.
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("not done after %s", buildTimeout)
		}
		return "", errors.Join(err, errors.New(lastLines(said.String(), 3)))
	}
	return strings.TrimSpace(out.String()), nil
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
