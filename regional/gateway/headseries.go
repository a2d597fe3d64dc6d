package gateway

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"muster.dev/muster/internal/fleet"
)

// HeadSeries counts the series that the edge engine's head holds, of each tenant and
// site. The head itself tells of every series that it makes and drops, also while it
// replays its log. So a series counts for as long as it takes memory, whatever
// the sender changed since, and whoever made it: a push, a recording rule. One with very
// long labels or with many histogram buckets counts for several.
//
// It is the engine's Options.SeriesLifecycle. Safe for concurrent use; a nil
// *HeadSeries is not usable.
type HeadSeries struct {
	limit    func(tenant string) int
	enforced atomic.Bool
	dropped  atomic.Uint64 // grows when the head has dropped series
	strings  labelStrings  // of the labels in the head

	mu      sync.RWMutex
	tenants map[string]*headTenant
	left    map[chunks.HeadSeriesRef]leftExtra
}

// leftExtra is what the buckets of a series count for whose site is forgotten: they take their
// memory until the head drops the series.
type leftExtra struct {
	site fleet.SiteID
	n    int
}

// headTenant is guarded by HeadSeries.mu.
type headTenant struct {
	series int
	sites  map[string]int
}

var _ tsdb.SeriesLifecycleCallback = (*HeadSeries)(nil)

// NewHeadSeries makes a count. limit is asked for each new series how many a tenant
// may have in this regional's head, 0 is no limit; nil: none has one. A tenant over its
// limit gets no new series; those that it has go on.
func NewHeadSeries(limit func(tenant string) int) *HeadSeries {
	if limit == nil {
		limit = func(string) int { return 0 }
	}
	return &HeadSeries{limit: limit, tenants: map[string]*headTenant{}, left: map[chunks.HeadSeriesRef]leftExtra{}}
}

// Enforce begins to hold tenants to their limits. It is called when the engine is open:
// what its log holds was let in once, and stays.
func (h *HeadSeries) Enforce() { h.enforced.Store(true) }

// Errors of a series that is not made.
var (
	errSeriesLimit       = errors.New("series limit")
	errTenantSeriesLimit = errors.New("series limit of the tenant")
)

// uncounted are series that Muster writes about sites: they are not the sites' doing,
// and sites can't write them.
func uncounted(name string) bool { return slices.Contains(reservedNames, name) }

// alertNames are what rules write about alerts. They count, but are never refused: an
// alert that a restart must not forget is worth more than a limit.
var alertNames = []string{"ALERTS", "ALERTS_FOR_STATE"}

// PreCreation implements tsdb.SeriesLifecycleCallback: it holds tenants to their limit.
// What the log is read into gets shared strings here, before anybody else sees it.
func (h *HeadSeries) PreCreation(ls labels.Labels) error {
	if !h.enforced.Load() {
		h.strings.share(&ls)
		return nil
	}
	tenant := ls.Get(fleet.SeriesTenant)
	if tenant == "" {
		return nil
	}
	limit := h.limit(tenant)
	if limit <= 0 {
		return nil
	}
	name := ls.Get(labels.MetricName)
	if uncounted(name) || slices.Contains(alertNames, name) {
		return nil
	}
	if n := h.Tenant(tenant); n >= limit {
		return fmt.Errorf("%w: tenant %s has %d series here, its limit is %d (the smaller of the Tenant's spec.quotas.series and the regional's limits.tenantSeries)",
			errTenantSeriesLimit, tenant, n, limit)
	}
	return nil
}

// PostCreation implements tsdb.SeriesLifecycleCallback.
func (h *HeadSeries) PostCreation(ls labels.Labels) { h.add(ls, 1) }

// PostDeletion implements tsdb.SeriesLifecycleCallback.
func (h *HeadSeries) PostDeletion(gone map[chunks.HeadSeriesRef]labels.Labels) {
	if len(gone) == 0 {
		return
	}
	for ref, ls := range gone {
		h.add(ls, -1)
		h.release(h.adopt(ref))
	}
	h.dropped.Add(1)
	h.strings.age()
}

func (h *HeadSeries) add(ls labels.Labels, n int) {
	id := fleet.SiteID{Tenant: ls.Get(fleet.SeriesTenant), Name: ls.Get(fleet.SeriesSite)}
	if id.Tenant == "" || uncounted(ls.Get(labels.MetricName)) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addLocked(id, n*weight(ls))
}

// weight is how many series a series counts for: one, and one more for each 2 KiB that
// its labels take beyond an ordinary series' in strings and postings.
func weight(ls labels.Labels) int {
	size := 0
	ls.Range(func(l labels.Label) { size += len(l.Name) + len(l.Value) + 64 })
	return 1 + size/2048
}

func (h *HeadSeries) addLocked(id fleet.SiteID, n int) {
	t := h.tenants[id.Tenant]
	if t == nil {
		t = &headTenant{sites: map[string]int{}}
		h.tenants[id.Tenant] = t
	}
	t.series += n
	if id.Name != "" {
		// A rule may write any site's name, so what is empty goes.
		if t.sites[id.Name] += n; t.sites[id.Name] == 0 {
			delete(t.sites, id.Name)
		}
	}
	if t.series == 0 {
		delete(h.tenants, id.Tenant)
	}
}

// reserve counts n series' worth of histogram buckets, if they fit below the limits of
// the site and its tenant; release gives them back.
func (h *HeadSeries) reserve(id fleet.SiteID, n, siteLimit int) error {
	limit := h.limit(id.Tenant)
	h.mu.Lock()
	defer h.mu.Unlock()
	var ofTenant, ofSite int
	if t := h.tenants[id.Tenant]; t != nil {
		ofTenant, ofSite = t.series, t.sites[id.Name]
	}
	if ofSite+n > siteLimit {
		return fmt.Errorf("%w: the buckets of a histogram count for %d series more, site %s has %d here, its limit is %d (limits.series)", errSeriesLimit, n, id, ofSite, siteLimit)
	}
	if limit > 0 && ofTenant+n > limit {
		return fmt.Errorf("%w: the buckets of a histogram count for %d series more, tenant %s has %d here, its limit is %d", errTenantSeriesLimit, n, id.Tenant, ofTenant, limit)
	}
	h.addLocked(id, n)
	return nil
}

func (h *HeadSeries) release(id fleet.SiteID, n int) {
	if n == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addLocked(id, -n)
}

// leave keeps n series' worth of buckets, which a site that is forgotten reserved for a
// series, until the head drops that series or adopt is called for it.
func (h *HeadSeries) leave(ref storage.SeriesRef, id fleet.SiteID, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := chunks.HeadSeriesRef(ref)
	h.left[at] = leftExtra{id, h.left[at].n + n}
}

// adopt takes over what was left of a series, 0 for most: it is the caller's to release.
func (h *HeadSeries) adopt(ref chunks.HeadSeriesRef) (fleet.SiteID, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.left[ref]
	delete(h.left, ref)
	return l.site, l.n
}

// Site returns how many series the head holds of a site.
func (h *HeadSeries) Site(id fleet.SiteID) int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if t := h.tenants[id.Tenant]; t != nil {
		return t.sites[id.Name]
	}
	return 0
}

// Tenant returns how many series the head holds of a tenant.
func (h *HeadSeries) Tenant(name string) int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if t := h.tenants[name]; t != nil {
		return t.series
	}
	return 0
}

// TenantSeries returns how many series the head holds, by tenant.
func (h *HeadSeries) TenantSeries() map[string]int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	out := make(map[string]int, len(h.tenants))
	for name, t := range h.tenants {
		out[name] = t.series
	}
	return out
}
