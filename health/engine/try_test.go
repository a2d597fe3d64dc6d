package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

func candidate(p *policy) *v1alpha1.HealthPolicy {
	out := p.Object.(*v1alpha1.HealthPolicy).DeepCopy()
	out.Name = p.Name
	return out
}

// A trial says what a policy would make of the sites of its tenant, and changes nothing.
func TestTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newRegional(t, "one")
		for _, s := range []string{"a/paris", "a/rome", "a/oslo", "b/paris"} {
			well(t, one.prom, s)
			one.put(t, "x", "", s, 6, 0)
			one.connect(s, true)
		}
		one.put(t, "secret", "", "b/paris", 7, 0)
		inForce, strong := aPolicy(t, "a", "mine", signal("x", "max by (tenant, site) (x / 100)")), aPolicy(t, "a", "strong", signal("x", "max by (tenant, site) (x / 100)"))
		strong.Priority = 10
		paris, rome, oslo := aSite("a/paris"), aSite("a/rome"), aSite("a/oslo")
		paris.Labels, rome.Labels = map[string]string{"tier": "gold"}, map[string]string{"tier": "tin"}
		paris.Policies, rome.Policies = []*inventory.Policy{inForce.Policy}, []*inventory.Policy{inForce.Policy}
		oslo.Policies = []*inventory.Policy{strong.Policy, inForce.Policy}
		inv := &shelf{changed: make(chan struct{}, 1)}
		inv.set([]*inventory.Site{paris, rome, oslo, aSite("b/paris")}, nil, []*inventory.Policy{strong.Policy, inForce.Policy})
		r := begin(t, t.TempDir(), []*regional{one}, nil, inv, nil)
		r.until("all are green", func(v *View) bool {
			return v.Tick >= 2 && v.Find("a", "paris").Colour() == fleet.Green && v.Find("a", "rome").Colour() == fleet.Green && v.Find("b", "paris").Colour() == fleet.Green
		})
		try := func(p *policy) map[string]Tried {
			t.Helper()
			x, err := r.e.Try(t.Context(), "a", candidate(p), 0)
			if err != nil {
				t.Fatal(err)
			}
			out := map[string]Tried{}
			for _, s := range x.Sites {
				out[s.Site.ID.Name] = s
			}
			return out
		}
		// As it is: nothing changes, at the sites where it is in force.
		same := try(inForce)
		if len(same) != 2 || same["paris"].Before.Score != same["paris"].After.Score || same["paris"].After.Colour != fleet.Green {
			t.Errorf("the same policy: %+v", same)
		}
		// 6 of 10 is bad enough; the stronger policy keeps oslo.
		strict := aPolicy(t, "a", "mine", signal("x", "max by (tenant, site) (x)"))
		got := try(strict)
		if s := got["rome"]; len(got) != 2 || s.Before.Colour != fleet.Green || s.After.Colour != fleet.Orange || s.After.Needed != 0 || !strings.Contains(s.After.Reasons[0].Text, "x is 6") {
			t.Errorf("a strict one: %d sites, rome %+v", len(got), s.After)
		}
		// A policy that lets go of a site hands it to the shipped one.
		less := aPolicy(t, "a", "mine", signal("x", "max by (tenant, site) (x)"))
		less.Object.(*v1alpha1.HealthPolicy).Spec.SiteSelector = metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}
		got = try(less)
		if len(got) != 2 || got["paris"].After.Colour != fleet.Orange || got["rome"].After.Model == got["paris"].After.Model || got["rome"].After.Colour != fleet.Green {
			t.Errorf("a narrower one: %+v", got)
		}
		if !slices.ContainsFunc(one.asked(), func(q string) bool { return strings.Contains(q, `temperature{tenant="a"}`) }) {
			t.Error("the shipped policy's queries are not confined to the tenant")
		}
		// A new one beside it is in force where nothing stronger is.
		weak := aPolicy(t, "a", "other", signal("x", "max by (tenant, site) (x)"))
		if got := try(weak); len(got) != 0 {
			t.Errorf("a weaker one changes %+v", got)
		}
		weak.Object.(*v1alpha1.HealthPolicy).Spec.Priority = 20
		if got := try(weak); len(got) != 3 {
			t.Errorf("the strongest one is in force at %d sites", len(got))
		}
		// Another tenant's series are not there to be seen.
		curious := aPolicy(t, "a", "mine", signal("plain", "max by (tenant, site) (secret)"), signal("forged", `label_replace(label_replace(secret, "tenant", "a", "", ""), "site", "paris", "", "")`))
		for name, s := range try(curious) {
			if s.After.Signals[0].Known || s.After.Signals[1].Known {
				t.Errorf("%s sees another tenant's series: %+v", name, s.After.Signals)
			}
		}
		if v := r.e.View(); v.Find("a", "paris").Colour() != fleet.Green {
			t.Error("a trial changed a colour")
		}
		gone, hangUp := context.WithCancel(t.Context())
		hangUp()
		if _, err := r.e.Try(gone, "a", candidate(inForce), 0); !errors.Is(err, context.Canceled) {
			t.Errorf("a trial whose caller has gone: %v", err)
		}
		broken := aPolicy(t, "a", "mine", signal("x", "x"))
		broken.Object.(*v1alpha1.HealthPolicy).Spec.Signals[0].Causes = []string{"nothing"}
		if _, err := r.e.Try(t.Context(), "a", candidate(broken), 0); err == nil || !strings.Contains(err.Error(), "causes") {
			t.Errorf("a policy that makes no model: %v", err)
		}
	})
}

