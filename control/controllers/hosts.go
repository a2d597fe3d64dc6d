package controllers

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/control/desired/render"
	"muster.dev/muster/internal/few"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/vhost"
)

// virtualHosts tells of VirtualHosts and AdvertisePolicies what they reach, and what is in
// the way.
func (r *Runner) virtualHosts(ctx context.Context, known *inventory.Snapshot, tenant string, namespaces []string) error {
	if r.o.Workloads == nil {
		return nil
	}
	var errs []error
	said := map[string]string{} // what sites say of hosts that are not in effect there
	for _, short := range namespaces {
		var hosts v1alpha1.VirtualHostList
		if err := r.o.Cache.List(ctx, &hosts, client.InNamespace(tenant+"-"+short)); err != nil {
			return err
		}
		if len(hosts.Items) > 0 && len(said) == 0 {
			var err error
			if said, err = r.failingHosts(ctx, tenant); err != nil {
				return err
			}
		}
		for i := range hosts.Items {
			errs = append(errs, r.virtualHost(ctx, known, said, tenant, short, &hosts.Items[i]))
		}
		var policies v1alpha1.AdvertisePolicyList
		if err := r.o.Cache.List(ctx, &policies, client.InNamespace(tenant+"-"+short)); err != nil {
			return err
		}
		for i := range policies.Items {
			errs = append(errs, r.advertisePolicy(ctx, known, tenant, short, &policies.Items[i]))
		}
	}
	return errors.Join(errs...)
}

func (r *Runner) virtualHost(ctx context.Context, known *inventory.Snapshot, said map[string]string, tenant, short string, h *v1alpha1.VirtualHost) error {
	reach, ok := r.o.Workloads.VirtualHost(tenant, short, h.Name)
	if !ok {
		return nil // the store is told soon, and tells
	}
	before := h.DeepCopy()
	h.Status.Host = reach.Host.Host
	h.Status.Providers, h.Status.Consumers, h.Status.ProvidersOnline = int32(len(reach.Host.Providers)), int32(len(reach.Host.Consumers)), 0
	for _, name := range reach.Host.Providers {
		if i := known.Find(tenant, name); i >= 0 && known.Sites[i].Phase == fleet.PhaseOnline {
			h.Status.ProvidersOnline++
		}
	}
	var failing []string
	names := ofHost(reach.Host.Key())
	for _, name := range unite(reach.Host.Consumers, reach.Host.Providers) {
		if names.MatchString(said[name]) {
			failing = append(failing, name)
		}
	}
	c := metav1.Condition{Type: "Ready", ObservedGeneration: h.Generation}
	c.Status, c.Reason, c.Message = hostCondition(h, reach, failing)
	meta.SetStatusCondition(&h.Status.Conditions, c)
	return r.patchStatus(ctx, h, before)
}

// hostCondition says the first thing that is in the way.
func hostCondition(h *v1alpha1.VirtualHost, reach desired.HostReach, failing []string) (metav1.ConditionStatus, string, string) {
	host := reach.Host
	no := func(reason, format string, args ...any) (metav1.ConditionStatus, string, string) {
		return metav1.ConditionFalse, reason, fmt.Sprintf(format, args...)
	}
	switch {
	case reach.Reason != "":
		return no(reach.Reason, "%s", reach.Problem)
	case len(host.Consumers) == 0:
		return no("NotAdvertised", "no site may reach it: make an AdvertisePolicy with spec.virtualHost %s and virtual sites that have members", h.Name)
	case len(host.Providers) == 0:
		return no("NoProvider", "the virtual site %s has no members, or does not exist", h.Spec.VirtualSite)
	case len(reach.Carried) == 0:
		return no("NoSuchService", "no site of %s gets a Service %s from this namespace: deploy it there", h.Spec.VirtualSite, host.Service)
	case len(reach.Missing) > 0:
		return no("NoSuchService", "no site of %s gets the Services of all routes from this namespace: deploy %s there", h.Spec.VirtualSite, few.Of(reach.Missing, maxNamed, ", "))
	case len(reach.Clash) > 0:
		return no("NameClash", "a Service %s of this namespace is already on %s: name another host in spec.host", host.Host, few.Of(reach.Clash, maxNamed, ", "))
	case h.Status.ProvidersOnline == 0:
		return no("NoProviderOnline", "none of the %d sites that serve it is connected", len(host.Providers))
	case len(failing) > 0:
		return no("FailsOnSites", "not in effect on %s: see the condition VirtualHostApplied of the site", few.Of(failing, maxNamed, ", "))
	}
	return metav1.ConditionTrue, "Reachable", fmt.Sprintf("reached as %s:%d on %d sites; %d of %d sites that serve it are connected", host.Host, host.Port, len(host.Consumers), h.Status.ProvidersOnline, len(host.Providers))
}

// ofHost matches a text in which a host stands, and not one whose name is longer.
func ofHost(key string) *regexp.Regexp {
	return regexp.MustCompile(`(^|[^a-z0-9.-])` + regexp.QuoteMeta(key) + `($|[^a-z0-9-])`)
}

// failingHosts are the sites that say that a host is not in effect there, with what they say.
func (r *Runner) failingHosts(ctx context.Context, tenant string) (map[string]string, error) {
	var sites v1alpha1.SiteList
	if err := r.o.Cache.List(ctx, &sites, client.InNamespace(fleet.SystemNamespace(tenant)), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i := range sites.Items {
		if c := meta.FindStatusCondition(sites.Items[i].Status.Conditions, vhost.Kind+"Applied"); c != nil && c.Status == metav1.ConditionFalse {
			out[sites.Items[i].Name] = c.Message
		}
	}
	return out, nil
}

func unite(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

func (r *Runner) advertisePolicy(ctx context.Context, known *inventory.Snapshot, tenant, short string, p *v1alpha1.AdvertisePolicy) error {
	before := p.DeepCopy()
	want, unknown := map[string]bool{}, []string(nil)
	for _, v := range p.Spec.VirtualSites {
		key, err := render.VirtualSite(v, short)
		if err != nil || !slices.ContainsFunc(known.VirtualSitesOf(tenant), func(v *inventory.VirtualSite) bool { return v.Key() == key }) {
			unknown = append(unknown, v)
			continue
		}
		want[key] = true
	}
	p.Status.Sites = 0
	for _, s := range known.SitesOf(tenant) {
		if s.Counts() && slices.ContainsFunc(s.VirtualSites, func(v string) bool { return want[v] }) {
			p.Status.Sites++
		}
	}
	c := metav1.Condition{Type: "Accepted", ObservedGeneration: p.Generation, Status: metav1.ConditionTrue, Reason: "Advertised", Message: "the sites of its virtual sites may reach the host"}
	if reason, problem := r.o.Workloads.AdvertisePolicy(tenant, short, p.Name); reason != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reason, problem
		p.Status.Sites = 0
	} else if len(unknown) > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "NoSuchVirtualSite", "there is no virtual site "+few.Of(unknown, maxNamed, ", ")+"; the others count"
	}
	meta.SetStatusCondition(&p.Status.Conditions, c)
	return r.patchStatus(ctx, p, before)
}
