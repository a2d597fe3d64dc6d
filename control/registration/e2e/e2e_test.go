package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/controllers"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/control/fleetapi"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/control/registration"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubeapi"
	"muster.dev/muster/internal/wire"
)

type world struct {
	t      testing.TB
	cfg    *rest.Config
	client client.Client
	cache  cache.Cache
	ca     *pki.CA
	svc    *registration.Service
	tenant string
}

func newWorld(t testing.TB, tenant string) *world {
	t.Helper()
	cfg := kubeapi.Start(t)
	cfg.QPS = -1
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{controllers.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t, cfg: cfg, tenant: tenant}
	var err error
	if w.client, err = client.New(cfg, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	if w.cache, err = cache.New(cfg, cache.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	if err := registration.IndexKeys(t.Context(), w.cache); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.cache.Start(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	if w.ca, err = pki.Open(pki.Options{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	audit, err := registration.OpenAudit(registration.AuditOptions{File: filepath.Join(t.TempDir(), "audit.log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { audit.Close() })
	w.svc = registration.New(registration.Options{Client: w.client, Cache: w.cache, Issuer: w.ca, Audit: audit, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	w.create(&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: tenant}})
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant + "-system", Labels: map[string]string{fleet.LabelTenant: tenant}}})
	return w
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	// The tenant controller, where one runs, may have made the namespace.
	if err := w.client.Create(w.t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
}

func (w *world) token(spec v1alpha1.RegistrationTokenSpec) registration.Token {
	w.t.Helper()
	tok, err := registration.NewToken(w.tenant, "tok")
	if err != nil {
		w.t.Fatal(err)
	}
	spec.SecretHash = tok.SecretHash()
	w.create(&v1alpha1.RegistrationToken{ObjectMeta: metav1.ObjectMeta{Namespace: w.tenant + "-system", Name: "tok"}, Spec: spec})
	return tok
}

func (w *world) site(name string) *v1alpha1.Site {
	w.t.Helper()
	var s v1alpha1.Site
	if err := w.client.Get(w.t.Context(), types.NamespacedName{Namespace: w.tenant + "-system", Name: name}, &s); err != nil {
		w.t.Fatal(err)
	}
	return &s
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	testkit.EventuallyTrue(w.t, what, ok)
}

func csr(t testing.TB) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestRegistrationOnTheRealAPIServer(t *testing.T) {
	w := newWorld(t, "e2e-reg")
	tok := w.token(v1alpha1.RegistrationTokenSpec{AutoApprove: true, MaxUses: 30, SiteLabels: map[string]string{"region": "eu"}})
	const machines = 50
	var mu sync.Mutex
	got := map[codes.Code]int{}
	var wg sync.WaitGroup
	for i := range machines {
		req := &wire.RegisterRequest{Token: tok.String(), Csr: csr(t), Site: fmt.Sprintf("m-%02d", i), SystemLabels: map[string]string{"vendor": "Dell Inc."}}
		wg.Go(func() {
			_, err := w.svc.Register(t.Context(), req, "192.0.2.1:1")
			mu.Lock()
			got[status.Code(err)]++
			mu.Unlock()
			if err != nil && status.Code(err) != codes.PermissionDenied {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got[codes.OK] != 30 {
		t.Errorf("answers %v, want 30 OK", got)
	}
	var sites v1alpha1.SiteList
	if err := w.client.List(t.Context(), &sites, client.InNamespace("e2e-reg-system")); err != nil {
		t.Fatal(err)
	}
	if len(sites.Items) != 30 {
		t.Errorf("%d sites", len(sites.Items))
	}
	for _, s := range sites.Items {
		if !s.Spec.Approved || s.Labels["muster.dev/system-vendor"] != "Dell-Inc" {
			t.Fatalf("site %s: %+v %v", s.Name, s.Spec, s.Labels)
		}
	}
	// The count agrees with the Sites.
	var rt v1alpha1.RegistrationToken
	if err := w.client.Get(t.Context(), types.NamespacedName{Namespace: "e2e-reg-system", Name: "tok"}, &rt); err != nil || rt.Status.Uses != 30 || rt.Status.State != "Exhausted" {
		t.Errorf("token status %+v, %v", rt.Status, err)
	}
}

func TestPolicyToSiteAndReportToStatus(t *testing.T) {
	w := newWorld(t, "e2e-des")
	store := desired.New(desired.Options{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	server, err := fleetapi.New(fleetapi.Options{Registrar: w.svc, Desired: store, Client: w.client, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	inv, err := inventory.New(inventory.Options{Cache: w.cache, Policies: []inventory.PolicyKind{inventory.CollectionPolicies()}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(func() { _ = inv.Run(ctx) })
	if err := desired.Feed(ctx, w.cache, inv, store); err != nil {
		t.Fatal(err)
	}
	if err := fleetapi.Feed(ctx, w.cache, server); err != nil {
		t.Fatal(err)
	}
	tok := w.token(v1alpha1.RegistrationTokenSpec{SiteLabels: map[string]string{"region": "eu"}})
	req := &wire.RegisterRequest{Token: tok.String(), Csr: csr(t), Site: "paris"}
	if resp, err := w.svc.Register(ctx, req, ""); err != nil || resp.Issued != nil {
		t.Fatalf("%v, %v", resp, err)
	}
	id := fleet.SiteID{Tenant: "e2e-des", Name: "paris"}
	w.eventually("pending", func() bool { return w.site("paris").Status.Phase == fleet.PhasePending })
	if err := w.client.Patch(ctx, w.site("paris"), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"approved":true}}`))); err != nil {
		t.Fatal(err)
	}
	w.eventually("approved", func() bool { return w.site("paris").Status.Phase == fleet.PhaseApproved })
	if resp, err := w.svc.Register(ctx, req, ""); err != nil || resp.Issued == nil {
		t.Fatalf("%v, %v", resp, err)
	}
	w.create(&v1alpha1.CollectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "e2e-des-system", Name: "base"}, Spec: v1alpha1.CollectionPolicySpec{
		SiteSelector: metav1.LabelSelector{MatchLabels: map[string]string{"region": "us"}}, Allow: v1alpha1.MetricAllow{Names: []string{"up"}}}})
	w.eventually("rendered", func() bool { return store.PolicyHash(id) != "" })
	before := store.PolicyHash(id)
	began := time.Now()
	if err := w.client.Patch(ctx, w.site("paris"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"region":"us"}}}`))); err != nil {
		t.Fatal(err)
	}
	w.eventually("a label change selects the policy", func() bool { return store.PolicyHash(id) != before })
	t.Logf("label change to rendered: %s", time.Since(began))

	// A key can't be exchanged, and a decommissioned site stays so: the CRD's rules.
	for _, patch := range []string{`{"spec":{"publicKey":"` + strings.Repeat("a", 64) + `"}}`} {
		if err := w.client.Patch(ctx, w.site("paris"), client.RawPatch(types.MergePatchType, []byte(patch))); !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", patch, err)
		}
	}
	if err := w.client.Patch(ctx, w.site("paris"), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"decommissioned":true}}`))); err != nil {
		t.Fatal(err)
	}
	w.eventually("decommissioned", func() bool { return w.site("paris").Status.Phase == fleet.PhaseDecommissioned })
	if _, err := w.svc.Register(ctx, req, ""); status.Code(err) != codes.PermissionDenied {
		t.Errorf("register: %v", err)
	}
	w.eventually("nothing is rendered for it", func() bool { return store.State(id) == nil })
}

// BenchmarkRegister100 registers 100 machines at once (the reference system took 20 s).
func BenchmarkRegister100(b *testing.B) {
	w := newWorld(b, "e2e-bench")
	tok := w.token(v1alpha1.RegistrationTokenSpec{AutoApprove: true})
	for round := 0; b.Loop(); round++ {
		b.StopTimer()
		reqs := make([]*wire.RegisterRequest, 100)
		for i := range reqs {
			reqs[i] = &wire.RegisterRequest{Token: tok.String(), Csr: csr(b), Site: fmt.Sprintf("r%d-m%d", round, i)}
		}
		b.StartTimer()
		var wg sync.WaitGroup
		for _, req := range reqs {
			wg.Go(func() {
				if _, err := w.svc.Register(b.Context(), req, ""); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
	}
}
