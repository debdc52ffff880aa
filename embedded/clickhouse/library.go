package clickhouse

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// build is one platform's library in npm.
type build struct {
	packageName string
	// sha256 and size are of libchdb.so itself, so they hold whatever way the package came.
	sha256 string
	size   int64
}

// libraryVersion is the npm version of the engine, ClickHouse 26.7.
const libraryVersion = "26.7.3-stable.1"

// builds by GOOS/GOARCH. Other platforms have packages under these names, but their digests are not known here, and
// what is not checked is not run.
var builds = map[string]build{
	"linux/amd64": {
		packageName: "@chdb/lib-linux-x64-gnu",
		sha256:      "36ad4e999882821ef13cf2d0f52c93f48e6ee1b4498b35a201c23ce4b8d15bf5",
		size:        566_330_096,
	},
	"linux/arm64":  {packageName: "@chdb/lib-linux-arm64-gnu"},
	"darwin/arm64": {packageName: "@chdb/lib-darwin-arm64"},
	"darwin/amd64": {packageName: "@chdb/lib-darwin-x64"},
}

// libraryFile is the library's name in the package and in the cache.
const libraryFile = "libchdb.so"

// Errors of EnsureLibrary that callers tell apart. Each comes wrapped in a text that says what to do.
var (
	// ErrUnsupported: there is no checked library for this platform.
	ErrUnsupported = errors.New("no ClickHouse library for this platform")
	// ErrNoNpm: it has to be fetched, and npm is not installed.
	ErrNoNpm = errors.New("npm is not installed")
	// ErrFetch: npm could not fetch it.
	ErrFetch = errors.New("npm could not fetch the ClickHouse library")
	// ErrDigest: what came is not what was pinned.
	ErrDigest = errors.New("wrong digest of the ClickHouse library")
)

// Stage of EnsureLibrary.
type Stage string

const (
	// StageFetch: npm downloads 178 MB; how far it is cannot be seen, done is 0.
	StageFetch Stage = "fetch"
	// StageUnpack: done of total bytes are written and hashed.
	StageUnpack Stage = "unpack"
)

// Progress is told how far EnsureLibrary is; done and total are bytes.
type Progress func(stage Stage, done, total int64)

// cacheEnv overrides the cache directory.
const cacheEnv = "SLOTLINE_CACHE"

// CacheDir is where the library is kept: $SLOTLINE_CACHE, or slotline in the user's cache directory.
func CacheDir() (string, error) {
	if dir := os.Getenv(cacheEnv); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a cache directory: %w; set %s to one", err, cacheEnv)
	}
	return filepath.Join(dir, "slotline"), nil
}

// EnsureLibrary returns the path of the engine's library, fetching it through npm when the cache does not have it.
// cacheDir "" is CacheDir; progress may be nil. The file appears in the cache at once and whole; of two processes
// that want it, one fetches and the other waits.
func EnsureLibrary(ctx context.Context, cacheDir string, progress Progress) (string, error) {
	return ensure(ctx, cacheDir, progress, runtime.GOOS+"/"+runtime.GOARCH, npmPack)
}

// pack brings the package's tarball into dir and returns its path.
type pack func(ctx context.Context, spec, dir string) (string, error)

