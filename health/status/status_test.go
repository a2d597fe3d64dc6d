package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/testkit"
)

func scheme(t testing.TB) *runtime.Scheme {
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return s
}

func objects() []client.Object {
	return []client.Object{
		&v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "a-system", Name: "one"}, Status: v1alpha1.SiteStatus{Phase: fleet.PhaseOnline}},
		&v1alpha1.HealthPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "a-system", Name: "p"}},
	}
}

func start(t testing.TB, c client.Client, now func() time.Time) *Writer {
	t.Helper()
	w := New(Options{Client: c, Logger: slog.New(slog.DiscardHandler), Now: now})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

func TestWritesStatusSparingly(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := atomic.Int64{}
	clock.Store(now.Unix())
	var writes atomic.Int32
	fail := atomic.Bool{}
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithStatusSubresource(&v1alpha1.Site{}, &v1alpha1.HealthPolicy{}).
		WithObjects(objects()...).
		WithInterceptorFuncs(interceptor.Funcs{SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			writes.Add(1)
			if fail.Load() {
				return errors.New("down")
			}
			return c.SubResource(sub).Apply(ctx, o, opts...)
		}}).Build()
	w := start(t, c, func() time.Time { return time.Unix(clock.Load(), 0) })
	site := func() *v1alpha1.Site {
		var o v1alpha1.Site
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "a-system", Name: "one"}, &o); err != nil {
			t.Fatal(err)
		}
		return &o
	}
	get := func() *v1alpha1.SiteHealth { return site().Status.Health }
	never := false
	report := func(score float64, colour fleet.Colour, reason string) {
		s := &inventory.Site{ID: fleet.SiteID{Tenant: "a", Name: "one"}, Health: get()}
		w.ReportSites([]SiteReport{{Site: s, Score: score, Known: colour != fleet.Grey, Colour: colour, Reason: reason, Since: now, Never: never}})
	}
	settled := func(want int32, score int32) {
		t.Helper()
		testkit.EventuallyTrue(t, fmt.Sprintf("write %d with score %d", want, score), func() bool {
			h := get()
			w.mu.Lock()
			busy := len(w.want) + len(w.busy) // of what is being written a report is passed over
			w.mu.Unlock()
			return busy == 0 && writes.Load() == want && h != nil && (score < 0 && h.Score == nil || h.Score != nil && *h.Score == score)
		})
	}
	quiet := func(want int32) {
		t.Helper()
		testkit.EventuallyTrue(t, "the writer to be idle", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.want)+len(w.busy) == 0
		})
		if n := writes.Load(); n != want {
			t.Fatalf("%d writes, want %d", n, want)
		}
	}
	report(80.9, fleet.Green, "")
	settled(1, 80)
	report(80.1, fleet.Green, "") // the same
	quiet(1)
	report(76.5, fleet.Green, "") // less than 5
	quiet(1)
	report(84.5, fleet.Green, "a word") // the reason alone waits too
	quiet(1)
	report(75.9, fleet.Green, "") // 5
	settled(2, 75)
	report(75, fleet.Orange, "disk") // the colour
	settled(3, 75)
	if h := get(); h.Colour != fleet.Orange || h.Reason != "disk" {
		t.Errorf("%+v", h)
	}
	report(0, fleet.Grey, "who knows") // unknown: the score goes
	settled(4, -1)
	report(78, fleet.Green, "")
	settled(5, 78)
	clock.Add(599)
	report(79, fleet.Green, "")
	quiet(5)
	clock.Add(1)
	report(79, fleet.Green, "")
	settled(6, 79)
	if phase := site().Status.Phase; phase != fleet.PhaseOnline {
		t.Errorf("phase %q: another's field was lost", phase)
	}
	// A failed write is made again after a later report.
	fail.Store(true)
	report(20, fleet.Red, "fire")
	testkit.EventuallyTrue(t, "the failing write", func() bool { return writes.Load() == 7 })
	fail.Store(false)
	testkit.EventuallyTrue(t, "the write to be made again", func() bool { report(20, fleet.Red, "fire"); return writes.Load() >= 8 })
	settled(8, 20)

	// Grey as before, but for another reason: it is connected now, and is not said to have never been.
	report(0, fleet.Grey, "who knows")
	settled(9, -1)
	never = true
	report(0, fleet.Grey, "who knows")
	quiet(9)
	never = false
	report(0, fleet.Grey, "nothing has come yet")
	settled(10, -1)
	if h := get(); h.Reason != "nothing has come yet" {
		t.Errorf("%+v", h)
	}
	report(0, fleet.Grey, "nothing has come yet")
	quiet(10)
}

