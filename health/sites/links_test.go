package sites

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/util/teststorage"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/health/engine"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/sitequery"
	"muster.dev/muster/internal/wire"
)

// linked is a fleet of two tenants: site n of each has a round trip of 10·n ms, n/10
// percent of loss and a connectivity of 100-n; the last of each was never connected.
func linked(t *testing.T, n int) (*engine.View, Measure, *atomic.Int64) {
	t.Helper()
	var entries []entry
	for _, tenant := range []string{"a", "b"} {
		for i := range n {
			entries = append(entries, entry{fmt.Sprintf("%s/s%03d", tenant, i), float64(100 - i), func(s *inventory.Site) {
				s.Regional = []string{"east", "west"}[i%2]
				if i == n-1 {
					s.Regional = ""
				}
				s.Labels = map[string]string{"tier": fmt.Sprint(i % 40)}
				s.VirtualSites = []string{"shared/all"}
				if i%3 == 0 {
					s.VirtualSites = append(s.VirtualSites, "shared/third")
				}
			}})
		}
	}
	v := view(entries...)
	for _, s := range v.Sites {
		d := &s.State.Dimensions[connectivity]
		d.Score, d.Known, d.Colour = s.State.Score, true, fleet.ColourOf(s.State.Score)
	}
	asked := &atomic.Int64{}
	return v, func(_ context.Context, of *engine.View, queries []string) ([][]float64, map[string]error) {
		asked.Add(1)
		values := make([][]float64, len(queries))
		for q := range values {
			values[q] = make([]float64, len(of.Sites))
			for i, s := range of.Sites {
				var n int
				_, _ = fmt.Sscanf(s.ID.Name, "s%d", &n)
				switch {
				case s.Regional == "":
					values[q][i] = math.NaN()
				case q == sitequery.LinkRoundTrip:
					values[q][i] = float64(10 * n)
				case q == sitequery.LinkLoss:
					values[q][i] = float64(n) / 10
				case q == sitequery.LinkErrors:
					values[q][i] = -1 // no figure can be
				default:
					values[q][i] = 1
				}
			}
		}
		return values, map[string]error{"north": errors.New("no answer in time")}
	}, asked
}

func serveLinks(t *testing.T, v *engine.View, m Measure) *httptest.Server {
	t.Helper()
	src := &source{}
	src.Store(v)
	s, err := New(Options{Source: src, Logger: slog.New(slog.DiscardHandler), Measure: m})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	s.Register(mux)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv
}

func TestLinks(t *testing.T) {
	v, m, asked := linked(t, 50)
	srv := serveLinks(t, v, m)
	as := func(tenants string) func(string, ...string) (int, string) {
		return func(path string, params ...string) (int, string) { return get(t, srv, path, tenants, params...) }
	}
	got := ask[wire.LinkPage](t, as("a"), wire.LinksPath, "limit", "2", "sort", "-link.roundTrip")
	if got.Total != 50 || got.Readable != 50 || len(got.Links) != 2 || got.NextCursor == "" || got.By != "region" {
		t.Fatalf("%+v", got)
	}
	if l := got.Links[0]; l.Tenant != "a" || l.Site != "s048" || l.Regional != "east" || *l.RoundTrip != 480 || *l.Loss != 4.8 || *l.Connectivity != 52 || l.Colour != "orange" || *l.Reconnects != 1 || l.Errors != nil {
		t.Errorf("%+v", l)
	}
	if strings.Join(got.Notes, " ") != "the figures of links to regional north are not all known: it did not answer" {
		t.Error(got.Notes)
	}
	// All pages together are all links, the worst first.
	var all []string
	last := -1.0
	for cursor := ""; ; {
		p := ask[wire.LinkPage](t, as("*"), wire.LinksPath, "limit", "7", "cursor", cursor)
		for _, l := range p.Links {
			all = append(all, l.Tenant+"/"+l.Site)
			if *l.Connectivity < last {
				t.Errorf("%s comes after a better link", l.Site)
			}
			last = *l.Connectivity
		}
		if cursor = p.NextCursor; cursor == "" {
			break
		}
	}
	if len(all) != 100 || all[0] != "a/s049" && all[0] != "b/s049" {
		t.Errorf("%d links, first %s", len(all), all[0])
	}
	// Each summary is of what its query means, in the table as well as here.
	for _, by := range []string{"region", "virtualSite", "tier"} {
		p := ask[wire.LinkPage](t, as("*"), wire.LinksPath, "by", by, "q", "link.roundTrip!=100", "limit", "0")
		sum := 0
		for _, r := range p.Regionals {
			sum += r.Sites
			inGroups := 0
			for _, g := range r.Groups {
				inGroups += g.Sites
				if n := page(t, srv, "*", "q", "link.roundTrip!=100 "+g.Query, "limit", "0").Total; n != g.Sites {
					t.Errorf("by %s: %s means %d sites, the group has %d", by, g.Query, n, g.Sites)
				}
			}
			if r.More != nil {
				inGroups += r.More.Sites
			}
			if n := page(t, srv, "*", "q", "link.roundTrip!=100 "+r.Query, "limit", "0").Total; n != r.Sites || by != "virtualSite" && inGroups != r.Sites {
				t.Errorf("by %s: regional %q has %d sites, %d in groups, %d in the table", by, r.Name, r.Sites, inGroups, n)
			}
			if many := by == "tier" && r.Name != ""; (r.More != nil) != many || many && len(r.Groups) != wire.MaxLinkGroups-1 {
				t.Errorf("by %s: %d groups, more %v", by, len(r.Groups), r.More)
			}
		}
		if sum != p.Total || len(p.Links) != 0 {
			t.Errorf("by %s: %d sites of %d", by, sum, p.Total)
		}
	}
	// Figures are columns, sorted and filtered by; the regionals were asked once for all of it.
	if p := page(t, srv, "a", "q", "link.loss>=4.7", "columns", "link.roundTrip", "sort", "link.loss"); names(p) != "a/s047 a/s048" || p.Sites[1]["link.roundTrip"] != 480.0 {
		t.Errorf("%+v", p)
	}
	if asked.Load() != 1 {
		t.Errorf("the regionals were asked %d times", asked.Load())
	}
	for _, x := range [][]string{{"by", "name"}, {"limit", "1001"}, {"limit", "x"}, {"sort", "nothing<"}, {"q", "a="}, {"cursor", "x"}} {
		if code, body := get(t, srv, wire.LinksPath, "*", x...); code != http.StatusBadRequest {
			t.Errorf("%v: %d %s", x, code, body)
		}
	}
}

