// Package rauc leaves a host's operating system to RAUC: a software.Driver whose files are
// RAUC bundles and whose slots are those of RAUC's system.conf. It runs the rauc command
// (RAUC's documentation, "Using RAUC" and "RAUC System Configuration File"; tested with
// RAUC 1.8), which asks RAUC's service; it writes to no slot and no bootloader by itself.
//
// What system.conf has to say, beside two slots of one class with a bootname: a
// bootloader; activate-installed=false, since it is Switch that activates; and a central
// statusfile, or data-directory, that both slots share, since it says what is in them. No
// other unit may call rauc status mark-good: what is on trial would be good before it is
// judged. New does it for each start of what is not on trial, because bootloaders count
// boots down until it is done.
//
// RAUC has a bootloader try a slot more than once if it was set up so (U-Boot's
// BOOT_x_LEFT): have it try once. GRUB's way of RAUC does.
//
// # Whose signature counts
//
// Both. A SoftwareVersion's digest, signed in the repository that the agent trusts, covers
// the .raucb file byte for byte; so which file comes to which site, and that no older or
// withdrawn one does, is Muster's. RAUC checks the bundle's own signature against the
// host's keyring, and each image's hash as it writes it; so what the host's makers did not
// build is refused, whoever runs Muster, and so is a bundle for other hardware
// (compatible). Neither knows the other's keys, and both rotate by themselves.
package rauc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"muster.dev/muster/control/agent/software"
	"muster.dev/muster/control/agent/software/updater"
	"muster.dev/muster/internal/disk"
)

const bundle = "bundle.raucb"

// Options of New.
type Options struct {
	// Dir is for the bundle while it is installed, and a few facts, on storage that both
	// slots share. It is the driver's alone.
	Dir string
	// Version is what runs if RAUC does not know, as on a host whose first image was
	// written without it; empty: that is an error.
	Version string
	// BootID is what /proc/sys/kernel/random/boot_id says.
	BootID string
	// Reboot restarts the machine.
	Reboot func(ctx context.Context) error
	Run    updater.Run // nil: updater.Exec
	FS     disk.FS     // nil: the operating system's
}

// Driver implements software.Driver.
type Driver struct {
	o   Options
	dir updater.Dir
}

