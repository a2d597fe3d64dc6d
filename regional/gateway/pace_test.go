package gateway

import (
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
)

// TestPaceOfASlowSite: rules find out by a series which sites are scraped less than once a minute. It ends when one no longer
// is, and with the site.
func TestPaceOfASlowSite(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	pace := 10 * time.Minute
	h.g.opts.Pace = func(id fleet.SiteID) time.Duration {
		if id == paris {
			return pace
		}
		return 0
	}
	for _, id := range []fleet.SiteID{paris, tokyo} {
		if code, text, _ := h.pushSeries(h.client(h.ca.site(t, id, "")), sample(time.Now().Add(-5*time.Second), 1, "__name__", "up")); code/100 != 2 {
			t.Fatal(code, text)
		}
	}
	marked := func() (sites int) {
		h.g.writeSelf(t.Context())
		if n := len(h.query(fleet.MetricSiteLastPush)); n != 2 {
			t.Errorf("%d sites", n)
		}
		return len(h.query(fleet.MetricSitePace + `{site="paris"} == 600`))
	}
	if marked() != 1 || len(h.query(fleet.MetricSitePace)) != 1 {
		t.Errorf("%v", h.query(fleet.MetricSitePace))
	}
	time.Sleep(2 * time.Millisecond) // samples of one millisecond are one
	if pace = 0; marked() != 0 || len(h.query(fleet.MetricSitePace)) != 0 {
		t.Errorf("a quick one: %v", h.query(fleet.MetricSitePace))
	}
}
