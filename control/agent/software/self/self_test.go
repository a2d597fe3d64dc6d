package self

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/agent/software"
	"muster.dev/muster/control/agent/software/slots"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/softwaredriver"
)

func TestDriver(t *testing.T) {
	softwaredriver.Run(t, softwaredriver.Rig{
		Install: func(t *testing.T, dir string, image []byte) {
			if err := Install(t.Context(), disk.OS{}, filepath.Join(dir, "bin"), "1.0.0", image); err != nil {
				t.Fatal(err)
			}
		},
		Next: func(t *testing.T, dir string) (string, []byte) {
			dir = filepath.Join(dir, "bin")
			slot, _, err := Choose(file(dir, disk.OS{}))
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(binaries(dir)[slot])
			if err != nil {
				t.Fatal(err)
			}
			return slot, b
		},
		Driver: func(t *testing.T, fsys disk.FS, dir, slot, boot string, reboot func(context.Context) error) software.Driver {
			d, err := New(filepath.Join(dir, "bin"), fsys, slot, boot, reboot)
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
	})
}

// What a package manager puts there counts, once; a trial that was to come is off.
func TestAdopt(t *testing.T) {
	dir, path := filepath.Join(t.TempDir(), "bin"), filepath.Join(t.TempDir(), "muster-edge")
	adopt := func(version, want string) {
		t.Helper()
		if err := Adopt(t.Context(), disk.OS{}, dir, version, path); err != nil {
			t.Fatal(err)
		}
		v, err := file(dir, disk.OS{}).Load()
		if err != nil {
			t.Fatal(err)
		}
		slot, trial, err := Choose(file(dir, disk.OS{}))
		if b, rerr := os.ReadFile(binaries(dir)[slot]); err != nil || rerr != nil || trial || string(b) != want || v[slots.Version+slot] != version {
			t.Fatalf("%q %v %v %v %v: %v", b, rerr, trial, err, slot, v)
		}
	}
	install := func(b string) {
		if err := os.WriteFile(path, []byte(b), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	install("one")
	adopt("1.0.0", "one")
	adopt("1.0.0", "one")
	d, err := New(dir, disk.OS{}, "a", "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("two"))
	for _, err := range []error{d.Write(t.Context(), "2.0.0", strings.NewReader("two"), 3), d.Verify(t.Context(), "2.0.0", hex.EncodeToString(sum[:]), 3), d.Switch(t.Context(), "2.0.0")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	install("three")
	adopt("3.0.0", "three")
	adopt("3.0.0", "three")
}

// TestWatch is the watchdog over real processes: it starts a new version once, and the old
// one again when that ends, or lives on and is never marked good.
func TestWatch(t *testing.T) {
	const old = "#!/bin/sh\necho old $MUSTER_SLOT >> \"$1\"\nexec sleep 1000\n"
	for name, tc := range map[string]struct {
		script string
		good   bool // it is marked good
		last   string
	}{
		"ends":  {"#!/bin/sh\necho new $MUSTER_SLOT >> \"$1\"\nexit 3\n", false, "old a"},
		"hangs": {"#!/bin/sh\ntrap '' TERM\necho new $MUSTER_SLOT >> \"$1\"\nexec sleep 1000\n", false, "old a"},
		"good":  {"#!/bin/sh\necho new $MUSTER_SLOT >> \"$1\"\nexec sleep 1000\n", true, "new b"},
		"torn":  {"\x7fELF, but not really", false, "old a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, said := t.TempDir(), filepath.Join(t.TempDir(), "said")
			if err := Install(t.Context(), disk.OS{}, dir, "1.0.0", []byte(old)); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(binaries(dir)["b"], []byte(tc.script), 0o700); err != nil {
				t.Fatal(err)
			}
			env := file(dir, disk.OS{})
			if err := env.Save(map[string]string{slots.Default: "a", slots.Once: "b", slots.Version + "a": "1.0.0", slots.Version + "b": "2.0.0"}); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- Watch(ctx, WatchOptions{Dir: dir, Args: []string{said}, Within: 2 * time.Second, Grace: 100 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
			}()
			lines := func() []string {
				b, _ := os.ReadFile(said)
				return strings.Fields(strings.ReplaceAll(string(b), " ", "-"))
			}
			if tc.good {
				testkit.EventuallyTrue(t, "the new one started", func() bool { return len(lines()) == 1 })
				d, err := New(dir, disk.OS{}, "b", "x", nil)
				if err == nil {
					err = d.MarkGood(t.Context())
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			want := strings.ReplaceAll(tc.last, " ", "-")
			testkit.EventuallyTrue(t, "it runs "+tc.last, func() bool { l := lines(); return len(l) > 0 && l[len(l)-1] == want })
			v, err := env.Load()
			if err != nil || v[slots.Once] != "" {
				t.Errorf("%v, %v: it would be tried again", v, err)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// Whatever is in the file: variables or an error.
func FuzzFile(f *testing.F) {
	f.Add([]byte(`{"muster_default":"a"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "slots.json")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if v, err := (File{path, disk.OS{}}).Load(); err == nil && v == nil {
			t.Error("neither variables nor an error")
		}
	})
}
