// Package atomicfile replaces files whole, so that a reader, and a machine that loses
// power, has either the old content or the new.
package atomicfile

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"muster.dev/muster/internal/disk"
)

// Write replaces a file, or makes it: temporary file beside it, fsync, rename, fsync of
// the directory, which must be there.
func Write(name string, data []byte, perm fs.FileMode) error {
	return WriteTo(disk.OS{}, name, data, perm)
}

// WriteTo is Write on another file system.
func WriteTo(fsys disk.FS, name string, data []byte, perm fs.FileMode) (err error) {
	dir := filepath.Dir(name)
	tmp := filepath.Join(dir, fmt.Sprintf(".%s.tmp-%016x", filepath.Base(name), rand.Uint64()))
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", name, err)
		}
	}()
	if err := writeSynced(fsys, tmp, data, perm); err != nil {
		_ = fsys.Remove(tmp)
		return err
	}
	if err := fsys.Rename(tmp, name); err != nil {
		_ = fsys.Remove(tmp)
		return err
	}
	return fsys.SyncDir(dir)
}

func writeSynced(fsys disk.FS, name string, data []byte, perm fs.FileMode) (err error) {
	f, err := fsys.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	if err := f.Chmod(perm); err != nil { // whatever the umask says
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Sync()
}
