package content

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/thanos-io/objstore"

	"muster.dev/muster/control/desired"
	"muster.dev/muster/control/software/bucket"
	"muster.dev/muster/internal/testkit/objectstore"
	"muster.dev/muster/internal/wire"
)

// What is put is found, by another process too, and what is not what its name says is not.
func TestKeeps(t *testing.T) {
	dir := t.TempDir()
	objects := objstore.NewInMemBucket()
	for name, k := range map[string]kept{
		"directory": {
			func() (desired.Content, error) { return Open(dir) },
			func(digest string) error {
				return os.WriteFile(filepath.Join(dir, digest[:2], digest), []byte("other"), 0o600)
			},
			func() error { return os.WriteFile(filepath.Join(dir, "cut-off.part"), nil, 0o600) },
		},
		"bucket": {
			func() (desired.Content, error) { return Bucket{bucket.New(objects)}, nil },
			func(digest string) error {
				return objects.Upload(t.Context(), folder+digest, strings.NewReader("other"))
			},
			func() error { return objects.Upload(t.Context(), "software/1.root.json", strings.NewReader("{}")) },
		},
	} {
		t.Run(name, func(t *testing.T) { testKeeps(t, k) })
	}
	for name, start := range objectstore.All {
		t.Run(name, func(t *testing.T) {
			config := start(t, "acme")
			open := func() (*bucket.Bucket, error) {
				return bucket.Open(t.Context(), bucket.Options{Type: name, Config: config})
			}
			put := func(name, content string) error {
				b, err := open()
				if err != nil {
					return err
				}
				return b.Put(t.Context(), name, strings.NewReader(content))
			}
			testKeeps(t, kept{
				func() (desired.Content, error) { b, err := open(); return Bucket{b}, err },
				func(digest string) error { return put(folder+digest, "other") },
				func() error { return put("software/1.root.json", "{}") },
			})
		})
	}
}

// kept is a place for content, and what may happen to it.
type kept struct {
	open   func() (desired.Content, error)
	damage func(digest string) error
	stray  func() error // something beside the content
}

func testKeeps(t *testing.T, c kept) {
	one, two := []byte("one"), []byte("two")
	d1, d2 := wire.DigestOf(one), wire.DigestOf(two)
	k, err := c.open()
	if err != nil {
		t.Fatal(err)
	}
	if all := listed(t, k); len(all) != 0 {
		t.Fatalf("%q are there before anything was put", all)
	}
	if err := errors.Join(k.Put(t.Context(), d1, one), k.Put(t.Context(), d1, one), k.Put(t.Context(), d2, two), c.stray()); err != nil {
		t.Fatal(err)
	}
	if k, err = c.open(); err != nil {
		t.Fatal(err)
	}
	want := []string{d1, d2}
	slices.Sort(want)
	if all := listed(t, k); !slices.Equal(all, want) {
		t.Fatalf("%q are there, want %q", all, want)
	}
	if b, err := k.Get(t.Context(), d1); err != nil || string(b) != "one" {
		t.Fatalf("%q, %v", b, err)
	}
	if err := c.damage(d2); err != nil {
		t.Fatal(err)
	}
	for _, digest := range []string{d2, wire.DigestOf([]byte("three"))} {
		if b, err := k.Get(t.Context(), digest); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%.12s: %q, %v; want that there is none", digest, b, err)
		}
	}
	if err := errors.Join(k.Remove(t.Context(), d1), k.Remove(t.Context(), d1)); err != nil {
		t.Fatal(err)
	}
	if b, err := k.Get(t.Context(), d1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed: %q, %v", b, err)
	}
}

func listed(t *testing.T, k desired.Content) (all []string) {
	t.Helper()
	if err := k.Each(context.WithoutCancel(t.Context()), func(digest string) { all = append(all, digest) }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}
