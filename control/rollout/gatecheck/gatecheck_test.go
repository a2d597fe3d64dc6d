package gatecheck_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/decide"
	"muster.dev/muster/control/rollout/gatecheck"
	"muster.dev/muster/control/rollout/readings"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubeapi"
)

// reader is what gates read, as a test says.
type reader struct {
	mu     sync.Mutex
	sites  map[string]readings.Site
	before map[string]map[string]float64
	asked  []readings.Question
	gate   chan struct{} // nil: answers at once
	quick  string        // the tenant that it answers at once all the same
	within atomic.Int32
}

func (r *reader) Read(ctx context.Context, q readings.Question) readings.Answer {
	r.mu.Lock()
	r.asked = append(r.asked, q)
	sites, gate := r.sites, r.gate
	r.mu.Unlock()
	if gate != nil && q.Tenant != r.quick {
		r.within.Add(1)
		select {
		case <-gate:
		case <-ctx.Done():
		}
	}
	a := readings.Answer{Sites: map[string]readings.Site{}, Outside: map[string]decide.Outside{}}
	for _, name := range slices.Concat(q.Changed, q.Peers) {
		if s, ok := sites[name]; ok {
			a.Sites[name] = s
		}
	}
	for _, g := range q.Gates {
		if g.Logs != nil {
			a.Outside[g.Name] = decide.Outside{Verdict: v1alpha1.GateFail, Text: "7 lines match, of at most 0"}
		}
		if g.Score != nil && len(sites) == 0 {
			a.Outside[g.Name] = decide.Outside{Verdict: v1alpha1.GateUnknown, Text: "health: does not answer in time"}
		}
	}
	return a
}

func (r *reader) Before(_ context.Context, _ string, sites []readings.Subject, from, to time.Time) map[string]map[string]float64 {
	out := map[string]map[string]float64{}
	for _, s := range sites {
		if b, ok := r.before[s.Name]; ok && to.Sub(from) == 30*time.Minute {
			out[s.Name] = b
		}
	}
	return out
}

func (r *reader) QueriesAt(context.Context, string, []v1alpha1.RolloutGate, []readings.Subject, time.Time, map[string]map[string]float64) {
}

type fixed struct{ at *inventory.Snapshot }

func (f fixed) Snapshot() *inventory.Snapshot { return f.at }

func well(score float64, alerts ...string) readings.Site {
	return readings.Site{Measures: map[string]float64{"Site": score, "Performance": score}, Red: score < 40, Alerts: alerts, AlertsKnown: true, At: time.Now()}
}

// fleetOf are six sites of each tenant: a to d in shared/canary, of which c is offline and d
// in maintenance, e and f besides in shared/all.
func fleetOf(tenants ...string) *inventory.Snapshot {
	var sites []*inventory.Site
	var virtual []*inventory.VirtualSite
	for _, tenant := range slices.Sorted(slices.Values(tenants)) {
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "pending"} {
			s := &inventory.Site{ID: fleet.SiteID{Tenant: tenant, Name: name}, Phase: fleet.PhaseOnline, LastSeen: time.Now(), VirtualSites: []string{"shared/all"}}
			switch name {
			case "c":
				s.Phase, s.LastSeen = fleet.PhaseOffline, time.Now().Add(-24*time.Hour)
			case "d":
				s.ByHand = &v1alpha1.Maintenance{Reason: "new roof"}
			case "pending":
				s.Phase, s.VirtualSites = fleet.PhasePending, nil
			}
			if name < "e" {
				s.VirtualSites = []string{"shared/all", "shared/canary"}
			}
			if name == "c" {
				s.VirtualSites = append(s.VirtualSites, "shop/away")
			}
			sites = append(sites, s)
		}
		for _, key := range []string{"shared/all", "shared/canary", "shop/away", "shop/empty"} {
			ns, name, _ := strings.Cut(key, "/")
			virtual = append(virtual, &inventory.VirtualSite{Tenant: tenant, Namespace: ns, Name: name})
		}
	}
	return inventory.NewSnapshot(1, sites, virtual, nil)
}

func namespaceOf(tenant string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant + "-shop", Labels: map[string]string{fleet.LabelTenant: tenant}}}
}

