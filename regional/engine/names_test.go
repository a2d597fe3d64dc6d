package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"muster.dev/muster/internal/wire"
)

// fill makes series of sites: of each 100 of a site 60 are a, 30 b, the others each their own.
func fill(t testing.TB, e *Engine, sites, each int) {
	t.Helper()
	app := e.Storage().Appender(t.Context())
	at := time.Now().UnixMilli()
	for s := range sites {
		for i := range each {
			name := "a_total"
			switch {
			case i%100 >= 90:
				name = fmt.Sprintf("c_%d", i)
			case i%100 >= 60:
				name = "b_total"
			}
			if _, err := app.Append(0, labels.FromStrings(labels.MetricName, name, "i", fmt.Sprint(i), "site", fmt.Sprint("s", s), "tenant", "acme"), at, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
}

func TestHeaviestNames(t *testing.T) {
	e := open(t, Options{})
	fill(t, e, 20, 1000)
	add(t, e, time.Now(), 1, labels.MetricName, "neighbours", "site", "s1", "tenant", "umbrella")
	tenant, site := labels.MustNewMatcher(labels.MatchEqual, "tenant", "acme"), labels.MustNewMatcher(labels.MatchEqual, "site", "s1")
	got, series, err := e.HeaviestNames(t.Context(), 3, 1, tenant, site)
	if err != nil || series != 1000 || len(got) != 3 || got[0] != (wire.NameSeries{Name: "a_total", Series: 600}) || got[1] != (wire.NameSeries{Name: "b_total", Series: 300}) || got[2].Series != 1 {
		t.Errorf("%d, %v, %v", series, got, err)
	}
	// Every 100th series that a site makes has the same name: an estimate must not be taken in.
	got, series, err = e.HeaviestNames(t.Context(), 2, 10, tenant)
	if err != nil || series != 20_000 || len(got) != 2 || got[0].Name != "a_total" || got[0].Series < 10_000 || got[0].Series > 14_000 || got[1].Name != "b_total" || got[1].Series < 4_000 || got[1].Series > 8_000 {
		t.Errorf("%d, %v, %v", series, got, err)
	}
	if got, series, err := e.HeaviestNames(t.Context(), 3, 1, labels.MustNewMatcher(labels.MatchEqual, "tenant", "nobody")); err != nil || series != 0 || len(got) != 0 {
		t.Errorf("nobody's: %d, %v, %v", series, got, err)
	}
}

// BenchmarkHeaviestNames looks at a site of 2,000 series, and at one in ten of a tenant's
// 200,000, as package cost does.
func BenchmarkHeaviestNames(b *testing.B) {
	e := open(b, Options{})
	fill(b, e, 100, 2000)
	tenant, site := labels.MustNewMatcher(labels.MatchEqual, "tenant", "acme"), labels.MustNewMatcher(labels.MatchEqual, "site", "s7")
	for name, c := range map[string]struct {
		every int
		ms    []*labels.Matcher
	}{"site": {1, []*labels.Matcher{tenant, site}}, "tenant": {11, []*labels.Matcher{tenant}}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, n, err := e.HeaviestNames(b.Context(), 50, c.every, c.ms...); err != nil || n == 0 {
					b.Fatal(n, err)
				}
			}
		})
	}
}