func ensure(ctx context.Context, cacheDir string, progress Progress, platform string, fetch pack) (string, error) {
	if progress == nil {
		progress = func(Stage, int64, int64) {}
	}
	b, ok := builds[platform]
	if !ok {
		return "", fmt.Errorf("%w: there is none for %s; use linux/amd64, or a ClickHouse server", ErrUnsupported, platform)
	}
	if b.sha256 == "" {
		return "", fmt.Errorf("%w: %s has the package %s, but its digest is not known to this version, so it is not used; "+
			"use linux/amd64, or a ClickHouse server", ErrUnsupported, platform, b.packageName)
	}
	if cacheDir == "" {
		var err error
		if cacheDir, err = CacheDir(); err != nil {
			return "", err
		}
	}
	home := filepath.Join(cacheDir, "clickhouse", libraryVersion+"-"+strings.ReplaceAll(platform, "/", "-"))
	path := filepath.Join(home, libraryFile)
	if b.present(path) {
		return path, nil
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", fmt.Errorf("make the cache: %w", err)
	}
	unlock, err := lockFile(ctx, filepath.Join(home, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if b.present(path) {
		return path, nil // another process brought it meanwhile
	}
	return path, b.install(ctx, home, path, progress, fetch)
}

// present trusts a file of the right size: it gets its name only after its digest was checked.
func (b build) present(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() == b.size
}

func (b build) install(ctx context.Context, home, path string, progress Progress, fetch pack) error {
	work, err := os.MkdirTemp(home, "fetch-")
	if err != nil {
		return fmt.Errorf("make the cache: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	progress(StageFetch, 0, 0)
	tarball, err := fetch(ctx, b.packageName+"@"+libraryVersion, work)
	if err != nil {
		return err
	}
	unpacked := filepath.Join(work, libraryFile)
	if err := b.unpack(ctx, tarball, unpacked, progress); err != nil {
		return err
	}
	if err := os.Rename(unpacked, path); err != nil {
		return fmt.Errorf("put the ClickHouse library into the cache: %w", err)
	}
	return nil
}

// npmPack lets npm, as it is installed and configured, download a package.
func npmPack(ctx context.Context, spec, dir string) (string, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", fmt.Errorf("%w: the ClickHouse engine comes as the npm package %s; install npm, or set %s to a cache that has it",
			ErrNoNpm, spec, cacheEnv)
	}
	command := exec.CommandContext(ctx, npm, "pack", spec, "--pack-destination", dir, "--ignore-scripts", "--no-audit", "--loglevel=error")
	command.Dir = dir
	command.WaitDelay = 5 * time.Second
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Run(); err != nil {
		if ctx.Err() != nil {
			return "", fmt.Errorf("%w: %w", ErrFetch, ctx.Err())
		}
		return "", fmt.Errorf("%w: npm pack %s: %w (is there a network, and does `npm ping` work?)\nnpm said:\n%s",
			ErrFetch, spec, err, strings.TrimSpace(lastBytes(output.String(), 2000)))
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("%w: npm pack %s left %d archives instead of one", ErrFetch, spec, len(found))
	}
	return found[0], nil
}

func lastBytes(s string, n int) string { return s[max(0, len(s)-n):] }

// unpack writes the library from the tarball, and fails unless its digest is the pinned one.
func (b build) unpack(ctx context.Context, tarball, path string, progress Progress) error {
	archive, err := os.Open(tarball)
	if err != nil {
		return fmt.Errorf("open the package: %w", err)
	}
	defer func() { _ = archive.Close() }()
	plain, err := gzip.NewReader(archive)
	if err != nil {
		return fmt.Errorf("%w: %s is no gzip archive: %w", ErrDigest, filepath.Base(tarball), err)
	}
	entries := tar.NewReader(plain)
	for {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: %s of %s holds no %s", ErrDigest, libraryVersion, b.packageName, libraryFile)
		}
		if err != nil {
			return fmt.Errorf("%w: read %s: %w", ErrDigest, filepath.Base(tarball), err)
		}
		if entry.Name == "package/"+libraryFile {
			break
		}
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return fmt.Errorf("unpack the ClickHouse library: %w", err)
	}
	defer func() { _ = file.Close() }()
	digest := sha256.New()
	into := io.MultiWriter(file, digest)
	var done int64
	for done <= b.size {
		if ctx.Err() != nil {
			return fmt.Errorf("unpack the ClickHouse library: %w", ctx.Err())
		}
		n, err := io.CopyN(into, entries, 4<<20)
		done += n
		progress(StageUnpack, done, b.size)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("unpack the ClickHouse library (it needs %d MB): %w", b.size>>20, err)
		}
	}
	if got := hex.EncodeToString(digest.Sum(nil)); got != b.sha256 || done != b.size {
		return fmt.Errorf("%w: %s of %s@%s has sha256 %s, pinned is %s; it was not kept. The package changed, or came damaged: "+
			"try again, and if it stays so do not use it", ErrDigest, libraryFile, b.packageName, libraryVersion, got, b.sha256)
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("unpack the ClickHouse library: %w", err)
	}
	return file.Close()
}

// lockFile waits for the lock, or for ctx.
func lockFile(ctx context.Context, name string) (unlock func(), err error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = file.Close()
			return nil, fmt.Errorf("lock the cache %s: %w", name, err)
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("wait for another process that fetches the ClickHouse library: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
