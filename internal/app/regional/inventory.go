package regional

import (
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/prometheus/model/labels"

	"muster.dev/muster/control/api/region"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/regional/logs/intake"
)

// inventory is what control has told this regional of the tenants' sites: who
// answers for which, which virtual sites they are in, what they may log. Safe for
// concurrent use.
type inventory struct {
	mu      sync.RWMutex
	tenants map[string]*tenantSites
}

type tenantSites struct {
	region.Inventory
	byName  map[string]int
	members map[string][]string // of virtual sites
}

func newInventory() *inventory { return &inventory{tenants: map[string]*tenantSites{}} }

// set replaces all tenants.
func (i *inventory) set(list []region.Inventory) {
	tenants := make(map[string]*tenantSites, len(list))
	for _, inv := range list {
		t := &tenantSites{Inventory: inv, byName: make(map[string]int, len(inv.Sites)), members: map[string][]string{}}
		for n, s := range inv.Sites {
			t.byName[s.Name] = n
			for _, v := range s.VirtualSites {
				t.members[v] = append(t.members[v], s.Name)
			}
		}
		tenants[inv.Tenant] = t
	}
	i.mu.Lock()
	i.tenants = tenants
	i.mu.Unlock()
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

// logLimits is what a site may log; the defaults for one that control has not told of yet.
func (i *inventory) logLimits(id fleet.SiteID) intake.SiteLimits {
	s, t, ok := i.site(id)
	if !ok || s.LogPolicy >= len(t.LogPolicies) {
		return intake.SiteLimits{}
	}
	p := t.LogPolicies[s.LogPolicy]
	return intake.SiteLimits{BytesPerSecond: p.BytesPerSecond, Allow: p.Allow, Deny: p.Deny}
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
