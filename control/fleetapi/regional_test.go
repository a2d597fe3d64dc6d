package fleetapi

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"muster.dev/muster/control/api/region"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/relay"
)

func upRules(expr string) v1alpha1.AlertRulesSpec {
	return v1alpha1.AlertRulesSpec{Engine: "edge", Groups: []v1alpha1.RuleGroup{{Name: "g", Rules: []v1alpha1.Rule{{Alert: "A", Expr: expr}}}}}
}

// fleetWorld is a CA under which controls come and go on one address.
type fleetWorld struct {
	t    *testing.T
	ca   *pki.CA
	addr string
}

// fleetControl is one process of control.
type fleetControl struct {
	store  *desired.Store
	server *Server
	stop   func()
}

func newFleetWorld(t *testing.T) *fleetWorld {
	t.Helper()
	ca, err := pki.Open(pki.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return &fleetWorld{t: t, ca: ca, addr: "127.0.0.1:0"}
}

// start runs a control that holds what fill sets.
func (w *fleetWorld) start(fill func(*desired.Store), regionals ...string) *fleetControl {
	w.t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		w.t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	c := &fleetControl{store: desired.New(desired.Options{Logger: log, Registerer: prometheus.NewRegistry(), Regionals: regionals, RenderEvery: time.Millisecond})}
	var err error
	c.server, err = New(Options{Registrar: registrar{}, Desired: c.store, Client: fake.NewClientBuilder().WithScheme(scheme).Build(), Logger: log, Registerer: prometheus.NewRegistry(), Regionals: regionals})
	if err != nil {
		w.t.Fatal(err)
	}
	dir := w.t.TempDir()
	if _, err := w.ca.EnsureControl(dir, []string{"127.0.0.1"}); err != nil {
		w.t.Fatal(err)
	}
	files, err := identity.LoadFiles(filepath.Join(dir, pki.PairFile), filepath.Join(dir, pki.TrustFile))
	if err != nil {
		w.t.Fatal(err)
	}
	lis, err := net.Listen("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.addr = lis.Addr().String()
	fill(c.store)
	c.store.Start()
	c.server.Synced()
	g := c.server.NewGRPC(files, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(lis) })
	wg.Go(func() { _ = c.server.Run(ctx) })
	wg.Go(func() { _ = c.store.Run(ctx) })
	c.stop = sync.OnceFunc(func() { g.Stop(); cancel(); wg.Wait() })
	w.t.Cleanup(c.stop)
	return c
}

// heldRelay is a regional's relay and what it was handed.
type heldRelay struct {
	*relay.Relay
	stop func()

	mu    sync.Mutex
	items map[string]string // KIND/NAME to blob
	calls int
}

// relay runs a regional with the real relay; it refuses rules that hold "bad".
func (w *fleetWorld) relay(name, dir string) *heldRelay {
	w.t.Helper()
	id := w.t.TempDir()
	if _, err := w.ca.EnsureRegional(id, name, nil); err != nil {
		w.t.Fatal(err)
	}
	files, err := identity.LoadFiles(filepath.Join(id, pki.PairFile), filepath.Join(id, pki.TrustFile))
	if err != nil {
		w.t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+w.addr, grpc.WithTransportCredentials(credentials.NewTLS(files.ClientConfig("127.0.0.1", identity.IsControl))))
	if err != nil {
		w.t.Fatal(err)
	}
	r := &heldRelay{}
	r.Relay, err = relay.New(relay.Options{Name: name, Dir: dir, Control: wire.NewControlClient(conn), MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond,
		OnRegional: func(items []relay.Item) (errs []relay.ItemError) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.calls++
			r.items = map[string]string{}
			for _, it := range items {
				r.items[it.Kind+"/"+it.Name] = string(it.Blob)
				if strings.Contains(string(it.Blob), "bad") {
					errs = append(errs, relay.ItemError{Kind: "AlertRules", Name: it.Name + "/up", Err: errors.New("expr: bad indeed")})
				}
			}
			return errs
		}})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() { cancel(); <-done; conn.Close() })
	w.t.Cleanup(r.stop)
	return r
}