// A trial that is not to wait for the slowest tells of the sites of those that answered, and who is late; that a regional was cut off
// says nothing against it. While none has answered, and without patience, it waits.
func TestTryDoesNotWaitForTheSlowest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newRegional(t, "one"), newRegional(t, "two")
		mine := aPolicy(t, "a", "mine", signal("x", "max by (tenant, site) (x / 100)"))
		var sites []*inventory.Site
		for at, names := range map[*regional][]string{one: {"a/paris"}, two: {"a/rome", "a/oslo"}} {
			for _, s := range names {
				well(t, at.prom, s)
				at.put(t, "x", "", s, 6, 0)
				at.connect(s, true)
				site := aSite(s)
				site.Policies = []*inventory.Policy{mine.Policy}
				sites = append(sites, site)
			}
		}
		inv := &shelf{changed: make(chan struct{}, 1)}
		inv.set(sites, nil, []*inventory.Policy{mine.Policy})
		r := begin(t, t.TempDir(), []*regional{one, two}, nil, inv, nil)
		r.until("all are green", func(v *View) bool {
			return v.Tick >= 2 && v.Find("a", "paris").Colour() == fleet.Green && v.Find("a", "rome").Colour() == fleet.Green && v.Find("a", "oslo").Colour() == fleet.Green
		})
		strict := candidate(aPolicy(t, "a", "mine", signal("x", "max by (tenant, site) (x)")))
		try := func(patience, wants time.Duration) (string, *Trial) {
			t.Helper()
			from := time.Now()
			x, err := r.e.Try(t.Context(), "a", strict, patience)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(from); took != wants {
				t.Errorf("with patience of %s: it took %s, want %s", patience, took, wants)
			}
			var out []string
			for _, s := range x.Sites {
				out = append(out, s.Site.ID.Name+" "+string(s.After.Colour))
			}
			slices.Sort(out)
			for _, s := range x.Signals {
				if s.Err != "" || s.Name == "x" && s.SitesKnown != len(x.Sites) {
					t.Errorf("with patience of %s: %+v", patience, s)
				}
			}
			return strings.Join(out, ", "), x
		}
		two.slow.Store(int64(1500 * time.Millisecond))
		got, x := try(500*time.Millisecond, 500*time.Millisecond)
		if got != "paris orange" || !slices.Equal(x.Late, []wire.MissingRegion{{Region: "two", Reason: "has not answered yet, after 500ms", Late: true}}) || x.Waiting != 2 {
			t.Errorf("%s, late %v, %d wait", got, x.Late, x.Waiting)
		}
		for range 5 { // in some of them it answers nothing else either
			try(500*time.Millisecond, 500*time.Millisecond)
			if r.e.answered[1].Load() == 0 {
				t.Error("regional two is said to answer nothing")
			}
		}
		const all = "oslo orange, paris orange, rome orange"
		if got, x := try(0, 1500*time.Millisecond); got != all || len(x.Late) != 0 || x.Waiting != 0 {
			t.Errorf("without patience: %s, late %v", got, x.Late)
		}
		one.slow.Store(int64(1200 * time.Millisecond))
		if got, x := try(500*time.Millisecond, 1200*time.Millisecond); got != "paris orange" || x.Waiting != 2 {
			t.Errorf("both slower than that: %s, late %v", got, x.Late)
		}
		one.slow.Store(0)
		two.slow.Store(0)
		if got, x := try(500*time.Millisecond, 0); got != all || len(x.Late) != 0 {
			t.Errorf("all at once: %s, late %v", got, x.Late)
		}
	})
}

