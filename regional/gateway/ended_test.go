package gateway

import (
	"fmt"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
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
	if n := len(h.g.Live()); n != 2 || series("paris") != 4 {
		t.Errorf("%d sites, %v", n, h.query(`{site="paris"}`))
	}
	_ = st.CloseSend()
	testkit.EventuallyTrue(t, "the end of the stream", func() bool {
		h.g.endRefused(t.Context())
		return len(h.g.Live()) == 1
	})
	if live := h.g.Live(); live[0].Site != "tokyo" {
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
	h.pushSeries(h.client(h.ca.site(t, paris, "eu-west")), sample(time.Now(), 1, "__name__", "up"))
	h.g.endRefused(t.Context())
	h.g.writeSelf(t.Context())
	if n := len(h.g.Live()); n != 2 || series("paris") != 3 {
		t.Errorf("%d sites, %v", n, h.query(`{site="paris"}`))
	}
}
