package desired

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/region"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/vhost"
)

func hostSpec(service, where string) v1alpha1.VirtualHostSpec {
	return v1alpha1.VirtualHostSpec{Service: v1alpha1.VirtualHostService{Name: service, Port: 5432}, VirtualSite: where}
}

// hostsOf are the hosts that a site gets.
func hostsOf(t *testing.T, s *tested, site string) map[string]*vhost.Host {
	t.Helper()
	out := map[string]*vhost.Host{}
	for _, it := range s.State(siteNamed(site)).GetItems() {
		if it.Kind != vhost.Kind {
			continue
		}
		b, ok := s.Blob(it.Digest)
		if !ok {
			t.Fatalf("no blob for %s", it.Name)
		}
		h, err := vhost.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		out[it.Name] = h
	}
	return out
}

func names(m map[string]*vhost.Host) string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// Both ends get a host with the names of all sites of either end, and nobody else does.
func TestHosts(t *testing.T) {
	s := shop(t, 6)
	s.Start()
	s.SetSite(siteNamed("elsewhere"), nil)
	set := func(hosts map[string]v1alpha1.VirtualHostSpec, policies map[string]v1alpha1.AdvertisePolicySpec) {
		t.Helper()
		s.SetHosts(map[string]HostObjects{"acme": {Hosts: maps.Clone(hosts), Policies: maps.Clone(policies)}})
		s.renderWorkloads()
		s.renderRegional()
	}
	hosts := map[string]v1alpha1.VirtualHostSpec{"shop/db-global": hostSpec("db", "shared/even")}
	policies := map[string]v1alpha1.AdvertisePolicySpec{"shop/odd": {VirtualHost: "db-global", VirtualSites: []string{"shared/odd"}, Port: 15432}}
	set(hosts, nil)
	if got := names(hostsOf(t, s, "s-0000")); got != "" {
		t.Errorf("not advertised, and carried: %s", got)
	}
	set(hosts, policies)
	for site, want := range map[string]string{"s-0000": "shop/db-global", "s-0001": "shop/db-global", "elsewhere": ""} {
		if got := names(hostsOf(t, s, site)); got != want {
			t.Errorf("%s gets %q, want %q", site, got, want)
		}
	}
	h := hostsOf(t, s, "s-0001")["shop/db-global"]
	if !slices.Equal(h.Providers, []string{"s-0000", "s-0002", "s-0004"}) || !slices.Equal(h.Consumers, []string{"s-0001", "s-0003", "s-0005"}) || h.Port != 15432 || h.ServicePort != 5432 || h.Host != "db-global" {
		t.Errorf("%+v", h)
	}
	inv := toldOf(t, s, "acme")
	if want := (region.Host{Name: "shop/db-global", Providers: []string{"shared/even"}, Consumers: []string{"shared/odd"}}); len(inv.Hosts) != 1 || !slices.Equal(inv.Hosts[0].Consumers, want.Consumers) || !slices.Equal(inv.Hosts[0].Providers, want.Providers) || inv.Hosts[0].Name != want.Name {
		t.Errorf("regionals are told %+v", inv.Hosts)
	}

	// A site that comes is known to all others; other sites' lists are shared still.
	s.SetSite(siteNamed("s-0006"), map[string]string{"parity": "even"})
	if h := hostsOf(t, s, "s-0001")["shop/db-global"]; !h.Provides("s-0006") {
		t.Errorf("a consumer does not know the site that came: %v", h.Providers)
	}
	before := s.State(siteNamed("s-0001"))
	s.SetSite(siteNamed("elsewhere"), map[string]string{"x": "y"})
	if s.State(siteNamed("s-0001")) != before {
		t.Error("a change elsewhere has rendered it anew")
	}

	// What can't be: two of one name, ports that don't agree, no such virtual site.
	hosts["shop/second"] = v1alpha1.VirtualHostSpec{Host: "db-global", Service: v1alpha1.VirtualHostService{Name: "db", Port: 1}, VirtualSite: "shared/even"}
	hosts["shop/typo"] = hostSpec("db", "a/b/c")
	policies["shop/zz-other-port"] = v1alpha1.AdvertisePolicySpec{VirtualHost: "db-global", VirtualSites: []string{"shared/even"}}
	policies["shop/to-nothing"] = v1alpha1.AdvertisePolicySpec{VirtualHost: "gone", VirtualSites: []string{"shared/even"}}
	set(hosts, policies)
	for name, want := range map[string]string{"db-global": "", "second": "HostTaken", "typo": "NoSuchVirtualSite"} {
		if r, ok := s.VirtualHost("acme", "shop", name); !ok || r.Reason != want {
			t.Errorf("%s: %q %s, want %q", name, r.Reason, r.Problem, want)
		}
	}
	for name, want := range map[string]string{"odd": "", "zz-other-port": "PortConflict", "to-nothing": "NoSuchVirtualHost"} {
		if got, problem := s.AdvertisePolicy("acme", "shop", name); got != want {
			t.Errorf("policy %s: %q %s, want %q", name, got, problem, want)
		}
	}
	if h := hostsOf(t, s, "s-0001")["shop/db-global"]; h == nil || h.Consumes("s-0000") {
		t.Errorf("what is refused counts: %+v", h)
	}
	// Who was first keeps it, whatever those are called that come after.
	early, late := metav1.Unix(1, 0), metav1.Unix(2, 0)
	for range 2 { // the second time they are compared
		s.SetHosts(map[string]HostObjects{"acme": {Hosts: maps.Clone(hosts), Policies: maps.Clone(policies),
			HostMade:   map[string]metav1.Time{"shop/db-global": late, "shop/second": early, "shop/typo": early},
			PolicyMade: map[string]metav1.Time{"shop/odd": late, "shop/zz-other-port": early}}})
	}
	if r, ok := s.VirtualHost("acme", "shop", "second"); !ok || r.Reason != "" {
		t.Errorf("a later one took the name: %q %s", r.Reason, r.Problem)
	}
	if r, _ := s.VirtualHost("acme", "shop", "db-global"); r.Reason != "HostTaken" {
		t.Errorf("the later one: %q", r.Reason)
	}
	if got, _ := s.AdvertisePolicy("acme", "shop", "odd"); got != "PortConflict" {
		t.Errorf("the later policy: %q", got)
	}

	// Routes: in the order in which they are tried, with what of their Services is missing.
	routed := hostSpec("web", "shared/even")
	routed.Protocol, routed.Routes = v1alpha1.ProtocolHTTP, []v1alpha1.VirtualHostRoute{{Service: v1alpha1.VirtualHostService{Name: "all", Port: 1}}, {Path: "/api", Service: v1alpha1.VirtualHostService{Name: "api", Port: 2}}}
	hosts["shop/routed"] = routed
	policies["shop/routed"] = v1alpha1.AdvertisePolicySpec{VirtualHost: "routed", VirtualSites: []string{"shared/odd"}}
	taken := hostSpec("web", "shared/even")
	taken.Protocol, taken.Routes = v1alpha1.ProtocolHTTP, []v1alpha1.VirtualHostRoute{{Service: v1alpha1.VirtualHostService{Name: "taken", Port: 1}}}
	hosts["shop/taken"] = taken
	set(hosts, policies)
	if h := hostsOf(t, s, "s-0001")["shop/routed"]; h == nil || !h.HTTP || !slices.Equal(h.Routes, []vhost.Route{{Path: "/api", Service: "api", Port: 2}, {Path: "/", Service: "all", Port: 1}}) {
		t.Errorf("routes: %+v", h)
	}
	if r, _ := s.VirtualHost("acme", "shop", "taken"); r.Reason != "HostTaken" {
		t.Errorf("a route's Service has the host's name: %q", r.Reason)
	}
	s.put(t, "", "Service", "metadata: {name: all}\nspec: {ports: [{port: 1}]}")
	s.renderWorkloads()
	if r, _ := s.VirtualHost("acme", "shop", "routed"); !slices.Equal(r.Missing, []string{"api"}) {
		t.Errorf("missing: %v", r.Missing)
	}

	// Services: of those who serve it, and in the way on those who reach it.
	if r, _ := s.VirtualHost("acme", "shop", "db-global"); len(r.Carried) != 0 || len(r.Clash) != 0 {
		t.Errorf("%+v", r)
	}
	s.put(t, "", "Service", "metadata: {name: db}\nspec: {ports: [{port: 5432}]}")
	s.put(t, "", "Service", "metadata: {name: db-global, annotations: {ves.io/virtual-sites: shared/odd}}\nspec: {ports: [{port: 1}]}")
	s.renderWorkloads()
	if r, _ := s.VirtualHost("acme", "shop", "db-global"); !slices.Contains(r.Carried, "s-0000") || !slices.Contains(r.Clash, "s-0001") {
		t.Errorf("carried to %v, clash on %v", r.Carried, r.Clash)
	}

	s.SetHosts(nil)
	s.renderWorkloads()
	s.renderRegional()
	if got := names(hostsOf(t, s, "s-0001")); got != "" || len(toldOf(t, s, "acme").Hosts) != 0 {
		t.Errorf("removed, and there still: %s", got)
	}
}

