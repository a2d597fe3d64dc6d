package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
)

var (
	readVirtualHosts = right{verb: "get", resource: "virtualhosts"}
	readAdvertise    = right{verb: "get", resource: "advertisepolicies"}
)

// virtualHostView is a VirtualHost with the AdvertisePolicies that name it.
type virtualHostView struct {
	Tenant          string          `json:"tenant"`
	Namespace       string          `json:"namespace"`
	Name            string          `json:"name"`
	Host            string          `json:"host"`
	Port            int32           `json:"port"` // 0: nobody may reach it, or the user may not read where
	Service         string          `json:"service"`
	ServicePort     int32           `json:"servicePort"`
	Protocol        string          `json:"protocol"`
	Routes          []routeView     `json:"routes"` // in the order in which they are tried
	VirtualSite     string          `json:"virtualSite"`
	Providers       int32           `json:"providers"`
	ProvidersOnline int32           `json:"providersOnline"`
	Consumers       int32           `json:"consumers"`
	CreatedAt       time.Time       `json:"createdAt"`
	Ready           bool            `json:"ready"`
	Reason          string          `json:"reason"`  // "" until somebody has looked
	Message         string          `json:"message"` // what is in the way, or that nothing is
	Policies        []advertiseView `json:"policies"`
}

type routeView struct {
	Host        string `json:"host"` // "": any
	Path        string `json:"path"`
	Service     string `json:"service"`
	ServicePort int32  `json:"servicePort"`
}

type advertiseView struct {
	Name         string   `json:"name"`
	VirtualSites []string `json:"virtualSites"`
	Sites        int32    `json:"sites"`
	Fault        string   `json:"fault"` // why it, or a virtual site of it, does not count
}

type virtualHostListView struct {
	VirtualHosts []virtualHostView `json:"virtualHosts"`
}

// hostObjects are all of them, of all tenants, with what pages show of them.
type hostObjects struct {
	hosts    []v1alpha1.VirtualHost
	policies []v1alpha1.AdvertisePolicy
}

func (k *kube) listHosts(ctx context.Context) (out hostObjects, err error) {
	err = listPages(ctx, k, k.own, "virtualhosts", "", func(list *v1alpha1.VirtualHostList) {
		for _, h := range list.Items {
			out.hosts = append(out.hosts, v1alpha1.VirtualHost{ObjectMeta: bare(h.ObjectMeta), Spec: h.Spec, Status: h.Status})
		}
	})
	if err != nil {
		return hostObjects{}, err
	}
	err = listPages(ctx, k, k.own, "advertisepolicies", "", func(list *v1alpha1.AdvertisePolicyList) {
		for _, p := range list.Items {
			out.policies = append(out.policies, v1alpha1.AdvertisePolicy{ObjectMeta: bare(p.ObjectMeta), Spec: p.Spec, Status: p.Status})
		}
	})
	slices.SortFunc(out.hosts, func(a, b v1alpha1.VirtualHost) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(out.policies, func(a, b v1alpha1.AdvertisePolicy) int { return strings.Compare(a.Name, b.Name) })
	return out, err
}

// within is the name of a virtual site, NAMESPACE/NAME, that an object of a namespace names.
func within(namespace, name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return namespace + "/" + name
}

func viewVirtualHost(ref virtualRef, h *v1alpha1.VirtualHost) virtualHostView {
	out := virtualHostView{Tenant: ref.tenant, Namespace: ref.namespace, Name: h.Name, Host: cmp.Or(h.Status.Host, h.Spec.Host, h.Name), Service: h.Spec.Service.Name, ServicePort: h.Spec.Service.Port,
		VirtualSite: within(ref.namespace, h.Spec.VirtualSite), Providers: h.Status.Providers, ProvidersOnline: h.Status.ProvidersOnline, Consumers: h.Status.Consumers,
		CreatedAt: h.CreationTimestamp.UTC(), Policies: []advertiseView{}, Protocol: string(cmp.Or(h.Spec.Protocol, v1alpha1.ProtocolTCP)), Routes: []routeView{}}
	for _, r := range h.Spec.RoutesInOrder() {
		out.Routes = append(out.Routes, routeView{r.Host, r.Path, r.Service, int32(r.Port)})
	}
	if c := meta.FindStatusCondition(h.Status.Conditions, "Ready"); c != nil {
		out.Ready, out.Reason, out.Message = c.Status == metav1.ConditionTrue, c.Reason, c.Message
	}
	return out
}

// advertise adds a policy that names the host.
func (v *virtualHostView) advertise(p *v1alpha1.AdvertisePolicy) {
	view := advertiseView{Name: p.Name, Sites: p.Status.Sites, VirtualSites: []string{}}
	for _, s := range p.Spec.VirtualSites {
		view.VirtualSites = append(view.VirtualSites, within(v.Namespace, s))
	}
	c := meta.FindStatusCondition(p.Status.Conditions, "Accepted")
	if c != nil && c.Status == metav1.ConditionFalse {
		view.Fault = c.Message
	}
	// Of policies that disagree on the port, those that are refused don't count.
	if v.Port == 0 && (view.Fault == "" || c.Reason == "NoSuchVirtualSite") {
		v.Port = cmp.Or(p.Spec.Port, v.ServicePort)
	}
	v.Policies = append(v.Policies, view)
}

// virtualHosts returns those that the user may read, of one tenant or, with "", of all. As
// with virtual Kubernetes it goes by the rights in their own namespaces.
func (a *access) virtualHosts(ctx context.Context, id identity, tenant string) ([]virtualHostView, error) {
	list, err := a.hosts.get(ctx, "virtualhosts", timed(a.kube.listHosts))
	all := list.value
	if err != nil {
		return nil, unavailable(err, "the API server can't list the virtual hosts; it may be starting")
	}
	owners, err := a.namespaceOwners(ctx)
	if err != nil {
		return nil, err
	}
	hosts := map[string][]*v1alpha1.VirtualHost{} // by namespace
	for i := range all.hosts {
		ns := all.hosts[i].Namespace
		if ref, ok := owners[ns]; ok && (tenant == "" || ref.tenant == tenant) {
			hosts[ns] = append(hosts[ns], &all.hosts[i])
		}
	}
	type may struct{ hosts, policies bool }
	ask := func(ctx context.Context, ns string) (m may, err error) {
		if m.hosts, err = a.may(ctx, id, readVirtualHosts, ns); err == nil && m.hosts {
			m.policies, err = a.may(ctx, id, readAdvertise, ns)
		}
		return m, err
	}
	everywhere, err := ask(ctx, everyNamespace)
	if err != nil {
		return nil, err
	}
	rights := make(map[string]*may, len(hosts))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelReviews)
	for ns := range hosts {
		m := new(may)
		*m = everywhere
		rights[ns] = m
		if everywhere == (may{true, true}) {
			continue
		}
		g.Go(func() (err error) {
			*m, err = ask(gctx, ns)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out := []virtualHostView{}
	for i := range all.hosts {
		h := &all.hosts[i]
		m := rights[h.Namespace]
		if m == nil || !m.hosts {
			continue
		}
		v := viewVirtualHost(owners[h.Namespace], h)
		for j := range all.policies {
			if p := &all.policies[j]; m.policies && p.Namespace == h.Namespace && p.Spec.VirtualHost == h.Name {
				v.advertise(p)
			}
		}
		out = append(out, v)
	}
	return out, nil
}

func (c *Console) listVirtualHosts(w http.ResponseWriter, cl *call) error {
	views, err := c.access.virtualHosts(cl.Context(), cl.id, cl.q.Get("tenant"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, virtualHostListView{views})
}
