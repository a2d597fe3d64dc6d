package engine

import (
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/health"
	"muster.dev/muster/health/defaults"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/promcost"
	"muster.dev/muster/internal/wire"
)

// Signals as people write them, with quick sites in mind.
const (
	gaugeQuery = "max by (tenant, site) (temperature)"
	rateQuery  = "sum by (tenant, site) (rate(work_total[1m]))"
	totalQuery = "sum by (tenant, site) (increase(work_total[1m]))"
	graceQuery = "max by (tenant, site) (min_over_time(fire[1m]))"
	ageQuery   = "time() - max by (tenant, site) (muster_site_last_push_timestamp_seconds)"
)

// scraped is an engine above one regional, to which each site sends at its own interval.
type scraped struct {
	*paced
	began     time.Time
	intervals map[string]time.Duration
	silent    map[string]bool
	lose      func(site string, scrape int) bool
	temp      float64
	list      []*inventory.Site
}

func newScraped(t testing.TB, intervals ...time.Duration) *scraped {
	m, err := health.NewModel(health.Options{
		Weights: [4]float64{1, 1, 1, 1}, WorstShare: health.DefaultWorstShare,
		Signals: []health.Signal{
			{Name: "gauge", Dimension: fleet.Performance, Query: gaugeQuery, Good: 20, Bad: 40, Weight: 1, Cap: fleet.CriticalCap},
			{Name: "rate", Dimension: fleet.Performance, Query: rateQuery, Good: 10, Bad: 20, Weight: 1, Cap: health.NoCap},
			{Name: "total", Dimension: fleet.Reliability, Query: totalQuery, Good: 1000, Bad: 2000, Weight: 1, Cap: health.NoCap},
			{Name: "grace", Dimension: fleet.Security, Query: graceQuery, Good: 0, Bad: 1, Weight: 1, Cap: health.NoCap},
			{Name: "age", Dimension: fleet.Connectivity, Query: ageQuery, Good: 60, Bad: 180, Weight: 1, Cap: health.NoCap, Unit: "seconds"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &paced{t: t, reg: newRegional(t, "one"), inv: &shelf{changed: make(chan struct{}, 1)}}
	s := &scraped{paced: p, began: time.Now(), intervals: map[string]time.Duration{}, silent: map[string]bool{}, lose: func(string, int) bool { return false }, temp: 10}
	var policies []*inventory.Policy
	for _, d := range intervals {
		id := "a/each-" + d.String()
		site := aSite(id)
		site.CreatedAt = s.began
		policy := &inventory.Policy{Kind: fleet.KindCollectionPolicy, Tenant: "a", Name: d.String(), Object: &v1alpha1.CollectionPolicy{Spec: v1alpha1.CollectionPolicySpec{Interval: &metav1.Duration{Duration: d}}}}
		site.Policies, policies = []*inventory.Policy{policy}, append(policies, policy)
		s.intervals[id], s.list = d, append(s.list, site)
	}
	p.inv.set(s.list, nil, policies)
	o := Options{Shipped: m, Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler), LiveMaxAge: time.Hour, Client: &http.Client{Transport: hosts{"one": p.reg}}, Inventory: p.inv, Status: p.inv, Regionals: []Regional{{Name: "one", URL: p.reg.url}}}
	if p.e, err = New(o); err != nil {
		t.Fatal(err)
	}
	return s
}

// run lets the time pass, tick by tick, and calls look after each.
func (s *scraped) run(d time.Duration, look func(since time.Duration)) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(15 * time.Second) {
		since := time.Since(s.began)
		var live []wire.SiteLive
		for _, site := range s.list {
			id := site.ID.String()
			every := s.intervals[id]
			if n := int(since / every); since%every < 15*time.Second && !s.silent[id] && !s.lose(id, n) {
				s.reg.put(s.t, "temperature", "", id, s.temp, 0)
				s.reg.put(s.t, "work_total", "", id, 5*since.Seconds(), 0)
				s.reg.put(s.t, "fire", "", id, 0, 0)
			}
			pushed := s.began.Add(since.Truncate(every))
			s.reg.put(s.t, fleet.MetricSiteLastPush, "", id, float64(pushed.Unix()), 0) // by the gateway
			s.reg.put(s.t, fleet.MetricSiteConnected, "", id, 1, 0)
			if pace := fleet.Pace(every); pace > fleet.Quick {
				s.reg.put(s.t, fleet.MetricSitePace, "", id, pace.Seconds(), 0)
			}
			live = append(live, wire.SiteLive{Tenant: "a", Site: site.ID.Name, Connected: true, ConnectedSince: s.began, LastHeartbeat: time.Now(), LastPush: pushed})
		}
		s.e.polled(poll{regional: 0, answer: wire.LiveView{Sites: live}, at: time.Now()})
		s.tick(1)
		look(since)
	}
}

// TestEachPaceIsSeenWhole: however seldom a site is scraped, and though a scrape of it is lost, each signal has a
// value at each tick, and that which a quick site has. A rate is less by what PromQL does not extrapolate over the lost one.
func TestEachPaceIsSeenWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScraped(t, 15*time.Second, time.Minute, 2*time.Minute, 5*time.Minute, 10*time.Minute)
		s.lose = func(site string, scrape int) bool { return s.intervals[site] > fleet.Quick && scrape%7 == 5 }
		s.run(3*time.Hour, func(since time.Duration) {
			for id, every := range s.intervals {
				if since < 4*every+time.Minute {
					continue
				}
				for name, want := range map[string]float64{"gauge": 10, "rate": 5, "total": 300, "grace": 0, "age": -1} {
					st := s.signal(id, name)
					if !st.Known || st.Score < 1 || want >= 0 && (st.Value < want/2 || st.Value > 1.2*want) {
						t.Fatalf("%s after %s: %s is %+v, want %v", id, since, name, st, want)
					}
				}
			}
		})
		s.e.answers = nil // so that what is held is of this moment too
		s.run(time.Nanosecond, func(time.Duration) { s.tried() })
	})
}

