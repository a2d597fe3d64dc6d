package desired

import (
	"cmp"
	"slices"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired/render"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/hostconfig"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/wire"
)

// hostConfigurations renders how hosts are configured. Its methods are called with the
// Store's lock held.
type hostConfigurations struct {
	// made is the result for a set of objects, so that a thousand sites that are selected by
	// the same ones are merged and encoded once.
	made map[string]*render.List
}

// forget drops what was made of former objects.
func (hs *hostConfigurations) forget() { clear(hs.made) }

// Render returns one list of one item, or none where nothing selects the site.
func (hs *hostConfigurations) Render(site *inventory.Site) []*render.List {
	chosen := site.PoliciesOf(hostconfig.Kind)
	if len(chosen) == 0 || !site.Counts() {
		return nil
	}
	key := policiesKey(site.ID.Tenant, chosen)
	list := hs.made[key]
	if list == nil {
		piece := NewPiece(hostconfig.Name, joinHosts(chosen).Encode())
		list = &render.List{Pieces: []*render.Piece{{Item: &wire.Item{Kind: hostconfig.Kind, Name: piece.Name, Digest: piece.Digest, Size: int64(len(piece.Blob))}, Blob: piece.Blob}}}
		if hs.made == nil {
			hs.made = map[string]*render.List{}
		}
		hs.made[key] = list
	}
	return []*render.List{list}
}

func hostConfigurationSpec(p *inventory.Policy) *v1alpha1.HostConfigurationSpec {
	return &p.Object.(*v1alpha1.HostConfiguration).Spec
}

// joinHosts joins the objects, strongest first, setting by setting. Dry runs count only for
// what would be.
func joinHosts(chosen []*inventory.Policy) *hostconfig.Wanted {
	w, would, dry := &hostconfig.Wanted{}, &hostconfig.Settings{}, false
	for _, p := range chosen {
		s := hostConfigurationSpec(p)
		set := settingsOf(s)
		would.Add(set)
		if s.DryRun {
			dry = true
			continue
		}
		w.Settings.Add(set)
		w.OnDrift = cmp.Or(w.OnDrift, s.OnDrift)
	}
	if dry {
		w.Would = would
	}
	w.OnDrift = cmp.Or(w.OnDrift, hostconfig.Heal)
	return w
}

// settingsOf is what an object sets, as sites get it.
func settingsOf(s *v1alpha1.HostConfigurationSpec) *hostconfig.Settings {
	out := &hostconfig.Settings{Sysctls: s.Sysctls}
	for _, p := range s.Hugepages {
		if out.Hugepages == nil {
			out.Hugepages = map[string]int{}
		}
		out.Hugepages[p.Size] = int(p.Count)
	}
	for _, e := range s.Hosts {
		for _, name := range e.Names {
			if out.Hosts == nil {
				out.Hosts = map[string][]string{}
			}
			if !slices.Contains(out.Hosts[name], e.Address) {
				out.Hosts[name] = append(out.Hosts[name], e.Address)
			}
		}
	}
	if s.SSH != nil {
		out.SSHAuthorities = s.SSH.UserAuthorities
		for _, u := range s.SSH.Users {
			if out.SSHUsers == nil {
				out.SSHUsers = map[string]hostconfig.SSHUser{}
			}
			out.SSHUsers[u.Name] = hostconfig.SSHUser{Principals: u.Principals, AuthorizedKeys: u.AuthorizedKeys}
		}
	}
	if s.NTP != nil {
		out.NTP = s.NTP.Servers
	}
	return out
}

// HostConflict is a setting that two HostConfigurations set to different values.
type HostConflict struct {
	Setting string // such as sysctl net.core.somaxconn
	Loser   string // whose value is not in effect
	Winner  string
}

// HostConflicts are those among the HostConfigurations that select one site, strongest
// first. A dry run is no conflict: it says what would be.
func HostConflicts(chosen []*inventory.Policy) []HostConflict {
	type held struct{ by, value string }
	first := map[string]held{}
	var out []HostConflict
	for _, p := range chosen {
		if hostConfigurationSpec(p).DryRun {
			continue
		}
		for k, v := range settingsOf(hostConfigurationSpec(p)).Keys() {
			if h, taken := first[k]; !taken {
				first[k] = held{p.Name, v}
			} else if h.value != v {
				out = append(out, HostConflict{Setting: k, Loser: p.Name, Winner: h.by})
			}
		}
	}
	slices.SortFunc(out, func(a, b HostConflict) int {
		return cmp.Or(cmp.Compare(a.Loser, b.Loser), cmp.Compare(a.Setting, b.Setting))
	})
	return out
}

// HostDigest is that of how the site's host shall be configured; "": nothing says, or the
// site is not known.
func (s *Store) HostDigest(id fleet.SiteID) string {
	for _, it := range s.State(id).GetItems() {
		if it.Kind == hostconfig.Kind {
			return it.Digest
		}
	}
	return ""
}

// HostGenerations are the generations of a tenant's HostConfigurations, by name, that
// HostDigest answers from. Never nil.
func (s *Store) HostGenerations(tenant string) map[string]int64 {
	return s.generations(tenant, hostconfig.Kind)
}
