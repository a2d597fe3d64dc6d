package desired

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"muster.dev/muster/control/api/region"
	"muster.dev/muster/internal/fleet"
)

// inventoryLocked is the tenant's inventory; only sites that changed are matched
// against selectors again.
func (f *Fleet) inventoryLocked(name string, t *tenantFleet) region.Inventory {
	if t.stale {
		t.virtual = nil
		for ns, n := range f.namespaces {
			if n.tenant != name {
				continue
			}
			for vs, sel := range f.virtual[ns] {
				t.virtual = append(t.virtual, virtualSite{n.short + "/" + vs, sel})
			}
		}
		for _, m := range t.sites {
			m.placed = false
		}
		t.stale = false
	}
	inv := region.Inventory{Tenant: name, LogBytesPerDay: t.logBytesPerDay, Sites: make([]region.Site, 0, len(t.sites))}
	policies := map[string]int{}
	for _, n := range slices.Sorted(maps.Keys(t.sites)) {
		m := t.sites[n]
		if !m.placed {
			f.placeLocked(fleet.SiteID{Tenant: name, Name: n}, t, m)
		}
		site := m.out
		i, ok := policies[m.logsKey]
		if !ok {
			i = len(inv.LogPolicies)
			policies[m.logsKey] = i
			inv.LogPolicies = append(inv.LogPolicies, m.logs)
		}
		site.LogPolicy = i
		inv.Sites = append(inv.Sites, site)
	}
	return inv
}

// placeLocked works out what a site belongs to.
func (f *Fleet) placeLocked(id fleet.SiteID, t *tenantFleet, m *member) {
	m.out = region.Site{Name: id.Name, Region: m.labels[fleet.LabelRegion], Regional: m.regional}
	if m.regional == "" || (len(f.regionals) > 0 && !slices.Contains(f.regionals, m.regional)) {
		m.out.Regional = rendezvous(f.regionals, id)
	}
	for _, v := range t.virtual {
		if v.selector.Matches(m.labels) {
			m.out.VirtualSites = append(m.out.VirtualSites, v.name)
		}
	}
	slices.Sort(m.out.VirtualSites)
	var platform map[string]bool
	if p := f.tenants[fleet.PlatformTenant]; p != nil {
		platform = p.keys
	}
	for k, v := range m.labels {
		if t.keys[k] || platform[k] {
			if m.out.Labels == nil {
				m.out.Labels = map[string]string{}
			}
			m.out.Labels[k] = v
		}
	}
	m.logs = t.logPolicy(m)
	key, err := json.Marshal(m.logs)
	if err != nil {
		panic(fmt.Sprintf("desired: encode a log policy: %v", err)) // plain data: can't fail
	}
	m.logsKey, m.placed = string(key), true
}

// logPolicy joins the lists of all collection policies that select the site; the
// rate is that of the strongest one that sets it.
func (t *tenantFleet) logPolicy(m *member) region.LogPolicy {
	var out region.LogPolicy
	for _, p := range t.policies {
		l := p.spec.Logs
		if l == nil || !p.selector.Matches(m.labels) {
			continue
		}
		out.Allow = append(out.Allow, l.Allow...)
		out.Deny = append(out.Deny, l.Deny...)
		if out.BytesPerSecond == 0 && l.BytesPerSecond != nil {
			out.BytesPerSecond = l.BytesPerSecond.Value()
		}
	}
	slices.Sort(out.Allow)
	slices.Sort(out.Deny)
	out.Allow, out.Deny = slices.Compact(out.Allow), slices.Compact(out.Deny)
	return out
}

// rendezvous chooses a regional for a site, always the same: that with the highest
// hash of both. One more or less moves only the sites that it wins or had.
func rendezvous(regionals []string, id fleet.SiteID) string {
	best, winner := [sha256.Size]byte{}, ""
	for _, r := range regionals {
		sum := sha256.Sum256([]byte(r + "\x00" + id.String()))
		if winner == "" || slices.Compare(sum[:], best[:]) > 0 {
			best, winner = sum, r
		}
	}
	return winner
}
