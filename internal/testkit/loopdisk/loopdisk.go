// Package loopdisk is a machine's disk in an image file: a partition table, a mounted
// ext4 partition and raw ones on loop devices, and power that goes out. Tests of what
// replaces an operating system use it, so that the kernel's own file system and the
// bootloader's own programs see what they would see on a site.
//
// It needs root and loop devices, and skips the test with the reason where it lacks
// something. What has no need of a real disk uses faultdisk, which is faster and tears
// sectors, too.
package loopdisk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/testkit/faultdisk"
)

const mib = 1 << 20

// Partition of a Disk.
type Partition struct {
	Label string // in the partition table
	MiB   int64
}

// Disk is off until On. Not safe for concurrent use; what FS returns is.
type Disk struct {
	// Image is the file, which others may read and write while the disk is off.
	Image string

	t     testing.TB
	mount string
	parts []Partition
	loops []string
	power *FS
}

// New makes a disk, whose first partition is an empty ext4 file system, which On mounts on a
// directory. Everything is given back when the test ends.
func New(t testing.TB, mount string, parts ...Partition) *Disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loop devices need root")
	}
	Need(t, "losetup", "mount")
	Need(t, "mkfs.ext4", "e2fsprogs")
	Need(t, "sfdisk", "fdisk")
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skipf("this machine has no loop devices: %v", err)
	}
	d := &Disk{t: t, Image: filepath.Join(t.TempDir(), "disk.img"), mount: mount, parts: parts}
	size, table := int64(1), "label: gpt\n"
	for i, p := range parts {
		table += fmt.Sprintf("start=%d, size=%d, name=%s\n", d.offset(i)/512, p.MiB*mib/512, p.Label)
		size += p.MiB
	}
	must(t, os.WriteFile(d.Image, nil, 0o600))
	must(t, os.Truncate(d.Image, (size+1)*mib))
	cmd := exec.Command("sfdisk", "--quiet", d.Image)
	cmd.Stdin = strings.NewReader(table)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("sfdisk: %v\n%s", err, out)
	}
	t.Cleanup(d.Off)
	d.attach()
	Run(t, "mkfs.ext4", "-q", d.loops[0])
	d.Off()
	return d
}

// Need skips the test where a command is missing, and says which package of Debian has it.
func Need(t testing.TB, command, debian string) {
	t.Helper()
	if _, err := exec.LookPath(command); err != nil {
		t.Skipf("%s is not installed (package %s)", command, debian)
	}
}

// Run runs a command and returns what it says.
func Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (d *Disk) offset(part int) int64 {
	at := int64(mib)
	for _, p := range d.parts[:part] {
		at += p.MiB * mib
	}
	return at
}

func (d *Disk) attach() {
	d.t.Helper()
	for i, p := range d.parts {
		out, err := exec.Command("losetup", "--find", "--show", "--offset", fmt.Sprint(d.offset(i)), "--sizelimit", fmt.Sprint(p.MiB*mib), d.Image).CombinedOutput()
		if err != nil {
			d.t.Skipf("this machine gives no loop device: %v: %s", err, out)
		}
		d.loops = append(d.loops, strings.TrimSpace(string(out)))
	}
}

// On mounts the first partition; the kernel replays its journal.
func (d *Disk) On() {
	d.t.Helper()
	d.attach()
	// What is not synced stays off the disk for longer than a test takes.
	if err := unix.Mount(d.loops[0], d.mount, "ext4", 0, "commit=600"); err != nil {
		d.t.Skipf("this machine doesn't mount loop devices: %v", err)
	}
}

// Off shuts the machine down, or, after Crash, leaves what the power cut left.
func (d *Disk) Off() {
	d.t.Helper()
	if err := unix.Unmount(d.mount, 0); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		d.t.Errorf("unmount %s: %v", d.mount, err)
		_ = unix.Unmount(d.mount, unix.MNT_DETACH)
	}
	for _, loop := range d.loops {
		Run(d.t, "losetup", "--detach", loop)
	}
	d.loops = nil
	if d.power != nil && d.power.crashed {
		must(d.t, os.Rename(d.Image+".cut", d.Image))
	}
	d.power = nil
}

// Device is the path of a partition's loop device while the disk is on.
func (d *Disk) Device(part int) string { return d.loops[part] }

