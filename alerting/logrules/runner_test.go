package logrules

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/control/api/region"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// mortal is the State and the Sink of a process that dies at its nth write or
// send: before it took effect, or after. What is dead does nothing more.
type mortal struct {
	w     *world
	n     int
	die   int // 0: never
	after bool
	dead  bool
}

func (m *mortal) op(effect func() error) error {
	if m.dead {
		return errInjected
	}
	m.n++
	if m.n == m.die {
		m.dead = true
		if m.after {
			effect()
		}
		return errInjected
	}
	return effect()
}

func (m *mortal) Get(ctx context.Context, key string) (b []byte, v string, err error) {
	if m.dead {
		return nil, "", errInjected
	}
	return m.w.state.Get(ctx, key)
}

func (m *mortal) Put(ctx context.Context, key string, value []byte, version string) (v string, err error) {
	err = m.op(func() (err error) { v, err = m.w.state.Put(ctx, key, value, version); return err })
	return v, err
}

func (m *mortal) Delete(ctx context.Context, key, version string) error {
	return m.op(func() error { return m.w.state.Delete(ctx, key, version) })
}

func (m *mortal) Send(ctx context.Context, alerts []wire.Alert) error {
	return m.op(func() error { return m.w.sink.Send(ctx, alerts) })
}

func (m *mortal) options(name string) func(*Options) {
	return func(o *Options) { o.Name, o.State, o.Sink = name, m, m }
}

// A process is killed at every write and every send of its life, before and after
// it took effect; another one takes over. Every alert is delivered, and none twice under
// another StartsAt.
func TestKilledAnywhere(t *testing.T) {
	scenario := func(die int, after bool) (raised, firing []string, ops int) {
		w := newWorld(t, "paris", "rome", "oslo")
		w.use("acme", "{name: Any, type: any, filter: oom, query_key: [pod], realert: 1h}",
			"{name: Freq, type: frequency, num_events: 3, timeframe: 1m, realert: 1h}",
			"{name: Flat, type: flatline, threshold: 1, timeframe: 1m}",
			"{name: Agg, type: any, filter: oom, aggregation: 1m, realert: 1h}",
			"{name: Term, type: new_term, fields: [pod], realert: 0s}")
		a, b := &mortal{w: w}, &mortal{w: w}
		one := w.runner(a.options("one"))
		round1(one) // the rules begin now
		*a = mortal{w: w, die: die, after: after}
		two := w.runner(b.options("two"))
		lines := all(every(10, 0, 400, at(0, "paris", "x", "pod=a")), every(10, 0, 150, at(0, "rome", "y")), every(20, 250, 400, at(0, "oslo", "x")),
			list(at(40, "paris", "oom", "pod=a"), at(70, "rome", "oom", "pod=b"), at(100, "paris", "oom", "pod=c"), at(130, "rome", "oom", "pod=d").by(80)))
		i := 0
		for sec := 1; sec <= 600; sec++ {
			if sec == 480 {
				ops = a.n // whoever dies later leaves the other no time
			}
			w.now = t0.Add(time.Duration(sec) * time.Second)
			for ; i < len(lines) && lines[i].at <= sec; i++ {
				w.log(lines[i].site, lines[i].message, float64(lines[i].at-lines[i].late), lines[i].fields...)
			}
			if sec%15 == 0 {
				if !a.dead {
					round1(one)
				}
				round1(two)
			}
		}
		return w.sink.raised(), w.sink.firing(), ops
	}
	want, firing, ops := scenario(0, false)
	if len(want) < 9 || len(firing) == 0 {
		t.Fatalf("the scenario raises too little: %v, firing %v", want, firing)
	}
	t.Logf("%d operations, alerts %v, at the end %v", ops, want, firing)
	for die := 1; die <= ops; die++ {
		for _, after := range []bool{false, true} {
			got, end, _ := scenario(die, after)
			if !slices.Equal(got, want) {
				t.Errorf("killed at operation %d, after it: %t\n got %v\nwant %v", die, after, got, want)
			}
			if !slices.Equal(end, firing) {
				t.Errorf("killed at operation %d, after it: %t: firing at the end %v, want %v", die, after, end, firing)
			}
		}
	}
}

