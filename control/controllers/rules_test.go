package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/region"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/controllers"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/control/fleetapi"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/relay"
)

// control is the controllers, the desired states and the fleet API on the real API
// server, for regionals over mutual TLS.
type control struct {
	t      *testing.T
	client client.Client
	ca     *pki.CA
	addr   string
	told   *events
}

func startControl(t *testing.T, regionals ...string) *control {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &control{t: t, told: &events{}}
	var err error
	if w.ca, err = pki.Open(pki.Options{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	store := desired.New(desired.Options{Logger: log, Registerer: prometheus.NewRegistry(), Regionals: regionals, RenderEvery: 100 * time.Millisecond})
	var server *fleetapi.Server
	var informers cache.Cache
	var inv controllers.Inventory
	c, ended := start(t, ctx, func(o *controllers.Options) {
		server, err = fleetapi.New(fleetapi.Options{Desired: store, Client: o.Client, Logger: log, Registerer: prometheus.NewRegistry(), Regionals: regionals})
		informers, inv, o.Rules, o.Recorder = o.Cache, o.Inventory, server, w.told
	})
	if err != nil {
		t.Fatal(err)
	}
	w.client = c
	if err := errors.Join(desired.Feed(ctx, informers, inv, store), fleetapi.Feed(ctx, informers, server)); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := w.ca.EnsureControl(dir, []string{"127.0.0.1"}); err != nil {
		t.Fatal(err)
	}
	files, err := identity.LoadFiles(filepath.Join(dir, pki.PairFile), filepath.Join(dir, pki.TrustFile))
	if err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.addr = lis.Addr().String()
	g := server.NewGRPC(files, nil)
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(lis) })
	wg.Go(func() { _ = server.Run(ctx) })
	wg.Go(func() { _ = store.Run(ctx) })
	t.Cleanup(func() { g.Stop(); cancel(); wg.Wait(); <-ended })
	return w
}

// handed is what a regional was handed last.
type handed struct {
	mu    sync.Mutex
	inv   map[string]region.Inventory
	rules map[string]region.Rules
}

// regional connects one that refuses rules whose expression holds "refuse".
func (w *control) regional(name string) *handed {
	w.t.Helper()
	dir := w.t.TempDir()
	if _, err := w.ca.EnsureRegional(dir, name, nil); err != nil {
		w.t.Fatal(err)
	}
	files, err := identity.LoadFiles(filepath.Join(dir, pki.PairFile), filepath.Join(dir, pki.TrustFile))
	if err != nil {
		w.t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+w.addr, grpc.WithTransportCredentials(credentials.NewTLS(files.ClientConfig("127.0.0.1", identity.IsControl))))
	if err != nil {
		w.t.Fatal(err)
	}
	h := &handed{}
	r, err := relay.New(relay.Options{Name: name, Dir: w.t.TempDir(), Control: wire.NewControlClient(conn), MaxBackoff: 50 * time.Millisecond, OnRegional: h.take})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-done; conn.Close() })
	return h
}

func (h *handed) take(items []relay.Item) (errs []relay.ItemError) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inv, h.rules = map[string]region.Inventory{}, map[string]region.Rules{}
	for _, it := range items {
		var err error
		if it.Kind == region.KindInventory {
			h.inv[it.Name], err = region.DecodeInventory(it.Blob)
		} else {
			h.rules[it.Name], err = region.DecodeRules(it.Blob)
		}
		if err == nil && strings.Contains(string(it.Blob), "refuse") {
			err = errors.New("group g, rule A: refused")
		}
		if err != nil {
			errs = append(errs, relay.ItemError{Kind: it.Kind, Name: it.Name, Err: err})
		}
	}
	return errs
}

func (h *handed) tenant(name string) (region.Inventory, region.Rules) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.inv[name], h.rules[name]
}

func alertRules(ns, name, expr string) *v1alpha1.AlertRules {
	return &v1alpha1.AlertRules{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: v1alpha1.AlertRulesSpec{Groups: []v1alpha1.RuleGroup{{Name: "g",
		Rules: []v1alpha1.Rule{{Alert: "A", Expr: expr}, {Alert: "B", Expr: "up == 0"}}}}}}
}

