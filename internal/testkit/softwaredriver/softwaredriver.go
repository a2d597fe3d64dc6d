// Package softwaredriver is what every software.Driver has to pass: good versions and bad
// ones, put back and taken back, and the power cut before each operation of the disk.
//
// A driver's own test gives it a Rig, the machine under the driver: a disk that fails and
// what boots from it. No driver may need to know of it.
package softwaredriver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/agent/software"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/testkit/faultdisk"
)

// Rig is a machine.
type Rig struct {
	// Install lays it out on an empty disk with the image as the version 1.0.0.
	Install func(t *testing.T, dir string, image []byte)
	// Next is what the bootloader does, and nothing more: it chooses and returns what is in
	// the slot that boots, and its name.
	Next func(t *testing.T, dir string) (slot string, image []byte)
	// Driver as what runs in that slot sees it; boot tells this boot from others, and
	// reboot is how it restarts.
	Driver func(t *testing.T, fsys disk.FS, dir, slot, boot string, reboot func(context.Context) error) software.Driver
	// Pack makes of what a slot shall hold what is released; nil: it is the same.
	Pack func(t *testing.T, version string, image []byte) []byte
	// Disk is dir as a process that is started now sees it; nil: a faultdisk over it.
	Disk func(t *testing.T, dir string) Disk
	// Every is how many operations of the disk lie between two power cuts; 0: each is cut
	// before.
	Every int
	// Fewest is how many operations there are at least; 0: 20.
	Fewest int
}

// Disk fails with faultdisk.ErrPowerOff from the power cut on. Crash makes what the disk
// held then what the next boot finds.
type Disk interface {
	disk.FS
	Ops() int
	PowerOffAfter(n int)
	Crash(seed uint64)
}

// image is what is in a slot: a version, how it does, and enough for some sectors.
func image(version, does string) []byte {
	return append([]byte(version+" "+does+"\n"), bytes.Repeat([]byte(version), 600)...)
}

// What versions do.
const (
	well  = "well"
	sick  = "sick"  // comes up and is never well
	dead  = "dead"  // does not come up
	dying = "dying" // comes up, and goes down on trial
)

// wanted is a version as it is released, and what a slot holds that has it.
func (r Rig) wanted(t *testing.T, version, does string) (software.Wanted, []byte) {
	b := image(version, does)
	released := r.pack(t, version, b)
	sum := sha256.Sum256(released)
	return software.Wanted{Version: version, Digest: hex.EncodeToString(sum[:]), Size: int64(len(released))}, b
}

func (r Rig) pack(t *testing.T, version string, image []byte) []byte {
	t.Helper()
	if r.Pack == nil {
		return image
	}
	return r.Pack(t, version, image)
}

// world is a machine that lives through boots.
type world struct {
	t      *testing.T
	rig    Rig
	dir    string
	disk   Disk
	images map[string][]byte // released, by version
	now    time.Time
	boots  int

	driver  software.Driver
	machine *software.Machine
	slot    string // that was booted
	runs    string // the version in it
	does    string
	asked   bool // to boot
	fetched int
	turn    bool // was taken before a boot and not given back; on no disk of the machine
	refuse  bool // the turn, after it was taken
	cut     int  // operations until the power goes out; 0: never
}

func newWorld(t *testing.T, rig Rig) *world {
	if rig.Disk == nil {
		rig.Disk = func(t *testing.T, dir string) Disk { return faultdisk.New(t, dir) }
	}
	w := &world{t: t, rig: rig, dir: t.TempDir(), images: map[string][]byte{}, now: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)}
	_, b := rig.wanted(t, "1.0.0", well)
	w.images["1.0.0"] = b
	rig.Install(t, w.dir, b)
	w.boot()
	return w
}