// One trial a tenant at a time, and few in all.
func TestTrialsHaveTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrials()
		ctx, cancel := context.WithCancel(t.Context())
		var trying atomic.Int32
		// Three tenants try all the time, with two hands each.
		for i := range 6 {
			go func() {
				for tenant := string(rune('a' + i%3)); ctx.Err() == nil; {
					end, err := x.begin(ctx, tenant)
					if err != nil {
						continue
					}
					trying.Add(1)
					time.Sleep(tryFor)
					trying.Add(-1)
					end()
				}
			}()
			if i < 3 {
				time.Sleep(tryFor / 3)
			}
		}
		synctest.Wait()
		if n := trying.Load(); n != maxTrials {
			t.Errorf("%d trials run", n)
		}
		for range 5 {
			end, err := x.begin(ctx, "d")
			if err != nil {
				t.Fatalf("a fourth tenant gets no turn: %v", err)
			}
			again, short := context.WithTimeout(ctx, time.Second)
			if _, err := x.begin(again, "d"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a second one of the tenant: %v", err)
			}
			short()
			end()
		}
		cancel()
		time.Sleep(tryFor)

		// Of one that never ends others are told that they have to wait, at once if too many do.
		x = newTrials()
		for _, tenant := range []string{"a", "b", "c"} {
			if _, err := x.begin(t.Context(), tenant); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		var refused atomic.Int32
		for range 20 {
			go func() {
				if _, err := x.begin(t.Context(), "a"); errors.Is(err, ErrTrying) {
					refused.Add(1)
				}
			}()
		}
		synctest.Wait()
		if n := refused.Load(); n != 20-maxWaiting/2 {
			t.Errorf("%d of 20 are told at once", n)
		}
		if _, err := x.begin(t.Context(), "d"); !errors.Is(err, ErrTrying) || time.Since(began) != waitFor {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		synctest.Wait()
		if n := refused.Load(); n != 20 {
			t.Errorf("%d of 20 are told in the end", n)
		}
		if _, err := (&Engine{trials: newTrials()}).Try(context.Background(), "a", &v1alpha1.HealthPolicy{}, 0); !errors.Is(err, ErrNotEvaluated) {
			t.Errorf("before the first evaluation: %v", err)
		}
	})
}