func (r *heldRelay) keys() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(r.items)), " ")
}

func (r *heldRelay) item(key string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.items[key]
}

func (w *fleetWorld) eventually(what string, ok func() bool) {
	w.t.Helper()
	testkit.EventuallyTrue(w.t, what, ok)
}

func acmeFleet(expr string) func(*desired.Store) {
	return func(f *desired.Store) {
		f.Apply(inventory.NewBook("acme").Put(&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "acme"}, Spec: v1alpha1.TenantSpec{Quotas: v1alpha1.TenantQuotas{LogBytesPerDay: 7}}},
			&v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "paris", Labels: map[string]string{"region": "eu"}}, Spec: v1alpha1.SiteSpec{Approved: true}}).Snapshot())
		f.SetAlertRules("acme", "up", upRules(expr))
		f.SetAlertRules("acme", "other", upRules("other"))
	}
}

func TestRulesReachRegionalsAndTheirStateComesBack(t *testing.T) {
	w := newFleetWorld(t)
	c := w.start(acmeFleet("up == 0"), "one", "two")
	var mu sync.Mutex
	told := map[string]int{}
	c.server.SubscribeRules(func(tenant string) { mu.Lock(); defer mu.Unlock(); told[tenant]++ })
	state := func(expr string) RulesState {
		return c.server.RulesState("acme", "AlertRules", "up", desired.SpecDigest(upRules(expr)))
	}
	if st := state("up == 0"); st.Settled || !slices.Equal(st.Waiting, []string{"one", "two"}) {
		t.Errorf("before anybody connected: %+v", st)
	}
	dir := t.TempDir()
	one := w.relay("one", dir)
	w.eventually("one has all", func() bool { return one.keys() == "Inventory/acme Rules/acme" })
	inv, err := region.DecodeInventory([]byte(one.item("Inventory/acme")))
	if err != nil || inv.LogBytesPerDay != 7 || len(inv.Sites) != 1 || inv.Sites[0].Regional == "" {
		t.Errorf("inventory %+v, %v", inv, err)
	}
	w.eventually("one applies it", func() bool { return state("up == 0").Applied == 1 })
	if st := state("up == 0"); st.Settled || !slices.Equal(st.Waiting, []string{"two"}) {
		t.Errorf("two has not reported: %+v", st)
	}
	two := w.relay("two", t.TempDir())
	w.eventually("both apply it", func() bool { st := state("up == 0"); return st.Applied == 2 && st.Settled })
	if st := state("up == 1"); st.Applied != 0 || len(st.Waiting) != 2 {
		t.Errorf("another spec: %+v", st)
	}

	// two goes; what it had it still evaluates. A refusal is told with its reason, and
	// does not touch other objects.
	two.stop()
	c.store.SetAlertRules("acme", "up", upRules("bad"))
	w.eventually("one refuses", func() bool { st := state("bad"); return st.RefusedBy == "one" && st.Why == "expr: bad indeed" })
	if st := state("bad"); st.Applied != 0 || !slices.Equal(st.Waiting, []string{"two"}) {
		t.Errorf("refused: %+v", st)
	}
	if st := c.server.RulesState("acme", "AlertRules", "other", desired.SpecDigest(upRules("other"))); st.Applied != 2 || st.RefusedBy != "" {
		t.Errorf("the other object: %+v", st)
	}
	mu.Lock()
	if told["acme"] < 3 || len(told) != 1 {
		t.Errorf("told of %v", told)
	}
	mu.Unlock()

	// Control ends; the regional restarts without it, with what it had.
	c.stop()
	one.stop()
	one = w.relay("one", dir)
	w.eventually("one goes on", func() bool { return one.keys() == "Inventory/acme Rules/acme" })
	if one.Connected() {
		t.Error("connected")
	}
	// A new control with other rules.
	c = w.start(acmeFleet("up == 2"), "one", "two")
	w.eventually("one takes the new ones", func() bool { return strings.Contains(one.item("Rules/acme"), "up == 2") })
	w.eventually("and says so", func() bool { return state("up == 2").Applied == 1 })
	c.stop()
	// Nothing changed while control was away: nothing is handed on, all is reported.
	one.mu.Lock()
	calls := one.calls
	one.mu.Unlock()
	c = w.start(acmeFleet("up == 2"), "one", "two")
	w.eventually("reported to the new control", func() bool { return state("up == 2").Applied == 1 })
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.calls != calls {
		t.Errorf("handed on %d times more for nothing", one.calls-calls)
	}
}

