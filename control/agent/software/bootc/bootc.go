// Package bootc leaves a host's operating system to bootc on its ostree backend: a
// software.Driver whose files are OCI archives of bootable container images and whose slots
// are deployments. It runs bootc, and beside it skopeo and ostree, which every such host
// has (bootc's manual: bootc-status(8), bootc-switch(8), bootc-rollback(8), "Managing
// upgrades"; ostree-admin-undeploy(1)).
//
// bootc has no boot-once: what it switches to is what boots from then on. So GRUB counts,
// the way greenboot has it: boot_counter and boot_success in its environment block, and
// 08_fallback_counting of Fedora's and CentOS' GRUB (greenboot's own snippet where bootupd
// writes grub.cfg), which boots the second deployment when the counter is used up. The host
// needs that in its grub.cfg and a /boot that GRUB can write to, not btrfs; and nothing else
// may end the counting: no greenboot service, no grub-boot-success.timer. GRUB replays no
// journal: where Settle can do nothing, such as on XFS, a power cut right after a switch may
// cost the trial.
//
// bootc imports the image in Switch, not in Write: what it has staged is booted by any
// restart, and until Switch nothing may be. An image that bootc refuses is told then.
//
// A SoftwareVersion's digest covers the archive byte for byte; bootc asks no registry. The
// image's label org.opencontainers.image.version is the name of the SoftwareVersion. Which
// signatures images need besides is the host's containers-policy.json.
package bootc

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"

	"muster.dev/muster/control/agent/software"
	"muster.dev/muster/control/agent/software/slots"
	"muster.dev/muster/control/agent/software/updater"
	"muster.dev/muster/internal/disk"
)

// Variables of GRUB's.
const (
	counter = "boot_counter" // boots that are left
	success = "boot_success" // 0: they count
)

// Options of New.
type Options struct {
	// Dir is for the archive until it is installed, and a few facts, below /var. It is the
	// driver's alone.
	Dir string
	// Env is GRUB's environment block, a grub.Block on /boot/grub2/grubenv, or what that is
	// a link to.
	Env slots.Env
	// BootID is what /proc/sys/kernel/random/boot_id says.
	BootID string
	// Reboot restarts the machine, in order: ostree makes a staged deployment the first one
	// as the system goes down.
	Reboot func(ctx context.Context) error
	Run    updater.Run // nil: updater.Exec
	FS     disk.FS     // nil: the operating system's
}

// Driver implements software.Driver.
type Driver struct {
	o   Options
	dir updater.Dir
}

// New ends GRUB's counting, unless something is on trial.
func New(o Options) (*Driver, error) {
	if o.Env == nil {
		return nil, errors.New("want GRUB's environment block")
	}
	if o.Run == nil {
		o.Run = updater.Exec
	}
	if o.FS == nil {
		o.FS = disk.OS{}
	}
	d := &Driver{o, updater.Dir{Path: o.Dir, FS: o.FS}}
	f, err := d.dir.Load()
	if err != nil || f.Trial != "" {
		return d, err
	}
	return d, d.count(false)
}

// count has GRUB try the first deployment once, or boot it from then on.
func (d *Driver) count(once bool) error {
	env, err := d.o.Env.Load()
	if err != nil {
		return err
	}
	was := maps.Clone(env)
	if env[success] = "1"; once {
		env[success], env[counter] = "0", "1"
	} else {
		delete(env, counter)
	}
	if maps.Equal(was, env) {
		return nil
	}
	return d.o.Env.Save(env)
}

// host is the status in `bootc status --json --format-version=1`.
type host struct {
	Staged         *deployment `json:"staged"`
	Booted         *deployment `json:"booted"`
	Rollback       *deployment `json:"rollback"`
	RollbackQueued bool        `json:"rollbackQueued"`
}

type deployment struct {
	Image *struct {
		Version string `json:"version"`
		Digest  string `json:"imageDigest"`
	} `json:"image"`
}

// digest of the image's manifest, which is the deployment's name here.
func (p *deployment) digest() string {
	if p == nil || p.Image == nil {
		return ""
	}
	return p.Image.Digest
}

func parse(b []byte) (host, error) {
	var said struct {
		Status host `json:"status"`
	}
	if err := json.Unmarshal(b, &said); err != nil {
		return host{}, fmt.Errorf("what bootc status says: %w", err)
	}
	if said.Status.Booted.digest() == "" {
		return host{}, errors.New("bootc status names no booted image; this host was not installed with bootc, or was changed with rpm-ostree: see bootc status")
	}
	return said.Status, nil
}

func (d *Driver) host(ctx context.Context) (host, updater.Facts, error) {
	b, err := d.o.Run(ctx, "bootc", "status", "--json", "--format-version=1")
	if err != nil {
		return host{}, updater.Facts{}, err
	}
	h, err := parse(b)
	if err != nil {
		return host{}, updater.Facts{}, err
	}
	f, err := d.dir.Load()
	return h, f, err
}

// State implements software.Driver.
func (d *Driver) State(ctx context.Context) (software.State, error) {
	h, f, err := d.host(ctx)
	if err != nil {
		return software.State{}, err
	}
	if h.Booted.Image.Version == "" {
		return software.State{}, errors.New("the image that runs has no label org.opencontainers.image.version; build it with one")
	}
	state := software.State{Running: h.Booted.Image.Version, Boot: d.o.BootID, Good: f.Trial != h.Booted.digest()}
	for name, is := range f.Slots {
		if name != h.Booted.digest() {
			state.Other = is.Version
		}
	}
	return state, nil
}

// archive is the name of a version's file. bootc takes a path that it knows for an image
// that it has.
func archive(version string) string {
	sum := sha256.Sum256([]byte(version))
	return "image-" + hex.EncodeToString(sum[:6]) + ".oci"
}