// A fleet that joins at once costs no write for each site to say that it has not connected
// yet: who does so soon is written with what it is then, who does not is told of.
func TestASiteThatIsNewHasTimeToConnect(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	w := New(Options{Client: fake.NewClientBuilder().WithScheme(scheme(t)).Build(), Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	report := func(name string, never bool) (queued int) {
		w.ReportSites([]SiteReport{{Site: &inventory.Site{ID: fleet.SiteID{Tenant: "a", Name: name}}, Colour: fleet.Grey, Never: never}})
		return len(w.want)
	}
	for range 6 {
		for i := range 100 {
			if n := report(fmt.Sprintf("s-%d", i), true); n != 0 {
				t.Fatalf("%d writes of new sites after %s", n, now.Sub(w.start))
			}
		}
		now = now.Add(comes / 6)
	}
	if n := report("s-0", false); n != 1 {
		t.Errorf("%d writes when one has connected, want 1", n)
	}
	if n := report("s-1", true); n != 2 {
		t.Errorf("%d writes when another has not after %s, want one more", n, comes)
	}
	if n := report("s-2", true); n != 3 {
		t.Errorf("%d writes when a third has not, want one more", n)
	}
	// One that sends without a stream has a score.
	w.ReportSites([]SiteReport{{Site: &inventory.Site{ID: fleet.SiteID{Tenant: "a", Name: "pushes"}}, Score: 90, Known: true, Colour: fleet.Green, Never: true}})
	if n := len(w.want); n != 4 {
		t.Errorf("%d writes when a new one has a score, want one more", n)
	}
}

// A tenant whose sites all change colour all the time has them written late, and nobody
// else's: neither a colour nor a score.
func TestATenantsChangesHoldUpItsOwn(t *testing.T) {
	w := New(Options{Client: fake.NewClientBuilder().WithScheme(scheme(t)).Build(), Logger: slog.New(slog.DiscardHandler)})
	report := func(tenant, name string, was *v1alpha1.SiteHealth, colour fleet.Colour) {
		w.ReportSites([]SiteReport{{Site: &inventory.Site{ID: fleet.SiteID{Tenant: tenant, Name: name}, Health: was}, Score: 80, Known: true, Colour: colour}})
	}
	score := int32(99)
	for i := range 1000 {
		report("greedy", fmt.Sprint("calm", i), &v1alpha1.SiteHealth{Colour: fleet.Green, Score: &score}, fleet.Green)
		report("greedy", fmt.Sprint("s", i), nil, fleet.Red)
	}
	report("acme", "score", &v1alpha1.SiteHealth{Colour: fleet.Green, Score: &score}, fleet.Green)
	report("acme", "colour", nil, fleet.Red)
	var got []string
	for range 4 {
		key, _, ok := w.next()
		if !ok {
			t.Fatal("nothing waits")
		}
		got = append(got, key.namespace+"/"+key.name)
	}
	if want := []string{"greedy-system/s0", "acme-system/colour", "greedy-system/s1", "acme-system/score"}; !slices.Equal(got, want) {
		t.Errorf("written are %v, want %v", got, want)
	}
	n := 4
	for ; ; n++ {
		if _, _, ok := w.next(); !ok {
			break
		}
	}
	if n != 2002 || len(w.line.of)+len(w.line.turns) > 0 {
		t.Errorf("%d writes, and %v is left", n, w.line)
	}
}

func TestWritesPolicyStatus(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithStatusSubresource(&v1alpha1.HealthPolicy{}).
		WithObjects(objects()...).Build()
	w := start(t, c, nil)
	p := &inventory.Policy{Tenant: "a", Name: "p", Generation: 1, Object: &v1alpha1.HealthPolicy{}}
	cond := func() *metav1.Condition {
		var o v1alpha1.HealthPolicy
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "a-system", Name: "p"}, &o); err != nil {
			t.Fatal(err)
		}
		if len(o.Status.Conditions) == 0 || o.Status.Sites != 3 {
			return &metav1.Condition{}
		}
		return &o.Status.Conditions[0]
	}
	w.ReportPolicies([]PolicyReport{{Policy: p, Sites: 3}})
	testkit.EventuallyTrue(t, "SignalsHealthy=True", func() bool { return cond().Status == metav1.ConditionTrue && cond().Type == "SignalsHealthy" })
	w.ReportPolicies([]PolicyReport{{Policy: p, Sites: 3, Failing: []string{"cpu: bad function", "disk: timed out"}}})
	testkit.EventuallyTrue(t, "SignalsHealthy=False", func() bool {
		x := cond()
		return x.Status == metav1.ConditionFalse && strings.Contains(x.Message, "cpu: bad function") && strings.Contains(x.Message, "disk: timed out")
	})
	// What a policy in shadow would change; in force it would change nothing.
	shadow := func() *v1alpha1.HealthPolicyShadowStatus {
		var o v1alpha1.HealthPolicy
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "a-system", Name: "p"}, &o); err != nil {
			t.Fatal(err)
		}
		return o.Status.Shadow
	}
	staged := *p
	staged.Generation = 7
	w.ReportPolicies([]PolicyReport{{Policy: &staged, Sites: 3, Shadow: true, WouldChange: 2, Examples: []string{"paris: green → red: hot"}}})
	testkit.EventuallyTrue(t, "what it would change", func() bool {
		x := shadow()
		return x != nil && x.WouldChange == 2 && slices.Equal(x.Examples, []string{"paris: green → red: hot"})
	})
	enforced := *p
	enforced.Generation = 8
	w.ReportPolicies([]PolicyReport{{Policy: &enforced, Sites: 3}})
	testkit.EventuallyTrue(t, "nothing in shadow", func() bool { return shadow() == nil })
	// What is wrong with the policy itself is said at once.
	edited := *p
	edited.Generation = 2
	w.ReportPolicies([]PolicyReport{{Policy: &edited, Err: errors.New("signals[0].bad: is as good"), Sites: 3}})
	testkit.EventuallyTrue(t, "Invalid", func() bool { return cond().Reason == "Invalid" && cond().ObservedGeneration == 2 })
	// Under a rollout some sites have one content of it, the others another.
	before, after := enforced, enforced
	before.Generation, before.Content = 9, 1
	after.Generation, after.Content = 9, 2
	w.ReportPolicies([]PolicyReport{{Policy: &before, Sites: 2}, {Policy: &after, Sites: 1, Failing: []string{"disk: timed out"}}})
	testkit.EventuallyTrue(t, "one status of both", func() bool {
		return cond().ObservedGeneration == 9 && strings.Contains(cond().Message, "disk: timed out")
	})
}