// Writes and sends that fail, or that succeed and whose answer is lost, delay
// alerts and change none.
func TestFlaky(t *testing.T) {
	for period := 2; period <= 9; period++ {
		w := newWorld(t, "paris")
		w.use("acme", "{type: any, query_key: [pod], realert: 1h}")
		n := 0
		flake := func() (before, after error) {
			n++
			switch {
			case n%period == 0:
				return errInjected, nil
			case n%period == 1:
				return nil, errInjected
			}
			return nil, nil
		}
		r := w.runner()
		round1(r)
		w.state.fail, w.sink.fail = func(op, key string) (error, error) {
			if key == leaseKey || op == "get" {
				return nil, nil
			}
			return flake()
		}, flake
		var want []string
		for i := range 20 {
			w.run(15*time.Second, r)
			w.log("paris", "x", w.now.Sub(t0).Seconds(), fmt.Sprintf("pod=p%d", i))
			want = append(want, fmt.Sprintf("R{pod=p%d,site=paris}@%g", i, w.now.Sub(t0).Seconds()))
		}
		w.run(5*time.Minute, r)
		w.expect(fmt.Sprintf("one in %d", period), w.sink.raised(), want...)
	}
}

func TestLease(t *testing.T) {
	w := newWorld(t, "paris")
	w.use("acme", "{type: any, realert: 0s}")
	one, two := w.runner(), w.runner(func(o *Options) { o.Name = "two" })
	round1(one)
	round1(two)
	if !one.Status().(Status).Owner || two.Status().(Status).Owner {
		t.Fatal("the first is not the owner")
	}
	w.run(5*time.Minute, one, two)
	if two.Status().(Status).Owner {
		t.Fatal("the second took it while the first lives")
	}
	w.run(DefaultLeaseTTL+DefaultInterval, two) // one hangs
	if !two.Status().(Status).Owner {
		t.Fatal("the second did not take over")
	}
	if _, owner := one.lease.epoch(); owner {
		t.Fatal("the first still thinks it is")
	}
	// The first wakes with an alert in its hands: it may send nothing.
	w.log("paris", "x", w.now.Sub(t0).Seconds())
	w.now = w.now.Add(time.Second)
	one.once(context.Background())
	w.expect("raised by who is no owner", w.sink.raised())
	w.run(time.Minute, one, two)
	if len(w.sink.raised()) != 1 {
		t.Error(w.sink.raised())
	}
	if err := two.lease.release(context.Background()); err != nil {
		t.Fatal(err)
	}
	round1(one)
	if s := one.Status().(Status); !s.Owner || s.Epoch != 3 {
		t.Errorf("after a release: %+v", s)
	}
}

// An owner that was stopped between its look at the lease and its write finds that
// the document is another's.
func TestFencedByTheDocument(t *testing.T) {
	w := newWorld(t, "paris")
	w.use("acme", "{type: any, realert: 0s}")
	one, two := w.runner(), w.runner(func(o *Options) { o.Name = "two" })
	round1(one)
	w.run(time.Minute, one)
	round1(two)
	w.run(time.Minute, two)
	forever := func() (int64, bool) { return 1, true }
	w.log("paris", "x", w.now.Sub(t0).Seconds())
	w.run(15 * time.Second)
	o := &owner{Options: one.o, epoch: forever, m: one.m}
	for _, u := range one.units {
		if err := u.evaluate(context.Background(), o, selected(u.plan, w.sites), w.now); err == nil {
			t.Error("the old owner wrote")
		}
		if err := u.evaluate(context.Background(), o, selected(u.plan, w.sites), w.now); err == nil {
			t.Error("the old owner wrote, having read again")
		}
	}
	w.expect("raised", w.sink.raised())
}

// An owner whose lease ran out while it wrote sends nothing: the next one does.
func TestLeaseRunsOutBeforeSending(t *testing.T) {
	w := newWorld(t, "paris")
	w.use("acme", "{type: any, realert: 0s}")
	r := w.runner()
	round1(r)
	w.log("paris", "x", 1)
	w.state.fail = func(op, key string) (error, error) {
		if op == "put" && strings.HasPrefix(key, "logrules/rule/") {
			w.now = w.now.Add(DefaultLeaseTTL - time.Second)
		}
		return nil, nil
	}
	w.run(15*time.Second, r)
	if len(w.sink.sends) != 0 {
		t.Errorf("sent %+v", w.sink.sends)
	}
	w.state.fail = nil
	two := w.runner(func(o *Options) { o.Name = "two" })
	w.run(time.Minute, two)
	if len(w.sink.raised()) != 1 {
		t.Errorf("the next owner raised %v", w.sink.raised())
	}
}