// A tenant that writes as many objects as its quota takes keeps nobody waiting: what they
// cost grows with their number, and not with its square.
func TestHostsWithoutEnd(t *testing.T) {
	s := shop(t, 200)
	s.Start()
	many := HostObjects{Hosts: map[string]v1alpha1.VirtualHostSpec{}, Policies: map[string]v1alpha1.AdvertisePolicySpec{}}
	for i := range 3000 {
		many.Hosts[fmt.Sprintf("shop/h-%d", i)] = hostSpec("db", "shared/even")
		// All of one host, to all sites, over and over.
		many.Policies[fmt.Sprintf("shop/p-%d", i)] = v1alpha1.AdvertisePolicySpec{VirtualHost: "h-0", VirtualSites: slices.Repeat([]string{"shared/even", "shared/odd"}, 16)}
	}
	s.SetHosts(map[string]HostObjects{"acme": many})
	allocated := testing.AllocsPerRun(1, func() { s.hosts.resolve("acme", s.known) })
	if got := allocated / 3000; got > 200 {
		t.Errorf("%.0f allocations an object", got)
	}
	if h := s.hosts.tenants["acme"].resolved["shop/h-0"].host; len(h.Consumers) != 200 || len(h.Providers) != 100 {
		t.Errorf("%d consumers, %d providers", len(h.Consumers), len(h.Providers))
	}
}

