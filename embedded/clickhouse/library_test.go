package clickhouse

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// fakeBuild puts a small package in place of the real one for a platform of its own.
func fakeBuild(t *testing.T, content string) (platform string) {
	t.Helper()
	platform = "test/" + strings.ReplaceAll(t.Name(), "/", "-")
	digest := sha256.Sum256([]byte(content))
	builds[platform] = build{packageName: "@test/library", sha256: hex.EncodeToString(digest[:]), size: int64(len(content))}
	t.Cleanup(func() { delete(builds, platform) })
	return platform
}

// packOf is a fetch that brings a package with the given file.
func packOf(name, content string, calls *atomic.Int32) pack {
	return func(_ context.Context, spec, dir string) (string, error) {
		calls.Add(1)
		if spec != "@test/library@"+libraryVersion {
			return "", errors.New("asked for " + spec)
		}
		path := filepath.Join(dir, "package.tgz")
		file, err := os.Create(path)
		if err != nil {
			return "", err
		}
		z := gzip.NewWriter(file)
		w := tar.NewWriter(z)
		for _, entry := range []struct{ name, content string }{{"package/index.js", "x"}, {name, content}} {
			if err := w.WriteHeader(&tar.Header{Name: entry.name, Mode: 0o755, Size: int64(len(entry.content))}); err != nil {
				return "", err
			}
			if _, err := w.Write([]byte(entry.content)); err != nil {
				return "", err
			}
		}
		return path, errors.Join(w.Close(), z.Close(), file.Close())
	}
}

func TestLibraryIsFetchedOnce(t *testing.T) {
	const content = "the library"
	platform := fakeBuild(t, content)
	cache := t.TempDir()
	var calls atomic.Int32
	var wait sync.WaitGroup
	for range 8 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			path, err := ensure(context.Background(), cache, nil, platform, packOf("package/libchdb.so", content, &calls))
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != content {
				t.Errorf("%s holds %q, %v", path, got, err)
			}
		}()
	}
	wait.Wait()
	if n := calls.Load(); n != 1 {
		t.Errorf("it was fetched %d times", n)
	}
	left, err := filepath.Glob(filepath.Join(cache, "clickhouse", "*", "fetch-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestLibraryWithAnotherDigestIsRefused(t *testing.T) {
	for name, fetched := range map[string]struct{ file, content string }{
		"other bytes": {"package/libchdb.so", "the librarY"},
		"longer":      {"package/libchdb.so", "the library and more"},
		"shorter":     {"package/libchdb.so", "the"},
		"no library":  {"package/other.so", "the library"},
	} {
		t.Run(name, func(t *testing.T) {
			platform := fakeBuild(t, "the library")
			cache := t.TempDir()
			var calls atomic.Int32
			_, err := ensure(t.Context(), cache, nil, platform, packOf(fetched.file, fetched.content, &calls))
			if !errors.Is(err, ErrDigest) {
				t.Errorf("%v, want ErrDigest", err)
			}
			if left, _ := filepath.Glob(filepath.Join(cache, "clickhouse", "*", "libchdb.so")); len(left) > 0 {
				t.Errorf("it was kept: %v", left)
			}
			// The right one is taken afterwards.
			if _, err := ensure(t.Context(), cache, nil, platform, packOf("package/libchdb.so", "the library", &calls)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLibraryOfADamagedPackage(t *testing.T) {
	platform := fakeBuild(t, "the library")
	for name, content := range map[string]string{"no archive": "not gzip", "empty": ""} {
		_, err := ensure(t.Context(), t.TempDir(), nil, platform, func(_ context.Context, _, dir string) (string, error) {
			path := filepath.Join(dir, "package.tgz")
			return path, os.WriteFile(path, []byte(content), 0o600)
		})
		if !errors.Is(err, ErrDigest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLibraryOfOtherPlatforms(t *testing.T) {
	for platform, want := range map[string]string{
		"linux/arm64": "@chdb/lib-linux-arm64-gnu", "darwin/arm64": "@chdb/lib-darwin-arm64", "darwin/amd64": "@chdb/lib-darwin-x64",
		"windows/amd64": "windows/amd64",
	} {
		_, err := ensure(t.Context(), t.TempDir(), nil, platform, func(context.Context, string, string) (string, error) {
			t.Error("it was fetched without a digest to check")
			return "", nil
		})
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", platform, err)
		}
	}
}

func TestLibraryWithoutNpm(t *testing.T) {
	platform := fakeBuild(t, "the library")
	t.Setenv("PATH", t.TempDir())
	_, err := ensure(t.Context(), t.TempDir(), nil, platform, npmPack)
	if !errors.Is(err, ErrNoNpm) || !strings.Contains(err.Error(), "install npm") || !strings.Contains(err.Error(), cacheEnv) {
		t.Error(err)
	}
}

func TestLibraryOffline(t *testing.T) {
	platform := fakeBuild(t, "the library")
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "npm"), []byte("#!/bin/sh\necho 'npm error code ENOTFOUND' >&2\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	cache := t.TempDir()
	_, err := ensure(t.Context(), cache, nil, platform, npmPack)
	if !errors.Is(err, ErrFetch) || !strings.Contains(err.Error(), "ENOTFOUND") || !strings.Contains(err.Error(), "is there a network") {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "clickhouse", "*", "fetch-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestLibraryFetchIsCancelled(t *testing.T) {
	platform := fakeBuild(t, "the library")
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "npm"), []byte("#!/bin/sh\nexec /bin/sleep 600\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := ensure(ctx, t.TempDir(), func(Stage, int64, int64) { cancel() }, platform, npmPack)
	if !errors.Is(err, ErrFetch) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestCacheDir(t *testing.T) {
	t.Setenv(cacheEnv, "/somewhere")
	if dir, err := CacheDir(); err != nil || dir != "/somewhere" {
		t.Errorf("%q, %v", dir, err)
	}
	t.Setenv(cacheEnv, "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "/home/x")
	if dir, err := CacheDir(); err != nil || filepath.Base(dir) != "slotline" {
		t.Errorf("%q, %v", dir, err)
	}
}