// A regional that hangs keeps nobody: a page has what came within two seconds, and the figures that were, while it is
// asked again.
func TestLinksOfARegionalThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, measure, _ := linked(t, 4)
		hangs := true
		l := &links{log: slog.New(slog.DiscardHandler), measure: func(ctx context.Context, of *engine.View, queries []string) ([][]float64, map[string]error) {
			values, failed := measure(ctx, of, queries)
			if !hangs {
				return values, nil
			}
			<-ctx.Done()
			return values, failed
		}}
		ask := func(want time.Duration, note string) {
			t.Helper()
			from := time.Now()
			figures, notes := l.of(t.Context(), v)
			if took := time.Since(from); took != want || len(figures) != len(v.Sites) || figures[1][sitequery.LinkRoundTrip] != 10 || !strings.Contains(fmt.Sprint(notes), note) {
				t.Errorf("after %s, want %s: %v, %q", took, want, figures, notes)
			}
		}
		ask(2*time.Second, "regional north are not all known")
		ask(0, "north")
		time.Sleep(linksWait + linksFresh) // it was asked once more at once, in vain
		ask(2*time.Second, "north")
		time.Sleep(3 * time.Second) // until it is given up
		hangs = false
		ask(0, "north")
		time.Sleep(linksFresh)
		ask(0, "[]")
		hangs = true
		time.Sleep(linksFresh)
		ask(2*time.Second, "17s old")
		time.Sleep(time.Minute)
	})
}

// A regional that takes longer than a page waits for it is named, and its figures are there when the page asks again.
func TestLinksOfARegionalThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, measure, _ := linked(t, 4)
		var asked atomic.Int32
		l := &links{log: slog.New(slog.DiscardHandler), measure: func(ctx context.Context, of *engine.View, queries []string) ([][]float64, map[string]error) {
			asked.Add(1)
			values, failed := measure(ctx, of, queries)
			select {
			case <-time.After(3 * time.Second):
				return values, nil
			case <-ctx.Done():
				return values, failed
			}
		}}
		for range 3 { // who looks beside the first asks nobody
			go l.of(t.Context(), v)
		}
		if _, notes := l.of(t.Context(), v); !strings.Contains(fmt.Sprint(notes), "regional north are not all known") {
			t.Errorf("at first: %q", notes)
		}
		time.Sleep(linksFresh - linksPatience) // the page's own pace
		from := time.Now()
		if figures, notes := l.of(t.Context(), v); len(notes) > 0 || len(figures) != len(v.Sites) || time.Since(from) > 0 {
			t.Errorf("asked again after %s: %q", time.Since(from), notes)
		}
		if n := asked.Load(); n != 2 {
			t.Errorf("the regionals were asked %d times, want 2", n)
		}
	})
}

func TestLinksWithoutRegionals(t *testing.T) {
	v, _, _ := linked(t, 4)
	got := ask[wire.LinkPage](t, func(path string, params ...string) (int, string) {
		return get(t, serveLinks(t, v, nil), path, "a", params...)
	}, wire.LinksPath)
	if len(got.Links) != 4 || got.Links[0].RoundTrip != nil || got.Links[0].Connectivity == nil || len(got.Notes) != 1 {
		t.Errorf("%+v", got)
	}
}