// boot is the bootloader and the agent's start.
func (w *world) boot() {
	w.t.Helper()
	for range 4 {
		w.boots++
		slot, b := w.rig.Next(w.t, w.dir)
		head, _, _ := strings.Cut(string(b), "\n")
		version, does, _ := strings.Cut(head, " ")
		if known := w.images[version]; known == nil || !bytes.HasPrefix(b, known) {
			w.t.Fatalf("slot %s was booted, and is not whole: %q", slot, head)
		}
		if does == dead {
			continue
		}
		w.runs, w.does, w.slot = version, does, slot
		w.start()
		return
	}
	w.t.Fatal("no slot comes up any more: the machine is lost")
}

// start is the agent's, in what was booted; also after it was killed.
func (w *world) start() {
	w.t.Helper()
	w.asked = false
	if w.disk != nil && w.cut > 0 {
		w.cut = max(w.cut-w.disk.Ops(), 1)
	}
	if w.disk = w.rig.Disk(w.t, w.dir); w.cut > 0 {
		w.disk.PowerOffAfter(w.cut - 1)
	}
	driver := w.rig.Driver(w.t, w.disk, w.dir, w.slot, fmt.Sprintf("boot-%d", w.boots), func(context.Context) error {
		if w.asked = true; w.runs == "1.0.0" && !w.turn {
			w.t.Error("it restarts into a new version, and it is not its turn")
		}
		return nil
	})
	w.driver = driver
	m, err := software.New(software.Options{Component: "os", Driver: driver, Path: filepath.Join(w.dir, "state", "os.json"), FS: w.disk,
		Hold: time.Minute, Within: 10 * time.Minute, Now: func() time.Time { return w.now },
		Fetch: func(_ context.Context, want software.Wanted, percent func(int)) (string, error) {
			w.fetched++
			percent(50)
			path := filepath.Join(w.t.TempDir(), "image")
			return path, os.WriteFile(path, w.rig.pack(w.t, want.Version, w.images[want.Version]), 0o600)
		},
		BeforeBoot: func(context.Context) error {
			if w.turn = true; w.refuse {
				return errors.New("the node is not drained yet")
			}
			return nil
		},
		AfterTrial: func(context.Context) error { w.turn = false; return nil },
		Healthy: func(context.Context) error {
			if w.does == sick {
				return errors.New("pods crash")
			}
			return nil
		}})
	if w.machine = m; errors.Is(err, faultdisk.ErrPowerOff) {
		w.machine = nil
		return
	}
	if err != nil {
		w.t.Fatalf("after boot %d: %v", w.boots, err)
	}
}

// walk steps until nothing moves, through boots; false: the power went out on the way.
func (w *world) walk(want software.Wanted) bool {
	w.t.Helper()
	for range 400 {
		if w.machine == nil {
			return false
		}
		_, err := w.machine.Step(w.t.Context(), want)
		if errors.Is(err, faultdisk.ErrPowerOff) {
			return false
		}
		if err != nil {
			w.t.Fatal(err)
		}
		switch s := w.machine.Status(); {
		case w.asked:
			w.boot()
		case s.Phase == software.Done || s.Phase == software.Failed:
			if w.turn {
				w.t.Fatalf("its turn to restart was not given back: %+v", s)
			}
			return true
		case w.does == dying && s.Phase == software.Installing && w.runs == want.Version:
			w.boot() // it went down
		}
		w.now = w.now.Add(20 * time.Second)
	}
	w.t.Fatalf("no end of it: %+v", w.machine.Status())
	return false
}

// stays tells whether the machine runs the version, also after boots that nobody asked for.
func (w *world) stays(version string) {
	w.t.Helper()
	for range 2 {
		if w.runs != version {
			w.t.Fatalf("%s runs, want %s; %+v", w.runs, version, w.machine.Status())
		}
		w.boot()
	}
}

