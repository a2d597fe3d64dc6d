// Package grub lets GRUB choose between two root images, files or partitions, by its
// environment block: a software.Driver of package slots. What grub.cfg has to do for it is
// Config; a whole one is deploy/samples/os-grub/grub.cfg. It starts no program of GRUB's: the block's form is documented, and small.
package grub

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"muster.dev/muster/control/agent/software/slots"
	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
)

// Config is the part of grub.cfg that chooses. What boots a slot stands after it and
// passes muster.slot=$muster_slot to the kernel.
const Config = `load_env
set muster_slot="$muster_default"
if [ -n "$muster_once" ]; then
  set muster_slot="$muster_once"
  set muster_once=""
  save_env muster_once
fi
`

// Options of New.
type Options struct {
	// Env is the environment block, such as /boot/grub/grubenv. Its file system has to
	// replace files whole with a rename, which FAT does not, and GRUB has to be able to
	// write there: not on LVM, RAID, btrfs or ZFS. GRUB replays no journal; if the power
	// fails within a Save, or after it where Settle can do nothing, GRUB may read the block
	// as it was before, and boot accordingly once.
	Env string
	// Slots are the paths of the images, by name: two of them, such as a and b.
	Slots map[string]string
	// Running is the name of the slot that runs: muster.slot= of /proc/cmdline.
	Running string
	// BootID is what /proc/sys/kernel/random/boot_id says.
	BootID string
	// Reboot restarts the machine.
	Reboot func(ctx context.Context) error
	FS     disk.FS // nil: the operating system's
	// Settle brings a directory's file system to where GRUB reads it; nil: Settle.
	Settle func(dir string) error
}

// New checks that there are two slots, and that one of them runs.
func New(o Options) (*slots.Driver, error) {
	if o.FS == nil {
		o.FS = disk.OS{}
	}
	if o.Settle == nil {
		o.Settle = Settle
	}
	return slots.New(slots.Options{Env: Block{o.Env, o.FS, o.Settle}, Slots: o.Slots, Running: o.Running, BootID: o.BootID, Mode: 0o600, Reboot: o.Reboot, FS: o.FS})
}

// Block is an environment block in a file; it implements slots.Env. Variables that are not
// Muster's stay as they are.
type Block struct {
	Path   string
	FS     disk.FS
	Settle func(dir string) error // after each Save; nil: nothing
}

// Load implements slots.Env.
func (b Block) Load() (map[string]string, error) {
	raw, err := os.ReadFile(b.Path)
	if err != nil {
		return nil, err
	}
	env, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.Path, err)
	}
	return env, nil
}

// Save implements slots.Env.
func (b Block) Save(env map[string]string) error {
	raw, err := format(env)
	if err != nil {
		return fmt.Errorf("%s: %w", b.Path, err)
	}
	if err := atomicfile.WriteTo(b.FS, b.Path, raw, 0o644); err != nil || b.Settle == nil {
		return err
	}
	return b.Settle(filepath.Dir(b.Path))
}