// A replay says when a policy would have changed colours, by what the store has, and when
// they did change.
func TestTryHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, store := newRegional(t, "one"), newCortex(t, "a")
		const step = 15 * time.Second
		// x is 0 for fifteen minutes, 6 for ten, and 0 again; the record is green all along,
		// but for an orange minute.
		for i := range 120 {
			ago := time.Duration(120-i) * step
			x, colour := 0.0, 1.0
			if i >= 60 && i < 100 {
				x = 6
			}
			if i >= 20 && i < 24 {
				colour = 2
			}
			for _, s := range []string{"a/paris", "a/rome"} {
				store.tenants["a"].put(t, "muster_site_connected", "", s, 1, ago)
				store.tenants["a"].put(t, "x", "", s, x, ago)
				store.tenants["a"].put(t, "muster_site_health_colour", "", s, colour, ago)
			}
		}
		for _, s := range []string{"a/paris", "a/rome"} {
			one.connect(s, true)
			one.put(t, "x", "", s, 0, 0)
		}
		inForce := aPolicy(t, "a", "mine", signal("x", "max by (tenant, site) (x / 100)"))
		paris, rome := aSite("a/paris"), aSite("a/rome")
		paris.Policies, rome.Policies = []*inventory.Policy{inForce.Policy}, []*inventory.Policy{inForce.Policy}
		inv := &shelf{changed: make(chan struct{}, 1)}
		inv.set([]*inventory.Site{paris, rome}, nil, []*inventory.Policy{inForce.Policy})
		r := begin(t, t.TempDir(), []*regional{one}, store, inv, func(o *Options) { o.Tick, o.StoreWriteURL = step, "" })
		r.first()
		strict := candidate(aPolicy(t, "a", "mine", signal("x", "max by (tenant, site) (x)")))
		strict.Spec.RecoveryEvaluations = 4
		testkit.EventuallyTrue(t, "the sites are evaluated", func() bool {
			v := r.e.View()
			return v.Find("a", "paris").State != nil && len(v.Find("a", "paris").State.Signals) > 0 && len(v.Find("a", "rome").State.Signals) > 0
		})
		x, err := r.e.TryHistory(t.Context(), "a", strict, 28*time.Minute, "")
		if err != nil {
			t.Fatal(err)
		}
		if x.Total != 2 || x.Done != 2 || x.Next != "" || x.Step != step || len(x.Sites) != 2 {
			t.Fatalf("%+v", x)
		}
		for _, s := range x.Sites {
			if len(s.Would) != 2 || s.Would[0].To != fleet.Orange || s.Would[1].To != fleet.Green || !strings.Contains(s.Would[0].Reason, "x is 6") {
				t.Fatalf("%s would: %+v", s.Site.ID, s.Would)
			}
			if s.WouldBegin.To != fleet.Green || s.DidBegin.To != fleet.Green {
				t.Errorf("%s begins %+v and %+v", s.Site.ID, s.WouldBegin, s.DidBegin)
			}
			// Worse after two evaluations, better after four: the engine's own hysteresis.
			if d := s.Would[1].At.Sub(s.Would[0].At); d != 42*step {
				t.Errorf("%s would be orange for %s, want ten minutes and two evaluations more", s.Site.ID, d)
			}
			if len(s.Did) != 2 || s.Did[0].To != fleet.Orange || s.Did[1].At.Sub(s.Did[0].At) != time.Minute {
				t.Errorf("%s did: %+v", s.Site.ID, s.Did)
			}
		}
		if x, err = r.e.TryHistory(t.Context(), "a", strict, 28*time.Minute, "paris"); err != nil || len(x.Sites) != 1 || x.Sites[0].Site.ID.Name != "rome" || x.Done != 2 {
			t.Errorf("after paris: %+v, %v", x, err)
		}
		dear := candidate(aPolicy(t, "a", "mine", signal("x", "max by (tenant, site) (max_over_time(x[30d:1m]))")))
		if _, err := r.e.TryHistory(t.Context(), "a", dear, 7*24*time.Hour, ""); err == nil || !strings.Contains(err.Error(), "too dear") {
			t.Errorf("a query that is too dear over a week: %v", err)
		}
		for _, since := range []time.Duration{time.Minute, 30 * 24 * time.Hour} {
			if _, err := r.e.TryHistory(t.Context(), "a", strict, since, ""); err == nil || !strings.Contains(err.Error(), "since") {
				t.Errorf("%s: %v", since, err)
			}
		}
	})
}

