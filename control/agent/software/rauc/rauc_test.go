package rauc

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster.dev/muster/control/agent/software"
	"muster.dev/muster/control/agent/software/updater"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/faultdisk"
	"muster.dev/muster/internal/testkit/softwaredriver"
)

// Before each operation it takes half an hour.
var every = flag.Int("every", 47, "operations of the disk between two power cuts")

// host is one whose operating system the real RAUC replaces: its service on a message bus
// of their own, its GRUB backend with GRUB's own tool, bundles that it signs and mounts. Its
// slots are files, and only the boot is played.
type host struct {
	t       *testing.T
	dir     string
	env     []string
	service *exec.Cmd
	slot    string // that the service was started in
	bundles map[string][]byte
}

func need(t *testing.T, command, debian string) {
	t.Helper()
	if _, err := exec.LookPath(command); err != nil {
		t.Skipf("%s is not installed (package %s)", command, debian)
	}
}

func newHost(t *testing.T) *host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("RAUC mounts bundles, which needs root")
	}
	for command, debian := range map[string]string{"rauc": "rauc", "mksquashfs": "squashfs-tools", "dbus-daemon": "dbus-daemon", "grub-editenv": "grub-common", "openssl": "openssl"} {
		need(t, command, debian)
	}
	if b, err := exec.Command("modprobe", "squashfs").CombinedOutput(); err != nil {
		if known, _ := os.ReadFile("/proc/filesystems"); !bytes.Contains(known, []byte("squashfs")) {
			t.Skipf("this machine mounts no squashfs: %s", b)
		}
	}
	dir, err := os.MkdirTemp("", "rauc-") // a socket lies in it, whose path may not be long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := &host{t: t, dir: dir, bundles: map[string][]byte{}}
	address := "unix:path=" + h.path("bus")
	h.env = append(os.Environ(), "DBUS_SYSTEM_BUS_ADDRESS="+address, "DBUS_STARTER_BUS_TYPE=system")
	h.write("bus.conf", `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>system</type><listen>`+address+`</listen><auth>EXTERNAL</auth><policy context="default"><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/></policy></busconfig>
`)
	bus := exec.Command("dbus-daemon", "--config-file="+h.path("bus.conf"), "--nofork")
	if err := bus.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Process.Kill(); _ = bus.Wait() })
	testkit.Eventually(t, "the message bus listens", func() error { _, err := os.Stat(h.path("bus")); return err })
	h.run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=builder", "-keyout", h.path("key.pem"), "-out", h.path("cert.pem"))
	// What comes first in the service's PATH may kill it: see TestServiceKilled.
	h.write("bin/grub-editenv", `#!/bin/sh
if [ -s "`+h.path("left")+`" ]; then
  left=$(cat "`+h.path("left")+`")
  echo $((left - 1)) > "`+h.path("left")+`"
  [ "$left" -gt 1 ] || { kill -9 $PPID; exit 1; }
fi
exec `+lookPath(t, "grub-editenv")+` "$@"
`)
	h.write("system.conf", fmt.Sprintf(`[system]
compatible=till
bootloader=grub
grubenv=%[1]s/grubenv
statusfile=%[1]s/slots.raucs
mountprefix=%[1]s/mnt
activate-installed=false
[keyring]
path=%[1]s/cert.pem
[slot.rootfs.0]
device=%[1]s/a.img
type=raw
bootname=A
[slot.rootfs.1]
device=%[1]s/b.img
type=raw
bootname=B
`, dir))
	t.Cleanup(h.stop)
	return h
}

func lookPath(t *testing.T, name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (h *host) path(name string) string { return filepath.Join(h.dir, name) }

func (h *host) write(name, content string) {
	h.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(h.path(name)), 0o755), os.WriteFile(h.path(name), []byte(content), 0o755)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) run(name string, args ...string) string {
	h.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = h.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		h.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// install lays the host out as a factory does: RAUC knows nothing of what is in slot A.
func (h *host) install(image []byte) {
	h.stop()
	_ = os.Remove(h.path("slots.raucs"))
	h.write("a.img", string(image))
	h.write("b.img", "empty")
	h.write("mnt/.keep", "")
	h.run("grub-editenv", h.path("grubenv"), "create")
	h.run("grub-editenv", h.path("grubenv"), "set", "ORDER=A B", "A_OK=1", "A_TRY=0", "B_OK=0", "B_TRY=0")
}

// next is what contrib/grub.conf of RAUC does: the first slot in the order that is good and
// was not tried; if there is none, the tries are forgotten.
func (h *host) next() (slot string, image []byte) {
	h.t.Helper()
	h.stop()
	env := map[string]string{}
	for line := range strings.Lines(h.run("grub-editenv", h.path("grubenv"), "list")) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		env[name] = value
	}
	for range 2 {
		for slot := range strings.FieldsSeq(env["ORDER"]) {
			if env[slot+"_OK"] == "1" && env[slot+"_TRY"] == "0" {
				h.run("grub-editenv", h.path("grubenv"), "set", slot+"_TRY=1", "A_OK="+env["A_OK"], "B_OK="+env["B_OK"])
				b, err := os.ReadFile(h.path(strings.ToLower(slot) + ".img"))
				if err != nil {
					h.t.Fatal(err)
				}
				return slot, b
			}
		}
		env["A_TRY"], env["B_TRY"] = "0", "0"
		h.run("grub-editenv", h.path("grubenv"), "set", "A_TRY=0", "B_TRY=0")
	}
	h.t.Fatalf("nothing boots: %v", env)
	return "", nil
}

