// Package bootchost is a host that bootc updates, for tests: bootc, skopeo and ostree as far
// as a driver uses them, the end of a system that makes what is staged the first deployment,
// and GRUB as 08_fallback_counting has it. It takes no other arguments than those that the
// manuals document and the driver is known to use, refuses what bootc refuses, and does
// nothing where bootc says that nothing changes (bootc's crates/lib/src/cli.rs and
// deploy.rs: switch to the same image, rollback without one, rollback that reverts).
//
// An archive is JSON here, as Archive makes it.
package bootchost

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"muster.dev/muster/control/agent/software/slots"
)

// Image is a bootable container image.
type Image struct {
	Version string // its label
	Root    []byte // what boots
}

// Archive is an image as a file.
func Archive(i Image) []byte {
	b, err := json.Marshal(i)
	if err != nil {
		panic(err)
	}
	return b
}

type deployment struct {
	Image
	digest, ref string // ref: that it was switched to
}

// Host is the host. Not safe for concurrent use.
type Host struct {
	Env slots.Env // GRUB's environment block

	deployments []deployment // in the order of the boot menu
	staged      *deployment
	booted      int
}

// New installs the first image. Env has to exist by the first Boot.
func New(first Image, env slots.Env) *Host {
	d := open(Archive(first))
	d.ref = "registry:example.com/os:latest"
	return &Host{Env: env, deployments: []deployment{d}}
}

func open(archive []byte) (d deployment) {
	if json.Unmarshal(archive, &d.Image) != nil || d.Version == "" {
		return deployment{}
	}
	sum := sha256.Sum256(archive)
	d.digest = "sha256:" + hex.EncodeToString(sum[:])
	return d
}

// Boot ends the system, in order or by a power cut, which loses what is staged, and boots:
// the first deployment, or the second one if GRUB has counted down. It returns what boots
// and its name.
func (h *Host) Boot(inOrder bool) (name string, root []byte, err error) {
	if inOrder && h.staged != nil {
		h.deployments = []deployment{*h.staged, h.deployments[h.booted]}
	}
	h.staged = nil
	env, err := h.Env.Load()
	if err != nil {
		return "", nil, err
	}
	h.booted = 0
	if n := env["boot_counter"]; n != "" && env["boot_success"] == "0" {
		if n == "0" || n == "-1" {
			h.booted, env["boot_counter"] = min(1, len(h.deployments)-1), "-1"
		} else {
			left, err := strconv.Atoi(n)
			if err != nil {
				return "", nil, err
			}
			env["boot_counter"] = strconv.Itoa(left - 1)
		}
	}
	env["boot_success"] = "0" // as 10_reset_boot_success has it
	if err := h.Env.Save(env); err != nil {
		return "", nil, err
	}
	d := h.deployments[h.booted]
	return d.digest, d.Root, nil
}

// Took has the bootloader have booted the deployment of that name all the same.
func (h *Host) Took(name string) {
	for i := range h.deployments {
		if h.deployments[i].digest == name {
			h.booted = i
		}
	}
}

// Run is updater.Run.
func (h *Host) Run(_ context.Context, name string, args ...string) ([]byte, error) {
	said := name + " " + strings.Join(args, " ")
	is := func(want ...string) bool { return slices.Equal(args, want) }
	switch {
	case name == "bootc" && is("status", "--json", "--format-version=1"):
		return h.status()
	case name == "bootc" && is("rollback"):
		return nil, h.rollback()
	case name == "bootc" && len(args) == 5 && slices.Equal(args[:4], []string{"switch", "--quiet", "--transport", "oci-archive"}):
		return nil, h.change(args[4])
	case name == "ostree" && is("admin", "undeploy", "0"):
		if h.staged == nil {
			if h.booted == 0 {
				return nil, errors.New("error: Cannot undeploy currently booted deployment 0")
			}
			return nil, fmt.Errorf("%s: it would remove a deployment that was booted before", said)
		}
		h.staged = nil
		return nil, nil
	case name == "skopeo" && len(args) == 2 && args[0] == "inspect" && strings.HasPrefix(args[1], "oci-archive:"):
		b, err := os.ReadFile(strings.TrimPrefix(args[1], "oci-archive:"))
		d := open(b)
		if err != nil || d.digest == "" {
			return nil, fmt.Errorf("%s: no image: %w", said, err)
		}
		return json.Marshal(map[string]any{"Digest": d.digest, "Labels": map[string]string{"org.opencontainers.image.version": d.Version}, "Architecture": "amd64"})
	}
	return nil, fmt.Errorf("%s: not known", said)
}

// change is bootc switch.
func (h *Host) change(path string) error {
	spec := h.deployments[h.booted].ref
	if h.staged != nil {
		spec = h.staged.ref
	}
	if spec == "oci-archive:"+path {
		return nil // "Image specification is unchanged."
	}
	b, err := os.ReadFile(path)
	d := open(b)
	if err != nil || d.digest == "" {
		return fmt.Errorf("error: Switching: no image in %s: %w", path, err)
	}
	d.ref = "oci-archive:" + path
	h.staged = &d
	return nil
}

// other is the index of the deployment under rollback; -1: none.
func (h *Host) other() int {
	for i := range h.deployments {
		if i != h.booted {
			return i
		}
	}
	return -1
}

func (h *Host) rollback() error {
	other := h.other()
	if other < 0 {
		return errors.New("error: Rolling back: No rollback available")
	}
	h.staged = nil
	first, second := h.deployments[other], h.deployments[h.booted]
	if h.booted = 1; other < 1 { // it was queued, and is not any more
		first, second, h.booted = second, first, 0
	}
	h.deployments = []deployment{first, second}
	return nil
}

func (h *Host) status() ([]byte, error) {
	entry := func(d *deployment) any {
		if d == nil {
			return nil
		}
		return map[string]any{"image": map[string]any{"image": map[string]any{"image": d.ref, "transport": "oci-archive"}, "version": d.Version, "imageDigest": d.digest, "architecture": "amd64", "timestamp": nil},
			"incompatible": false, "pinned": false, "downloadOnly": false, "ostree": map[string]any{"checksum": d.digest, "deploySerial": 0, "stateroot": "default"}}
	}
	var rollback *deployment
	other := h.other()
	if other >= 0 {
		rollback = &h.deployments[other]
	}
	return json.Marshal(map[string]any{"apiVersion": "org.containers.bootc/v1", "kind": "BootcHost", "metadata": map[string]any{"name": "host"}, "status": map[string]any{
		"staged": entry(h.staged), "booted": entry(&h.deployments[h.booted]), "rollback": entry(rollback), "rollbackQueued": other >= 0 && other < h.booted, "type": "bootcHost"}})
}