// The Sink is away for a while: what began meanwhile fires when it is back, also
// what has ended by then; what it had taken before is not raised again.
func TestSinkAway(t *testing.T) {
	w := newWorld(t, "paris", "rome")
	w.use("acme", "{name: Any, type: any, filter: oom, query_key: [pod]}", "{name: Flat, type: flatline, threshold: 1, timeframe: 1m}")
	r := w.runner()
	round1(r)
	say := func(d time.Duration, sites ...string) {
		for end := w.now.Add(d); w.now.Before(end); {
			for _, s := range sites {
				w.log(s, "x", w.now.Sub(t0).Seconds())
			}
			w.run(15*time.Second, r)
		}
	}
	w.log("paris", "oom", 0, "pod=before")
	say(30*time.Second, "paris", "rome")
	w.sink.fail = func() (error, error) { return errInjected, nil }
	w.log("paris", "oom", 30, "pod=while")
	say(2*time.Minute, "paris")
	say(10*time.Minute, "paris", "rome")
	before := len(w.sink.sends)
	w.sink.fail = nil
	if err := r.lease.release(context.Background()); err != nil { // and another process is there
		t.Fatal(err)
	}
	r = w.runner()
	say(time.Minute, "paris", "rome")
	var names []string
	for _, s := range w.sink.sends[before:] {
		if s.EndsAt.After(s.when) && !slices.Contains(names, id(s.Labels)) {
			names = append(names, id(s.Labels))
		}
	}
	slices.Sort(names)
	w.expect("when the sink is back", names, "Any{pod=while,site=paris}", "Flat{site=rome}")
	say(2*time.Minute, "paris", "rome")
	w.expect("in the end", w.sink.firing())
}

func TestLinesOfOtherSites(t *testing.T) {
	w := newWorld(t, "paris")
	w.use("acme", "{type: frequency, num_events: 1, timeframe: 1m}")
	w.src.extra = []Group{{Key: []string{"rome"}, Time: t0, Count: 5, First: t0, Last: t0}, {Key: nil, Count: 1}, {Key: []string{"paris"}, Time: t0}}
	r := w.runner()
	round1(r)
	w.run(15*time.Second, r)
	w.expect("raised", w.sink.raised())
	for _, u := range r.units {
		if len(u.st.Keys) > 0 {
			t.Errorf("%+v", u.st.Keys)
		}
	}
}

func TestInventory(t *testing.T) {
	w := newWorld(t, "paris")
	w.use("acme", "{name: Flat, type: flatline, threshold: 1, timeframe: 1m}", "{name: Any, type: any, realert: 1h}")
	r := w.runner()
	round1(r)
	w.run(2*time.Minute, r)
	w.sites = append(w.sites, Site{Tenant: "acme", Name: "rome"})
	w.log("paris", "x", 121)
	w.run(30*time.Second, r)
	w.expect("a site that just came", w.sink.firing(), "Any{site=paris}")
	w.log("paris", "x", 150)
	w.run(time.Minute, r)
	w.expect("a minute later", w.sink.firing(), "Any{site=paris}", "Flat{site=rome}")
	w.run(time.Minute, r)
	w.expect("both", w.sink.firing(), "Any{site=paris}", "Flat{site=paris}", "Flat{site=rome}")
	w.sites = w.sites[1:]
	w.run(15*time.Second, r)
	w.expect("paris left", w.sink.firing(), "Flat{site=rome}")
	w.sites = nil // not known
	w.run(time.Minute, r)
	w.expect("the inventory is not known", w.sink.firing(), "Flat{site=rome}")
	w.sites = []Site{}
	w.run(15*time.Second, r)
	w.expect("all left", w.sink.firing())
}