// Sites have all figures whatever their policies say of how often they are scraped, the one scrape that was lost included.
func TestLinksOfSitesScrapedSeldom(t *testing.T) {
	st := teststorage.New(t)
	intervals := map[string]time.Duration{"a/never-said": 0, "a/quick": time.Second, "a/usual": 15 * time.Second, "b/minute": time.Minute, "b/odd": 100 * time.Second, "b/seldom": 5 * time.Minute, "c/rare": 10 * time.Minute}
	at := time.UnixMilli(0).Add(3 * time.Hour)
	var entries []entry
	for id, interval := range intervals {
		entries = append(entries, entry{id, 90, func(s *inventory.Site) {
			s.Regional = "east"
			// A stronger policy that says nothing of it leaves it to the others.
			s.Policies = append(s.Policies, &inventory.Policy{Kind: fleet.KindCollectionPolicy, Name: "strong", Object: &v1alpha1.CollectionPolicy{}})
			if interval > 0 {
				s.Policies = append(s.Policies, &inventory.Policy{Kind: fleet.KindCollectionPolicy, Name: "weak", Object: &v1alpha1.CollectionPolicy{Spec: v1alpha1.CollectionPolicySpec{Interval: &metav1.Duration{Duration: interval}}}})
			}
		}})
		tenant, site, _ := strings.Cut(id, "/")
		every := cmp.Or(interval, fleet.DefaultInterval)
		put := func(name string, value func(seconds float64) float64, more ...string) {
			series := labels.FromStrings(append([]string{"__name__", "muster_agent_link_" + name, "tenant", tenant, "site", site}, more...)...)
			app := st.Appender(t.Context())
			for k := -int(2 * time.Hour / every); k <= 0; k++ {
				x := at.Add(time.Duration(k)*every - every*9/10) // the last scrape was almost a whole interval ago
				if k == -1 {
					continue // the one before was lost
				}
				if _, err := app.Append(0, series, x.UnixMilli(), value(float64(x.Unix()))); err != nil {
					t.Fatal(err)
				}
			}
			if err := app.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		rate := func(perSecond float64) func(float64) float64 { return func(s float64) float64 { return perSecond * s } }
		flat := func(v float64) func(float64) float64 { return func(float64) float64 { return v } }
		put("round_trip_seconds", flat(0.042), "connection", "stream")
		put("handshake_seconds", flat(0.1), "connection", "stream")
		put("segments_sent_total", rate(40), "connection", "requests")
		put("segments_retransmitted_total", rate(1), "connection", "requests")
		put("sent_bytes_total", rate(900), "connection", "requests")
		put("received_bytes_total", rate(300), "connection", "requests")
		put("connects_total", flat(1), "connection", "stream")
		put("request_seconds_count", rate(0.2), "target", "push")
		put("request_errors_total", rate(0.1), "target", "push", "reason", "failed")
	}
	eng := promql.NewEngine(promql.EngineOpts{MaxSamples: 5e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
	t.Cleanup(func() { eng.Close(); st.Close() })
	most := 0
	srv := serveLinks(t, view(entries...), func(ctx context.Context, of *engine.View, queries []string) ([][]float64, map[string]error) {
		most = max(most, len(queries))
		values := make([][]float64, len(queries))
		for i, text := range queries {
			values[i] = slices.Repeat([]float64{math.NaN()}, len(of.Sites))
			q, err := eng.NewInstantQuery(ctx, st, nil, text, at)
			if err != nil {
				t.Errorf("%s: %v", text, err)
				continue
			}
			got, err := q.Exec(ctx).Vector()
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}
			for _, x := range got {
				values[i][of.Snapshot.Find(x.Metric.Get("tenant"), x.Metric.Get("site"))] = x.F
			}
		}
		return values, nil
	})
	got := ask[wire.LinkPage](t, func(path string, params ...string) (int, string) { return get(t, srv, path, "*", params...) }, wire.LinksPath)
	if len(got.Links) != len(intervals) {
		t.Fatalf("%d links", len(got.Links))
	}
	for _, l := range got.Links {
		for name, is := range map[string]struct {
			got  *float64
			want float64
		}{"round trip": {l.RoundTrip, 42}, "handshake": {l.Handshake, 100}, "loss": {l.Loss, 2.5}, "sent": {l.Sent, 900}, "received": {l.Received, 300}, "requests": {l.Requests, 12}, "errors": {l.Errors, 50}, "reconnects": {l.Reconnects, 0}} {
			if is.got == nil {
				t.Errorf("%s/%s: %s is not known", l.Tenant, l.Site, name)
			} else if math.Abs(*is.got-is.want) > is.want/100 {
				t.Errorf("%s/%s: %s is %v, want %v", l.Tenant, l.Site, name, *is.got, is.want)
			}
		}
		if want := 4 * intervals[l.Tenant+"/"+l.Site]; time.Duration(l.Window)*time.Second < max(want, 2*time.Minute) {
			t.Errorf("%s/%s: rates over %d s, want %s at least", l.Tenant, l.Site, l.Window, want)
		}
	}
	// As many as there are paces, however many intervals policies name.
	if want := len(fleet.Paces) * len(sitequery.Link{}); most != want {
		t.Errorf("%d queries, want %d", most, want)
	}
}
