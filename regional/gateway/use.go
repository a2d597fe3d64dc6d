package gateway

import (
	"maps"
	"sync/atomic"
	"time"

	"muster.dev/muster/internal/fleet"
)

// siteUse counts what a site has sent since the gateway knows it. It only grows.
type siteUse struct {
	samples, wire, raw, pushes, refused, work atomic.Uint64
}

// SiteUse is what a site has sent since the gateway knows it: counters, which begin
// anew when it is forgotten or the process starts.
type SiteUse struct {
	Site      fleet.SiteID
	Samples   uint64 // taken, of histograms too
	WireBytes uint64 // bodies of pushes, as they came
	RawBytes  uint64 // of those that were worked on, uncompressed
	Pushes    uint64 // requests, however they were answered
	Refused   uint64 // of these with 429
	// Work is for how long its pushes were decoded and stored, by the clock: on a busy
	// machine more than the processor time that they took.
	Work time.Duration
}

// Use returns what each site has sent, in no order.
func (g *Gateway) Use() []SiteUse {
	sites := g.allSites()
	out := make([]SiteUse, len(sites))
	for i, s := range sites {
		u := &s.use
		out[i] = SiteUse{Site: s.id, Samples: u.samples.Load(), WireBytes: u.wire.Load(), RawBytes: u.raw.Load(), Pushes: u.pushes.Load(), Refused: u.refused.Load(), Work: time.Duration(u.work.Load())}
	}
	return out
}

// SiteSeries is how many series the head holds of a tenant: of each of its sites, and of
// all with those that its rules make for no site.
type SiteSeries struct {
	Total int
	Sites map[string]int
}

// SiteSeries returns how many series the head holds, by tenant and site.
func (h *HeadSeries) SiteSeries() map[string]SiteSeries {
	h.mu.RLock()
	defer h.mu.RUnlock()
	out := make(map[string]SiteSeries, len(h.tenants))
	for name, t := range h.tenants {
		out[name] = SiteSeries{Total: t.series, Sites: maps.Clone(t.sites)}
	}
	return out
}

// Limit returns how many series the head may hold of a tenant; 0: any number.
func (h *HeadSeries) Limit(tenant string) int { return max(h.limit(tenant), 0) }
