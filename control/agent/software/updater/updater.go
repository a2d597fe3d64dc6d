// Package updater is what drivers have in common that leave the work to an updater which
// the host has (packages rauc and bootc): its commands, and a few facts that it can't be
// asked for. It knows no updater.
package updater

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
)

// Run runs a command of the updater's and returns what it said on standard output.
type Run func(ctx context.Context, name string, args ...string) ([]byte, error)

// Exec is Run. The error has the end of what the command said on standard error.
func Exec(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		return out, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.Join(lines[max(0, len(lines)-3):], "; "))
	}
	return out, nil
}

// Facts are kept beside the updater's own state.
type Facts struct {
	// Trial is the slot, or deployment, that is tried with the next boot or this one.
	Trial string `json:"trial,omitempty"`
	// Slots are what is whole in them, by name.
	Slots map[string]Installed `json:"slots,omitempty"`
}

// Installed is a version and the SHA-256 of the file that it was installed from; none of
// what was there first.
type Installed struct {
	Version string `json:"version"`
	Digest  string `json:"digest,omitempty"`
}

func (f Facts) equal(g Facts) bool { return f.Trial == g.Trial && maps.Equal(f.Slots, g.Slots) }

// Dir is a directory that all slots share. It is the driver's alone.
type Dir struct {
	Path string
	FS   disk.FS
}

// Load returns the facts; none, if none were kept. Slots is never nil.
func (d Dir) Load() (f Facts, err error) {
	f.Slots = map[string]Installed{}
	path := filepath.Join(d.Path, "facts.json")
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return f, fmt.Errorf("%s: %w; remove it if what runs is well", path, err)
	}
	if f.Slots == nil { // it says null
		f.Slots = map[string]Installed{}
	}
	return f, nil
}

// Save replaces the facts, unless they are the same.
func (d Dir) Save(f Facts) error {
	if was, err := d.Load(); err == nil && was.equal(f) {
		return nil
	}
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if err := disk.MkdirAll(d.FS, d.Path, 0o700); err != nil {
		return err
	}
	return atomicfile.WriteTo(d.FS, filepath.Join(d.Path, "facts.json"), b, 0o600)
}

// Spool puts what is read into a file of that name, for the updater, and returns its path
// and SHA-256. It is a new file each time: an updater that still reads the former one
// goes on with that.
func (d Dir) Spool(ctx context.Context, name string, image io.Reader, size int64) (path, digest string, err error) {
	if err := disk.MkdirAll(d.FS, d.Path, 0o700); err != nil {
		return "", "", err
	}
	path = filepath.Join(d.Path, name)
	if err := d.Drop(name); err != nil {
		return "", "", err
	}
	f, err := d.FS.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", "", err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), reader{ctx, image})
	if err == nil && n != size {
		err = fmt.Errorf("the file has %d bytes, want %d", n, size)
	}
	if err != nil {
		return "", "", err
	}
	return path, hex.EncodeToString(sum.Sum(nil)), f.Sync()
}

// Drop removes a file that was spooled, if it is there.
func (d Dir) Drop(name string) error {
	if err := d.FS.Remove(filepath.Join(d.Path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// reader ends with its context.
type reader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (r reader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, errors.Join(err, context.Cause(r.ctx))
	}
	return r.r.Read(b)
}