// tried holds together what a policy that somebody tries, the same in force, and a chart say at one moment.
func (s *scraped) tried() {
	candidate := &v1alpha1.HealthPolicy{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Spec: specOf(s.e.opts.Shipped)}
	trial, err := s.e.Try(s.t.Context(), "a", candidate, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	if len(trial.Sites) != len(s.list) {
		s.t.Errorf("%d sites tried", len(trial.Sites))
	}
	for _, site := range trial.Sites {
		for i := range site.After.Signals {
			after, before, m := site.After.Signals[i], site.Before.Signals[i], site.After.Model
			live := s.signal(site.Site.ID.String(), m.Signals[i].Name)
			if after.Value != live.Value || after.Known != live.Known || before.Value != live.Value || after.Score != live.Score {
				s.t.Errorf("%s: %s is %+v when tried, %+v in force", site.Site.ID, m.Signals[i].Name, after, live)
			}
			// And what a chart shows of it, which asks without more ado.
			if q := site.Site.Query(&m.Signals[i]); m.Signals[i].Name != health.SignalUplink {
				got := s.reg.ask(s.t, q)[labels.FromStrings("site", site.Site.ID.Name, "tenant", "a").String()]
				if math.Abs(got-live.Value) > 1e-9 {
					s.t.Errorf("%s: %s: %s is %v, want %v", site.Site.ID, m.Signals[i].Name, q, got, live.Value)
				}
			}
		}
	}
}

// TestHowSoonAtEachPace: what a site sends shows within its interval and as much again as the engine waits to
// ask; once it sends nothing more, what it said last holds for two scrapes and what a signal holds.
func TestHowSoonAtEachPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScraped(t, 15*time.Second, time.Minute, 2*time.Minute, 5*time.Minute, 10*time.Minute)
		s.run(time.Hour, func(time.Duration) {})
		s.temp = 100
		began := time.Now()
		seen, last := map[string]time.Duration{}, map[string]time.Duration{}
		s.run(15*time.Minute, func(time.Duration) {
			for id := range s.intervals {
				if _, ok := seen[id]; !ok && s.signal(id, "gauge").Score == 0 {
					seen[id] = time.Since(began)
				}
			}
		})
		stopped := time.Now()
		for id := range s.intervals {
			s.silent[id] = true
		}
		s.run(40*time.Minute, func(time.Duration) {
			for id := range s.intervals {
				if s.signal(id, "gauge").Known {
					last[id] = time.Since(stopped)
				}
			}
		})
		for id, every := range s.intervals {
			pace := fleet.Pace(every)
			tick := 15 * time.Second
			if got, most := seen[id], every+time.Duration(askedEvery(pace))*tick+tick; got > most {
				t.Errorf("%s: seen after %s, want %s", id, got, most)
			}
			from, to := fleet.Lookback(pace)+2*time.Minute-every-2*tick, fleet.Lookback(pace)+2*time.Minute+time.Duration(askedEvery(pace))*tick
			if pace <= fleet.Quick {
				to = 7 * time.Minute // as it always was
			}
			if got := last[id]; got < from || got > to {
				t.Errorf("%s: the last value held for %s, want %s to %s", id, got, from, to)
			}
		}
	})
}

// lived are the colours that a site had, each since when.
type lived struct {
	at []time.Time
	to []fleet.Colour
}

func (c *lived) add(at time.Time, to fleet.Colour) {
	if n := len(c.to); n == 0 || c.to[n-1] != to {
		c.at, c.to = append(c.at, at), append(c.to, to)
	}
}