// start is the service's in the slot that was booted.
func (h *host) start(slot string) {
	h.t.Helper()
	if h.service != nil && h.slot == slot {
		return
	}
	h.stop()
	cmd := exec.Command("rauc", "--conf="+h.path("system.conf"), "--override-boot-slot="+slot, "service")
	cmd.Env = append(h.env, "PATH="+h.path("bin")+":"+os.Getenv("PATH"))
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.service, h.slot = cmd, slot
	testkit.Eventually(h.t, "RAUC's service answers", func() error {
		_, err := h.exec(context.Background(), "rauc", "status")
		return err
	})
}

func (h *host) stop() {
	if h.service != nil {
		_ = h.service.Process.Kill()
		_ = h.service.Wait()
		h.service = nil
	}
	_ = exec.Command("umount", "-q", h.path("mnt/bundle")).Run() // as a boot does
}

// exec is updater.Run on this host's bus.
func (h *host) exec(ctx context.Context, name string, args ...string) ([]byte, error) {
	if name == "rauc" {
		args = append([]string{"--conf=" + h.path("system.conf")}, args...)
	}
	return updater.Exec(ctx, "env", append([]string{"DBUS_SYSTEM_BUS_ADDRESS=unix:path=" + h.path("bus"), name}, args...)...)
}

// pack makes a bundle, which is the same one for the same image.
func (h *host) pack(version string, image []byte) []byte {
	h.t.Helper()
	key := version + string(image)
	if b := h.bundles[key]; b != nil {
		return b
	}
	in, out := filepath.Join(h.t.TempDir(), "in"), filepath.Join(h.t.TempDir(), "out.raucb")
	err := errors.Join(os.Mkdir(in, 0o700), os.WriteFile(filepath.Join(in, "root.img"), image, 0o600),
		os.WriteFile(filepath.Join(in, "manifest.raucm"), []byte("[update]\ncompatible=till\nversion="+version+"\n[image.rootfs]\nfilename=root.img\n"), 0o600))
	if err != nil {
		h.t.Fatal(err)
	}
	h.run("rauc", "bundle", "--cert="+h.path("cert.pem"), "--key="+h.path("key.pem"), in, out)
	b, err := os.ReadFile(out)
	if err != nil {
		h.t.Fatal(err)
	}
	h.bundles[key] = b
	return b
}