// Run runs all.
func Run(t *testing.T, rig Rig) {
	t.Run("good", func(t *testing.T) {
		w := newWorld(t, rig)
		for _, version := range []string{"2.0.0", "3.0.0", "2.0.0", "4.0.0"} { // also back to an older one
			want, b := rig.wanted(t, version, well)
			w.images[version] = b
			w.walk(want)
			if s := w.machine.Status(); s.Phase != software.Done || s.Running != version {
				t.Fatalf("%+v", s)
			}
			w.stays(version)
		}
	})
	for does, why := range map[string]string{sick: "pods crash", dead: "did not come up", dying: "went down"} {
		t.Run(does, func(t *testing.T) {
			w := newWorld(t, rig)
			want, b := rig.wanted(t, "2.0.0", does)
			w.images["2.0.0"] = b
			w.walk(want)
			if s := w.machine.Status(); s.Phase != software.Failed || s.Running != "1.0.0" || !strings.Contains(s.Message, why) || !strings.Contains(s.Message, "1.0.0 runs") {
				t.Fatalf("%+v", s)
			}
			w.stays("1.0.0")
			boots := w.boots
			w.walk(want)
			if w.boots != boots {
				t.Error("what failed is tried again, and nobody asked for it")
			}
			want.Retry++
			if w.walk(want); w.boots == boots {
				t.Error("it was asked to try again and did not")
			}
			next, b := rig.wanted(t, "3.0.0", well)
			w.images["3.0.0"] = b
			w.walk(next)
			w.stays("3.0.0")
		})
	}
	t.Run("taken back on trial", func(t *testing.T) {
		w := newWorld(t, rig)
		want, b := rig.wanted(t, "2.0.0", sick)
		w.images["2.0.0"] = b
		for w.runs != "2.0.0" {
			if _, err := w.machine.Step(t.Context(), want); err != nil {
				t.Fatal(err)
			}
			if w.asked {
				w.boot()
			}
		}
		old, _ := rig.wanted(t, "1.0.0", well)
		w.walk(old)
		w.stays("1.0.0")
	})
	t.Run("not wanted any more before its turn came", func(t *testing.T) {
		w := newWorld(t, rig)
		want, b := rig.wanted(t, "2.0.0", well)
		w.images["2.0.0"] = b
		w.refuse = true
		for range 10 {
			_, _ = w.machine.Step(t.Context(), want)
		}
		if s := w.machine.Status(); !w.turn || w.asked || s.Message != "os 2.0.0: the node is not drained yet" {
			t.Errorf("asked to restart %t, %+v", w.asked, s)
		}
		old, _ := rig.wanted(t, "1.0.0", well)
		w.walk(old)
		w.stays("1.0.0")
	})
	t.Run("a turn that an earlier process left", func(t *testing.T) {
		w := newWorld(t, rig)
		w.turn = true
		old, _ := rig.wanted(t, "1.0.0", well)
		w.walk(old)
	})
	t.Run("marked good, which was not noted, and taken back", func(t *testing.T) {
		w := newWorld(t, rig)
		want, b := rig.wanted(t, "2.0.0", well)
		w.images["2.0.0"] = b
		for w.runs != "2.0.0" || w.machine.Status().Phase != software.Installing {
			if _, err := w.machine.Step(t.Context(), want); err != nil {
				t.Fatal(err)
			}
			if w.asked {
				w.boot()
			}
		}
		if err := w.driver.MarkGood(t.Context()); err != nil {
			t.Fatal(err)
		}
		old, _ := rig.wanted(t, "1.0.0", well)
		w.walk(old)
		w.stays("1.0.0")
	})
	t.Run("the bootloader took the old one all the same", func(t *testing.T) {
		w := newWorld(t, rig)
		want, b := rig.wanted(t, "2.0.0", well)
		w.images["2.0.0"] = b
		first := w.slot
		w.walk(want)
		w.boots++
		w.slot, w.runs = first, "1.0.0"
		w.start()
		w.walk(want)
		w.stays("2.0.0")
	})
	t.Run("back to what ran before", func(t *testing.T) {
		w := newWorld(t, rig)
		w.walk(software.Wanted{Back: true}) // nobody asked for another one yet
		w.stays("1.0.0")
		want, b := rig.wanted(t, "2.0.0", well)
		w.images["2.0.0"] = b
		w.walk(want)
		w.stays("2.0.0")
		if s, err := w.driver.State(t.Context()); err != nil || s.Other != "1.0.0" {
			t.Fatalf("the other slot: %+v, %v", s, err)
		}
		fetched := w.fetched
		w.walk(software.Wanted{Back: true})
		if s := w.machine.Status(); s.Phase != software.Done || w.fetched != fetched {
			t.Errorf("%+v, fetched %d times", s, w.fetched-fetched)
		}
		w.stays("1.0.0")
		w.walk(want)
		want, b = rig.wanted(t, "3.0.0", well)
		w.images["3.0.0"] = b
		w.walk(want)
		w.walk(software.Wanted{Back: true})
		if s := w.machine.Status(); s.Phase != software.Failed || !strings.Contains(s.Message, "1.0.0, which ran before, is not in the other slot any more, which holds 2.0.0") {
			t.Errorf("%+v", s)
		}
		w.stays("3.0.0")
		if err := w.driver.Write(t.Context(), "4.0.0", bytes.NewReader(b[:8]), want.Size); err == nil {
			t.Error("half an image was taken for a whole one")
		}
		if s, err := w.driver.State(t.Context()); err != nil || s.Other != "" {
			t.Errorf("half written: %+v, %v", s, err)
		}
	})
	t.Run("half written", func(t *testing.T) {
		w := newWorld(t, rig)
		want, b := rig.wanted(t, "2.0.0", well)
		w.images["2.0.0"] = b
		ctx := t.Context()
		for _, err := range []error{w.driver.Write(ctx, "2.0.0", bytes.NewReader(rig.pack(t, "2.0.0", b)), want.Size), w.driver.Verify(ctx, "2.0.0", want.Digest, want.Size), w.driver.Switch(ctx, "2.0.0")} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if w.driver.Write(ctx, "3.0.0", bytes.NewReader(rig.pack(t, "2.0.0", b)[:want.Size/2]), want.Size) == nil {
			t.Error("half an image was taken for a whole one")
		}
		for _, version := range []string{"2.0.0", "3.0.0"} {
			if w.driver.Switch(ctx, version) == nil {
				t.Errorf("switched to %s, which is half written", version)
			}
		}
		w.stays("1.0.0")
	})
	t.Run("another image than was wanted", func(t *testing.T) {
		w := newWorld(t, rig)
		want, _ := rig.wanted(t, "2.0.0", well)
		w.images["2.0.0"] = image("2.0.0", sick)
		for range 10 {
			_, _ = w.machine.Step(t.Context(), want)
		}
		if s := w.machine.Status(); s.Phase != software.Failed || w.asked {
			t.Errorf("%+v", s)
		}
		w.stays("1.0.0")
	})
	for _, does := range []string{well, sick} {
		t.Run("power cut, "+does, func(t *testing.T) { powerCut(t, rig, does, false) })
		t.Run("killed, "+does, func(t *testing.T) { powerCut(t, rig, does, true) })
	}
}