// replayed is what a policy as the shipped one would have made of each site, page by page.
func (s *scraped) replayed(since time.Duration) map[string]Replayed {
	s.e.opts.StoreQueryURL = s.reg.url + "/edge/api/v1" // its own samples are all that there is
	candidate := &v1alpha1.HealthPolicy{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Spec: specOf(s.e.opts.Shipped)}
	out := map[string]Replayed{}
	for after, more := "", true; more; more = after != "" {
		x, err := s.e.TryHistory(s.t.Context(), "a", candidate, since, after)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, sig := range x.Signals {
			if sig.Err != "" || sig.SitesKnown != len(x.Sites) {
				s.t.Errorf("signal %s: %+v", sig.Name, sig)
			}
		}
		for _, r := range x.Sites {
			out[r.Site.ID.String()] = r
		}
		after = x.Next
	}
	return out
}

// TestReplayAtEachPace: a replay of the policy in force finds the changes of colour that there were, however seldom
// the sites are scraped, and ends with what is known now.
func TestReplayAtEachPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScraped(t, 15*time.Second, time.Minute, 2*time.Minute, 5*time.Minute, 10*time.Minute)
		s.lose = func(site string, scrape int) bool { return s.intervals[site] > fleet.Quick && scrape%7 == 5 }
		s.run(time.Hour, func(time.Duration) {})
		live := map[string]*lived{}
		began := time.Now()
		s.run(150*time.Minute, func(since time.Duration) {
			if s.temp = 10; since > 100*time.Minute && since < 140*time.Minute {
				s.temp = 100
			}
			for id := range s.intervals {
				if live[id] == nil {
					live[id] = &lived{}
				}
				site, _, _ := strings.Cut(id, "/")
				live[id].add(time.Now(), s.e.View().Find(site, strings.TrimPrefix(id, "a/")).State.Colour)
			}
		})
		for id, r := range s.replayed(time.Since(began)) {
			would := &lived{}
			would.add(began, r.WouldBegin.To)
			for _, c := range r.Would {
				would.add(c.At, c.To)
			}
			if !slices.Equal(would.to, live[id].to) || len(would.to) != 3 {
				t.Errorf("%s would have been %v at %v, was %v", id, would.to, would.at, live[id].to)
				continue
			}
			for i, at := range would.at[1:] {
				if d := live[id].at[i+1].Sub(at).Abs(); d > 3*time.Minute {
					t.Errorf("%s would have been %s %s apart from when it was", id, would.to[i+1], d)
				}
			}
		}
	})
}

// TestReplayOfAnotherPace: what a site sent when it was scraped more often, or less, than now is read as it was
// then.
func TestReplayOfAnotherPace(t *testing.T) {
	for _, c := range []struct{ was, is time.Duration }{{10 * time.Minute, 15 * time.Second}, {15 * time.Second, 10 * time.Minute}, {5 * time.Minute, 10 * time.Minute}, {10 * time.Minute, 2 * time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			s := newScraped(t, c.was)
			s.run(3*time.Hour, func(time.Duration) {})
			site, other := *s.list[0], newScraped(t, c.is)
			site.Policies = other.list[0].Policies
			s.list = []*inventory.Site{&site}
			s.inv.set(s.list, nil, site.Policies)
			s.intervals[site.ID.String()] = c.is
			if fleet.Pace(c.is) <= fleet.Quick {
				s.reg.put(t, fleet.MetricSitePace, "", site.ID.String(), math.Float64frombits(value.StaleNaN), 0)
			}
			s.run(90*time.Minute, func(time.Duration) {})
			r := s.replayed(200 * time.Minute)[site.ID.String()]
			if r.WouldBegin.To != fleet.Green || len(r.Would) > 0 {
				t.Errorf("%s, now %s: begins %+v, %+v", c.was, c.is, r.WouldBegin, r.Would)
			}
		})
	}
}

// TestOnePaceAsksOnce: a fleet of one pace is asked as many queries as ever; of several, those that look alike once.
func TestOnePaceAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			intervals []time.Duration
			queries   int
		}{
			{[]time.Duration{15 * time.Second}, 5},
			{[]time.Duration{15 * time.Second, 30 * time.Second}, 5},
			{[]time.Duration{5 * time.Minute}, 5},
			{[]time.Duration{time.Minute}, 5},
			{[]time.Duration{15 * time.Second, time.Minute}, 7}, // but for the two rates
			{[]time.Duration{15 * time.Second, 5 * time.Minute, 10 * time.Minute}, 15},
		} {
			s := newScraped(t, c.intervals...)
			s.run(2*time.Minute, func(time.Duration) {})
			asked := s.tick(8)
			if len(asked) != c.queries {
				t.Errorf("%v: %d queries, want %d: %v", c.intervals, len(asked), c.queries, asked)
			}
			for q, n := range asked {
				want := 8
				switch {
				case strings.Contains(q, "each-5m"):
					want = 2
				case strings.Contains(q, "each-10m"):
					want = 1
				}
				if n != want {
					t.Errorf("%v: %s was asked %d times in 8 ticks, want %d", c.intervals, q, n, want)
				}
			}
		}
	})
}