// start runs the controller against the real API server for a tenant of its own.
func start(t *testing.T, tenant string, r *reader, change ...func(*gatecheck.Options)) client.Client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cfg := kubeapi.Start(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	kube, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := cache.New(cfg, cache.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = ca.Start(ctx) }()
	if err := kube.Create(ctx, namespaceOf(tenant)); err != nil {
		t.Fatal(err)
	}
	o := gatecheck.Options{Client: kube, Cache: ca, Inventory: fixed{fleetOf(tenant)}, Readings: r, Online: func(string, string) bool { return false }, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()}
	for _, f := range change {
		f(&o)
	}
	done := make(chan struct{})
	go func() { _ = gatecheck.New(o).Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return kube
}

func ask(t *testing.T, kube client.Client, namespace, name string, spec v1alpha1.GateCheckSpec) *v1alpha1.GateCheck {
	t.Helper()
	g := &v1alpha1.GateCheck{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}
	testkit.Eventually(t, "create "+name, func() error { return client.IgnoreAlreadyExists(kube.Create(t.Context(), g)) })
	return g
}

func verdict(t *testing.T, kube client.Client, namespace, name string) v1alpha1.GateCheckStatus {
	t.Helper()
	var g v1alpha1.GateCheck
	testkit.Eventually(t, "the verdict of "+name, func() error {
		if err := kube.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &g); err != nil {
			return err
		}
		if g.Status.Verdict == "" {
			return fmt.Errorf("none yet")
		}
		return nil
	})
	if g.Status.At == nil || time.Since(g.Status.At.Time) > time.Minute {
		t.Errorf("%s: at %v", name, g.Status.At)
	}
	return g.Status
}

