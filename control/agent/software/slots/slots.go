// Package slots is a software.Driver over two files or partitions and a few variables that
// say which of them boots: what differs between bootloaders is where the variables stand
// (package grub, package self).
//
// What boots reads Default and, for one boot, Once, which it clears before it boots; so
// whatever becomes of that boot, the next one is the default again. The versions of the
// slots are variables, too: a slot that is being written has none, and is not switched to.
package slots

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"muster.dev/muster/control/agent/software"
	"muster.dev/muster/internal/disk"
)

// Names of the variables; the version of a slot is Version and its name.
const (
	Default = "muster_default"
	Once    = "muster_once"
	Version = "muster_version_"
)

// Env are the variables. Save replaces them all, so that after a power cut they are the
// old ones or the new.
type Env interface {
	Load() (map[string]string, error)
	Save(map[string]string) error
}

// Options of a Driver.
type Options struct {
	Env Env
	// Slots are the paths of the images, by name: two of them, such as a and b.
	Slots map[string]string
	// Running is the name of the slot that runs.
	Running string
	// BootID tells this boot from others.
	BootID string
	// Mode of a slot that is made as a file.
	Mode fs.FileMode
	// Reboot restarts what is in the slots.
	Reboot func(ctx context.Context) error
	FS     disk.FS // nil: the operating system's
}

// Driver implements software.Driver.
type Driver struct {
	o       Options
	passive string
}

// New checks that there are two slots, and that one of them runs.
func New(o Options) (*Driver, error) {
	if o.FS == nil {
		o.FS = disk.OS{}
	}
	if len(o.Slots) != 2 || o.Slots[o.Running] == "" {
		return nil, fmt.Errorf("want two slots, of which %q, the one that runs, is one", o.Running)
	}
	d := &Driver{o: o}
	for name := range o.Slots {
		if name != o.Running {
			d.passive = name
		}
	}
	return d, nil
}

// edit changes variables, unless it is as wanted already; an empty value takes a name out.
func (d *Driver) edit(change map[string]string) error {
	env, err := d.o.Env.Load()
	if err != nil {
		return err
	}
	changed := false
	for name, value := range change {
		if env[name] == value {
			continue
		}
		if changed = true; value == "" {
			delete(env, name)
		} else {
			env[name] = value
		}
	}
	if !changed {
		return nil
	}
	return d.o.Env.Save(env)
}

// State implements software.Driver.
func (d *Driver) State(context.Context) (software.State, error) {
	env, err := d.o.Env.Load()
	if err != nil {
		return software.State{}, err
	}
	running := env[Version+d.o.Running]
	if running == "" {
		return software.State{}, fmt.Errorf("want the variable %s%s, the version that was installed", Version, d.o.Running)
	}
	return software.State{Running: running, Boot: d.o.BootID, Good: env[Default] == d.o.Running, Other: env[Version+d.passive]}, nil
}

// Image is the version that runs and the file or partition that it runs from, which the
// caller closes: what a delta is applied to.
func (d *Driver) Image(ctx context.Context) (version string, image *os.File, err error) {
	s, err := d.State(ctx)
	if err != nil {
		return "", nil, err
	}
	image, err = os.Open(d.o.Slots[d.o.Running])
	return s.Running, image, err
}

// Write implements software.Driver.
func (d *Driver) Write(ctx context.Context, version string, image io.Reader, size int64) error {
	env, err := d.o.Env.Load()
	if err != nil {
		return err
	}
	if env[Default] == d.passive {
		return fmt.Errorf("slot %s is what boots next; what runs was not marked good", d.passive)
	}
	if err := d.edit(map[string]string{Once: "", Version + d.passive: ""}); err != nil {
		return err
	}
	f, err := d.o.FS.OpenFile(d.o.Slots[d.passive], os.O_WRONLY|os.O_CREATE, d.o.Mode)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(f, reader{ctx, image})
	if err == nil && n != size {
		err = fmt.Errorf("the image has %d bytes, want %d", n, size)
	}
	if err != nil {
		return fmt.Errorf("write %s to slot %s: %w", version, d.passive, err)
	}
	return f.Sync()
}

// Verify implements software.Driver.
func (d *Driver) Verify(ctx context.Context, version, digest string, size int64) error {
	f, err := os.Open(d.o.Slots[d.passive])
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.CopyN(sum, reader{ctx, f}, size); err != nil {
		return fmt.Errorf("read slot %s back: %w", d.passive, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != digest {
		return fmt.Errorf("slot %s holds something else than was written: digest %.12s…, want %.12s…; its disk may be failing", d.passive, got, digest)
	}
	return d.edit(map[string]string{Version + d.passive: version})
}

// Switch implements software.Driver.
func (d *Driver) Switch(_ context.Context, version string) error {
	env, err := d.o.Env.Load()
	if err != nil {
		return err
	}
	if got := env[Version+d.passive]; got != version {
		return fmt.Errorf("slot %s holds %q, which was verified, not %s", d.passive, got, version)
	}
	return d.edit(map[string]string{Once: d.passive})
}

// Boot implements software.Driver.
func (d *Driver) Boot(ctx context.Context) error { return d.o.Reboot(ctx) }

// MarkGood implements software.Driver.
func (d *Driver) MarkGood(context.Context) error {
	return d.edit(map[string]string{Default: d.o.Running, Once: ""})
}

// FallBack implements software.Driver. The default is the old slot until MarkGood.
func (d *Driver) FallBack(context.Context) error { return d.edit(map[string]string{Once: ""}) }

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