// A replay makes of the recorded streams and pushes what the live engine makes of them: down is
// who had neither for a while.
func TestReplayedLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, store := newRegional(t, "one"), newCortex(t, "a")
		const points = 120
		// When each site has no stream on record, by point, and when no newer push than before.
		type span struct{ from, to int }
		sites := []struct {
			name             string
			noStream, noPush span
			every            int // so many records there is a push
			changes          int
		}{
			{name: "a/short-break", noStream: span{40, 41}, noPush: span{40, 41}},
			{name: "a/long-break", noStream: span{40, 48}, noPush: span{39, 48}, changes: 2},
			{name: "a/stream-backs-off", noStream: span{40, 48}},
			{name: "a/only-pushes", noStream: span{0, points}, every: 4},
			{name: "a/pushes-end", noStream: span{0, points}, noPush: span{60, points}, changes: 1},
		}
		var all []*inventory.Site
		inForce := aPolicy(t, "a", "mine", signal("x", "max by (tenant, site) (x / 100)"))
		for _, s := range sites {
			pushed := 0.0
			for i := range points {
				ago := time.Duration(points-i) * recorded
				connected := 1.0
				if i >= s.noStream.from && i < s.noStream.to {
					connected = 0
				}
				if (i < s.noPush.from || i >= s.noPush.to) && i%max(s.every, 1) == 0 {
					pushed = float64(time.Now().Add(-ago-4*time.Second).UnixMilli()) / 1000
				}
				store.tenants["a"].put(t, "muster_site_connected", "", s.name, connected, ago)
				store.tenants["a"].put(t, "muster_site_last_push_timestamp_seconds", "", s.name, pushed, ago)
				store.tenants["a"].put(t, "x", "", s.name, 0, ago)
			}
			one.connect(s.name, true)
			one.put(t, "x", "", s.name, 0, 0)
			site := aSite(s.name)
			site.Policies = []*inventory.Policy{inForce.Policy}
			all = append(all, site)
		}
		inv := &shelf{changed: make(chan struct{}, 1)}
		inv.set(all, nil, []*inventory.Policy{inForce.Policy})
		r := begin(t, t.TempDir(), []*regional{one}, store, inv, func(o *Options) {
			o.Tick, o.StoreWriteURL, o.Patience, o.PushPatience = recorded, "", 15*time.Second, 90*time.Second
		})
		r.first()
		testkit.EventuallyTrue(t, "the sites are evaluated", func() bool {
			for _, s := range all {
				if x := r.e.View().Find("a", s.ID.Name); x.State == nil || len(x.State.Signals) == 0 {
					return false
				}
			}
			return true
		})
		got := map[string]Replayed{}
		for after, more := "", true; more; more = after != "" {
			x, err := r.e.TryHistory(t.Context(), "a", candidate(inForce), 28*time.Minute, after)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range x.Sites {
				got[s.Site.ID.String()] = s
			}
			after = x.Next
		}
		for _, s := range sites {
			x, ok := got[s.name]
			if !ok || x.WouldBegin.To != fleet.Green || len(x.Would) != s.changes {
				t.Errorf("%s: begins %s, %+v; want green and %d changes", s.name, x.WouldBegin.To, x.Would, s.changes)
			} else if s.changes > 0 && x.Would[0].To != fleet.Red {
				t.Errorf("%s: %+v, want red", s.name, x.Would)
			}
		}
	})
}

func FuzzMatrix(f *testing.F) {
	f.Add([]byte(`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"tenant":"a","site":"b"},"values":[[1,"2"],[16.5,"NaN"]]}]}}`))
	f.Add([]byte(`{"status":"error","errorType":"bad_data","error":"no"}`))
	f.Add([]byte(`{"status":"success","data":{"resultType":"matrix","result":[null]}}`))
	now := time.Unix(1e9, 0)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decodeMatrix(data)
		if err != nil {
			return
		}
		h := &history{e: &Engine{}, tenant: "a", tick: 15 * time.Second, sites: make([]*Site, 1), value: make([][]float64, 1), have: make([][]bool, 1)}
		h.times(now, time.Hour)
		h.value[0], h.have[0] = make([]float64, h.n), make([]bool, h.n)
		_ = h.take(0, m, map[string]int{"b": 0})
	})
}
