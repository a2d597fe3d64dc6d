package regional

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"muster.dev/muster/control/api/region"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/regional/hosts"
	"muster.dev/muster/regional/logs/intake"
)

// inventory is what control has told this regional of the tenants' sites: who
// answers for which, which virtual sites they are in, what they may log. Safe for
// concurrent use.
type inventory struct {
	regional string // this one's name
	mu       sync.RWMutex
	tenants  map[string]*tenantSites
	told     bool   // control has, now or in an earlier run
	changed  func() // called after a change; nil: nobody
}

type tenantSites struct {
	region.Inventory
	byName  map[string]int
	members map[string][]string // of virtual sites
	// This regional's share of the tenant's quotas; 0: none.
	series, logBytes int64
}

func newInventory(regional string) *inventory {
	return &inventory{regional: regional, tenants: map[string]*tenantSites{}}
}

// set replaces all tenants.
func (i *inventory) set(list []region.Inventory) {
	tenants := make(map[string]*tenantSites, len(list))
	for _, inv := range list {
		t := &tenantSites{Inventory: inv, byName: make(map[string]int, len(inv.Sites)), members: map[string][]string{}, series: inv.Share(inv.Series, i.regional), logBytes: inv.Share(inv.LogBytesPerDay, i.regional)}
		for n, s := range inv.Sites {
			t.byName[s.Name] = n
			for _, v := range s.VirtualSites {
				t.members[v] = append(t.members[v], s.Name)
			}
		}
		tenants[inv.Tenant] = t
	}
	i.mu.Lock()
	i.tenants, i.told = tenants, true
	changed := i.changed
	i.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// providers are the sites that serve a virtual host, of the tenant of the site that asks;
// false: it is not advertised to that site.
func (i *inventory) providers(consumer fleet.SiteID, host string) ([]hosts.Provider, bool) {
	site, t, ok := i.site(consumer)
	if !ok {
		return nil, false
	}
	i.mu.RLock()
	defer i.mu.RUnlock()
	n := slices.IndexFunc(t.Hosts, func(h region.Host) bool { return h.Name == host })
	if n < 0 || !slices.ContainsFunc(t.Hosts[n].Consumers, func(v string) bool { return slices.Contains(site.VirtualSites, v) }) {
		return nil, false
	}
	var out []hosts.Provider
	for _, v := range t.Hosts[n].Providers {
		for _, name := range t.members[v] {
			p := t.Sites[t.byName[name]]
			out = append(out, hosts.Provider{Site: name, Near: p.Region != "" && p.Region == site.Region})
		}
	}
	return out, true
}

// onChange has fn called after each change.
func (i *inventory) onChange(fn func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.changed = fn
}

func (i *inventory) site(id fleet.SiteID) (region.Site, *tenantSites, bool) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	t := i.tenants[id.Tenant]
	if t == nil {
		return region.Site{}, nil, false
	}
	n, ok := t.byName[id.Name]
	if !ok {
		return region.Site{}, t, false
	}
	return t.Sites[n], t, true
}

// pace is that of a site that is scraped less than once a minute; 0 of others.
func (i *inventory) pace(id fleet.SiteID) time.Duration {
	s, _, _ := i.site(id)
	return time.Duration(s.PaceSeconds) * time.Second
}

// paces are those of the slow sites that this regional answers for, sorted.
func (i *inventory) paces() []time.Duration {
	i.mu.RLock()
	defer i.mu.RUnlock()
	found := map[time.Duration]bool{}
	for _, t := range i.tenants {
		for _, s := range t.Sites {
			if s.PaceSeconds > 0 && s.Regional == i.regional {
				found[time.Duration(s.PaceSeconds)*time.Second] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// share is this regional's part of the quotas of a tenant; 0: it has none.
func (i *inventory) share(tenant string) (series, logBytesPerDay int64) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if t := i.tenants[tenant]; t != nil {
		return t.series, t.logBytes
	}
	return 0, 0
}

// tenantSeries is how many series a tenant may have here: its quota, and at most what
// the configuration allows.
func (i *inventory) tenantSeries(most int) func(tenant string) int {
	return func(tenant string) int {
		if series, _ := i.share(tenant); series > 0 && (most <= 0 || series < int64(most)) {
			return int(series)
		}
		return most
	}
}

func (i *inventory) tenantLogBytes(tenant string) int64 {
	_, bytes := i.share(tenant)
	return bytes
}

// names of the tenants that control has told of, sorted.
func (i *inventory) names() []string {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return slices.Sorted(maps.Keys(i.tenants))
}

// gone says that control has told of its tenants and this is none of them.
func (i *inventory) gone(tenant string) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.told && i.tenants[tenant] == nil && tenant != fleet.PlatformTenant
}

// logLimits is what a site may log; the defaults for one that control has not told of yet.
func (i *inventory) logLimits(id fleet.SiteID) intake.SiteLimits {
	s, t, ok := i.site(id)
	if !ok || s.LogPolicy >= len(t.LogPolicies) {
		return intake.SiteLimits{}
	}
	p := t.LogPolicies[s.LogPolicy]
	return intake.SiteLimits{BytesPerSecond: p.BytesPerSecond, LinesPerSecond: p.LinesPerSecond, Allow: p.Allow, Deny: p.Deny}
}

// virtualMembers are the sites of a virtual site, NAMESPACE/NAME or NAME in the shared
// namespace; false: there is no such virtual site with members.
func (i *inventory) virtualMembers(tenant, name string) ([]string, bool) {
	if !strings.Contains(name, "/") {
		name = "shared/" + name
	}
	i.mu.RLock()
	defer i.mu.RUnlock()
	t := i.tenants[tenant]
	if t == nil {
		return nil, false
	}
	m, ok := t.members[name]
	return slices.Clone(m), ok
}

// alertLabels adds to an alert what its rule can't know: the virtual sites, which
// are no label of the samples, and the region.
func (i *inventory) alertLabels(l labels.Labels) labels.Labels {
	id := fleet.SiteID{Tenant: l.Get(fleet.SeriesTenant), Name: l.Get(fleet.SeriesSite)}
	s, _, ok := i.site(id)
	if !ok {
		return l
	}
	b := labels.NewBuilder(l)
	if v := region.VirtualSitesLabel(s.VirtualSites); v != "" {
		b.Set("virtual_sites", v)
	}
	if s.Region != "" && l.Get(fleet.SeriesRegion) == "" {
		b.Set(fleet.SeriesRegion, s.Region)
	}
	return b.Labels()
}
