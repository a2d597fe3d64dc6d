package grub

import (
	"bytes"
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster.dev/muster/control/agent/software"
	"muster.dev/muster/control/agent/software/slots"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/testkit/softwaredriver"
)

func layout(dir string) (env string, images map[string]string) {
	return filepath.Join(dir, "grubenv"), map[string]string{"a": filepath.Join(dir, "a.img"), "b": filepath.Join(dir, "b.img")}
}

// editenv is GRUB's own tool, where it is installed.
func editenv(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("grub-editenv", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("grub-editenv %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestDriver drives it over a bootloader that does what Config says, the block read and
// written by GRUB's own tool if there is one.
func TestDriver(t *testing.T) {
	_, err := exec.LookPath("grub-editenv")
	real := err == nil
	softwaredriver.Run(t, softwaredriver.Rig{
		Install: func(t *testing.T, dir string, image []byte) {
			env, images := layout(dir)
			b, err := format(map[string]string{slots.Default: "a", slots.Version + "a": "1.0.0", "saved_entry": "somebody else's"})
			if err != nil {
				t.Fatal(err)
			}
			for name, b := range map[string][]byte{env: b, images["a"]: image, images["b"]: []byte("empty")} {
				if err := os.WriteFile(name, b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		},
		Next: func(t *testing.T, dir string) (string, []byte) {
			env, images := layout(dir)
			v := map[string]string{}
			if real {
				for line := range strings.Lines(editenv(t, env, "list")) {
					name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
					v[name] = value
				}
			} else if v, err = (Block{Path: env, FS: disk.OS{}}).Load(); err != nil {
				t.Fatal(err)
			}
			if v["saved_entry"] != "somebody else's" {
				t.Fatalf("somebody else's variable is gone: %v", v)
			}
			slot := v[slots.Default]
			if once := v[slots.Once]; once != "" {
				slot = once
				if real {
					editenv(t, env, "set", slots.Once+"=")
				} else {
					delete(v, slots.Once)
					if err := (Block{Path: env, FS: disk.OS{}}).Save(v); err != nil {
						t.Fatal(err)
					}
				}
			}
			b, err := os.ReadFile(images[slot])
			if err != nil {
				t.Fatal(err)
			}
			return slot, b
		},
		Driver: func(t *testing.T, fsys disk.FS, dir, slot, boot string, reboot func(context.Context) error) software.Driver {
			env, images := layout(dir)
			d, err := New(Options{Env: env, Slots: images, Running: slot, BootID: boot, Reboot: reboot, FS: fsys, Settle: func(string) error { return nil }})
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
	})
}

func TestConfigIsGRUBs(t *testing.T) {
	if _, err := exec.LookPath("grub-script-check"); err != nil {
		t.Skip("grub-script-check is not installed (package grub-common)")
	}
	cmd := exec.Command("grub-script-check", "-v")
	cmd.Stdin = strings.NewReader(Config)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, name := range []string{slots.Default, slots.Once} {
		if !strings.Contains(Config, "$"+name) {
			t.Errorf("Config does not read %s", name)
		}
	}
}

// What GRUB's tool writes we read, and it reads what we write.
func TestBlockIsGRUBs(t *testing.T) {
	if _, err := exec.LookPath("grub-editenv"); err != nil {
		t.Skip("grub-editenv is not installed (package grub-common)")
	}
	path := filepath.Join(t.TempDir(), "grubenv")
	editenv(t, path, "create")
	editenv(t, path, "set", "a=1", `b=back\slash`, "empty=", "c=x=y#z")
	want := map[string]string{"a": "1", "b": `back\slash`, "empty": "", "c": "x=y#z"}
	got, err := Block{Path: path, FS: disk.OS{}}.Load()
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if err := (Block{Path: path, FS: disk.OS{}}).Save(want); err != nil {
		t.Fatal(err)
	}
	editenv(t, path, "unset", "a")
	list := editenv(t, path, "list")
	for _, line := range []string{"c=x=y#z\n", "empty=\n"} {
		if !strings.Contains(list, line) {
			t.Errorf("%q has no %q", list, line)
		}
	}
}

// Any 1024 bytes are variables, which come out again as they went in, or an error.
func FuzzBlock(f *testing.F) {
	good, _ := format(map[string]string{"a": "1", "b": "two\nlines \\"})
	f.Add(good)
	f.Add([]byte(signature))
	f.Add(append([]byte(signature), bytes.Repeat([]byte("\\"), blockSize-len(signature))...))
	f.Fuzz(func(t *testing.T, b []byte) {
		env, err := parse(b)
		if err != nil {
			return
		}
		again, err := format(env)
		if err != nil {
			return // a name that we would not write, or no room for it
		}
		if back, err := parse(again); err != nil || !maps.Equal(back, env) {
			t.Fatalf("%q became %q, %v", env, back, err)
		}
	})
}
