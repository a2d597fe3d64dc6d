package inventory

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit/kubeapi"
)

func scheme(t *testing.T) *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// run starts an inventory over the real API server.
func run(t *testing.T, file string) (*Inventory, client.Client) {
	t.Helper()
	cfg, s := kubeapi.Start(t), scheme(t)
	objects, err := cache.New(cfg, cache.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	inv, err := New(Options{Cache: objects, File: file, Debounce: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	go func() { _ = objects.Start(ctx); done <- struct{}{} }()
	go func() { _ = inv.Run(ctx); done <- struct{}{} }()
	t.Cleanup(func() { cancel(); <-done; <-done })
	return inv, c
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for tick := time.NewTicker(10 * time.Millisecond); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited 20 s for: %s", what)
		}
		<-tick.C
	}
}

func find(s *Snapshot, id string) *Site {
	if s == nil {
		return nil
	}
	for i := range s.Sites {
		if s.Sites[i].ID.String() == id {
			return &s.Sites[i]
		}
	}
	return nil
}

func TestFollowsTheAPIServerAndKeepsItOnDisk(t *testing.T) {
	ctx, file := t.Context(), filepath.Join(t.TempDir(), "sub", "inventory.json")
	inv, c := run(t, file)
	window := []v1alpha1.MaintenanceWindow{{Name: "weekly", Reason: "updates", Schedule: "0 2 * * SUN", Duration: metav1.Duration{Duration: time.Hour}}}
	ns := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fleet.LabelTenant: "inva"}}}
	}
	site := func(name string, spec v1alpha1.SiteSpec) *v1alpha1.Site {
		return &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "inva-system", Name: name, Labels: map[string]string{fleet.LabelRegion: "eu"}}, Spec: spec}
	}
	for _, o := range []client.Object{
		ns("inva-system"), ns("inva-shared"),
		site("paris", v1alpha1.SiteSpec{Approved: true, MaintenanceWindows: window}), site("pending", v1alpha1.SiteSpec{}),
		&v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: "inva-shared", Name: "eu"}, Spec: v1alpha1.VirtualSiteSpec{SiteSelector: metav1.LabelSelector{MatchLabels: map[string]string{fleet.LabelRegion: "eu"}}, MaintenanceWindows: window}},
		&v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: "inva-shared", Name: "none"}, Spec: v1alpha1.VirtualSiteSpec{SiteSelector: metav1.LabelSelector{MatchLabels: map[string]string{fleet.LabelRegion: "mars"}}}},
	} {
		if err := c.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "paris in its virtual site", func() bool {
		p := find(inv.Snapshot(), "inva/paris")
		return p != nil && slices.Equal(p.VirtualSites, []string{"shared/eu"})
	})
	s := inv.Snapshot()
	p := find(s, "inva/paris")
	if p.Region != "eu" || p.Connected || p.Created.IsZero() || len(p.Windows) != 1 || len(s.WindowsOf(*p)) != 2 {
		t.Errorf("paris: %+v, windows %d", p, len(s.WindowsOf(*p)))
	}
	if find(s, "inva/pending") != nil || len(s.VirtualSites) != 1 || s.VirtualSites[0].Name != "shared/eu" || inv.Ready() != nil || !inv.Fresh() {
		t.Errorf("snapshot %+v", s)
	}

	var o v1alpha1.Site
	if err := c.Get(ctx, client.ObjectKey{Namespace: "inva-system", Name: "paris"}, &o); err != nil {
		t.Fatal(err)
	}
	seen := metav1.Now()
	o.Status.LastSeen, o.Status.Regional, o.Status.Phase = &seen, "one", fleet.PhaseOnline
	if err := c.Status().Update(ctx, &o); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the connection", func() bool {
		p := find(inv.Snapshot(), "inva/paris")
		return p != nil && p.Connected && p.Regional == "one"
	})

	// Another one, without any API server, knows the same.
	eventually(t, "the file", func() bool {
		b, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(b), `"regional":"one"`)
	})
	nobody, err := New(Options{Cache: inv.opts.Cache, File: file, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if p := find(nobody.Snapshot(), "inva/paris"); p == nil || !p.Connected || nobody.Ready() != nil || nobody.Fresh() {
		t.Errorf("from disk: %+v", p)
	}

	if err := c.Get(ctx, client.ObjectKey{Namespace: "inva-system", Name: "paris"}, &o); err != nil {
		t.Fatal(err)
	}
	o.Spec.Decommissioned = true
	if err := c.Update(ctx, &o); err != nil {
		t.Fatal(err)
	}
	eventually(t, "paris to be gone", func() bool { return find(inv.Snapshot(), "inva/paris") == nil })
}

// A file that can't be read is as good as none.
func TestBrokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "inventory.json")
	for _, content := range []string{"{", `{"sites":[{"id":{"Tenant":"../x","Name":"y"}}]}`} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		inv, err := New(Options{Cache: struct{ cache.Cache }{}, File: file, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if inv.Ready() == nil {
			t.Errorf("%q: ready", content)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"sites":[{"id":{"tenant":"acme","name":"paris"}}],"virtualSites":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decode(b)
		if err != nil {
			return
		}
		for _, site := range s.Sites {
			s.WindowsOf(site)
		}
	})
}
