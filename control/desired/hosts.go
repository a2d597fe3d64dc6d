package desired

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/region"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired/render"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/vhost"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// maxHostBytes is how much all virtual hosts of a tenant may take, encoded: each has the
// names of its sites.
const maxHostBytes = 32 << 20

// hosts renders virtual hosts: what sites get of them, and what regionals are told. Its
// methods are called with the Store's lock held.
type hosts struct {
	tenants map[string]*tenantHosts
}

// tenantHosts are a tenant's, by NAMESPACE/NAME as users type it.
type tenantHosts struct {
	HostObjects

	resolved map[string]*resolvedHost // by the host's key
	refused  map[string]string        // why a policy does not count
}

// resolvedHost is a host with its sites.
type resolvedHost struct {
	host                 *vhost.Host
	providers, consumers []string // virtual sites, sorted
	list                 *render.List
	problem              string // why it does not count
}

func newHosts() *hosts { return &hosts{tenants: map[string]*tenantHosts{}} }

// Render returns a list for each host that the site serves or reaches.
func (hs *hosts) Render(site *inventory.Site) []*render.List {
	t := hs.tenants[site.ID.Tenant]
	if t == nil || !site.Counts() {
		return nil
	}
	var out []*render.List
	for _, key := range slices.Sorted(maps.Keys(t.resolved)) {
		if r := t.resolved[key]; r.list != nil && (r.host.Provides(site.ID.Name) || r.host.Consumes(site.ID.Name)) {
			out = append(out, r.list)
		}
	}
	return out
}

// forRegionals is who may reach what, of a tenant.
func (hs *hosts) forRegionals(tenant string) []region.Host {
	t := hs.tenants[tenant]
	if t == nil {
		return nil
	}
	var out []region.Host
	for _, key := range slices.Sorted(maps.Keys(t.resolved)) {
		if r := t.resolved[key]; r.list != nil {
			out = append(out, region.Host{Name: key, Providers: r.providers, Consumers: r.consumers})
		}
	}
	return out
}

// resolve finds the sites of a tenant's hosts; true: something changed for sites.
func (hs *hosts) resolve(tenant string, known *inventory.Snapshot) (changed bool) {
	t := hs.tenants[tenant]
	if t == nil || known == nil {
		return false
	}
	members := map[string][]string{} // sites by virtual site
	for _, s := range known.SitesOf(tenant) {
		if s.Counts() {
			for _, v := range s.VirtualSites {
				members[v] = append(members[v], s.ID.Name)
			}
		}
	}
	byHost := map[string][]string{} // keys of policies, the oldest first, by that of the host
	for _, key := range byAge(t.Policies, t.PolicyMade) {
		ns, _, _ := strings.Cut(key, "/")
		at := ns + "/" + t.Policies[key].VirtualHost
		byHost[at] = append(byHost[at], key)
	}
	before, size := t.resolved, 0
	t.resolved, t.refused = map[string]*resolvedHost{}, map[string]string{}
	names := map[string]string{}                     // NAMESPACE/HOST → the VirtualHost that has it
	for _, key := range byAge(t.Hosts, t.HostMade) { // who had it first keeps it
		r := t.one(tenant, key, byHost[key], members)
		at := r.host.Namespace + "/" + r.host.Host
		if other := names[at]; other != "" {
			r.problem = fmt.Sprintf("HostTaken:VirtualHost %s has the host %s already: name another one in spec.host", other, r.host.Host)
		} else {
			names[at] = r.host.Name
		}
		t.resolved[key] = r
		old := before[key]
		if r.problem == "" && len(r.host.Consumers) > 0 {
			if old != nil && old.list != nil && old.host.Equal(r.host) {
				r.list = old.list
			} else {
				blob := r.host.Encode()
				r.list = &render.List{Pieces: []*render.Piece{{Item: &wire.Item{Kind: vhost.Kind, Name: key, Digest: wire.DigestOf(blob), Size: int64(len(blob))}, Blob: blob}}}
			}
			if size += len(r.list.Pieces[0].Blob); size > maxHostBytes {
				r.list, r.problem = nil, fmt.Sprintf("TooMany:with it the tenant's virtual hosts name their sites in more than %d MiB: advertise fewer, or to fewer sites", maxHostBytes>>20)
			}
		}
		changed = changed || old == nil && r.list != nil || old != nil && old.list != r.list
	}
	for key, old := range before {
		changed = changed || t.resolved[key] == nil && old.list != nil
	}
	for key, p := range t.Policies {
		ns, _, _ := strings.Cut(key, "/")
		if _, ok := t.Hosts[ns+"/"+p.VirtualHost]; !ok {
			t.refused[key] = "NoSuchVirtualHost:there is no VirtualHost " + p.VirtualHost + " in the namespace"
		}
	}
	return changed
}