// All that a tenant's hosts say of their sites is bounded; what is over it says so, and
// the others go on.
func TestHostsOfTooManySites(t *testing.T) {
	s := shop(t, 2)
	s.Start()
	for i := range 400 {
		name := fmt.Sprintf("a-site-with-a-long-name-of-some-sixty-letters-as-they-are-%03d", i)
		s.book.Put(siteObject(siteNamed(name), map[string]string{"parity": "odd"}, ""))
	}
	s.apply()
	many := HostObjects{Hosts: map[string]v1alpha1.VirtualHostSpec{}, Policies: map[string]v1alpha1.AdvertisePolicySpec{}}
	const n = 1600
	for i := range n {
		name := fmt.Sprintf("h-%04d", i)
		many.Hosts["shop/"+name] = hostSpec("db", "shared/even")
		many.Policies["shop/"+name] = v1alpha1.AdvertisePolicySpec{VirtualHost: name, VirtualSites: []string{"shared/odd"}}
	}
	s.SetHosts(map[string]HostObjects{"acme": many})
	size, refused := 0, 0
	for _, r := range s.hosts.tenants["acme"].resolved {
		if r.list != nil {
			size += len(r.list.Pieces[0].Blob)
		} else if strings.HasPrefix(r.problem, "TooMany:") {
			refused++
		}
	}
	if size > maxHostBytes || size < maxHostBytes/2 || refused == 0 || refused == n {
		t.Errorf("%d bytes, %d of %d refused", size, refused, n)
	}
}