// Write implements software.Driver: the archive lies beside what runs, and bootc does not
// know of it yet.
func (d *Driver) Write(ctx context.Context, version string, image io.Reader, size int64) error {
	h, f, err := d.host(ctx)
	if err != nil {
		return err
	}
	if f.Trial == h.Booted.digest() {
		return errors.New("what runs was not marked good")
	}
	if err := d.FallBack(ctx); err != nil {
		return err
	}
	if f, err = d.keep(h); err != nil {
		return err
	}
	path, digest, err := d.dir.Spool(ctx, archive(version), image, size)
	if err != nil {
		return fmt.Errorf("spool %s: %w", version, err)
	}
	b, err := d.o.Run(ctx, "skopeo", "inspect", "oci-archive:"+path)
	if err != nil {
		return fmt.Errorf("the archive of %s is no image: %w", version, err)
	}
	var is struct {
		Digest string
		Labels map[string]string
	}
	if err := json.Unmarshal(b, &is); err != nil {
		return fmt.Errorf("what skopeo inspect says: %w", err)
	}
	if got := is.Labels["org.opencontainers.image.version"]; got != version || is.Digest == "" {
		return fmt.Errorf("the image's label org.opencontainers.image.version is %q, and it was released as %s; build it with the version that it is released as", got, version)
	}
	f.Slots[is.Digest] = updater.Installed{Version: version, Digest: digest}
	return d.dir.Save(f)
}

// keep drops what is known of anything but what runs, and archives with it: the other
// deployment goes when a new one comes.
func (d *Driver) keep(h host) (updater.Facts, error) {
	f, err := d.dir.Load()
	if err != nil {
		return f, err
	}
	old := f.Slots
	f.Slots = map[string]updater.Installed{}
	f.Slots[h.Booted.digest()] = updater.Installed{Version: h.Booted.Image.Version, Digest: old[h.Booted.digest()].Digest}
	if err := d.dir.Save(f); err != nil {
		return f, err
	}
	for name, is := range old {
		if _, ok := f.Slots[name]; !ok {
			if err := d.dir.Drop(archive(is.Version)); err != nil {
				return f, err
			}
		}
	}
	return f, nil
}

// holds returns the name under which a version is here whole, in an archive or the other
// deployment.
func holds(h host, f updater.Facts, version string) (name string, err error) {
	for name, is := range f.Slots {
		if is.Version == version && name != h.Booted.digest() {
			return name, nil
		}
	}
	return "", fmt.Errorf("neither an archive nor the other deployment holds %s, whole", version)
}

// Verify implements software.Driver. bootc verifies each layer as it imports it.
func (d *Driver) Verify(ctx context.Context, version, digest string, _ int64) error {
	h, f, err := d.host(ctx)
	if err != nil {
		return err
	}
	name, err := holds(h, f, version)
	if err != nil {
		return err
	}
	if got := f.Slots[name].Digest; got != digest {
		return fmt.Errorf("what is here of %s is from something else: digest %.12s…, want %.12s…", version, got, digest)
	}
	return nil
}

// Switch implements software.Driver.
func (d *Driver) Switch(ctx context.Context, version string) error {
	h, f, err := d.host(ctx)
	if err != nil {
		return err
	}
	if f.Trial == h.Booted.digest() {
		return errors.New("what runs is on trial itself")
	}
	name, err := holds(h, f, version)
	if err != nil {
		return err
	}
	f.Trial = name
	if err := d.dir.Save(f); err != nil {
		return err
	}
	// It counts before there is anything to count: nobody restarts between the two and
	// finds what is not counted.
	if err := d.count(true); err != nil {
		return err
	}
	switch {
	case h.Staged.digest() == name:
		return nil
	case h.Rollback.digest() == name && h.RollbackQueued:
		return nil
	case h.Rollback.digest() == name:
		_, err = d.o.Run(ctx, "bootc", "rollback")
		return err
	}
	if _, err := d.o.Run(ctx, "bootc", "switch", "--quiet", "--transport", "oci-archive", filepath.Join(d.o.Dir, archive(version))); err != nil {
		return err
	}
	if h, _, err = d.host(ctx); err == nil && h.Staged.digest() != name {
		err = fmt.Errorf("bootc has staged %q, want %s; see bootc status", h.Staged.digest(), name)
	}
	return err
}

// Boot implements software.Driver.
func (d *Driver) Boot(ctx context.Context) error { return d.o.Reboot(ctx) }

// MarkGood implements software.Driver.
func (d *Driver) MarkGood(ctx context.Context) error {
	if err := d.count(false); err != nil {
		return err
	}
	h, f, err := d.host(ctx)
	if err != nil {
		return err
	}
	f.Trial = ""
	if err := d.dir.Save(f); err != nil {
		return err
	}
	return d.dir.Drop(archive(h.Booted.Image.Version))
}

// FallBack implements software.Driver.
func (d *Driver) FallBack(ctx context.Context) error {
	h, f, err := d.host(ctx)
	if err != nil || f.Trial == "" {
		return err
	}
	onTrial := f.Trial == h.Booted.digest()
	if h.Staged != nil { // ostree's number of it is 0
		if _, err := d.o.Run(ctx, "ostree", "admin", "undeploy", "0"); err != nil {
			return err
		}
	}
	if h.RollbackQueued != onTrial {
		if _, err := d.o.Run(ctx, "bootc", "rollback"); err != nil {
			return err
		}
	}
	if err := d.count(false); err != nil || onTrial { // and it stays so until the other one is up
		return err
	}
	f.Trial = ""
	return d.dir.Save(f)
}