// A regional of the first capability gets sites' states only, and never counts.
func TestOlderRegionalIsNotSentWhatItDoesNotKnow(t *testing.T) {
	w := newWorld(t).started()
	id := w.site("paris")
	w.store.SetAlertRules("acme", "up", upRules("up"))
	old := w.regional("old") // speaks 1
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := w.regionalClient("new").Relay(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&wire.RelayUp{Msg: &wire.RelayUp_Hello{Hello: &wire.RelayHello{Capability: 2, Regional: "new"}}}); err != nil {
		t.Fatal(err)
	}
	m, err := stream.Recv()
	if err != nil || m.GetRegional().GetDesired() == nil {
		t.Fatalf("a regional of today got %v, %v", m, err)
	}
	old.up(id, nil)
	w.eventually("the old one is served", func() bool { return old.desiredOf(id) != nil })
	old.mu.Lock()
	unknown := old.regionalDesired
	old.mu.Unlock()
	if unknown != 0 {
		t.Errorf("an old regional was sent %d messages that it does not know", unknown)
	}
	if st := w.server.RulesState("acme", "AlertRules", "up", desired.SpecDigest(upRules("up"))); st.Applied != 0 || !slices.Contains(st.Waiting, "old") {
		t.Errorf("state %+v", st)
	}
}

