package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// dirStore is a directory, local or mounted. What is half written lies in its folder tmp, which the next run empties.
type dirStore struct{ dir string }

const tmpFolder = "tmp"

func (d *dirStore) place() string { return d.dir }

func (d *dirStore) path(name string) string { return filepath.Join(d.dir, filepath.FromSlash(name)) }

// alone holds a lock that goes with the process, and empties the folder of what is half written.
func (d *dirStore) alone() (func(), error) {
	if err := os.MkdirAll(d.path(tmpFolder), 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(d.path("lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errTaken
		}
		return nil, err
	}
	left, err := os.ReadDir(d.path(tmpFolder))
	for _, e := range left {
		err = errors.Join(err, os.Remove(d.path(path.Join(tmpFolder, e.Name()))))
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return func() { lock.Close() }, nil
}

func (d *dirStore) read(_ context.Context, name string) ([]byte, string, error) {
	f, err := os.Open(d.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, "", errNotThere
	}
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, smallBytesMax))
	return data, contentTag(data), err
}

func contentTag(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// swap is safe among the runs that alone lets in: one.
func (d *dirStore) swap(ctx context.Context, name string, data []byte, tag string) (string, error) {
	_, have, err := d.read(ctx, name)
	if err != nil && !errors.Is(err, errNotThere) {
		return "", err
	}
	if have != tag {
		return "", errMoved
	}
	f, end, err := d.spool()
	if err != nil {
		return "", err
	}
	defer end()
	if _, err := f.Write(data); err != nil {
		return "", err
	}
	return contentTag(data), d.put(ctx, name, f)
}

// put renames a file whose bytes are on the disk.
func (d *dirStore) put(_ context.Context, name string, spool *os.File) error {
	if err := spool.Sync(); err != nil {
		return err
	}
	to := d.path(name)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.Rename(spool.Name(), to); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

func (d *dirStore) open(_ context.Context, name string) (*os.File, func(), error) {
	f, err := os.Open(d.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, errNotThere
	}
	if err != nil {
		return nil, nil, err
	}
	return f, func() { f.Close() }, nil
}

func (d *dirStore) list(_ context.Context, folder string) (map[string]int64, error) {
	entries, err := os.ReadDir(d.path(folder))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := map[string]int64{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() && !strings.HasPrefix(e.Name(), ".") {
			found[e.Name()] = info.Size()
		}
	}
	return found, nil
}

func (d *dirStore) remove(_ context.Context, name string) error {
	if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// spool lies in the same file system, so that put can rename it.
func (d *dirStore) spool() (*os.File, func(), error) {
	f, err := os.CreateTemp(d.path(tmpFolder), "spool-")
	if err != nil {
		return nil, nil, err
	}
	return f, func() {
		f.Close()
		os.Remove(f.Name()) // gone already where it was put
	}, nil
}