// What is gone takes no room, and has left nothing to what comes under its name.
func TestWhatIsGoneIsForgotten(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	w := New(Options{Client: fake.NewClientBuilder().WithScheme(scheme(t)).Build(), Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	id := fleet.SiteID{Tenant: "a", Name: "one"}
	key := objectKey{"a-system", "one"}
	report := func(was *v1alpha1.SiteHealth, score float64, never bool) {
		r := SiteReport{Site: &inventory.Site{ID: id, Health: was}, Score: score, Known: !never, Colour: fleet.Grey, Never: never}
		if r.Known {
			r.Colour = fleet.Green
		}
		w.ReportSites([]SiteReport{r})
	}
	nothing := func(of string) {
		t.Helper()
		if n := len(w.never) + len(w.last) + len(w.busy) + len(w.want); n != 0 {
			t.Errorf("kept of %s: never %v, last %v, busy %v, want %v", of, w.never, w.last, w.busy, w.want)
		}
	}
	write := func() (written func()) {
		t.Helper()
		k, u, ok := w.next()
		if !ok || k != key {
			t.Fatalf("next is %v, %v", k, ok)
		}
		return func() { w.done(k, u, nil) }
	}

	report(nil, 0, true)
	w.ForgetSites([]fleet.SiteID{id})
	nothing("a site that was deleted before its first status")
	now = now.Add(2 * comes)
	report(nil, 0, true)
	if _, _, ok := w.next(); ok {
		t.Error("a new one under its name is said to have not connected, at once")
	}
	w.ForgetSites([]fleet.SiteID{id})

	report(nil, 90, false)
	write()()
	w.ForgetSites([]fleet.SiteID{id})
	nothing("one whose status was written")

	ninety := int32(90)
	report(&v1alpha1.SiteHealth{Colour: fleet.Green, Score: &ninety}, 91, false) // not worth a write yet
	w.ForgetSites([]fleet.SiteID{id})
	nothing("one whose status was written by an earlier process")

	report(nil, 90, false)
	written := write()
	w.ForgetSites([]fleet.SiteID{id})
	written()
	nothing("one that was deleted as its status was written")
}

// A policy that is deleted and made anew has no status: it is written, though it says the same as the
// last one's, and of one that is gone nothing is kept.
func TestAPolicyThatIsMadeAnewGetsItsStatus(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	w := New(Options{Client: fake.NewClientBuilder().WithScheme(scheme(t)).Build(), Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
	report := func(uids ...types.UID) (writes int) {
		var reports []PolicyReport
		for i, uid := range uids {
			o := &v1alpha1.HealthPolicy{ObjectMeta: metav1.ObjectMeta{UID: uid}}
			reports = append(reports, PolicyReport{Policy: &inventory.Policy{Tenant: "a", Name: fmt.Sprint("p", i), Generation: 1, Object: o}, Sites: 3})
		}
		w.ReportPolicies(reports)
		for {
			key, u, ok := w.next()
			if !ok {
				return writes
			}
			if u.GetKind() != "HealthPolicy" {
				t.Errorf("a write of %s", u.GetKind())
			}
			w.done(key, u, nil)
			writes++
		}
	}
	for i, c := range []struct {
		uids   []types.UID
		writes int
	}{
		{[]types.UID{"a", "b"}, 2},
		{[]types.UID{"a", "b"}, 0},
		{[]types.UID{"c", "b"}, 1}, // between two reports, as by kubectl replace --force
		{[]types.UID{"c"}, 0},
		{[]types.UID{"c", "b"}, 1},
		{nil, 0},
	} {
		if n := report(c.uids...); n != c.writes || len(w.policy) != len(c.uids) {
			t.Errorf("step %d, %v: %d writes, %d policies kept; want %d, %d", i, c.uids, n, len(w.policy), c.writes, len(c.uids))
		}
		now = now.Add(time.Second)
	}
}
