package components

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
)

// rootFile is where the first root is kept.
func (c *Components) rootFile() string {
	if c.o.Root != "" {
		return c.o.Root
	}
	return filepath.Join(c.o.Dir, "root.json")
}

// keepRoot keeps the first root that control sends, unless there is one.
func (c *Components) keepRoot(root []byte) error {
	if c.o.Root != "" || len(root) == 0 {
		return nil
	}
	if err := c.restore(filepath.Base(c.rootFile()), c.rootFile()); err != nil {
		return err
	}
	if _, err := os.Stat(c.rootFile()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if c.o.Store != nil {
		if err := c.o.Store.Save(filepath.Base(c.rootFile()), root); err != nil {
			return err
		}
	}
	if err := disk.MkdirAll(c.o.FS, c.o.Dir, 0o700); err != nil {
		return err
	}
	return atomicfile.WriteTo(c.o.FS, c.rootFile(), root, 0o600)
}

// restore writes a file that the Store has and the disk has not.
func (c *Components) restore(name, path string) error {
	if c.o.Store == nil {
		return nil
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	b, err := c.o.Store.Load(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := disk.MkdirAll(c.o.FS, filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return atomicfile.WriteTo(c.o.FS, path, b, 0o600)
}

// What is kept of the repository's metadata: all that says which state was seen. The list of
// targets can be large, and which one it has to be is in the snapshot.
const notKept = "targets.json"

func (c *Components) trustDir(component string) string {
	return filepath.Join(c.o.Dir, component, "trust")
}

// keepTrust saves what was verified, so that a pod that comes up elsewhere can't be shown an
// older state either.
func (c *Components) keepTrust(component string) error {
	if c.o.Store == nil {
		return nil
	}
	entries, err := os.ReadDir(c.trustDir(component))
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if e.Name() == notKept || filepath.Ext(e.Name()) != ".json" {
			continue
		}
		if files[e.Name()], err = os.ReadFile(filepath.Join(c.trustDir(component), e.Name())); err != nil {
			return err
		}
	}
	b, err := json.Marshal(files)
	if err != nil {
		return err
	}
	return c.o.Store.Save(component+".trust.json", b)
}

// restoreTrust brings back the first root, and what was verified since.
func (c *Components) restoreTrust(component string) error {
	if c.o.Store == nil {
		return nil
	}
	if c.o.Root == "" {
		if err := c.restore(filepath.Base(c.rootFile()), c.rootFile()); err != nil {
			return err
		}
	}
	b, err := c.o.Store.Load(component + ".trust.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var files map[string][]byte
	if err := json.Unmarshal(b, &files); err != nil {
		return err
	}
	if err := disk.MkdirAll(c.o.FS, c.trustDir(component), 0o700); err != nil {
		return err
	}
	for name, b := range files {
		path := filepath.Join(c.trustDir(component), filepath.Base(name))
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) { // this pod restarted, and has seen newer
			err = atomicfile.WriteTo(c.o.FS, path, b, 0o600)
			if err != nil {
				return err
			}
		}
	}
	return nil
}