func TestSitesMayNotFetchWhatRegionalsHold(t *testing.T) {
	w := newWorld(t).started()
	digest := ""
	for _, it := range w.store.Regional().Items {
		digest = it.Digest
	}
	if digest != "" {
		t.Fatal("want an empty fleet")
	}
	w.store.SetAlertRules("acme", "up", upRules("up"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = w.store.Run(ctx) }()
	w.eventually("rendered", func() bool { return len(w.store.Regional().Items) == 1 })
	digest = w.store.Regional().Items[0].Digest
	st, err := w.regionalClient("one").FetchBlob(ctx, &wire.FetchBlobRequest{Digest: digest})
	if err != nil {
		t.Fatal(err)
	}
	if chunk, err := st.Recv(); err != nil || wire.DigestOf(chunk.Data) != digest {
		t.Errorf("a regional: %v", err)
	}
	st, err = w.siteClient().FetchBlob(ctx, &wire.FetchBlobRequest{Digest: digest})
	if err == nil {
		_, err = st.Recv()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("a site: %v", err)
	}
}

func (r *regional) conditions(id fleet.SiteID, conds ...*wire.Condition) {
	r.w.t.Helper()
	r.send(&wire.RelayUp{Msg: &wire.RelayUp_SiteConditions{SiteConditions: &wire.SiteConditions{Tenant: id.Tenant, Site: id.Name, Conditions: conds}}})
}

func TestConditionsOfTheRegional(t *testing.T) {
	w := newWorld(t).started()
	id := w.site("paris", func(s *v1alpha1.Site) {
		s.Status.Conditions = []metav1.Condition{
			{Type: "LogBudgetExceeded", Status: "True", Reason: "Old", LastTransitionTime: metav1.Unix(1000, 0)},
			{Type: "CollectionPolicyApplied", Status: "True", Reason: "Applied", LastTransitionTime: metav1.Unix(1000, 0)},
		}
	})
	one, two := w.regional("one"), w.regional("two")
	one.up(id, nil)
	w.phase("paris", fleet.PhaseOnline)
	if c := condition(w.get("paris"), "LogBudgetExceeded"); c == nil || c.Reason != "Old" {
		t.Errorf("what nobody told of since the start must stay: %+v", c)
	}
	two.conditions(id, &wire.Condition{Type: "LogsAccepted", Status: "False", Reason: "Foreign"}) // not its site
	one.conditions(id,
		&wire.Condition{Type: "LogBudgetExceeded", Status: "True", Reason: "OverBudget", Message: strings.Repeat("x", 5000)},
		&wire.Condition{Type: "Healthy", Status: "True", Reason: "Forged"}, &wire.Condition{Type: "Anything", Status: "True"})
	w.eventually("it is merged", func() bool {
		c := condition(w.get("paris"), "LogBudgetExceeded")
		return c != nil && c.Reason == "OverBudget" && len(c.Message) == maxMessage && c.LastTransitionTime.Unix() == 1000
	})
	got := w.get("paris")
	if condition(got, "CollectionPolicyApplied") == nil || condition(got, "Healthy") != nil || condition(got, "Anything") != nil || condition(got, "LogsAccepted") != nil {
		t.Errorf("conditions %+v", got.Status.Conditions)
	}
	// The site reports: it can't set or clear what its regional says.
	one.report(id, &wire.Report{Seq: 1, Conditions: []*wire.Condition{{Type: "SpoolNearFull", Status: "True", Reason: "R"}, {Type: "LogBudgetExceeded", Status: "False", Reason: "Lie"}}})
	w.eventually("the report is merged", func() bool {
		s := w.get("paris")
		c, r := condition(s, "LogBudgetExceeded"), condition(s, ConditionReportAccepted)
		return condition(s, "SpoolNearFull") != nil && c != nil && c.Reason == "OverBudget" && r != nil && r.Status == "False"
	})
	// It moves to a regional that has nothing to say.
	two.up(id, nil)
	two.conditions(id)
	w.eventually("it is gone", func() bool {
		s := w.get("paris")
		return s.Status.Regional == "two" && condition(s, "LogBudgetExceeded") == nil && condition(s, "SpoolNearFull") != nil
	})
	two.down(id) // it was there last
	w.unowned(id)
	one.conditions(id, &wire.Condition{Type: "LogBudgetExceeded", Status: "True", Reason: "Late"})
	one.up(w.site("rome"), nil)
	w.phase("rome", fleet.PhaseOnline) // so one's message before that was taken
	two.conditions(id, &wire.Condition{Type: "LogsAccepted", Status: "True", Reason: "Yes"})
	w.eventually("only its own regional counts", func() bool { return condition(w.get("paris"), "LogsAccepted") != nil })
	if c := condition(w.get("paris"), "LogBudgetExceeded"); c != nil {
		t.Errorf("the former regional set %+v", c)
	}
}

func TestHostileRegionalReport(t *testing.T) {
	w := newWorld(t).started()
	w.store.SetAlertRules("acme", "up", upRules("up"))
	r := w.regional("one")
	digest := strings.Repeat("a", 64)
	r.send(&wire.RelayUp{Msg: &wire.RelayUp_RegionalReport{}})
	r.send(&wire.RelayUp{Msg: &wire.RelayUp_RegionalReport{RegionalReport: &wire.RegionalReport{Items: []*wire.ItemState{
		nil, {Kind: "Rules", Name: "../x", Digest: digest}, {Kind: "Rules", Name: "acme", Digest: "zz"}, {Kind: "AlertRules", Name: "acme", Digest: digest, Error: "x"},
		{Kind: "Rules", Name: "umbrella", Digest: digest, Error: "a\x00b" + strings.Repeat("y", 3000)}, {Kind: strings.Repeat("k", 300), Name: "acme", Digest: digest, Error: "e"},
	}}}})
	w.eventually("it is taken", func() bool {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		rep := w.server.rules["one"]
		return rep != nil && len(rep.tenants["umbrella"].errs[""]) == maxMessage && !strings.Contains(rep.tenants["umbrella"].errs[""], "\x00")
	})
	if st := w.server.RulesState("acme", "AlertRules", "up", ""); st.Applied != 0 {
		t.Errorf("an object that no blob holds counts as applied: %+v", st)
	}
}
