package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/maintenance"
	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	siterender "muster.dev/muster/control/desired/render"
	"muster.dev/muster/control/rollout/decide"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/workload"
)

// plannedFleet is what a dry run knows of the sites.
type plannedFleet struct {
	sites       []decide.Site
	online      map[string]bool
	maintenance int
	pinned      []string // that name their versions themselves, so that nothing changes there
}

// planRollout works the waves out as the controllers will, from what the user may read.
func planRollout(ctx context.Context, c client.Client, tenant v1alpha1.Tenant, r owned, targets []target) ([]decide.Wave, plannedFleet, error) {
	out := plannedFleet{online: map[string]bool{}}
	selectors, err := virtualSiteSelectors(ctx, c, tenant)
	if err != nil {
		return nil, out, err
	}
	var held []func(labels.Set) bool
	for _, t := range targets {
		of, err := holders(ctx, c, r, t.kind, t.o, selectors)
		if err != nil {
			return nil, out, err
		}
		held = append(held, of)
	}
	holds := func(set labels.Set) bool {
		return slices.ContainsFunc(held, func(of func(labels.Set) bool) bool { return of(set) })
	}
	key := func(name string) (string, error) { return siterender.VirtualSite(name, r.namespace) }
	var scope []string
	for _, name := range r.Spec.VirtualSites {
		k, err := key(name)
		if err != nil {
			return nil, out, fmt.Errorf("--virtual-site: %w", err)
		}
		if _, known := selectors[k]; !known {
			return nil, out, fmt.Errorf("--virtual-site %s: there is none, or you may not read it; `muster get virtualsites` lists them", name)
		}
		scope = append(scope, k)
	}
	var sites v1alpha1.SiteList
	if err := c.List(ctx, &sites, client.InNamespace(fleet.SystemNamespace(tenant.Name))); err != nil {
		return nil, out, fmt.Errorf("list sites: %w", err)
	}
	for i := range sites.Items {
		s := &sites.Items[i]
		if !s.Spec.Approved || s.Spec.Decommissioned || !holds(labels.Set(s.Labels)) {
			continue
		}
		d := decide.Site{Name: s.Name, Labels: s.Labels, Online: s.Status.Phase == fleet.PhaseOnline, Maintenance: inMaintenance(s), Red: s.Status.Health != nil && s.Status.Health.Colour == fleet.Red}
		for vs, sel := range selectors {
			if sel.Matches(labels.Set(s.Labels)) {
				d.VirtualSites = append(d.VirtualSites, vs)
			}
		}
		slices.Sort(d.VirtualSites)
		out.online[s.Name] = d.Online
		out.sites = append(out.sites, d)
	}
	slices.SortFunc(out.sites, func(a, b decide.Site) int { return strings.Compare(a.Name, b.Name) })
	inScope := func(s *decide.Site) bool {
		return len(scope) == 0 || slices.ContainsFunc(scope, func(vs string) bool { return slices.Contains(s.VirtualSites, vs) })
	}
	member := func(name string, s *decide.Site) bool {
		k, err := key(name)
		return err == nil && slices.Contains(s.VirtualSites, k)
	}
	waves, err := decide.Plan(r.Name, &r.Spec, out.sites, inScope, member)
	changes := map[string]bool{}
	for _, w := range waves {
		for _, name := range w.Sites {
			changes[name] = true
		}
	}
	for i := range sites.Items {
		s := &sites.Items[i]
		if !changes[s.Name] {
			continue
		}
		if inMaintenance(s) {
			out.maintenance++
		}
		if pinned(s, targets) {
			out.pinned = append(out.pinned, s.Name)
		}
	}
	slices.Sort(out.pinned)
	return waves, out, err
}

// pinned tells whether the site itself names the version of all that would change there.
func pinned(s *v1alpha1.Site, targets []target) bool {
	return !slices.ContainsFunc(targets, func(t target) bool {
		component, _, _ := unstructured.NestedString(t.o.Object, "spec", "component")
		return t.kind.Kind != "SoftwarePolicy" || s.Spec.Software[v1alpha1.SoftwareComponent(component)] == ""
	})
}

func inMaintenance(s *v1alpha1.Site) bool {
	if m := s.Spec.Maintenance; m != nil && (m.Until == nil || m.Until.After(time.Now())) {
		return true
	}
	_, open := maintenance.NewPlan(s.Spec.MaintenanceWindows).Open(time.Now())
	return open
}

// virtualSiteSelectors are those of the tenant that the user may read, by NAMESPACE/NAME.
func virtualSiteSelectors(ctx context.Context, c client.Client, tenant v1alpha1.Tenant) (map[string]labels.Selector, error) {
	out := map[string]labels.Selector{}
	for _, ns := range namespacesOf(tenant) {
		var list v1alpha1.VirtualSiteList
		err := c.List(ctx, &list, client.InNamespace(ns))
		if apierrors.IsForbidden(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("virtual sites in %s: %w", ns, err)
		}
		for _, v := range list.Items {
			if sel, err := metav1.LabelSelectorAsSelector(&v.Spec.SiteSelector); err == nil {
				out[strings.TrimPrefix(ns, tenant.Name+"-")+"/"+v.Name] = sel
			}
		}
	}
	return out, nil
}

// holders says which sites hold the object: those of its virtual sites, by its annotation
// or by the namespace's default; of a policy those that its selector means.
func holders(ctx context.Context, c client.Client, r owned, kind offered.Kind, o *unstructured.Unstructured, selectors map[string]labels.Selector) (func(labels.Set) bool, error) {
	if kind.Group == v1alpha1.GroupVersion.Group {
		var selector metav1.LabelSelector
		raw, ok, _ := unstructured.NestedMap(o.Object, "spec", "siteSelector")
		if ok {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &selector); err != nil {
				return nil, fmt.Errorf("%s %s: spec.siteSelector: %w", kind.Kind, o.GetName(), err)
			}
		}
		sel, err := metav1.LabelSelectorAsSelector(&selector)
		return func(set labels.Set) bool { return sel.Matches(set) }, err
	}
	var names []string
	if value, ok := o.GetAnnotations()[workload.VirtualSites]; ok {
		var err error
		if names, err = siterender.VirtualSites(value, r.namespace); err != nil {
			return nil, fmt.Errorf("%s %s: annotation %s: %w", kind.Kind, o.GetName(), workload.VirtualSites, err)
		}
	} else {
		var list v1alpha1.VirtualKubernetesList
		if err := c.List(ctx, &list, client.InNamespace(r.Namespace)); err != nil {
			return nil, fmt.Errorf("virtual Kubernetes of %s: %w", r.namespace, err)
		}
		if len(list.Items) == 0 {
			return nil, fmt.Errorf("namespace %s has no virtual Kubernetes, so nothing of it is carried to sites; make one", r.namespace)
		}
		name, err := siterender.VirtualSite(list.Items[0].Spec.DefaultVirtualSite, r.namespace)
		if err != nil {
			return nil, fmt.Errorf("virtual Kubernetes %s: %w", list.Items[0].Name, err)
		}
		names = []string{name}
	}
	return func(set labels.Set) bool {
		return slices.ContainsFunc(names, func(name string) bool { return selectors[name] != nil && selectors[name].Matches(set) })
	}, nil
}