// An alert that fires gains the virtual site that its site joins, and loses the one that
// it leaves; Alertmanager has one of it at any time.
func TestAlertsFollowTheirSite(t *testing.T) {
	w := newWorld(t, "paris")
	w.use("acme", "{name: Flat, type: flatline, threshold: 1, timeframe: 1m}", "{name: Any, type: any, realert: 1h}")
	r := w.runner()
	round1(r)
	w.log("paris", "x", 1)
	w.run(3*time.Minute, r)
	fires := func() []string {
		last := map[string]time.Time{}
		for _, a := range w.sink.sends {
			last[a.Labels["alertname"]+" "+a.Labels["virtual_sites"]] = a.EndsAt
		}
		out := []string{}
		for k, ends := range last {
			if ends.After(w.now) {
				out = append(out, k)
			}
		}
		slices.Sort(out)
		return out
	}
	w.expect("before", fires(), "Any |shared/all|", "Flat |shared/all|") // one that ends by itself, and one that lasts
	began := func(alert string) (at time.Time) {
		for _, a := range w.sink.sends {
			if a.Labels["alertname"] == alert {
				at = a.StartsAt
			}
		}
		return at
	}
	anyBegan, flatBegan := began("Any"), began("Flat")
	for _, virtual := range [][]string{{"shared/all", "shop/new"}, {"shop/new"}, nil, {"shared/all"}} {
		w.sites[0].VirtualSites = virtual
		w.run(15*time.Second, r)
		label := region.VirtualSitesLabel(virtual)
		w.expect(fmt.Sprint(virtual), fires(), "Any "+label, "Flat "+label)
	}
	if a, f := began("Any"), began("Flat"); !a.Equal(anyBegan) || !f.Equal(flatBegan) {
		t.Errorf("they fire since %s and %s, before since %s and %s", a, f, anyBegan, flatBegan)
	}
}

func TestSelectorAndLabels(t *testing.T) {
	w := newWorld(t, "paris", "rome")
	w.sites[0].Labels = map[string]string{"tier": "edge"}
	w.use("acme", "{type: any, keep_firing_for: 0s, severity: critical, labels: {team: a}, query_key: [kubernetes.pod.name], annotations: {summary: '{{ $labels.team }} {{ $value }} {{ $message }}', runbook: r}}")
	w.rules[0].Logs[0].Spec.SiteSelector.MatchLabels = map[string]string{"tier": "edge"}
	r := w.runner(func(o *Options) { o.ExternalURL = "https://muster.example/" })
	round1(r)
	w.log("paris", "boom", 1, "pod=web")
	w.log("rome", "boom", 1, "pod=web")
	w.run(15*time.Second, r)
	if len(w.sink.sends) != 1 {
		t.Fatalf("%+v", w.sink.sends)
	}
	a := w.sink.sends[0]
	if got, want := fmt.Sprint(a.Labels), "map[alertname:R kubernetes_pod_name:web region:eu severity:critical site:paris team:a tenant:acme virtual_sites:|shared/all|]"; got != want {
		t.Errorf("labels %s\nwant   %s", got, want)
	}
	if got, want := fmt.Sprint(a.Annotations), "map[runbook:r summary:a 1 boom]"; got != want {
		t.Errorf("annotations %s, want %s", got, want)
	}
	lines := url.Values{"site": {"paris"}, "tenant": {"acme"}, "from": {t0.Add(time.Second - 5*time.Minute).Format(time.RFC3339)}, "to": {t0.Add(time.Second + 5*time.Minute).Format(time.RFC3339)}}
	if !a.StartsAt.Equal(t0.Add(time.Second)) || !a.EndsAt.Equal(w.now.Add(time.Minute)) || a.GeneratorURL != "https://muster.example/logs?"+lines.Encode() {
		t.Errorf("%+v", a)
	}
}

func TestRealert(t *testing.T) {
	w := newWorld(t, "paris", "rome")
	w.use("acme", "{type: any, realert: 5m}")
	r := w.runner()
	round1(r)
	for sec := 1; sec < 300; sec += 20 {
		w.log("paris", "x", float64(sec))
		w.run(20*time.Second, r)
	}
	w.log("rome", "x", 299)
	w.expect("within realert", w.sink.raised(), "R{site=paris}@1")
	if last := w.sink.sends[len(w.sink.sends)-1]; last.EndsAt.Before(t0.Add(320 * time.Second)) {
		t.Errorf("fires until %s: what matches within realert does not make it longer", last.EndsAt)
	}
	w.run(time.Minute, r)
	w.expect("of another site", w.sink.raised(), "R{site=paris}@1", "R{site=rome}@299")
	w.run(5*time.Minute, r)
	w.expect("over", w.sink.firing())
	w.log("paris", "x", 660)
	w.run(15*time.Second, r)
	w.expect("again", w.sink.raised(), "R{site=paris}@1", "R{site=rome}@299", "R{site=paris}@660")
	w.run(3*time.Minute, r) // sent again each minute
	n := 0
	for _, s := range w.sink.sends {
		if s.StartsAt.Equal(t0.Add(660 * time.Second)) {
			n++
		}
	}
	if n != 4 {
		t.Errorf("sent %d times in 3 minutes, want 4", n)
	}
}

