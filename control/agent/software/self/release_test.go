package self

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sigstore/sigstore/pkg/signature"

	"muster.dev/muster/control/agent/software"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/software/bundle"
	"muster.dev/muster/internal/software/bundle/publish"
	"muster.dev/muster/internal/software/delivery"
)

// TestFromReleaseToDone is an agent's way to its next version: signed and released at the
// centre, over a regional's cache, as a delta, into the other slot, on trial, done. And a
// version that is withdrawn, or that nobody signed.
func TestFromReleaseToDone(t *testing.T) {
	ctx, now := t.Context(), time.Now()
	key := func() []signature.Signer {
		b, err := publish.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		s, err := publish.ReadKey(b)
		if err != nil {
			t.Fatal(err)
		}
		return []signature.Signer{s}
	}
	repo := publish.Repository{Store: publish.Dir{Path: t.TempDir()}, Keys: publish.Keys{Root: key(), Targets: key(), Snapshot: key(), Timestamp: key()}}
	root, err := repo.Init(ctx)
	if err != nil {
		t.Fatal(err)
	}
	binary := map[string][]byte{"1.0.0": make([]byte, 1<<20)}
	_, _ = rand.NewChaCha8([32]byte{1}).Read(binary["1.0.0"])
	wanted, old := map[string]software.Wanted{}, bundle.Target{}
	release := func(version string) {
		if binary[version] == nil {
			binary[version] = append([]byte("version "+version), binary["1.0.0"]...)
		}
		target, err := repo.Add(ctx, "agent/"+version, bundle.About{Component: "agent", Version: version, Architecture: runtime.GOARCH}, bytes.NewReader(binary[version]))
		if err != nil {
			t.Fatal(err)
		}
		if old.Size > 0 {
			if _, err := repo.AddDelta(ctx, old, target, bytes.NewReader(binary[old.Version]), bytes.NewReader(binary[version])); err != nil {
				t.Fatal(err)
			}
		}
		old = target
		wanted[version] = software.Wanted{Version: version, Target: target.Name, Digest: target.Digest, Size: target.Size}
	}
	release("1.0.0")
	release("2.0.0")

	var sent atomic.Int64
	var down atomic.Bool
	serve := delivery.Serve(repo.Store.(publish.Dir).Path)
	centre := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		serve.ServeHTTP(counting{w, &sent}, r)
	}))
	defer centre.Close()
	cache, err := delivery.NewCache(delivery.CacheOptions{Dir: filepath.Join(t.TempDir(), "cache"), MetadataFor: time.Nanosecond,
		Upstream: &delivery.Fetcher{URL: centre.URL, Client: centre.Client()}})
	if err != nil {
		t.Fatal(err)
	}
	regional := httptest.NewServer(cache)
	defer regional.Close()

	dir, state := filepath.Join(t.TempDir(), "bin"), t.TempDir()
	if err := Install(ctx, disk.OS{}, dir, "1.0.0", binary["1.0.0"]); err != nil {
		t.Fatal(err)
	}
	asked, boots := false, 0
	start := func() (*software.Machine, string) {
		slot, _, err := Choose(file(dir, disk.OS{}))
		if err != nil {
			t.Fatal(err)
		}
		boots++
		d, err := New(dir, disk.OS{}, slot, string(rune('a'+boots)), func(context.Context) error { asked = true; return nil })
		if err != nil {
			t.Fatal(err)
		}
		trust, err := bundle.Open(bundle.Options{Dir: filepath.Join(state, "trust"), Root: root})
		if err != nil {
			t.Fatal(err)
		}
		source := &software.Source{Component: "agent", Architecture: runtime.GOARCH, Trust: trust, Dir: filepath.Join(state, "files"), Running: d.Image,
			Fetcher: delivery.Fetcher{URL: regional.URL, Client: regional.Client()}}
		m, err := software.New(software.Options{Component: "agent", Driver: d, Path: filepath.Join(state, "agent.json"), Fetch: source.Fetch, Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		return m, slot
	}
	m, _ := start()
	walk := func(w software.Wanted) (seen string) {
		for range 30 {
			if _, err := m.Step(ctx, w); err != nil && !errors.Is(err, bundle.ErrAbsent) { // which may still come
				t.Fatal(err)
			}
			if p := string(m.Status().Phase); !strings.HasSuffix(seen, p) {
				seen += " " + p
			}
			if m.Status().Phase == software.Installing {
				down.Store(true) // what is fetched is installed without the centre
			}
			if asked {
				asked = false
				m, _ = start()
			}
			now = now.Add(30 * time.Second)
		}
		down.Store(false)
		return seen
	}
	if seen := walk(wanted["2.0.0"]); seen != " Downloading Installing Done" {
		t.Errorf("%q: %+v", seen, m.Status())
	}
	if b, err := os.ReadFile(binaries(dir)["b"]); err != nil || !bytes.Equal(b, binary["2.0.0"]) {
		t.Errorf("the slot holds something else: %v", err)
	}
	if n := sent.Load(); n > 20_000 {
		t.Errorf("the centre sent %d bytes for some that are new", n)
	}

	release("3.0.0")
	if err := repo.Withdraw(ctx, "agent/3.0.0"); err != nil {
		t.Fatal(err)
	}
	if walk(wanted["3.0.0"]); m.Status().Phase != software.Failed || !strings.Contains(m.Status().Message, "not in the repository") || m.Status().Running != "2.0.0" {
		t.Errorf("withdrawn: %+v", m.Status())
	}
	release("4.0.0")
	forged := wanted["4.0.0"]
	forged.Digest = strings.Repeat("0", 64)
	if walk(forged); m.Status().Phase != software.Failed || !strings.Contains(m.Status().Message, "was signed") {
		t.Errorf("another digest than was signed: %+v", m.Status())
	}
	forged = wanted["4.0.0"]
	forged.Retry++
	if walk(forged); m.Status().Phase != software.Done || m.Status().Running != "4.0.0" {
		t.Errorf("asked to try again: %+v", m.Status())
	}
}

type counting struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c counting) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return c.ResponseWriter.Write(b)
}
