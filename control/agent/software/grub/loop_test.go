package grub

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/agent/software"
	"muster.dev/muster/control/agent/software/slots"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/testkit/loopdisk"
	"muster.dev/muster/internal/testkit/softwaredriver"
)

// Before each operation it takes three minutes.
var every = flag.Int("every", 7, "operations of the disk between two power cuts")

const sample = "../../../../deploy/samples/os-grub/grub.cfg"

// machine is a disk that GRUB boots from: boot, os-a and os-b.
func machine(t *testing.T, mount string) *loopdisk.Disk {
	loopdisk.Need(t, "grub-emu", "grub-emu")
	loopdisk.Need(t, "grub-editenv", "grub-common")
	return loopdisk.New(t, mount, loopdisk.Partition{Label: "boot", MiB: 8}, loopdisk.Partition{Label: "os-a", MiB: 4}, loopdisk.Partition{Label: "os-b", MiB: 4})
}

// install makes slot a the default, with GRUB's own tool.
func install(t *testing.T, d *loopdisk.Disk, mount string) {
	d.On()
	cfg, err := os.ReadFile(sample)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(mount, "grub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(mount, "grub", "grub.cfg"), cfg, 0o600); err != nil {
		t.Fatal(err)
	}
	env := filepath.Join(mount, "grub", "grubenv")
	editenv(t, env, "create")
	editenv(t, env, "set", slots.Default+"=a", slots.Version+"a=1.0.0", "saved_entry=somebody else's")
	d.Off()
}

var booted = regexp.MustCompile(`BOOT (\S+) root=PARTLABEL=os-(\w) .*muster\.slot=(\w)`)

// boot is GRUB, the real one as a program, which reads the disk by itself and runs the
// sample from it; only the commands that would load a kernel say so instead.
func boot(t *testing.T, d *loopdisk.Disk) (slot string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"device.map": "(hd0) " + d.Image + "\n",
		"grub.cfg": `set root=hd0,gpt1
set prefix=(hd0,gpt1)/grub
function linux { echo "BOOT $root $2 $3 $4 $5"; }
function initrd { exit; }
source $prefix/grub.cfg
`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "grub-emu", "-d", dir, "-m", filepath.Join(dir, "device.map"), "-r", "host")
	cmd.Env = []string{"TERM=dumb", "PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	m := booted.FindStringSubmatch(string(out))
	if m == nil {
		t.Fatalf("GRUB boots nothing: %v\n%q", err, out)
	}
	if want := map[string]string{"a": "hd0,gpt2", "b": "hd0,gpt3"}[m[3]]; m[1] != want || m[2] != m[3] {
		t.Fatalf("GRUB boots %v", m)
	}
	return m[3]
}

// TestDriverOnADisk drives it over a disk in an image: Linux writes its ext4 and its
// partitions, GRUB reads it, and after a power cut both find what had come to the image.
func TestDriverOnADisk(t *testing.T) {
	var d *loopdisk.Disk
	part := map[string]int{"a": 1, "b": 2}
	softwaredriver.Run(t, softwaredriver.Rig{
		Every: *every,
		Install: func(t *testing.T, dir string, image []byte) {
			if d != nil {
				d.Off() // that of the one before
			}
			d = machine(t, dir)
			d.Fill(part["a"], image)
			install(t, d, dir)
		},
		Next: func(t *testing.T, dir string) (string, []byte) {
			d.Off()
			slot := boot(t, d)
			image := d.Content(part[slot])
			d.On()
			if list := editenv(t, filepath.Join(dir, "grub", "grubenv"), "list"); !strings.Contains(list, "saved_entry=somebody else's\n") {
				t.Fatalf("somebody else's variable is gone: %q", list)
			}
			return slot, image
		},
		Disk: func(*testing.T, string) softwaredriver.Disk { return d.FS() },
		Driver: func(t *testing.T, fsys disk.FS, dir, slot, boot string, reboot func(context.Context) error) software.Driver {
			drv, err := New(Options{Env: filepath.Join(dir, "grub", "grubenv"), Slots: map[string]string{"a": d.Device(1), "b": d.Device(2)}, Running: slot, BootID: boot, Reboot: reboot, FS: fsys})
			if err != nil {
				t.Fatal(err)
			}
			return drv
		},
	})
}

// A power cut right after a Save: GRUB, which replays no journal, goes by what was saved.
func TestGRUBReadsWhatWasSaved(t *testing.T) {
	mount := t.TempDir()
	d := machine(t, mount)
	install(t, d, mount)
	d.On()
	for i := range 4 {
		once := string(rune('a' + i%2))
		fsys := d.FS()
		block := Block{Path: filepath.Join(mount, "grub", "grubenv"), FS: fsys, Settle: Settle}
		if err := block.Save(map[string]string{slots.Default: "a", slots.Once: once}); err != nil {
			t.Fatal(err)
		}
		fsys.Crash(0)
		d.Off()
		if got := boot(t, d); got != once {
			t.Errorf("GRUB boots %s, want %s, which was saved", got, once)
		}
		if got := boot(t, d); got != "a" {
			t.Errorf("then GRUB boots %s, want the default", got)
		}
		d.On()
		if v, err := block.Load(); err != nil || v[slots.Once] != "" {
			t.Errorf("%v, %v: Linux doesn't see that it was booted", v, err)
		}
	}
}

// The slots are file systems: one is made, written through the driver, and mounted.
func TestSlotIsAFileSystem(t *testing.T) {
	mount, root, tree := t.TempDir(), t.TempDir(), t.TempDir()
	d := machine(t, mount)
	install(t, d, mount)
	d.On()
	if err := os.WriteFile(filepath.Join(tree, "os-release"), []byte("VERSION_ID=2.0.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "root.ext4")
	loopdisk.Run(t, "mkfs.ext4", "-q", "-d", tree, path, "4M")
	image, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	drv, err := New(Options{Env: filepath.Join(mount, "grub", "grubenv"), Slots: map[string]string{"a": d.Device(1), "b": d.Device(2)}, Running: "a", BootID: "1"})
	if err != nil {
		t.Fatal(err)
	}
	sum := strings.Fields(loopdisk.Run(t, "sha256sum", path))[0]
	for _, err := range []error{drv.Write(t.Context(), "2.0.0", image, 4<<20), drv.Verify(t.Context(), "2.0.0", sum, 4<<20), drv.Switch(t.Context(), "2.0.0")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	loopdisk.Run(t, "mount", "-o", "ro", d.Device(2), root)
	b, err := os.ReadFile(filepath.Join(root, "os-release"))
	loopdisk.Run(t, "umount", root)
	if err != nil || string(b) != "VERSION_ID=2.0.0\n" {
		t.Errorf("%q, %v", b, err)
	}
	d.Off()
	if slot := boot(t, d); slot != "b" {
		t.Errorf("GRUB boots %s, want b once", slot)
	}
}

func TestSampleIsGRUBs(t *testing.T) {
	loopdisk.Need(t, "grub-script-check", "grub-common")
	loopdisk.Run(t, "grub-script-check", sample)
	b, err := os.ReadFile(sample)
	if err != nil || !strings.Contains(string(b), Config) {
		t.Errorf("the sample does not do what Config says: %v", err)
	}
	if bad := filepath.Join(t.TempDir(), "bad"); os.WriteFile(bad, append(b, "if\n"...), 0o600) != nil || exec.Command("grub-script-check", bad).Run() == nil {
		t.Error("grub-script-check takes anything")
	}
}
