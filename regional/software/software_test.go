package software

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/software"
	"muster.dev/muster/internal/software/delivery"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

// heavy is a centre that has every blob, each of a size that it only speaks of.
type heavy struct{ size int64 }

func (heavy) Metadata(context.Context, string, int64) ([]byte, error) {
	return nil, errors.New("no metadata here")
}

func (h heavy) Open(context.Context, string, int64) (io.ReadCloser, int64, error) {
	return io.NopCloser(bytes.NewReader(nil)), h.size, nil
}

// all wants each of the files that the test asks for.
type all struct{}

func (all) Items(fleet.SiteID, string) ([]*wire.Item, bool) {
	return []*wire.Item{{Kind: software.Kind, Name: "os", Digest: "all"}}, true
}

func (all) Blob(_ context.Context, _ fleet.SiteID, _ string, _ int64, send func([]byte) error) error {
	w := software.Wanted{Component: "os", Version: "1.0.0"}
	for i := range 20 {
		w.Files = append(w.Files, software.File{Architecture: "any", Target: "os", Digest: digestOf(byte(i)), Size: 1})
	}
	return send(w.Encode())
}

func digestOf(b ...byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// A tenant whose sites ask for one old release after another has no more of them fetched
// when it has had its part; another tenant has its own.
func TestWhatATenantHasFetchedIsBounded(t *testing.T) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	// What nobody waits for is still being written when the test is over.
	t.Cleanup(func() { testkit.Eventually(t, "the directory is gone", func() error { return os.RemoveAll(dir) }) })
	s, err := New(Options{Dir: dir, Centre: heavy{500 << 20}, Desired: all{}, Identify: func(r *http.Request) (fleet.SiteID, string, error) {
		return fleet.SiteID{Tenant: r.Header.Get("Tenant"), Name: r.Header.Get("Site")}, "eu", nil
	}, MaxBytes: 4 << 30})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(tenant, site, blob string) int {
		r := httptest.NewRequest(http.MethodGet, Prefix+delivery.BlobPath+blob, nil)
		ctx, cancel := context.WithCancel(r.Context())
		cancel() // who asks hangs up at once
		r = r.WithContext(ctx)
		r.Header.Set("Tenant", tenant)
		r.Header.Set("Site", site)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code
	}
	charged := func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.fetchesLocked("evil").Tokens()
	}
	fetched := 0
	for i := range 20 {
		before := charged()
		if code := ask("evil", string(rune('a'+i)), digestOf(byte(i))); code == http.StatusTooManyRequests {
			break
		}
		fetched++
		// It is fetched although nobody waits for it.
		testkit.EventuallyTrue(t, "it was charged", func() bool { return charged() < before })
	}
	if fetched != 3 { // 1 GiB, and what the last one is over it
		t.Errorf("%d files of 500 MiB were fetched, want 3", fetched)
	}
	if code := ask("acme", "paris", digestOf(19)); code == http.StatusTooManyRequests {
		t.Errorf("another tenant: %d", code)
	}
}