func TestAggregation(t *testing.T) {
	w := newWorld(t, "paris", "rome")
	w.use("acme", "{type: any, aggregation: 2m, realert: 0s, annotations: {count: '{{ $value }}'}}")
	r := w.runner()
	round1(r)
	for sec := 10; sec < 130; sec += 15 {
		w.log("paris", "x", w.now.Sub(t0).Seconds())
		w.run(15*time.Second, r)
	}
	w.expect("before", w.sink.raised())
	w.run(15*time.Second, r)
	w.expect("after", w.sink.raised(), "R{site=paris}@0")
	if a := w.sink.sends[0]; a.Annotations["count"] != "8" || !strings.HasPrefix(a.Annotations["summary"], "8 matches within 2m") {
		t.Errorf("%+v", a.Annotations)
	}
}

// A store that is away delays; then the rules catch up, in steps, and find the same.
func TestCatchUp(t *testing.T) {
	scenario := func(outage bool) ([]string, *world) {
		w := newWorld(t, "paris", "rome")
		w.use("acme", "{name: Freq, type: frequency, num_events: 3, timeframe: 1m, query_key: [pod], realert: 1h}", "{name: Flat, type: flatline, threshold: 1, timeframe: 10m}",
			"{name: Card, type: cardinality, cardinality_field: pod, max_cardinality: 2, timeframe: 1m, realert: 24h}")
		r := w.runner()
		round1(r)
		for i := range 60 { // an hour
			if outage && i == 3 {
				w.src.err = errInjected
			}
			if outage && i == 57 {
				w.src.err, w.src.queries = nil, nil
			}
			w.log("paris", "x", w.now.Sub(t0).Seconds(), "pod=quiet")
			if i%10 == 5 {
				for range 3 {
					w.log("paris", "x", w.now.Sub(t0).Seconds()+1, fmt.Sprintf("pod=p%d", i))
					w.now = w.now.Add(time.Second)
				}
			}
			if i == 33 {
				w.log("paris", "x", w.now.Sub(t0).Seconds(), "pod=a")
				w.log("paris", "x", w.now.Sub(t0).Seconds(), "pod=b")
			}
			if i > 30 {
				w.log("rome", "x", w.now.Sub(t0).Seconds(), "pod=quiet")
			}
			w.run(time.Minute, r)
			if outage && i == 50 {
				if s := r.Status().(Status); s.Error == "" {
					t.Errorf("%+v", s)
				}
			}
		}
		return w.sink.raised(), w
	}
	want, _ := scenario(false)
	got, w := scenario(true)
	if !slices.Equal(got, want) || len(want) != 8 {
		t.Errorf("after an outage\n got %v\nwant %v", got, want)
	}
	for _, q := range w.src.queries {
		if q.UpTo.Sub(q.After) > maxStretch {
			t.Errorf("a query of %s", q.UpTo.Sub(q.After))
		}
	}
}

func TestTruncatedIsAskedInParts(t *testing.T) {
	w := newWorld(t, "paris")
	w.use("acme", "{type: any, query_key: [pod], realert: 1h}")
	r := w.runner(func(o *Options) { o.MaxGroups = 10 })
	round1(r)
	for i := range 60 {
		w.now = w.now.Add(250 * time.Millisecond)
		w.log("paris", "x", w.now.Sub(t0).Seconds(), fmt.Sprintf("pod=p%d", i))
	}
	round1(r)
	if n := len(w.sink.raised()); n != 60 {
		t.Errorf("%d alerts, want 60", n)
	}
	for i := range 60 { // at once: can't be parted
		w.log("paris", "x", w.now.Sub(t0).Seconds()+1, fmt.Sprintf("pod=q%d", i))
		w.src.lines[len(w.src.lines)-1].ingested = w.now.Add(time.Millisecond)
	}
	w.run(15*time.Second, r)
	if s := r.Status().(Status); len(s.Units) != 1 || !s.Units[0].Truncated {
		t.Errorf("%+v", s)
	}
}

