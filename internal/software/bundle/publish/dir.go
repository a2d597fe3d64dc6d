package publish

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"muster.dev/muster/internal/disk"
)

// Dir is a Store in a directory. Safe for concurrent use.
type Dir struct {
	Path string
	FS   disk.FS // nil: the operating system's
}

func (d Dir) fs() disk.FS {
	if d.FS == nil {
		return disk.OS{}
	}
	return d.FS
}

// Get implements Store.
func (d Dir) Get(_ context.Context, name string) (io.ReadCloser, error) {
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("%q: %w", name, fs.ErrInvalid)
	}
	return os.Open(filepath.Join(d.Path, name))
}

// Lock implements Locker, among the processes of a machine.
func (d Dir) Lock(ctx context.Context) (release func(), err error) {
	if err := disk.MkdirAll(d.fs(), d.Path, 0o755); err != nil {
		return nil, err
	}
	l, err := disk.WaitLockFile(ctx, filepath.Join(d.Path, ".lock"))
	if err != nil {
		return nil, err
	}
	return func() { _ = l.Close() }, nil
}

// Put implements Store.
func (d Dir) Put(ctx context.Context, name string, r io.Reader) (err error) {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%q: %w", name, fs.ErrInvalid)
	}
	path, fsys := filepath.Join(d.Path, name), d.fs()
	if err := disk.MkdirAll(fsys, filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.tmp-%016x", filepath.Base(path), rand.Uint64()))
	f, err := fsys.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = fsys.Remove(tmp)
		}
	}()
	if _, err := io.Copy(f, r); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := fsys.Rename(tmp, path); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(path))
}
