package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/regional/engine"
)

// headSeries is what the engine says it holds of a site.
func (h *harness) headSeries(matcher string) int {
	h.t.Helper()
	return len(h.query(fmt.Sprintf("last_over_time({__name__=~\".+\",%s}[2d])", matcher)))
}

// TestSeriesLimitCountsWhatTheHeadHolds: whatever a site changes about itself or its
// labels, the engine never holds more of its series than the limit.
func TestSeriesLimitCountsWhatTheHeadHolds(t *testing.T) {
	const limit, perPush, pushes = 100, 100, 20
	for name, change := range map[string]func(h *harness) func(i int) (*http.Client, []remotewrite.Series){
		"two certificates of different regions": func(h *harness) func(int) (*http.Client, []remotewrite.Series) {
			clients := []*http.Client{h.client(h.ca.site(h.t, paris, "eu-west")), h.client(h.ca.site(h.t, paris, "eu-east"))}
			return func(i int) (*http.Client, []remotewrite.Series) {
				return clients[i%2], many(perPush, time.Now(), fmt.Sprint("x", i))
			}
		},
		"a new name in each push": func(h *harness) func(int) (*http.Client, []remotewrite.Series) {
			c := h.client(h.ca.site(h.t, paris, ""))
			return func(i int) (*http.Client, []remotewrite.Series) {
				return c, many(perPush, time.Now(), fmt.Sprint("x", i))
			}
		},
		"old samples": func(h *harness) func(int) (*http.Client, []remotewrite.Series) {
			c := h.client(h.ca.site(h.t, paris, ""))
			return func(i int) (*http.Client, []remotewrite.Series) {
				return c, many(perPush, time.Now().Add(-time.Duration(i)*time.Hour), fmt.Sprint("x", i))
			}
		},
		"the gateway forgets its cache": func(h *harness) func(int) (*http.Client, []remotewrite.Series) {
			c := h.client(h.ca.site(h.t, paris, ""))
			return func(i int) (*http.Client, []remotewrite.Series) {
				h.g.mu.Lock()
				clear(h.g.sites)
				h.g.sorted.Store(nil) // as after a restart, with an engine that replayed its log
				h.g.mu.Unlock()
				return c, many(perPush, time.Now(), fmt.Sprint("x", i))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, harnessOptions{limits: Limits{Series: limit}})
			next := change(h)
			for i := range pushes {
				c, series := next(i)
				h.pushSeries(c, series...)
			}
			if n := h.headSeries(`site="paris"`); n != limit {
				t.Errorf("the head holds %d series, want %d", n, limit)
			}
			// What was there first flows on.
			c, series := next(0)
			if code, text, _ := h.pushSeries(c, series...); code != http.StatusNoContent {
				t.Errorf("existing series: %d %s", code, text)
			}
		})
	}
}

// TestOneSeriesInManyForms: forged labels and their order make no second series, so
// they must neither cost the site its limit nor the gateway its memory.
func TestOneSeriesInManyForms(t *testing.T) {
	const limit = 50
	h := newHarness(t, harnessOptions{limits: Limits{Series: limit}})
	c := h.client(h.ca.site(t, paris, ""))
	for i := range 10 {
		var series []remotewrite.Series
		for j := range 100 {
			series = append(series, remotewrite.Series{Labels: labels.FromStrings("__name__", "up", "site", fmt.Sprint("forged-", i, "-", j)),
				Samples: []remotewrite.Sample{{T: time.Now().UnixMilli(), V: 1}}})
		}
		if code, text, _ := h.pushSeries(c, series...); code != http.StatusNoContent {
			t.Fatalf("%d %s", code, text)
		}
	}
	if n := h.headSeries(`site="paris"`); n != 1 {
		t.Errorf("the head holds %d series", n)
	}
	s := h.g.acquire(paris)
	defer s.release()
	if n := s.cache.len(); n > limit {
		t.Errorf("%d forms are remembered, want at most %d", n, limit)
	}
}

// compactHead does what time does: the head drops what is older than its newest hours.
func (h *harness) compactHead() { h.compactHeadAt(time.Now()) }

// dropAll is compactHead half a day later.
func (h *harness) dropAll() { h.compactHeadAt(time.Now().Add(12 * time.Hour)) }