func TestDriver(t *testing.T) {
	h := newHost(t)
	softwaredriver.Run(t, softwaredriver.Rig{
		Every:   *every,
		Install: func(_ *testing.T, _ string, image []byte) { h.install(image) },
		Next:    func(*testing.T, string) (string, []byte) { return h.next() },
		Pack:    func(_ *testing.T, version string, image []byte) []byte { return h.pack(version, image) },
		Driver: func(t *testing.T, fsys disk.FS, dir, slot, boot string, reboot func(context.Context) error) software.Driver {
			h.start(slot)
			d, err := New(t.Context(), Options{Dir: filepath.Join(dir, "updates"), Version: "1.0.0", BootID: boot, Reboot: reboot, FS: fsys,
				// RAUC writes by itself, and syncs. The power goes out before it is asked for
				// something, as before each operation of the driver's own disk.
				Run: func(ctx context.Context, name string, args ...string) ([]byte, error) {
					if changes := args[0] == "install" || args[0] == "status" && len(args) > 1 && strings.HasPrefix(args[1], "mark-"); changes {
						if err := fsys.SyncDir(dir); err != nil {
							return nil, err
						}
					}
					return h.exec(ctx, name, args...)
				}})
			if errors.Is(err, faultdisk.ErrPowerOff) {
				return off{}
			}
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
	})
}

// off is the driver of an agent that had no power when it started.
type off struct{ software.Driver }

func (off) State(context.Context) (software.State, error) {
	return software.State{}, faultdisk.ErrPowerOff
}

func (h *host) driver(slot string) *Driver {
	h.t.Helper()
	h.start(slot)
	d, err := New(h.t.Context(), Options{Dir: h.path("updates"), Version: "1.0.0", BootID: "x", Run: h.exec})
	if err != nil {
		h.t.Fatal(err)
	}
	return d
}

// RAUC's service is killed at its accesses to the bootloader: what boots is whole,
// and the next try succeeds.
func TestServiceKilled(t *testing.T) {
	h := newHost(t)
	ctx, old, image := t.Context(), bytes.Repeat([]byte("1.0.0 "), 2000), bytes.Repeat([]byte("2.0.0 "), 2000)
	b := h.pack("2.0.0", image)
	for n := 1; ; n += max(*every/6, 1) {
		h.install(old)
		_ = os.RemoveAll(h.path("updates"))
		slot, _ := h.next()
		d := h.driver(slot)
		h.write("left", fmt.Sprintln(n))
		err := d.Write(ctx, "2.0.0", bytes.NewReader(b), int64(len(b)))
		if err == nil {
			err = d.Switch(ctx, "2.0.0")
		}
		_ = os.Remove(h.path("left"))
		done := err == nil
		slot, got := h.next()
		if whole := bytes.HasPrefix(got, old) || bytes.HasPrefix(got, image); !whole {
			t.Fatalf("killed at %d: slot %s boots, and is not whole", n, slot)
		}
		if done {
			if !bytes.HasPrefix(got, image) || n < 4 {
				t.Errorf("after %d accesses slot %s boots: %.6s", n, slot, got)
			}
			t.Logf("killed among %d accesses", n-1)
			return
		}
		if slot == "A" {
			d = h.driver(slot)
			if err := errors.Join(d.Write(ctx, "2.0.0", bytes.NewReader(b), int64(len(b))), d.Switch(ctx, "2.0.0")); err != nil {
				t.Fatalf("killed at %d, and again: %v", n, err)
			}
			slot, got = h.next()
		}
		if slot != "B" || !bytes.HasPrefix(got, image) {
			t.Fatalf("killed at %d: slot %s boots: %.6s", n, slot, got)
		}
	}
}

// What RAUC does not take, or what is not what it was released as, changes nothing.
func TestRefused(t *testing.T) {
	h := newHost(t)
	h.install([]byte("1.0.0"))
	slot, _ := h.next()
	d := h.driver(slot)
	good := h.pack("2.0.0", []byte("2.0.0"))
	cert, key := h.path("cert.pem"), h.path("key.pem")
	if err := errors.Join(os.Rename(cert, cert+"1"), os.Rename(key, key+"1")); err != nil {
		t.Fatal(err)
	}
	h.run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=somebody", "-keyout", key, "-out", cert)
	foreign := h.pack("2.0.0", []byte("2.0.0 of somebody else"))
	if err := errors.Join(os.Rename(cert+"1", cert), os.Rename(key+"1", key)); err != nil {
		t.Fatal(err)
	}
	torn := bytes.Clone(good)
	torn[len(torn)/3] ^= 1
	for _, tc := range []struct {
		name, version string
		bundle        []byte
		want          string
	}{
		{"signed by somebody else", "2.0.0", foreign, "RAUC refuses the bundle of 2.0.0"},
		{"released as another version", "3.0.0", good, `the bundle's manifest says version "2.0.0", and it was released as 3.0.0`},
		{"torn", "2.0.0", torn, "RAUC refuses the bundle"},
	} {
		err := d.Write(t.Context(), tc.version, bytes.NewReader(tc.bundle), int64(len(tc.bundle)))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
		if err := d.Switch(t.Context(), tc.version); err == nil {
			t.Errorf("%s: switched to it", tc.name)
		}
	}
	if b, err := os.ReadFile(h.path("b.img")); err != nil || string(b) != "empty" {
		t.Errorf("the other slot holds %q, %v", b, err)
	}
}

// Whatever RAUC says: two slots, or an error.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"compatible":"till","booted":"A","boot_primary":"rootfs.0","slots":[{"rootfs.1":{"class":"rootfs","bootname":"B","state":"inactive","boot_status":"bad","slot_status":{"bundle":{"version":"2.0.0"},"status":"ok"}}},{"rootfs.0":{"class":"rootfs","bootname":"A","state":"booted","boot_status":"good"}}]}`))
	f.Add([]byte(`{"slots":[{"a":{"state":"booted"}}]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		booted, other, err := parse(b)
		if err == nil && (booted.name == "" || booted.Class != other.Class || other.Bootname == "" || booted.State != "booted") {
			t.Errorf("%+v, %+v", booted, other)
		}
	})
}
