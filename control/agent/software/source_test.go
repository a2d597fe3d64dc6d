package software_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sigstore/sigstore/pkg/signature"

	"muster.dev/muster/control/agent/software"
	"muster.dev/muster/internal/software/bundle"
	"muster.dev/muster/internal/software/bundle/publish"
	"muster.dev/muster/internal/software/delivery"
)

// A delta that is refused for now is asked for again: the whole image is not fetched in its
// place, now or later, and not while the regional is loaded least of all.
func TestRefusedDeltaIsAskedForAgain(t *testing.T) {
	ctx := t.Context()
	signer := func() signature.Signer {
		s, _, err := signature.NewDefaultECDSASignerVerifier()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	dir := t.TempDir()
	repo := publish.Repository{Store: publish.Dir{Path: dir}, Keys: publish.Keys{Root: []signature.Signer{signer()}, Targets: []signature.Signer{signer()}, Snapshot: []signature.Signer{signer()}, Timestamp: []signature.Signer{signer()}}}
	root, err := repo.Init(ctx)
	if err != nil {
		t.Fatal(err)
	}
	one := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(one)
	two := bytes.Join([][]byte{one[:1<<19], []byte("new"), one[1<<19:]}, nil)
	release := func(version string, b []byte) bundle.Target {
		target, err := repo.Add(ctx, "os/"+version, bundle.About{Component: "os", Version: version, Architecture: "any"}, bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		return target
	}
	old, next := release("1.0.0", one), release("2.0.0", two)
	if _, err := repo.AddDelta(ctx, old, next, bytes.NewReader(one), bytes.NewReader(two)); err != nil {
		t.Fatal(err)
	}
	var code int
	var asked []string
	serve := delivery.Serve(dir)
	regional := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := strings.Split(r.URL.Path, "/")[1]
		if kind == "metadata" {
			serve.ServeHTTP(w, r)
			return
		}
		asked = append(asked, kind)
		if code != 0 {
			w.WriteHeader(code)
			return
		}
		serve.ServeHTTP(w, r)
	}))
	defer regional.Close()
	trust, err := bundle.Open(bundle.Options{Dir: t.TempDir(), Root: root})
	if err != nil {
		t.Fatal(err)
	}
	running := filepath.Join(t.TempDir(), "running")
	if err := os.WriteFile(running, one, 0o600); err != nil {
		t.Fatal(err)
	}
	files := t.TempDir()
	source := &software.Source{Component: "os", Architecture: "amd64", Trust: trust, Dir: files,
		Fetcher: delivery.Fetcher{URL: regional.URL, Client: regional.Client()},
		Running: func(context.Context) (string, *os.File, error) {
			f, err := os.Open(running)
			return "1.0.0", f, err
		}}
	w := software.Wanted{Version: "2.0.0", Target: next.Name, Digest: next.Digest, Size: next.Size}
	for _, code = range []int{http.StatusServiceUnavailable, http.StatusTooManyRequests} {
		var status *delivery.StatusError
		if _, err := source.Fetch(ctx, w, func(int) {}); !errors.As(err, &status) || status.Code != code {
			t.Errorf("%d: %v", code, err)
		}
	}
	// As an earlier process left it, whose file was refused before a byte of it came.
	if err := os.WriteFile(filepath.Join(files, next.Digest+".part"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	code = 0
	path, err := source.Fetch(ctx, w, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, two) {
		t.Errorf("it is something else, %v", err)
	}
	if got := strings.Join(asked, " "); got != "deltas deltas deltas" {
		t.Errorf("the regional was asked for %s", got)
	}
}

// A file that is refused before its first byte is not begun.
func TestRefusedFileIsNotBegun(t *testing.T) {
	regional := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer regional.Close()
	f := delivery.Fetcher{URL: regional.URL, Client: regional.Client()}
	path := filepath.Join(t.TempDir(), "image")
	if err := f.File(t.Context(), strings.Repeat("a", 64), 10, path); err == nil {
		t.Fatal("it came")
	}
	if left, _ := filepath.Glob(path + "*"); len(left) > 0 || f.Begun(path) {
		t.Errorf("left behind: %v", left)
	}
}