// one resolves one host, but for clashes with others.
func (t *tenantHosts) one(tenant, key string, policies []string, members map[string][]string) *resolvedHost {
	spec := t.Hosts[key]
	ns, name, _ := strings.Cut(key, "/")
	h := &vhost.Host{Tenant: tenant, Namespace: ns, Name: name, Host: spec.Host, Service: spec.Service.Name, ServicePort: int(spec.Service.Port), Providers: []string{}, Consumers: []string{}}
	if h.Host == "" {
		h.Host = name
	}
	h.HTTP = spec.Protocol == v1alpha1.ProtocolHTTP
	if h.HTTP {
		h.Routes = spec.RoutesInOrder()
	}
	r := &resolvedHost{host: h}
	where, err := render.VirtualSite(spec.VirtualSite, ns)
	if err != nil {
		r.problem = "NoSuchVirtualSite:spec.virtualSite: " + err.Error()
		return r
	}
	r.providers, h.Providers = []string{where}, members[where]
	seen := map[string]bool{}
	for _, pkey := range policies {
		p := t.Policies[pkey]
		port := int(p.Port)
		if port == 0 {
			port = h.ServicePort
		}
		if h.Port == 0 {
			h.Port = port
		}
		if h.Port != port {
			t.refused[pkey] = fmt.Sprintf("PortConflict:another AdvertisePolicy of %s says port %d, and this one %d: they have to agree", name, h.Port, port)
			continue
		}
		for _, v := range p.VirtualSites {
			if seen[v] {
				continue
			}
			seen[v] = true
			if v, err := render.VirtualSite(v, ns); err == nil {
				r.consumers = append(r.consumers, v)
			}
		}
	}
	r.consumers = unique(r.consumers)
	consumers := map[string]bool{}
	for _, v := range r.consumers {
		for _, site := range members[v] {
			consumers[site] = true
		}
	}
	h.Providers, h.Consumers = unique(h.Providers), unique(slices.Collect(maps.Keys(consumers)))
	switch {
	case slices.Contains(h.Services(), h.Host):
		r.problem = "HostTaken:the Service " + h.Host + " itself has this name: name another one in spec.host"
	case !vhost.ValidHost(h.Host):
		r.problem = fmt.Sprintf("BadHost:%q can't be the name of a Service: name one in spec.host that begins with a letter", h.Host)
	}
	return r
}

func unique(names []string) []string {
	out := slices.Clone(names)
	slices.Sort(out)
	if out = slices.Compact(out); out == nil {
		return []string{}
	}
	return out
}

// HostObjects are a tenant's VirtualHosts and AdvertisePolicies, by NAMESPACE/NAME, the
// namespace as users type it.
type HostObjects struct {
	Hosts    map[string]v1alpha1.VirtualHostSpec
	Policies map[string]v1alpha1.AdvertisePolicySpec
	// HostMade and PolicyMade are when they were.
	HostMade, PolicyMade map[string]metav1.Time
}

// byAge are the keys of objects, the oldest first.
func byAge[T any](objects map[string]T, made map[string]metav1.Time) []string {
	return slices.SortedFunc(maps.Keys(objects), func(a, b string) int {
		return cmp.Or(made[a].Time.Compare(made[b].Time), strings.Compare(a, b))
	})
}

// SetHosts replaces those of all tenants. What it is given must not be changed afterwards.
func (s *Store) SetHosts(all map[string]HostObjects) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for tenant := range s.hosts.tenants {
		if _, ok := all[tenant]; !ok {
			s.setHostsLocked(tenant, HostObjects{})
		}
	}
	for tenant, now := range all {
		s.setHostsLocked(tenant, now)
	}
}

func (s *Store) setHostsLocked(tenant string, now HostObjects) {
	t := s.hosts.tenants[tenant]
	if t == nil {
		t = &tenantHosts{}
		s.hosts.tenants[tenant] = t
	}
	same := func(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }
	if same(t.HostObjects, now) {
		return
	}
	t.HostObjects = now
	s.hosts.resolve(tenant, s.known)
	s.touchLocked(tenant)
	s.kube.mu.Lock() // renders the tenant's sites
	defer s.kube.mu.Unlock()
	s.kube.touchLocked(tenant)
}

// applyHostsLocked follows a change of the fleet.
func (s *Store) applyHostsLocked() {
	for tenant := range s.hosts.tenants {
		if !s.hosts.resolve(tenant, s.known) || !s.started {
			continue
		}
		for _, site := range s.known.SitesOf(tenant) {
			if site.Listed() {
				s.renderLocked(site)
			}
		}
	}
}

// HostReach is what became of a VirtualHost.
type HostReach struct {
	Host *vhost.Host // must not be changed
	// Reason, CamelCase, and Problem say why it does not count; empty: it does.
	Reason, Problem string
	// Carried are sites of Providers that get its Service; Clash are sites of Consumers
	// that get a Service of the host's name.
	Carried, Clash []string
	// Missing are Services of its routes that no site of Providers gets.
	Missing []string
}

// VirtualHost tells of one; false: it is not known (yet).
func (s *Store) VirtualHost(tenant, namespace, name string) (HostReach, bool) {
	s.mu.RLock()
	t := s.hosts.tenants[tenant]
	var r *resolvedHost
	if t != nil {
		r = t.resolved[namespace+"/"+name]
	}
	s.mu.RUnlock()
	if r == nil {
		return HostReach{}, false
	}
	out := HostReach{Host: r.host}
	out.Reason, out.Problem, _ = strings.Cut(r.problem, ":")
	on := func(service string, sites []string) (both []string) {
		placed, _ := s.Placed(workload.ItemName("", "Service", r.host.SiteNamespace(), service))
		for _, site := range sites {
			if placed.Digests[fleet.SiteID{Tenant: tenant, Name: site}] != "" {
				both = append(both, site)
			}
		}
		return both
	}
	out.Carried, out.Clash = on(r.host.Service, r.host.Providers), on(r.host.Host, r.host.Consumers)
	for _, service := range r.host.Services()[1:] {
		if len(on(service, r.host.Providers)) == 0 {
			out.Missing = append(out.Missing, service)
		}
	}
	return out, true
}

// AdvertisePolicy tells why one does not count; both empty: it does, or is not known yet.
func (s *Store) AdvertisePolicy(tenant, namespace, name string) (reason, problem string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.hosts.tenants[tenant]; t != nil {
		reason, problem, _ = strings.Cut(t.refused[namespace+"/"+name], ":")
	}
	return reason, problem
}