// specOf is a policy of a model's signals.
func specOf(m *health.Model) v1alpha1.HealthPolicySpec {
	spec := v1alpha1.HealthPolicySpec{}
	for _, s := range m.Signals {
		if s.Name == health.SignalUplink {
			continue
		}
		spec.Signals = append(spec.Signals, v1alpha1.Signal{
			Name: s.Name, Dimension: s.Dimension, Query: s.Query, Unit: s.Unit, Critical: s.Critical(),
			Good: resource.MustParse(fmt.Sprint(s.Good)), Bad: resource.MustParse(fmt.Sprint(s.Bad)),
		})
	}
	return spec
}

// TestSlowQueriesAreAnswered: what is asked about slow sites, and about what is to blame there, costs less than a regional
// refuses, however many there are.
func TestSlowQueriesAreAnswered(t *testing.T) {
	m := defaults.Model()
	pl, err := newPlanner(m)
	if err != nil {
		t.Fatal(err)
	}
	slow := &policy{model: patient(m, 10*time.Minute, 15*time.Second), pace: 10 * time.Minute}
	p := pl.plan([]*policy{slow})
	named := 0
	for _, n := range []int{1, 50, namedAtOnce, 10 * namedAtOnce} {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("a-site-with-a-long-name.%05d", i))
		}
		for _, q := range append(slices.Clone(p.queries), p.objects...) {
			if q.pace == 0 && !strings.Contains(q.text, sitesMark) {
				continue
			}
			text := q.about(names).text
			if strings.Contains(text, "long-name") {
				named++
			}
			if _, err := promcost.Query.Parse(text, promcost.Window{}); err != nil {
				t.Errorf("%d sites: %.100s: %v", n, text, err)
			}
		}
	}
	if named < 150 {
		t.Errorf("%d queries name the sites", named)
	}
	for i := range m.Signals {
		if b := p.binding(nil); b.err[i] != "" || b.query[i] < 0 {
			t.Errorf("%s: %s", m.Signals[i].Name, b.err[i])
		}
	}
}

// BenchmarkTickPaces is eight ticks over 1,000 sites and a real Prometheus, by how often the sites are scraped.
func BenchmarkTickPaces(b *testing.B) {
	for _, c := range []struct {
		name      string
		intervals []time.Duration // of ten sites in a row
	}{
		{"one", []time.Duration{15 * time.Second}},
		{"three-few", append(slices.Repeat([]time.Duration{15 * time.Second}, 98), 5*time.Minute, 10*time.Minute)},
		{"three", append(slices.Repeat([]time.Duration{15 * time.Second}, 8), 5*time.Minute, 10*time.Minute)},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := newScraped(b, 15*time.Second, 5*time.Minute, 10*time.Minute)
			policies := map[time.Duration][]*inventory.Policy{}
			for _, site := range s.list {
				policies[site.Interval()] = site.Policies
			}
			s.list = nil
			app := s.reg.st.Appender(b.Context())
			var live []wire.SiteLive
			for i := range 1000 {
				every := c.intervals[i%len(c.intervals)]
				site := aSite("a/" + siteName(i))
				site.Policies = policies[every]
				s.list = append(s.list, site)
				live = append(live, wire.SiteLive{Tenant: "a", Site: site.ID.Name, Connected: true, ConnectedSince: s.began, LastHeartbeat: s.began, LastPush: s.began})
				for _, name := range []string{"temperature", "work_total", "fire", fleet.MetricSiteLastPush} {
					ls := labels.FromStrings("__name__", name, "tenant", "a", "site", site.ID.Name)
					ref := storage.SeriesRef(0)
					for at := s.began.Add(-45 * time.Minute); at.Before(s.began); at = at.Add(every) {
						var err error
						if ref, err = app.Append(ref, ls, at.UnixMilli(), 1); err != nil {
							b.Fatal(err)
						}
					}
				}
			}
			if err := app.Commit(); err != nil {
				b.Fatal(err)
			}
			s.inv.set(s.list, nil, nil)
			s.e.polled(poll{regional: 0, answer: wire.LiveView{Sites: live}, at: time.Now()})
			s.tick(1)
			for b.Loop() {
				s.tick(8)
			}
		})
	}
}