func (w *control) applied(what string, obj client.Object, status func() *v1alpha1.RulesStatus, want v1alpha1.RulesStatus, message string) {
	w.t.Helper()
	testkit.Eventually(w.t, what, func() error {
		if err := w.client.Get(context.Background(), client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		st := status()
		c := meta.FindStatusCondition(st.Conditions, "Applied")
		if c == nil || st.Rules != want.Rules || st.Regionals != want.Regionals || c.Status != want.Conditions[0].Status || c.Reason != want.Conditions[0].Reason ||
			c.ObservedGeneration != obj.GetGeneration() || !strings.Contains(c.Message, message) {
			return fmt.Errorf("%+v", *st)
		}
		return nil
	})
}

func rulesStatus(rules, regionals int32, status metav1.ConditionStatus, reason string) v1alpha1.RulesStatus {
	return v1alpha1.RulesStatus{Rules: rules, Regionals: regionals, Conditions: []metav1.Condition{{Status: status, Reason: reason}}}
}

func TestInventoryAndRulesFromTheAPIToRegionals(t *testing.T) {
	w := startControl(t, "one", "two")
	ctx := t.Context()
	one := w.regional("one")
	create(t, w.client,
		&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "rho"}, Spec: v1alpha1.TenantSpec{Quotas: v1alpha1.TenantQuotas{LogBytesPerDay: 1 << 30}, Namespaces: []string{"shop"}}},
		site("rho", "paris", map[string]string{"region": "eu", "model": "x", "unused": "y"}),
		&v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "rho-system", Name: "pending"}},
		site("rho", "gone", nil),
		&v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: "rho-shared", Name: "eu"}, Spec: v1alpha1.VirtualSiteSpec{SiteSelector: metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}}},
		&v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: "rho-shop", Name: "all"}},
	)
	rate := resource.MustParse("4Ki")
	create(t, w.client, &v1alpha1.CollectionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "rho-system", Name: "logs"},
		Spec: v1alpha1.CollectionPolicySpec{Logs: &v1alpha1.LogPolicy{Deny: []string{"unit/audit"}, BytesPerSecond: &rate}}})
	gone := site("rho", "gone", nil)
	testkit.Eventually(t, "decommission", func() error {
		if err := w.client.Get(ctx, client.ObjectKeyFromObject(gone), gone); err != nil {
			return err
		}
		gone.Spec.Decommissioned = true
		return w.client.Update(ctx, gone)
	})
	rules := alertRules("rho-system", "up", "up == 0")
	logs := &v1alpha1.LogRules{ObjectMeta: metav1.ObjectMeta{Namespace: "rho-system", Name: "oom"}, Spec: v1alpha1.LogRulesSpec{
		SiteSelector: metav1.LabelSelector{MatchLabels: map[string]string{"model": "x"}}, Rules: []v1alpha1.LogRule{{Name: "OOM", Type: "any"}}}}
	create(t, w.client, rules, logs)

	testkit.Eventually(t, "the regional has the inventory", func() error {
		inv, r := one.tenant("rho")
		if len(inv.Sites) != 1 || len(r.Alerts) != 1 || len(r.Logs) != 1 {
			return fmt.Errorf("%+v %+v", inv, r)
		}
		got := inv.Sites[0]
		got.Regional = ""
		want := region.Site{Name: "paris", Region: "eu", Labels: map[string]string{"model": "x"}, VirtualSites: []string{"shared/eu", "shop/all"}}
		if !reflect.DeepEqual(got, want) || inv.LogBytesPerDay != 1<<30 || inv.LogPolicies[0].BytesPerSecond != 4096 || inv.LogPolicies[0].Deny[0] != "unit/audit" || inv.Sites[0].Regional == "" {
			return fmt.Errorf("%+v", inv)
		}
		return nil
	})
	alertStatus := func() *v1alpha1.RulesStatus { return &rules.Status }
	w.applied("one of two applies the rules", rules, alertStatus, rulesStatus(2, 1, metav1.ConditionFalse, "InProgress"), "not yet on two")
	w.regional("two")
	w.applied("both do", rules, alertStatus, rulesStatus(2, 2, metav1.ConditionTrue, "Applied"), "every regional")
	w.applied("log rules too", logs, func() *v1alpha1.RulesStatus { return &logs.Status }, rulesStatus(1, 2, metav1.ConditionTrue, "Applied"), "")

	rules.Spec.Groups[0].Rules[0].Expr = "refuse"
	if err := w.client.Update(ctx, rules); err != nil {
		t.Fatal(err)
	}
	w.applied("a refusal is told", rules, alertStatus, rulesStatus(2, 0, metav1.ConditionFalse, "Refused"), "regional one: group g, rule A: refused")
	testkit.Eventually(t, "an event says so", func() error {
		if !w.told.has("up Warning Refused: regional one: group g") {
			return errors.New("none")
		}
		return nil
	})
	version := rules.ResourceVersion
	if err := w.client.Get(ctx, client.ObjectKeyFromObject(rules), rules); err != nil || rules.ResourceVersion != version {
		t.Errorf("the status was written again without a change: %v", err)
	}

	if err := w.client.DeleteAllOf(ctx, &v1alpha1.AlertRules{}, client.InNamespace("rho-system")); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Delete(ctx, site("rho", "paris", nil)); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "what was deleted is gone", func() error {
		if inv, r := one.tenant("rho"); inv.Tenant != "rho" || len(inv.Sites) != 0 || len(r.Alerts) != 0 || len(r.Logs) != 1 {
			return fmt.Errorf("%+v %+v", inv, r)
		}
		return nil
	})
}

func TestNamespaceOfThePlatform(t *testing.T) {
	w := startControl(t, "one")
	ctx := t.Context()
	name := fleet.SystemNamespace(fleet.PlatformTenant)
	ready := func() error {
		var ns corev1.Namespace
		if err := w.client.Get(ctx, client.ObjectKey{Name: name}, &ns); err != nil {
			return err
		}
		if ns.Labels[fleet.LabelTenant] != fleet.PlatformTenant || ns.DeletionTimestamp != nil {
			return fmt.Errorf("%+v", ns.ObjectMeta)
		}
		return w.client.Get(ctx, client.ObjectKey{Namespace: name, Name: "muster:tenant-admin"}, &rbacv1.RoleBinding{})
	}
	testkit.Eventually(t, "the namespace is there", ready)
	// Nobody takes it over.
	if err := w.client.Create(ctx, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: fleet.PlatformTenant}}); !apierrors.IsInvalid(err) {
		t.Errorf("a tenant of the platform's name: %v", err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := w.client.Patch(ctx, ns, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"muster.dev/tenant":"rho"}}}`))); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the label is put right", ready)

	one := w.regional("one")
	rules := alertRules(name, "fleet", "up == 0")
	create(t, w.client, rules)
	w.applied("the platform's rules are applied", rules, func() *v1alpha1.RulesStatus { return &rules.Status }, rulesStatus(2, 1, metav1.ConditionTrue, "Applied"), "")
	if inv, r := one.tenant(fleet.PlatformTenant); inv.Tenant != "" || len(r.Alerts) != 1 {
		t.Errorf("%+v %+v", inv, r)
	}
}