// Content is what a partition holds while the disk is off.
func (d *Disk) Content(part int) []byte {
	d.t.Helper()
	f, err := os.Open(d.Image)
	must(d.t, err)
	defer f.Close()
	b := make([]byte, d.parts[part].MiB*mib)
	_, err = f.ReadAt(b, d.offset(part))
	must(d.t, err)
	return b
}

// Fill puts bytes at a partition's begin while the disk is off.
func (d *Disk) Fill(part int, b []byte) {
	d.t.Helper()
	f, err := os.OpenFile(d.Image, os.O_WRONLY, 0)
	must(d.t, err)
	defer f.Close()
	_, err = f.WriteAt(b, d.offset(part))
	must(d.t, err)
}

// FS is the disk as a process that is started now sees it: the operating system's file
// system, with operations that are counted and power that goes out. The image as it is
// then, without what the kernel had not brought to it, is what Off leaves after Crash.
func (d *Disk) FS() *FS {
	d.power = &FS{d: d}
	return d.power
}

// FS implements disk.FS.
type FS struct {
	disk.OS
	d *Disk

	mu         sync.Mutex
	ops, offAt int
	off        bool // and the image's copy is as it was then
	crashed    bool // and that copy is the disk from now on
}

// Ops returns how many operations changed something.
func (f *FS) Ops() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops
}

// PowerOffAfter cuts the power before the operation that follows n more changes.
func (f *FS) PowerOffAfter(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.offAt = f.ops + n + 1
}

// Crash cuts the power if it is on.
func (f *FS) Crash(uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cutLocked()
	f.crashed = true
}

func (f *FS) cutLocked() {
	if f.off {
		return
	}
	f.off = true
	in, err := os.Open(f.d.Image)
	must(f.d.t, err)
	defer in.Close()
	out, err := os.Create(f.d.Image + ".cut")
	must(f.d.t, err)
	defer out.Close()
	fi, err := in.Stat()
	must(f.d.t, err)
	must(f.d.t, out.Truncate(fi.Size()))
	block, zero := make([]byte, mib), make([]byte, mib)
	for at := int64(0); at < fi.Size(); at += mib { // which leaves holes
		n, err := in.ReadAt(block, at)
		if err != nil && !errors.Is(err, io.EOF) {
			f.d.t.Fatal(err)
		}
		if bytes.Equal(block[:n], zero[:n]) {
			continue
		}
		_, err = out.WriteAt(block[:n], at)
		must(f.d.t, err)
	}
}

// change counts an operation, and fails it if the power is off.
func (f *FS) change() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ops++; f.offAt > 0 && f.ops >= f.offAt {
		f.cutLocked()
	}
	if f.off {
		return faultdisk.ErrPowerOff
	}
	return nil
}

// Mkdir implements disk.FS.
func (f *FS) Mkdir(path string, perm fs.FileMode) error {
	if err := f.change(); err != nil {
		return err
	}
	return f.OS.Mkdir(path, perm)
}

// Rename implements disk.FS.
func (f *FS) Rename(from, to string) error {
	if err := f.change(); err != nil {
		return err
	}
	return f.OS.Rename(from, to)
}

// Remove implements disk.FS.
func (f *FS) Remove(path string) error {
	if err := f.change(); err != nil {
		return err
	}
	return f.OS.Remove(path)
}

// SyncDir implements disk.FS.
func (f *FS) SyncDir(path string) error {
	if err := f.change(); err != nil {
		return err
	}
	return f.OS.SyncDir(path)
}

// OpenFile implements disk.FS.
func (f *FS) OpenFile(path string, flag int, perm fs.FileMode) (disk.File, error) {
	if flag&(os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_RDWR) != 0 {
		if err := f.change(); err != nil {
			return nil, err
		}
	}
	file, err := f.OS.OpenFile(path, flag, perm)
	if err != nil {
		return nil, err
	}
	return &openFile{file, f}, nil
}

type openFile struct {
	disk.File
	f *FS
}

// Write implements disk.File.
func (o *openFile) Write(b []byte) (int, error) {
	if err := o.f.change(); err != nil {
		return 0, err
	}
	return o.File.Write(b)
}

// Truncate implements disk.File.
func (o *openFile) Truncate(size int64) error {
	if err := o.f.change(); err != nil {
		return err
	}
	return o.File.Truncate(size)
}

// Sync implements disk.File.
func (o *openFile) Sync() error {
	if err := o.f.change(); err != nil {
		return err
	}
	return o.File.Sync()
}
