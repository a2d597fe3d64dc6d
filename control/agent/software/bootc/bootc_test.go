package bootc

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster.dev/muster/control/agent/software"
	"muster.dev/muster/control/agent/software/grub"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/testkit/bootchost"
	"muster.dev/muster/internal/testkit/faultdisk"
	"muster.dev/muster/internal/testkit/softwaredriver"
)

// block makes an empty environment block.
func block(t *testing.T, dir string, fsys disk.FS) grub.Block {
	t.Helper()
	path := filepath.Join(dir, "grubenv")
	if _, err := os.Stat(path); err != nil {
		const head = "# GRUB Environment Block\n"
		if err := os.WriteFile(path, append([]byte(head), bytes.Repeat([]byte("#"), 1024-len(head))...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return grub.Block{Path: path, FS: fsys}
}

func TestDriver(t *testing.T) {
	var h *bootchost.Host
	inOrder := false
	softwaredriver.Run(t, softwaredriver.Rig{
		Install: func(t *testing.T, dir string, image []byte) {
			h = bootchost.New(bootchost.Image{Version: "1.0.0", Root: image}, block(t, dir, disk.OS{}))
		},
		Pack: func(_ *testing.T, version string, image []byte) []byte {
			return bootchost.Archive(bootchost.Image{Version: version, Root: image})
		},
		Next: func(t *testing.T, _ string) (string, []byte) {
			slot, image, err := h.Boot(inOrder)
			if err != nil {
				t.Fatal(err)
			}
			inOrder = false
			return slot, image
		},
		Driver: func(t *testing.T, fsys disk.FS, dir, slot, boot string, reboot func(context.Context) error) software.Driver {
			h.Took(slot)
			d, err := New(Options{Dir: filepath.Join(dir, "updates"), Env: block(t, dir, fsys), BootID: boot, FS: fsys,
				Reboot: func(ctx context.Context) error { inOrder = true; return reboot(ctx) },
				// ostree writes by itself, and syncs. The power goes out before it is asked.
				Run: func(ctx context.Context, name string, args ...string) ([]byte, error) {
					if args[0] != "status" && args[0] != "inspect" {
						if err := fsys.SyncDir(dir); err != nil {
							return nil, err
						}
					}
					return h.Run(ctx, name, args...)
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

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	h := bootchost.New(bootchost.Image{Version: "1.0.0"}, block(t, dir, disk.OS{}))
	d, err := New(Options{Dir: filepath.Join(dir, "updates"), Env: h.Env, Run: h.Run})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		version string
		file    []byte
		want    string
	}{
		{"3.0.0", bootchost.Archive(bootchost.Image{Version: "2.0.0"}), `label org.opencontainers.image.version is "2.0.0", and it was released as 3.0.0`},
		{"2.0.0", []byte("no archive"), "the archive of 2.0.0 is no image"},
	} {
		if err := d.Write(t.Context(), tc.version, bytes.NewReader(tc.file), int64(len(tc.file))); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, want %q", err, tc.want)
		}
		if err := d.Switch(t.Context(), tc.version); err == nil {
			t.Errorf("switched to %s", tc.version)
		}
	}
}

// Whatever bootc says: a booted image, or an error.
func FuzzParse(f *testing.F) {
	b, err := bootchost.New(bootchost.Image{Version: "1.0.0"}, nil).Run(f.Context(), "bootc", "status", "--json", "--format-version=1")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"status":{"booted":{"image":null}}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parse(b); err == nil && h.Booted.digest() == "" {
			t.Errorf("%+v", h)
		}
	})
}