// powerCut cuts the power before each operation in turn, of all boots. Whatever boots is
// whole, and the end is the one that it would have been without. Or it kills the agent
// there, while the machine goes on.
func powerCut(t *testing.T, rig Rig, does string, kill bool) {
	for cut := 1; ; cut += max(rig.Every, 1) {
		w := newWorld(t, rig)
		want, b := rig.wanted(t, "2.0.0", does)
		w.images["2.0.0"] = b
		w.cut = cut
		w.disk.PowerOffAfter(cut - 1)
		done := w.walk(want)
		if !done {
			if w.cut = 0; kill {
				w.start()
			} else {
				w.disk.Crash(uint64(cut))
				w.boot()
			}
			if !w.walk(want) {
				t.Fatalf("cut %d: no power after the cut", cut)
			}
		}
		s, end := w.machine.Status(), "2.0.0"
		if does == sick {
			end = "1.0.0"
		}
		if s.Running != end {
			t.Fatalf("cut %d: %+v", cut, s)
		}
		w.cut = 0
		w.stays(end)
		if done {
			fewest := rig.Fewest
			if fewest == 0 {
				fewest = 20
			}
			if cut < fewest {
				t.Fatalf("the power was cut among %d operations only: does the driver write around its disk.FS?", cut-1)
			}
			t.Logf("the power was cut among %d operations", cut-1)
			return
		}
	}
}