func (h *harness) compactHeadAt(now time.Time) {
	h.t.Helper()
	db := h.edge.Storage().(interface {
		Head() *tsdb.Head
		CompactHead(*tsdb.RangeHead) error
		CompactOOOHead(context.Context) error
	})
	if err := db.CompactHead(tsdb.NewRangeHead(db.Head(), db.Head().MinTime(), now.Add(-2*time.Hour).UnixMilli())); err != nil {
		h.t.Fatal(err)
	}
	if err := db.CompactOOOHead(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	// Series without samples go one collection after their last chunk.
	if err := db.Head().Truncate(now.Add(-time.Hour).UnixMilli()); err != nil {
		h.t.Fatal(err)
	}
}

// TestDroppedSeriesMakeRoom: what the head has dropped counts no more, and comes back
// only inside the limit, whatever the gateway remembers of it.
func TestDroppedSeriesMakeRoom(t *testing.T) {
	h := newHarness(t, harnessOptions{limits: Limits{Series: 100}})
	c := h.client(h.ca.site(t, paris, ""))
	now := time.Now()
	for i, s := range [][]remotewrite.Series{many(100, now.Add(-10*time.Hour), "old"), many(100, now, "new")} {
		if code, text, _ := h.pushSeries(c, s...); code != []int{204, 400}[i] {
			t.Fatalf("%d: %d %s", i, code, text)
		}
	}
	h.pushSeries(c, many(1, now, "old")...)
	h.compactHead()
	if n := h.series.Site(paris); n != 1 {
		t.Fatalf("%d series after the head was compacted", n)
	}
	if code, text, _ := h.pushSeries(c, many(99, now, "new")...); code != http.StatusNoContent {
		t.Errorf("%d %s", code, text)
	}
	if code, text, hdr := h.pushSeries(c, many(100, now.Add(time.Second), "old")...); code != 400 || hdr.Get("X-Prometheus-Remote-Write-Samples-Written") != "1" {
		t.Errorf("dropped series: %d %s", code, text)
	}
	if n := h.series.Site(paris); n != 100 || h.series.TenantSeries()["acme"] != 100 {
		t.Errorf("%d series of the site, %v", n, h.series.TenantSeries())
	}
	h.g.expire()
	s := h.g.acquire(paris)
	defer s.release()
	if n := s.cache.len(); n != 100 {
		t.Errorf("%d series are remembered", n)
	}
}

// TestDroppedHistogramsMakeRoom: their buckets count for as long as they do.
func TestDroppedHistogramsMakeRoom(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	c := h.client(h.ca.site(t, paris, ""))
	for range 2 { // the same again counts once
		if code, text, _ := h.push(c, remotewrite.ContentTypeV2, bomb(3, 32, "h", time.Now().Add(-10*time.Hour))); code != 204 {
			t.Fatalf("%d %s", code, text)
		}
	}
	if n := h.series.Site(paris); n != 3*(1+64/bucketsPerSeries) {
		t.Errorf("%d series", n)
	}
	h.pushSeries(c, many(1, time.Now(), "new")...)
	h.compactHead()
	h.g.expire()
	if n := h.series.Site(paris); n != 1 {
		t.Errorf("%d series after the head was compacted", n)
	}
}

// TestSeriesOfRules: what a tenant's recording rules make counts as the tenant's, and
// stops at its limit; alerts and what Muster itself writes don't.
func TestSeriesOfRules(t *testing.T) {
	h := newHarness(t, harnessOptions{tenantSeries: 100})
	write := func(name string, n int) (refused int) {
		app := h.edge.Appendable().Appender(t.Context())
		for i := range n {
			if _, err := app.Append(0, labels.FromStrings("__name__", name, "tenant", "acme", "site", "paris", "i", fmt.Sprint(i)), time.Now().UnixMilli(), 1); err != nil {
				refused++
			}
		}
		if err := app.Commit(); err != nil {
			t.Fatal(err)
		}
		return refused
	}
	if n := write(fleet.MetricSiteConnected, 50); n != 0 || h.series.Tenant("acme") != 0 {
		t.Errorf("Muster's own: %d refused, %d count", n, h.series.Tenant("acme"))
	}
	if n := write("acme:bomb", 15_200); n != 15_100 {
		t.Errorf("%d series of a rule were refused, want 15100", n)
	}
	if n := write("acme:bomb", 100); n != 0 {
		t.Errorf("%d existing series were refused", n)
	}
	if n := write("ALERTS", 10); n != 0 {
		t.Errorf("%d alerts were refused", n)
	}
	if code, text, _ := h.pushSeries(h.client(h.ca.site(t, berlin, "")), many(1, time.Now(), "x")...); code != 400 || !strings.Contains(text, "spec.quotas.series") {
		t.Errorf("a site of the tenant: %d %s", code, text)
	}
	if code, text, _ := h.pushSeries(h.client(h.ca.site(t, tokyo, "")), many(200, time.Now(), "x")[:50]...); code != 204 {
		t.Errorf("another tenant: %d %s", code, text)
	}
}

// TestHeadSeriesAfterRestart: the count is there when the engine has replayed its log,
// also of a tenant that is over its limit by now.
func TestHeadSeriesAfterRestart(t *testing.T) {
	dir := t.TempDir()
	open := func(limit int) (*engine.Engine, *HeadSeries) {
		s := NewHeadSeries(func(string) int { return limit })
		e, err := engine.New(engine.Options{Name: engine.Edge, Dir: dir, SeriesLifecycle: s})
		if err != nil {
			t.Fatal(err)
		}
		s.Enforce()
		return e, s
	}
	e, _ := open(0)
	app := e.Storage().Appender(t.Context())
	for i := range 30 {
		if _, err := app.Append(0, labels.FromStrings("__name__", "x", "tenant", "acme", "site", "paris", "i", fmt.Sprint(i)), time.Now().UnixMilli(), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(app.Commit(), e.Close()); err != nil {
		t.Fatal(err)
	}
	e, s := open(20)
	defer e.Close()
	if s.Site(paris) != 30 || s.Tenant("acme") != 30 {
		t.Errorf("%d series of the site, %d of the tenant, want 30", s.Site(paris), s.Tenant("acme"))
	}
	app = e.Storage().Appender(t.Context())
	if _, err := app.Append(0, labels.FromStrings("__name__", "x", "tenant", "acme", "site", "paris", "i", "31"), time.Now().UnixMilli(), 1); !errors.Is(err, errTenantSeriesLimit) {
		t.Errorf("err = %v", err)
	}
	_ = app.Rollback()
}
