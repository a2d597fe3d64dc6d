package desired

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/control/desired/render"
)

// shelf is a Content in memory, which fails if it is told to.
type shelf struct {
	mu   sync.Mutex
	has  map[string][]byte
	fail error
	puts int
}

func (f *shelf) do(fn func()) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail == nil {
		fn()
	}
	return f.fail
}

func (f *shelf) Put(_ context.Context, digest string, b []byte) error {
	return f.do(func() { f.has[digest] = b; f.puts++ })
}

func (f *shelf) Get(_ context.Context, digest string) (b []byte, err error) {
	err = f.do(func() { b = f.has[digest] })
	if err == nil && b == nil {
		err = fs.ErrNotExist
	}
	return b, err
}

func (f *shelf) Remove(_ context.Context, digest string) error {
	return f.do(func() { delete(f.has, digest) })
}

func (f *shelf) Each(_ context.Context, fn func(string)) error {
	return f.do(func() {
		for digest := range maps.Keys(f.has) {
			fn(digest)
		}
	})
}

func (f *shelf) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

// with what is on the shelf, as text.
func (f *shelf) all() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out strings.Builder
	for _, b := range f.has {
		fmt.Fprintf(&out, "%s\n", b)
	}
	return out.String()
}

// keeping is a control that keeps on the shelf, whose namespace acme-shop is on one site. It
// runs until the end of the bubble's test, or stop.
func keeping(t *testing.T, f *shelf) (s *tested, stop func()) {
	s = test(New(Options{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Content: f, KeepContent: time.Hour}))
	s.SetVirtualSite("acme-shared", "all", selecting(allow(), "here", "yes").SiteSelector)
	s.SetSite(siteNamed("oslo"), map[string]string{"here": "yes"})
	s.ConfigureWorkloads("acme", "acme-shop", render.Settings{DefaultVirtualSite: "shared/all"})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	return s, func() { cancel(); <-done }
}

// digestOf an item that oslo has.
func digestOf(t *testing.T, s *tested, name string) string {
	t.Helper()
	for _, it := range s.State(siteNamed("oslo")).GetItems() {
		if it.Name == name {
			return it.Digest
		}
	}
	t.Fatalf("oslo has no %s", name)
	return ""
}

const webItem = "Deployment.apps/acme-shop/web"

// What a site was given is found by the next control before that knows what there is, and is
// removed once nobody has needed it for a while; Secrets are not written.
func TestContentOutlivesControl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &shelf{has: map[string][]byte{}}
		s, stop := keeping(t, f)
		s.put(t, "apps", "Deployment", deployment("web", "web:1", ""))
		s.put(t, "", "Secret", "metadata: {name: key}\nstringData: {password: open-sesame}")
		s.Start()
		first := digestOf(t, s, webItem)
		time.Sleep(time.Second)
		if kept := f.all(); !strings.Contains(kept, "web:1") || strings.Contains(kept, "open-sesame") || strings.Contains(kept, "Secret") {
			t.Fatalf("kept is %s\nwant what there is but the Secret", kept)
		}
		s.put(t, "apps", "Deployment", deployment("web", "web:2", ""))
		time.Sleep(time.Second)
		stop()

		s, stop = keeping(t, f)
		defer stop()
		if b, err := s.Fetch(t.Context(), first); err != nil || !strings.Contains(string(b), "web:1") {
			t.Fatalf("before the start: %q, %v", b, err)
		}
		s.put(t, "apps", "Deployment", deployment("web", "web:2", ""))
		s.Start()
		time.Sleep(59 * time.Minute)
		if b, err := s.Fetch(t.Context(), first); err != nil || !strings.Contains(string(b), "web:1") {
			t.Fatalf("within the hour: %q, %v", b, err)
		}
		f.set(errors.New("is not there"))
		time.Sleep(5 * time.Minute)
		f.set(nil)
		time.Sleep(2 * time.Minute)
		if b, err := s.Fetch(t.Context(), first); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("after the hour: %q, %v", b, err)
		}
		if kept := f.all(); strings.Contains(kept, "web:1") || !strings.Contains(kept, "web:2") {
			t.Fatalf("kept is %s\nwant web:2 alone", kept)
		}
		puts := f.puts
		s.put(t, "apps", "Deployment", deployment("web", "web:1", ""))
		time.Sleep(time.Second)
		if kept := f.all(); !strings.Contains(kept, "web:1") || f.puts != puts+1 {
			t.Fatalf("after it came back kept is %s, %d puts", kept, f.puts-puts)
		}
	})
}

// Where nothing can be written sites are given what they should have all the same, and it is
// written when it can be.
func TestContentThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &shelf{has: map[string][]byte{}, fail: errors.New("no such bucket")}
		s, stop := keeping(t, f)
		defer stop()
		s.put(t, "apps", "Deployment", deployment("web", "web:1", ""))
		s.Start()
		time.Sleep(time.Minute)
		digest := digestOf(t, s, webItem)
		if b, err := s.Fetch(t.Context(), digest); err != nil || !strings.Contains(string(b), "web:1") {
			t.Fatalf("%q, %v", b, err)
		}
		if st := s.Stats(); st.Kept != 0 || st.Unkept == 0 {
			t.Fatalf("%+v", st)
		}
		if _, err := s.Fetch(t.Context(), strings.Repeat("0", 64)); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("of what is not known yet: %v; want that it is not known", err)
		}
		f.set(nil)
		time.Sleep(2 * time.Minute)
		if st := s.Stats(); st.Kept == 0 || st.Unkept != 0 {
			t.Fatalf("%+v", st)
		}
		if kept := f.all(); !strings.Contains(kept, "web:1") {
			t.Fatalf("kept is %s", kept)
		}
	})
}
