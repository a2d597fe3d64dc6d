package repository

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/thanos-io/objstore"

	"muster.dev/muster/control/software/bucket"
	"muster.dev/muster/internal/software/bundle"
	"muster.dev/muster/internal/software/bundle/publish"
	"muster.dev/muster/internal/software/delivery"
	"muster.dev/muster/internal/testkit/objectstore"
)

// centre is a repository, its keys, and what control makes of it.
type centre struct {
	t     *testing.T
	now   time.Time
	store publish.Store
	keys  publish.Keys
	first []byte
	r     *Repository
	reg   *prometheus.Registry
	url   string
}

func (c *centre) key(name string) []signature.Signer {
	c.t.Helper()
	b, err := publish.NewKey()
	if err == nil && name != "" {
		err = os.WriteFile(filepath.Join(c.r.o.KeysDir, name), b, 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	s, err := publish.ReadKey(b)
	if err != nil {
		c.t.Fatal(err)
	}
	return []signature.Signer{s}
}

func newCentre(t *testing.T, o Options) *centre {
	t.Helper()
	c := &centre{t: t, now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), reg: prometheus.NewRegistry()}
	o.KeysDir, o.Registerer, o.Now = t.TempDir(), c.reg, func() time.Time { return c.now }
	var err error
	if c.r, err = Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	c.store = c.r.store
	if c.r.Root() != nil {
		t.Error("a root without a repository")
	}
	c.keys = publish.Keys{Root: c.key(""), Targets: c.key(""), Snapshot: c.key(SnapshotKey), Timestamp: c.key(TimestampKey)}
	if c.first, err = c.signer(c.keys).Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	c.r.Register(mux)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	c.url = srv.URL + Prefix
	c.r.keep(t.Context())
	return c
}

func (c *centre) signer(k publish.Keys) *publish.Repository {
	return &publish.Repository{Store: c.store, Keys: k, Now: func() time.Time { return c.now }}
}

// site trusts the repository as of now, over control's listener.
func (c *centre) site(dir string) (*bundle.Trust, error) {
	c.t.Helper()
	b, err := bundle.Open(bundle.Options{Dir: dir, Root: c.first, Now: func() time.Time { return c.now }})
	if err != nil {
		c.t.Fatal(err)
	}
	return b, b.Refresh(c.t.Context(), &delivery.Fetcher{URL: c.url, Client: http.DefaultClient})
}

func (c *centre) metric(name string) float64 {
	c.t.Helper()
	all, err := c.reg.Gather()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			return f.Metric[0].GetGauge().GetValue() + f.Metric[0].GetCounter().GetValue()
		}
	}
	return -1
}