// A store that is too slow for a long stretch is asked for shorter ones; one that is too
// slow for the shortest is an error, and nothing is passed over.
func TestSlowStoreIsAskedInParts(t *testing.T) {
	w := newWorld(t, "paris")
	w.use("acme", "{type: any, query_key: [pod], realert: 1h}")
	r := w.runner()
	round1(r)
	for i := range 60 {
		w.now = w.now.Add(10 * time.Second)
		w.log("paris", "x", w.now.Sub(t0).Seconds(), fmt.Sprintf("pod=p%d", i))
	}
	w.src.most = time.Millisecond
	round1(r)
	if s := r.Status().(Status); len(s.Units) != 1 || !strings.Contains(s.Units[0].Error, "too many lines at once") || len(w.sink.raised()) != 0 {
		t.Errorf("%+v, %v", s, w.sink.raised())
	}
	w.src.most = 20 * time.Second
	round1(r)
	if n := len(w.sink.raised()); n != 60 {
		t.Errorf("%d alerts, want 60", n)
	}
	if s := r.Status().(Status); s.BehindSeconds > 1 || len(s.Units) != 0 {
		t.Errorf("%+v", s)
	}
}

func TestBoundedKeys(t *testing.T) {
	for _, rule := range []string{"{type: any, query_key: [pod], realert: 1h}", "{type: frequency, num_events: 1, timeframe: 1h, query_key: [pod]}", "{type: flatline, threshold: 1, timeframe: 1h, query_key: [pod]}",
		"{type: change, compare_key: labels.v, query_key: [pod]}", "{type: new_term, fields: [pod], realert: 0s}", "{type: cardinality, cardinality_field: pod, max_cardinality: 1000, timeframe: 1h}",
		"{type: any, query_key: [pod], aggregation: 1h}"} {
		w := newWorld(t, "paris")
		w.use("acme", rule)
		reg := prometheus.NewRegistry()
		r := w.runner(func(o *Options) { o.MaxKeys, o.MaxTerms, o.Registerer = 20, 30, reg })
		round1(r)
		w.log("paris", "x", 0, "pod=first")
		w.run(15*time.Second, r)
		for i := range 100 {
			w.log("paris", "x", w.now.Sub(t0).Seconds(), fmt.Sprintf("pod=p%d", i))
		}
		w.run(15*time.Second, r)
		s := r.Status().(Status)
		if len(s.Units) != 1 || s.Units[0].Cut == 0 {
			t.Errorf("%s: %+v", rule, s)
		}
		for _, u := range r.units {
			if n := len(u.st.Keys); n > 20 {
				t.Errorf("%s: %d keys", rule, n)
			}
			if n := len(u.st.Active); n > 20 {
				t.Errorf("%s: %d alerts", rule, n)
			}
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "muster_logrules_cut_total" && f.Metric[0].Counter.GetValue() == 0 {
				t.Errorf("%s: the metric says nothing", rule)
			}
		}
	}
}

func TestNewTermLearnsFromHistory(t *testing.T) {
	w := newWorld(t, "paris")
	w.log("paris", "x", 0, "labels.user=old")
	w.log("paris", "x", 0, "labels.user=older")
	w.log("paris", "x", 0, "labels.user=mid")
	w.src.lines[2].at, w.src.lines[2].ingested = t0.Add(-3*24*time.Hour), t0.Add(-3*24*time.Hour)
	w.src.lines[0].at, w.src.lines[0].ingested = t0.Add(-5*24*time.Hour), t0.Add(-5*24*time.Hour)
	w.src.lines[1].at, w.src.lines[1].ingested = t0.Add(-9*24*time.Hour), t0.Add(-9*24*time.Hour)
	w.use("acme", "{type: new_term, fields: [labels.user], terms_window_size: 168h, realert: 0s, keep_firing_for: 0s}")
	r := w.runner()
	round1(r)
	w.log("paris", "x", 1, "labels.user=old")
	w.log("paris", "x", 2, "labels.user=new")
	w.run(15*time.Second, r)
	w.expect("raised", w.sink.raised(), "R{site=paris}@2")
	w.run(85*time.Second, r)
	w.log("paris", "x", 100, "labels.user=older")
	w.run(15*time.Second, r)
	w.expect("raised", w.sink.raised(), "R{site=paris}@2", "R{site=paris}@100")
}

