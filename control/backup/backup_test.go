package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// source is a data directory with something of each kind.
func source(t testing.TB) Source {
	dir := t.TempDir()
	for name, text := range map[string]string{"control/pki/ca.pem": "the CA", "control/apiserver/etcd/db": "torn", "control/empty": "", "admin.token": "secret", "regional-one/samples": "many"} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "control", "link")); err != nil {
		t.Fatal(err)
	}
	return Source{Manifest: Manifest{Muster: "v1", Created: time.Unix(1e9, 0).UTC(), TrustDomain: "muster.local"}, Dir: dir, Trees: []string{"control", "admin.token", "admin.kubeconfig"},
		Leave: func(name string) bool { return name == "control/apiserver/etcd" },
		Parts: []Part{{"etcd.snapshot", func(_ context.Context, w io.Writer) error { _, err := io.WriteString(w, "all objects"); return err }}}}
}

func archive(t testing.TB, s Source) []byte {
	var b bytes.Buffer
	if err := Write(t.Context(), &b, s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRoundTrip(t *testing.T) {
	s := source(t)
	into := filepath.Join(t.TempDir(), "a", "b")
	m, err := Read(bytes.NewReader(archive(t, s)), into)
	if err != nil {
		t.Fatal(err)
	}
	if m.Muster != "v1" || m.TrustDomain != "muster.local" || !m.Created.Equal(s.Manifest.Created) || m.ExternalEtcd {
		t.Errorf("%+v", m)
	}
	for name, want := range map[string]string{"control/pki/ca.pem": "the CA", "control/empty": "", "admin.token": "secret", "etcd.snapshot": "all objects"} {
		if b, err := os.ReadFile(filepath.Join(into, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		if m.Files[name] == "" {
			t.Errorf("the manifest has no %s", name)
		}
	}
	if len(m.Files) != 4 {
		t.Errorf("it has %v", m.Files)
	}
	if left, _ := filepath.Glob(filepath.Join(s.Dir, ".backup-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A directory that lies on another disk, and is a link to there, is taken as one that does not.
func TestTreesThatAreLinks(t *testing.T) {
	s := source(t)
	elsewhere := filepath.Join(t.TempDir(), "disk")
	if err := os.Rename(filepath.Join(s.Dir, "control"), elsewhere); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(s.Dir, "control")); err != nil {
		t.Fatal(err)
	}
	m, err := Read(bytes.NewReader(archive(t, s)), "")
	if err != nil {
		t.Fatal(err)
	}
	if m.Files["control/pki/ca.pem"] == "" || m.Files["control/apiserver/etcd/db"] != "" || len(m.Files) != 4 {
		t.Errorf("it has %v", m.Files)
	}
}

// A part that fails is no backup, and nothing is left of it.
func TestAPartThatFails(t *testing.T) {
	s := source(t)
	s.Parts = append(s.Parts, Part{"timeline.db", func(context.Context, io.Writer) error { return errors.New("no disk") }})
	var b bytes.Buffer
	if err := Write(t.Context(), &b, s); err == nil || !strings.Contains(err.Error(), "timeline.db: no disk") {
		t.Errorf("%v", err)
	}
	if _, err := Read(&b, ""); err == nil {
		t.Error("what there is of it is taken")
	}
}

// Of a backup that lost its end, or a bit, nothing is taken.
func TestDamage(t *testing.T) {
	whole := archive(t, source(t))
	want, err := Read(bytes.NewReader(whole), "")
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) {
		if _, err := Read(bytes.NewReader(whole[:n]), ""); err == nil {
			t.Fatalf("%d of %d bytes are taken for a backup", n, len(whole))
		}
	}
	const header = 10 // of gzip, with a time and a system of which nothing is made
	for n := header; n < len(whole); n++ {
		b := bytes.Clone(whole)
		b[n] ^= 1
		// Some bits fill up a byte and mean nothing.
		if m, err := Read(bytes.NewReader(b), ""); err == nil && !reflect.DeepEqual(m, want) {
			t.Errorf("nothing is said of byte %d of %d, and it is another backup: %+v", n, len(whole), m)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(archive(f, source(f)))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		m, err := Read(bytes.NewReader(b), filepath.Join(dir, "into"))
		if (err == nil) != (m != nil) {
			t.Errorf("%+v, %v", m, err)
		}
		if there, _ := os.ReadDir(dir); len(there) > 1 {
			t.Errorf("it wrote beside its directory: %v", there)
		}
	})
}
