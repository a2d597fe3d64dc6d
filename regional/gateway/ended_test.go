package gateway

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/testkit"
)

// TestADeletedSiteEnds: what a site sent, what the gateway wrote about it and its line in
// the live view go when it is refused, whether it held a stream or only pushed. A site that
// is not refused, and one that is refused while something of it is still under way, stay.
func TestADeletedSiteEnds(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	now := time.Now().Add(-5 * time.Second)
	st := h.connect(t, h.ca.site(t, paris, "eu-west"))
	for id, site := range map[string]string{"paris": "eu-west", "tokyo": ""} {
		who := paris
		if id == "tokyo" {
			who = tokyo
		}
		if code, text, _ := h.pushSeries(h.client(h.ca.site(t, who, site)), sample(now, 1, "__name__", "up"), sample(now, 97, "__name__", "disk", "mount", "/")); code/100 != 2 {
			t.Fatal(code, text)
		}
	}
	h.g.writeSelf(t.Context())
	series := func(site string) int { return len(h.query(fmt.Sprintf(`{site=%q}`, site))) }
	if series("paris") != 4 || series("tokyo") != 4 {
		t.Fatalf("%v", h.query(`{site!=""}`))
	}
	h.forwarded()

	h.up.mu.Lock()
	h.up.denied = map[fleet.SiteID]string{paris: "deleted"}
	h.up.mu.Unlock()
	h.g.endRefused(t.Context()) // its stream is still open
	if n := len(slices.Collect(h.g.Live())); n != 2 || series("paris") != 4 {
		t.Errorf("%d sites, %v", n, h.query(`{site="paris"}`))
	}
	_ = st.CloseSend()
	testkit.EventuallyTrue(t, "the end of the stream", func() bool {
		h.g.endRefused(t.Context())
		return len(slices.Collect(h.g.Live())) == 1
	})
	if live := slices.Collect(h.g.Live()); live[0].Site != "tokyo" {
		t.Errorf("%+v", live)
	}
	if got := h.query(`{site="paris"}`); len(got) != 0 {
		t.Errorf("series of a site that was deleted: %v", got)
	}
	if series("tokyo") != 4 {
		t.Errorf("the other one's: %v", h.query(`{site="tokyo"}`))
	}
	// The store is told too: of what the site sent, and of what the gateway wrote.
	if fwd := h.forwarded(); len(fwd["acme"]) != 4 || len(fwd["umbrella"]) != 0 {
		t.Errorf("forwarded %v", fwd)
	}
	h.g.writeSelf(t.Context())
	if got := h.query(`{site="paris"}`); len(got) != 0 {
		t.Errorf("written again: %v", got)
	}

	// Another machine under its name is let in, and is another site.
	h.up.mu.Lock()
	h.up.denied = nil
	h.up.mu.Unlock()
	// A sample of the millisecond in which the series ended would be a second one of that time.
	h.pushSeries(h.client(h.ca.site(t, paris, "eu-west")), sample(time.Now().Add(10*time.Millisecond), 1, "__name__", "up"))
	h.g.endRefused(t.Context())
	time.Sleep(2 * time.Millisecond) // what the gateway writes by itself has the time of now
	h.g.writeSelf(t.Context())
	if n := len(slices.Collect(h.g.Live())); n != 2 || series("paris") != 3 {
		t.Errorf("%d sites, %v", n, h.query(`{site="paris"}`))
	}
}

// TestBucketsOfADeletedSiteCount: a tenant that has a site registered, send large histograms
// and be deleted, over and over, holds no more memory than its limit. The buckets count until
// the head drops them, for the machine under the same name too, and not twice.
func TestBucketsOfADeletedSiteCount(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	const each = 3 * (1 + 64/bucketsPerSeries)
	began := time.Now().Add(-10 * time.Hour)
	push := func(id fleet.SiteID) {
		t.Helper()
		if code, text, _ := h.push(h.client(h.ca.site(t, id, "")), remotewrite.ContentTypeV2, bomb(3, 32, "h", began)); code != 204 {
			t.Fatalf("%d %s", code, text)
		}
	}
	end := func(ids ...fleet.SiteID) {
		t.Helper()
		h.up.mu.Lock()
		h.up.denied = map[fleet.SiteID]string{}
		for _, id := range ids {
			h.up.denied[id] = "deleted"
		}
		h.up.mu.Unlock()
		testkit.EventuallyTrue(t, "the sites are forgotten", func() bool {
			h.g.endRefused(t.Context())
			return len(slices.Collect(h.g.Live())) == 0
		})
		h.up.mu.Lock()
		h.up.denied = nil
		h.up.mu.Unlock()
	}
	for i := range 3 {
		id := fleet.SiteID{Tenant: "acme", Name: fmt.Sprint("again-", i)}
		push(id)
		end(id)
		if n := h.series.Tenant("acme"); n != (i+1)*each {
			t.Fatalf("%d series count after %d sites, want %d", n, i+1, (i+1)*each)
		}
	}
	again := fleet.SiteID{Tenant: "acme", Name: "again-0"}
	push(again)
	if n := h.series.Tenant("acme"); n != 3*each {
		t.Errorf("%d series count when a machine comes under a name that was there, want %d", n, 3*each)
	}
	end(again)
	h.dropAll()
	if n := h.series.Tenant("acme"); n != 0 || len(h.series.left) != 0 {
		t.Errorf("%d series count when the head has dropped them, and %v", n, h.series.left)
	}
}