func TestRuleChangesAndGoes(t *testing.T) {
	w := newWorld(t, "paris", "rome")
	w.use("acme", "{name: Flat, type: flatline, threshold: 1, timeframe: 1m}", "{name: Any, type: any, realert: 1h}")
	r := w.runner()
	round1(r)
	w.log("paris", "x", 1)
	w.run(3*time.Minute, r)
	w.expect("before", w.sink.firing(), "Any{site=paris}", "Flat{site=paris}", "Flat{site=rome}")
	w.use("acme", "{name: Flat, type: flatline, threshold: 2, timeframe: 1m}", "{name: Any, type: any, filter: x, realert: 1h}")
	r.SetRules(w.rules)
	w.run(15*time.Second, r)
	w.expect("a changed flatline starts anew", w.sink.firing(), "Any{site=paris}")
	w.log("paris", "x", 200)
	w.run(2*time.Minute, r)
	w.expect("realert is kept", w.sink.raised(), "Any{site=paris}@1", "Flat{site=paris}@63", "Flat{site=rome}@60", "Flat{site=paris}@255", "Flat{site=rome}@255")

	bad := []region.Rules{{Tenant: "acme", Logs: []region.LogRuleSet{{Name: "rules", Spec: v1alpha1.LogRulesSpec{Rules: []v1alpha1.LogRule{w.rule("{type: nosuch}")}}}}}}
	if errs := r.SetRules(bad); len(errs) != 1 || errs[0].Tenant != "acme" || errs[0].Name != "rules" {
		t.Error(errs)
	}
	w.run(10*time.Minute, r)
	w.expect("the last good rules", w.sink.firing(), "Any{site=paris}", "Flat{site=paris}", "Flat{site=rome}")
	// Another process has no last good ones: it must not take the rules for gone.
	if err := r.lease.release(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.rules = nil
	other := w.runner()
	other.SetRules(bad)
	w.run(30*time.Second, other)
	w.expect("unreadable rules", w.sink.firing(), "Any{site=paris}", "Flat{site=paris}", "Flat{site=rome}")

	other.SetRules(nil)
	w.run(15*time.Second, other)
	w.expect("no rules any more", w.sink.firing())
	for key := range w.state.docs {
		if strings.HasPrefix(key, "logrules/rule/") {
			t.Errorf("%s is left", key)
		}
	}
}

// TestWordsForgetNothing: what a rule has counted outlives an edit of what it says to people; with other
// labels what fires is another alert.
func TestWordsForgetNothing(t *testing.T) {
	for words, want := range map[string][]string{
		"annotations: {summary: better words}, realert: 2m, keep_firing_for: 3m, exponential_realert: 1h": {"Flat{site=paris}@60", "Freq{site=paris}@185"},
		"include: [pod], annotations: {a: '{{ $fields.pod }}'}":                                           {"Flat{site=paris}@60", "Freq{site=paris}@185"},
		"top_count_keys: [pod], top_count_number: 3":                                                      {"Flat{site=paris}@60", "Freq{site=paris}@185"},
		"severity: critical":   {"Flat{site=paris}@60", "Flat{site=paris}@192", "Freq{site=paris}@185"},
		"labels: {team: shop}": {"Flat{site=paris}@60", "Flat{site=paris,team=shop}@192", "Freq{site=paris,team=shop}@185"},
	} {
		use := func(w *world, words string) {
			w.use("acme", "{name: Flat, type: flatline, threshold: 1, filter: never, timeframe: 1m"+words+"}",
				"{name: Freq, type: frequency, num_events: 5, timeframe: 10m"+words+"}")
		}
		w := newWorld(t, "paris")
		use(w, "")
		r := w.runner()
		round1(r)
		w.log("paris", "x", 10)
		w.run(3*time.Minute, r)
		for range 3 {
			w.log("paris", "x", 180)
		}
		w.expect(words+": before", w.sink.raised(), "Flat{site=paris}@60")
		w.run(10*time.Second, r)
		use(w, ", "+words)
		if errs := r.SetRules(w.rules); len(errs) > 0 {
			t.Fatal(errs)
		}
		w.log("paris", "x", 185) // the fifth
		w.run(time.Minute, r)
		w.expect(words, w.sink.raised(), want...)
	}
}

// TestFlatlineForgetsWhatIsGone: a value of query_key ends by itself after a day, a site lasts.
func TestFlatlineForgetsWhatIsGone(t *testing.T) {
	w := newWorld(t, "paris")
	w.use("acme", "{name: Pod, type: flatline, threshold: 1, timeframe: 10m, query_key: [pod]}", "{name: Site, type: flatline, threshold: 1, timeframe: 10m}")
	r := w.runner()
	round1(r)
	w.log("paris", "x", 1, "pod=p")
	w.run(23*time.Hour, r)
	w.expect("before a day", w.sink.firing(), "Pod{pod=p,site=paris}", "Site{site=paris}")
	w.run(2*time.Hour, r)
	w.expect("after it", w.sink.firing(), "Site{site=paris}")
}

func TestRealertOutlivesAChange(t *testing.T) {
	w := newWorld(t, "paris")
	w.use("acme", "{type: flatline, threshold: 1, timeframe: 1m, realert: 1h}")
	r := w.runner()
	round1(r)
	w.run(2*time.Minute, r)
	w.use("acme", "{type: flatline, threshold: 2, timeframe: 1m, realert: 1h}")
	r.SetRules(w.rules)
	w.run(10*time.Minute, r)
	w.expect("the same labels", w.sink.raised(), "R{site=paris}@60")
	w.run(time.Hour, r)
	w.expect("an hour later", w.sink.raised(), "R{site=paris}@3660", "R{site=paris}@60")
	w.use("acme", "{type: flatline, threshold: 2, timeframe: 1m, realert: 1h, severity: critical}")
	r.SetRules(w.rules)
	w.run(2*time.Minute, r)
	if len(w.sink.raised()) != 3 {
		t.Errorf("other labels: %v", w.sink.raised())
	}
}

func TestPlatformRules(t *testing.T) {
	w := newWorld(t, "paris")
	w.sites = append(w.sites, Site{Tenant: "other", Name: "paris"})
	w.use(fleet.PlatformTenant, "{type: any}")
	r := w.runner()
	round1(r)
	w.log("paris", "x", 1)
	w.log("paris", "x", 2)
	w.src.lines[1].tenant = "other"
	w.run(15*time.Second, r)
	var tenants []string
	for _, s := range w.sink.sends {
		tenants = append(tenants, s.Labels["tenant"])
	}
	slices.Sort(tenants)
	w.expect("tenants", tenants, "acme", "other")
	// A tenant's own rules see its own sites.
	w2 := newWorld(t, "paris")
	w2.use("other", "{type: any}")
	r2 := w2.runner()
	round1(r2)
	w2.log("paris", "x", 1)
	w2.run(15*time.Second, r2)
	w2.expect("another tenant's rule", w2.sink.raised())
}

func TestOneBadDocumentDisturbsNoOther(t *testing.T) {
	w := newWorld(t, "paris")
	w.use("acme", "{name: A, type: any, realert: 0s}", "{name: B, type: any, realert: 0s}")
	w.state.fail = func(_, key string) (error, error) {
		if strings.HasSuffix(key, "/A/acme") {
			return errInjected, nil
		}
		return nil, nil
	}
	r := w.runner()
	round1(r)
	w.log("paris", "x", 1)
	w.run(15*time.Second, r)
	w.expect("the other", w.sink.raised(), "B{site=paris}@1")
	if s := r.Status().(Status); len(s.Units) != 1 || s.Units[0].Rule != "A" || s.Units[0].Error == "" {
		t.Errorf("%+v", s)
	}
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "paris")
		w.src.now, w.sink.now = time.Now, time.Now
		start := time.Now()
		w.use("acme", "{type: flatline, threshold: 1, timeframe: 1m}")
		begin := func(name string) context.CancelFunc {
			r := w.runner(func(o *Options) { o.Name, o.Now = name, time.Now })
			ctx, cancel := context.WithCancel(t.Context())
			go r.Run(ctx)
			return cancel
		}
		stop1 := begin("one")
		time.Sleep(time.Second) // virtual
		stop2 := begin("two")
		defer stop2()
		time.Sleep(3 * time.Minute)
		stop1()
		synctest.Wait()
		if d, err := leaseOf(w); err != nil || d.Owner != "" {
			t.Errorf("%+v, %v: not released", d, err)
		}
		time.Sleep(time.Minute)
		if d, err := leaseOf(w); err != nil || !strings.HasPrefix(d.Owner, "two/") || d.Epoch != 2 {
			t.Errorf("%+v, %v: not taken over", d, err)
		}
		starts := map[time.Time]bool{}
		for _, s := range w.sink.sends {
			starts[s.StartsAt] = true
		}
		if len(starts) != 1 || !w.sink.sends[len(w.sink.sends)-1].when.After(start.Add(3*time.Minute)) {
			t.Errorf("starts %v, last sent %v", starts, w.sink.sends[len(w.sink.sends)-1].when)
		}
		stop2()
		synctest.Wait()
	})
}

func leaseOf(w *world) (leaseDoc, error) {
	b, _, err := w.state.Get(context.Background(), leaseKey)
	if err != nil {
		return leaseDoc{}, err
	}
	return decodeLease(b)
}