// What nobody touches for a year is fresh on each day of its files' 90, and then people
// are needed, whatever control does.
func TestRenewal(t *testing.T) {
	c := newCentre(t, Options{Dir: t.TempDir()})
	dir := t.TempDir()
	for day := range 89 {
		for range 3 {
			c.r.keep(t.Context())
		}
		if _, err := c.site(dir); err != nil {
			t.Fatalf("day %d: %v", day, err)
		}
		c.now = c.now.Add(24 * time.Hour)
	}
	if n := c.metric("muster_software_renewals_total"); n < 80 || n > 90 {
		t.Errorf("%v renewals in 89 days", n)
	}
	if n := testutil.CollectAndCount(expiry{c.r}); n != 4 {
		t.Errorf("%d series of expiry", n)
	}
	c.now = c.now.Add(48 * time.Hour)
	c.r.keep(t.Context())
	if _, err := c.site(dir); err == nil || !strings.Contains(err.Error(), "targets.json is refused") {
		t.Errorf("after 91 days without the targets key: %v", err)
	}
	if err := c.signer(c.keys).RenewTargets(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.site(dir); err != nil {
		t.Error(err)
	}
}

// Keys that are missing, or not those that the root names, are said, and overwrite nothing.
func TestWrongKeys(t *testing.T) {
	c := newCentre(t, Options{Dir: t.TempDir()})
	dir := t.TempDir()
	right, err := os.ReadFile(filepath.Join(c.r.o.KeysDir, TimestampKey))
	if err != nil {
		t.Fatal(err)
	}
	c.now = c.now.Add(3 * 24 * time.Hour)
	c.key(TimestampKey)
	c.r.keep(t.Context())
	if c.metric("muster_software_repository_failing") != 1 || c.r.sign == nil || !strings.Contains(c.r.sign.Error(), "not one that root 1 names") {
		t.Errorf("another key: %v", c.r.sign)
	}
	if _, err := c.site(dir); err != nil {
		t.Errorf("what was signed before it: %v", err)
	}
	if err := os.Remove(filepath.Join(c.r.o.KeysDir, TimestampKey)); err != nil {
		t.Fatal(err)
	}
	c.r.keep(t.Context())
	if c.r.sign == nil || !errors.Is(c.r.sign, os.ErrNotExist) || !strings.Contains(c.r.sign.Error(), "muster software") {
		t.Errorf("no key: %v", c.r.sign)
	}
	if err := os.WriteFile(filepath.Join(c.r.o.KeysDir, TimestampKey), right, 0o600); err != nil {
		t.Fatal(err)
	}
	c.r.keep(t.Context())
	if c.metric("muster_software_repository_failing") != 0 || c.r.sign != nil {
		t.Errorf("the key is back: %v", c.r.sign)
	}
	c.now = c.now.Add(6 * 24 * time.Hour)
	if _, err := c.site(dir); err != nil {
		t.Error(err)
	}
}

// Who releases has the targets key and a way to write, and control the rest; over a
// directory and over a bucket.
func TestReleaseWithoutOnlineKeys(t *testing.T) {
	t.Run("directory", func(t *testing.T) { testRelease(t, Options{Dir: t.TempDir()}) })
	over := func(t *testing.T, b *bucket.Bucket) {
		testRelease(t, Options{Bucket: b, CacheDir: filepath.Join(t.TempDir(), "cache"), CacheBytes: 1 << 30})
	}
	t.Run("bucket", func(t *testing.T) { over(t, bucket.New(objstore.NewInMemBucket())) })
	for name, start := range objectstore.All {
		t.Run(name, func(t *testing.T) {
			b, err := bucket.Open(t.Context(), bucket.Options{Type: name, Config: start(t, "acme")})
			if err != nil {
				t.Fatal(err)
			}
			over(t, b)
		})
	}
}

func testRelease(t *testing.T, o Options) {
	c := newCentre(t, o)
	release := func(k publish.Keys, version string) {
		t.Helper()
		if _, err := c.signer(k).Add(t.Context(), "os/"+version, bundle.About{Component: "os", Version: version, Architecture: "any"}, strings.NewReader("image "+version)); err != nil {
			t.Fatal(err)
		}
	}
	release(publish.Keys{Targets: c.keys.Targets}, "1.0.0")
	release(publish.Keys{Targets: c.keys.Targets}, "2.0.0")
	// Somebody who can only write puts something where the next release goes.
	thief := publish.Keys{Targets: c.key("")}
	release(thief, "6.6.6")
	c.r.keep(t.Context())
	b, err := c.site(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"1.0.0", "2.0.0"} {
		if _, err := b.Target("os/"+v, "os", v); err != nil {
			t.Error(err)
		}
	}
	if _, err := b.Target("os/6.6.6", "os", "6.6.6"); err == nil {
		t.Error("what the thief signed is trusted")
	}
	// It keeps nobody from releasing.
	release(publish.Keys{Targets: c.keys.Targets}, "3.0.0")
	c.r.keep(t.Context())
	if at, err := c.signer(publish.Keys{}).Standing(t.Context()); err != nil || at.Waiting || at.Broken != nil || len(at.Targets) != 3 {
		t.Errorf("%+v, %v", at, err)
	}
	got, err := b.Target("os/2.0.0", "os", "2.0.0")
	if err != nil {
		t.Fatal(err)
	}
	in, size, err := (&delivery.Fetcher{URL: c.url, Client: http.DefaultClient}).Open(t.Context(), delivery.BlobPath+got.Digest, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if part, err := io.ReadAll(in); err != nil || size != got.Size || !bytes.Equal(part, []byte("age 2.0.0")) {
		t.Errorf("%q of %d, %v", part, size, err)
	}
}

// A root that was rotated is what new sites get.
func TestRootFollows(t *testing.T) {
	c := newCentre(t, Options{Dir: t.TempDir()})
	if !bytes.Equal(c.r.Root(), c.first) {
		t.Error("not the first root")
	}
	next := publish.Keys{Root: c.key("")} // the others stay
	was := c.signer(c.keys)
	if err := was.Rotate(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	c.r.keep(t.Context())
	if bytes.Equal(c.r.Root(), c.first) || !bytes.Contains(c.r.Root(), []byte(`"version":2`)) {
		t.Errorf("%.100s", c.r.Root())
	}
	if _, err := c.site(t.TempDir()); err != nil { // that was installed with the first
		t.Error(err)
	}
	c.now = c.now.Add(8 * 24 * time.Hour)
	c.r.keep(t.Context())
	if _, err := c.site(t.TempDir()); err != nil {
		t.Errorf("the online keys of before the rotation: %v", err)
	}
}