// New marks what runs as good, unless it is on trial.
func New(ctx context.Context, o Options) (*Driver, error) {
	if o.Run == nil {
		o.Run = updater.Exec
	}
	if o.FS == nil {
		o.FS = disk.OS{}
	}
	d := &Driver{o, updater.Dir{Path: o.Dir, FS: o.FS}}
	booted, _, err := d.slots(ctx)
	if err != nil {
		return nil, err
	}
	f, err := d.dir.Load()
	if err != nil {
		return nil, err
	}
	if f.Trial != booted.name && booted.BootStatus != "good" {
		if err := d.mark(ctx, "good", "booted"); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// slot is one of `rauc status --detailed --output-format=json`.
type slot struct {
	name       string
	Class      string `json:"class"`
	Bootname   string `json:"bootname"`
	State      string `json:"state"`
	BootStatus string `json:"boot_status"`
	Status     struct {
		Status string `json:"status"`
		Bundle struct {
			Version string `json:"version"`
		} `json:"bundle"`
	} `json:"slot_status"`
}

// parse returns the slot that is booted and the one that is not.
func parse(b []byte) (booted, other slot, err error) {
	var said struct {
		Slots []map[string]slot `json:"slots"`
	}
	if err := json.Unmarshal(b, &said); err != nil {
		return booted, other, fmt.Errorf("what rauc status says: %w", err)
	}
	var bootable []slot
	for _, named := range said.Slots {
		for name, s := range named {
			if s.name = name; s.State == "booted" {
				booted = s
			} else if s.Bootname != "" {
				bootable = append(bootable, s)
			}
		}
	}
	if booted.name == "" {
		return booted, other, errors.New("rauc status names no booted slot; see that the kernel's command line has rauc.slot=, or root= one of the devices in system.conf")
	}
	n := 0
	for _, s := range bootable {
		if s.Class == booted.Class {
			other, n = s, n+1
		}
	}
	if booted.Bootname == "" || n != 1 {
		return booted, other, fmt.Errorf("RAUC has %d slots of the class %q with a bootname beside %s, which runs; want 1: correct system.conf", n, booted.Class, booted.name)
	}
	return booted, other, nil
}

func (d *Driver) slots(ctx context.Context) (booted, other slot, err error) {
	b, err := d.o.Run(ctx, "rauc", "status", "--detailed", "--output-format=json")
	if err != nil {
		return booted, other, err
	}
	return parse(b)
}

func (d *Driver) mark(ctx context.Context, as, which string) error {
	_, err := d.o.Run(ctx, "rauc", "status", "mark-"+as, which)
	return err
}

// State implements software.Driver.
func (d *Driver) State(ctx context.Context) (software.State, error) {
	booted, other, err := d.slots(ctx)
	if err != nil {
		return software.State{}, err
	}
	f, err := d.dir.Load()
	if err != nil {
		return software.State{}, err
	}
	running := d.version(booted)
	if running == "" {
		return software.State{}, fmt.Errorf("RAUC does not know which version %s, which runs, was installed from, and none was configured", booted.name)
	}
	state := software.State{Running: running, Boot: d.o.BootID, Good: f.Trial != booted.name, Other: f.Slots[other.name].Version}
	if holds(other, f, state.Other) != nil {
		state.Other = ""
	}
	return state, nil
}

func (d *Driver) version(booted slot) string {
	if v := booted.Status.Bundle.Version; v != "" {
		return v
	}
	return d.o.Version
}

// Write implements software.Driver: RAUC installs the bundle, which is not activated.
func (d *Driver) Write(ctx context.Context, version string, image io.Reader, size int64) error {
	booted, other, err := d.slots(ctx)
	if err != nil {
		return err
	}
	f, err := d.dir.Load()
	if err != nil {
		return err
	}
	if f.Trial == booted.name {
		return fmt.Errorf("slot %s is what boots next; what runs was not marked good", other.name)
	}
	delete(f.Slots, other.name)
	if f.Slots[booted.name].Version == "" { // as it may be wanted back
		f.Slots[booted.name] = updater.Installed{Version: d.version(booted)}
	}
	if err := d.dir.Save(f); err != nil {
		return err
	}
	if err := d.FallBack(ctx); err != nil {
		return err
	}
	path, digest, err := d.dir.Spool(ctx, bundle, image, size)
	if err != nil {
		return fmt.Errorf("spool %s: %w", version, err)
	}
	b, err := d.o.Run(ctx, "rauc", "info", "--output-format=json", path)
	if err != nil {
		return fmt.Errorf("RAUC refuses the bundle of %s: %w", version, err)
	}
	var info struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(b, &info); err != nil {
		return fmt.Errorf("what rauc info says: %w", err)
	}
	if info.Version != version {
		return fmt.Errorf("the bundle's manifest says version %q, and it was released as %s; build it with the version that it is released as", info.Version, version)
	}
	if _, err := d.o.Run(ctx, "rauc", "install", path); err != nil {
		return err
	}
	if f, err = d.dir.Load(); err != nil {
		return err
	}
	f.Slots[other.name] = updater.Installed{Version: version, Digest: digest}
	if err := d.dir.Save(f); err != nil {
		return err
	}
	return d.dir.Drop(bundle)
}

// Verify implements software.Driver. RAUC has hashed each image as it wrote it; Verify
// compares what it was written from. It reads no slot again: a file system that was mounted
// since is no longer what was written.
func (d *Driver) Verify(ctx context.Context, version, digest string, _ int64) error {
	_, other, err := d.slots(ctx)
	if err != nil {
		return err
	}
	f, err := d.dir.Load()
	if err != nil {
		return err
	}
	if err := holds(other, f, version); err != nil {
		return err
	}
	if got := f.Slots[other.name].Digest; got != digest {
		return fmt.Errorf("slot %s was installed from something else: digest %.12s…, want %.12s…", other.name, got, digest)
	}
	return nil
}

// holds tells whether a slot has all of a version. Of what was in it first RAUC may know
// nothing.
func holds(s slot, f updater.Facts, version string) error {
	if rauc := s.Status; f.Slots[s.name].Version != version || rauc.Bundle.Version != "" && (rauc.Bundle.Version != version || rauc.Status != "ok") {
		return fmt.Errorf("slot %s does not hold %s, whole: RAUC says %q of %q", s.name, version, rauc.Status, rauc.Bundle.Version)
	}
	return nil
}

// Switch implements software.Driver.
func (d *Driver) Switch(ctx context.Context, version string) error {
	booted, other, err := d.slots(ctx)
	if err != nil {
		return err
	}
	f, err := d.dir.Load()
	if err != nil {
		return err
	}
	if f.Trial == booted.name {
		return fmt.Errorf("%s is on trial itself", booted.name)
	}
	if err := holds(other, f, version); err != nil {
		return err
	}
	f.Trial = other.name
	if err := d.dir.Save(f); err != nil {
		return err
	}
	return d.mark(ctx, "active", "other")
}

// Boot implements software.Driver.
func (d *Driver) Boot(ctx context.Context) error { return d.o.Reboot(ctx) }

// MarkGood implements software.Driver.
func (d *Driver) MarkGood(ctx context.Context) error {
	if err := d.mark(ctx, "good", "booted"); err != nil {
		return err
	}
	f, err := d.dir.Load()
	if err != nil {
		return err
	}
	f.Trial = ""
	return d.dir.Save(f)
}

// FallBack implements software.Driver.
func (d *Driver) FallBack(ctx context.Context) error {
	booted, other, err := d.slots(ctx)
	if err != nil {
		return err
	}
	f, err := d.dir.Load()
	if err != nil || f.Trial == "" {
		return err
	}
	if f.Trial == booted.name { // and stays so until the other one is up
		return errors.Join(d.mark(ctx, "active", "other"), d.mark(ctx, "bad", "booted"))
	}
	if err := d.mark(ctx, "active", "booted"); err != nil {
		return err
	}
	if f.Trial == other.name && other.BootStatus == "good" {
		if err := d.mark(ctx, "bad", "other"); err != nil {
			return err
		}
	}
	f.Trial = ""
	return d.dir.Save(f)
}