func TestVerdicts(t *testing.T) {
	r := &reader{sites: map[string]readings.Site{"a": well(90), "b": well(85, "warning/Slow"), "c": well(10), "d": well(10), "e": well(80), "f": well(30, "critical/Down")},
		before: map[string]map[string]float64{"a": {"Site": 91, "Performance": 91}, "b": {"Site": 86, "Performance": 86}, "e": {"Site": 81, "Performance": 81}, "f": {"Site": 70, "Performance": 70}}}
	kube := start(t, "verdicts", r)
	since := metav1.NewTime(time.Now().Add(-20 * time.Minute))
	score := func(d v1alpha1.HealthDimension, least int32) []v1alpha1.RolloutGate {
		return []v1alpha1.RolloutGate{{Name: "score", Score: &v1alpha1.GateScore{Dimension: d, Minimum: least}}}
	}
	for name, x := range map[string]struct {
		spec    v1alpha1.GateCheckSpec
		verdict v1alpha1.GateVerdict
		message string
	}{
		"fine":         {v1alpha1.GateCheckSpec{VirtualSite: "shared/canary"}, v1alpha1.GatePass, "All gates pass; read at 2 sites, without 1 offline and 1 in maintenance."},
		"compared":     {v1alpha1.GateCheckSpec{Sites: []string{"b", "a", "b"}, Since: &since, Peers: "shared/all"}, v1alpha1.GatePass, "All gates pass; read at 2 sites."},
		"alert":        {v1alpha1.GateCheckSpec{Sites: []string{"f"}}, v1alpha1.GateWait, "alerts: "},
		"low":          {v1alpha1.GateCheckSpec{Sites: []string{"a"}, Gates: score("Performance", 95)}, v1alpha1.GateWait, "score: "},
		"high":         {v1alpha1.GateCheckSpec{Sites: []string{"a"}, Gates: score("Performance", 60)}, v1alpha1.GatePass, "All gates pass; read at 1 site."},
		"not-known":    {v1alpha1.GateCheckSpec{Sites: []string{"a"}, Gates: score("Security", 60)}, v1alpha1.GateUnknown, "score: "},
		"logs":         {v1alpha1.GateCheckSpec{Sites: []string{"a"}, Gates: []v1alpha1.RolloutGate{{Name: "panics", Logs: &v1alpha1.GateLogs{Query: "panic"}}}}, v1alpha1.GateFail, "panics: 7 lines match, of at most 0; read at 1 site."},
		"no-since":     {v1alpha1.GateCheckSpec{Sites: []string{"a"}, Gates: []v1alpha1.RolloutGate{{Name: "drop", Before: &v1alpha1.GateChange{}}}}, v1alpha1.GateUnknown, "spec.since: gate drop compares"},
		"ready":        {v1alpha1.GateCheckSpec{Sites: []string{"a"}, Gates: []v1alpha1.RolloutGate{{Name: "up", Ready: &v1alpha1.GateReady{}}}}, v1alpha1.GateUnknown, "spec.gates[up].ready: "},
		"no-site":      {v1alpha1.GateCheckSpec{Sites: []string{"a", "mars"}}, v1alpha1.GateUnknown, "spec.sites[1]: tenant verdicts has no site \"mars\""},
		"pending":      {v1alpha1.GateCheckSpec{Sites: []string{"pending"}}, v1alpha1.GateUnknown, "spec.sites[0]: "},
		"no-virtual":   {v1alpha1.GateCheckSpec{VirtualSite: "canary"}, v1alpha1.GateUnknown, "spec.virtualSite: there is no virtual site shop/canary"},
		"no-peers":     {v1alpha1.GateCheckSpec{VirtualSite: "shared/canary", Peers: "shared/x"}, v1alpha1.GateUnknown, "spec.peers: there is no virtual site shared/x"},
		"empty":        {v1alpha1.GateCheckSpec{VirtualSite: "empty"}, v1alpha1.GateUnknown, "there is nothing to read: it has no sites"},
		"all-left-out": {v1alpha1.GateCheckSpec{VirtualSite: "away"}, v1alpha1.GateUnknown, "all of 1 site are left out: 1 offline"},
	} {
		ask(t, kube, "verdicts-shop", name, x.spec)
		if got := verdict(t, kube, "verdicts-shop", name); got.Verdict != x.verdict || !strings.Contains(got.Message, x.message) {
			t.Errorf("%s: %s %q %+v, want %s %q", name, got.Verdict, got.Message, got.Gates, x.verdict, x.message)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.asked {
		if q.Tenant != "verdicts" || q.Namespace != "verdicts-shop" || len(q.Gates) == 0 {
			t.Errorf("%+v", q)
		}
		if q.Rollout == "compared" && (!slices.Equal(q.Changed, []string{"a", "b"}) || !slices.Equal(q.Peers, []string{"e", "f"}) || q.Since.Unix() != since.Unix()) {
			t.Errorf("%+v", q)
		}
	}
}

// What could not be read says why.
func TestUnknownSaysWhy(t *testing.T) {
	kube := start(t, "why", &reader{})
	ask(t, kube, "why-shop", "x", v1alpha1.GateCheckSpec{Sites: []string{"a"}, Gates: []v1alpha1.RolloutGate{{Name: "score", Score: &v1alpha1.GateScore{Minimum: 1}}}})
	if got := verdict(t, kube, "why-shop", "x"); got.Verdict != v1alpha1.GateUnknown || !strings.Contains(got.Message, "health: does not answer in time") {
		t.Errorf("%+v", got)
	}
}

// A gate that has to be broken for a while fails for a pipeline that asks on.
func TestAskedAgain(t *testing.T) {
	var ahead atomic.Int64
	r := &reader{sites: map[string]readings.Site{"a": well(50)}}
	kube := start(t, "again", r, func(o *gatecheck.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	spec := v1alpha1.GateCheckSpec{Sites: []string{"a"}, Gates: []v1alpha1.RolloutGate{{Name: "score", Score: &v1alpha1.GateScore{Minimum: 60}}}}
	var got []v1alpha1.GateVerdict
	for i := range 4 {
		name := fmt.Sprint("n", i)
		ask(t, kube, "again-shop", name, spec)
		var g v1alpha1.GateCheck
		testkit.Eventually(t, name, func() error {
			err := kube.Get(t.Context(), client.ObjectKey{Namespace: "again-shop", Name: name}, &g)
			if err == nil && g.Status.Verdict == "" {
				err = fmt.Errorf("none yet")
			}
			return err
		})
		got = append(got, g.Status.Verdict)
		ahead.Add(int64(30 * time.Second))
	}
	if got[0] != v1alpha1.GateWait || got[3] != v1alpha1.GateFail {
		t.Errorf("%v", got)
	}
	// Another question begins anew.
	spec.Gates[0].Score.Minimum = 61
	ask(t, kube, "again-shop", "other", spec)
	var g v1alpha1.GateCheck
	testkit.EventuallyTrue(t, "the other", func() bool {
		return kube.Get(t.Context(), client.ObjectKey{Namespace: "again-shop", Name: "other"}, &g) == nil && g.Status.Verdict != ""
	})
	if g.Status.Verdict != v1alpha1.GateWait {
		t.Errorf("another question: %+v", g.Status)
	}
}

// A tenant has so many answers at the same time, and is told when it asks for more.
func TestTooManyAtOnce(t *testing.T) {
	r := &reader{sites: map[string]readings.Site{"a": well(90)}, gate: make(chan struct{})}
	kube := start(t, "many", r)
	spec := v1alpha1.GateCheckSpec{Sites: []string{"a"}}
	for i := range 8 {
		ask(t, kube, "many-shop", fmt.Sprint("n", i), spec)
	}
	testkit.EventuallyTrue(t, "eight are under way", func() bool { return r.within.Load() == 8 })
	ask(t, kube, "many-shop", "over", spec)
	if got := verdict(t, kube, "many-shop", "over"); got.Verdict != v1alpha1.GateUnknown || !strings.Contains(got.Message, "as many gate checks of tenant many") {
		t.Errorf("%+v", got)
	}
	close(r.gate)
	for i := range 8 {
		if got := verdict(t, kube, "many-shop", fmt.Sprint("n", i)); got.Verdict != v1alpha1.GatePass {
			t.Errorf("n%d: %+v", i, got)
		}
	}
}

// However many tenants have slow checks, another one's is answered.
func TestSlowChecksLeavePlaces(t *testing.T) {
	r := &reader{sites: map[string]readings.Site{"a": well(90)}, gate: make(chan struct{}), quick: "quick"}
	tenants := []string{"slow0", "slow1", "slow2", "slow3", "quick"}
	kube := start(t, tenants[0], r, func(o *gatecheck.Options) { o.Inventory = fixed{fleetOf(tenants...)} })
	for _, tenant := range tenants[1:] {
		if err := kube.Create(t.Context(), namespaceOf(tenant)); err != nil {
			t.Fatal(err)
		}
	}
	spec := v1alpha1.GateCheckSpec{Sites: []string{"a"}}
	for _, tenant := range tenants[:4] {
		for i := range 10 {
			ask(t, kube, tenant+"-shop", fmt.Sprint("n", i), spec)
		}
	}
	testkit.Eventually(t, "each check is under way or told to come again", func() error {
		answered := 0
		for _, tenant := range tenants[:4] {
			var list v1alpha1.GateCheckList
			if err := kube.List(t.Context(), &list, client.InNamespace(tenant+"-shop")); err != nil {
				return err
			}
			for _, g := range list.Items {
				if g.Status.Verdict != "" {
					answered++
				}
			}
		}
		if n := answered + int(r.within.Load()); n != 40 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	ask(t, kube, "quick-shop", "x", spec)
	if got := verdict(t, kube, "quick-shop", "x"); got.Verdict != v1alpha1.GatePass {
		t.Errorf("%+v", got)
	}
	close(r.gate)
}

func TestOldOnesGo(t *testing.T) {
	r := &reader{sites: map[string]readings.Site{"a": well(90)}}
	kube := start(t, "old", r)
	spec := v1alpha1.GateCheckSpec{Sites: []string{"a"}}
	ask(t, kube, "old-shop", "x", spec)
	verdict(t, kube, "old-shop", "x")
	var g v1alpha1.GateCheck
	// To another control an hour has gone by.
	start(t, "later", r, func(o *gatecheck.Options) { o.Now = func() time.Time { return time.Now().Add(61 * time.Minute) } })
	testkit.EventuallyTrue(t, "it goes", func() bool {
		return apierrors.IsNotFound(kube.Get(t.Context(), client.ObjectKey{Namespace: "old-shop", Name: "x"}, &g))
	})
}
