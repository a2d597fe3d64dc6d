package inventory

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/muster/control/api/maintenance"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/health"
	"muster.dev/muster/internal/fleet"
)

type namespace struct {
	tenant string
	short  string // as users type it
}

type siteRecord struct {
	key  objectKey
	base Site  // without tenant, virtual sites and policy
	out  *Site // nil until placed
	// edge is when its maintenance windows open or close next; zero if it has none.
	edge time.Time
}

type virtualRecord struct {
	key         objectKey
	description string
	selector    labels.Selector
	windows     []v1alpha1.MaintenanceWindow
}

type policyRecord struct {
	key      objectKey
	priority int32
	selector labels.Selector
	policy   *Policy
	uid      types.UID
}

// tenantIndex is what a tenant's sites are matched against, in the order in which
// it is applied.
type tenantIndex struct {
	virtual  []*virtualRecord
	policies []*policyRecord
}

func (inv *Inventory) putSite(o *v1alpha1.Site) {
	key := objectKey{o.Namespace, o.Name}
	r := inv.sites[key]
	if r == nil {
		r = &siteRecord{key: key}
		inv.sites[key] = r
	}
	base := siteOf(o)
	if r.out != nil && sameButHealth(&r.base, &base) {
		// Our own write came back: no reader sees it, but the writer must.
		r.base.health = base.health
		site := *r.out
		site.health = base.health
		r.out = &site
		inv.stale = true
		return
	}
	r.base = base
	inv.dirty[r] = true
	inv.touch()
}

func siteOf(o *v1alpha1.Site) Site {
	s := Site{
		ID: fleet.SiteID{Name: o.Name}, Namespace: o.Namespace, Region: o.Labels[fleet.LabelRegion], Labels: o.Labels,
		Phase: o.Status.Phase, Regional: o.Status.Regional, CreatedAt: o.CreationTimestamp.UTC(), health: o.Status.Health,
		windows: o.Spec.MaintenanceWindows,
	}
	if t := o.Status.LastSeen; t != nil {
		s.LastSeen = t.UTC()
	}
	if p := o.Spec.Place; p != nil {
		lat, err1 := strconv.ParseFloat(p.Latitude, 64)
		lon, err2 := strconv.ParseFloat(p.Longitude, 64)
		if err1 == nil && err2 == nil {
			s.Place = &Place{Latitude: lat, Longitude: lon, Address: p.Address}
		}
	}
	if m := o.Spec.Maintenance; m != nil {
		s.Maintenance = &Maintenance{Reason: m.Reason}
		if m.Until != nil {
			s.Maintenance.Until = m.Until.UTC()
		}
	}
	switch { // what people decided comes before what was observed
	case o.Spec.Decommissioned:
		s.Phase = fleet.PhaseDecommissioned
	case s.Phase == "" && o.Spec.Approved:
		s.Phase = fleet.PhaseApproved
	case s.Phase == "":
		s.Phase = fleet.PhasePending
	}
	return s
}

func sameButHealth(a, b *Site) bool {
	same := a.Phase == b.Phase && a.LastSeen.Equal(b.LastSeen) && a.Regional == b.Regional && len(a.Labels) == len(b.Labels) && a.CreatedAt.Equal(b.CreatedAt)
	same = same && (a.Place == nil) == (b.Place == nil) && (a.Place == nil || *a.Place == *b.Place)
	same = same && (a.Maintenance == nil) == (b.Maintenance == nil) && (a.Maintenance == nil || a.Maintenance.Reason == b.Maintenance.Reason && a.Maintenance.Until.Equal(b.Maintenance.Until))
	if !same || !equality.Semantic.DeepEqual(a.windows, b.windows) {
		return false
	}
	for k, v := range a.Labels {
		if w, ok := b.Labels[k]; !ok || v != w {
			return false
		}
	}
	return true
}

func (inv *Inventory) dropSite(key objectKey) {
	if r := inv.sites[key]; r != nil {
		delete(inv.sites, key)
		delete(inv.dirty, r)
		inv.touch()
	}
}

func (inv *Inventory) putVirtual(o *v1alpha1.VirtualSite) {
	key := objectKey{o.Namespace, o.Name}
	inv.virtual[key] = &virtualRecord{key: key, description: o.Spec.Description, selector: inv.selector(&o.Spec.SiteSelector, "VirtualSite", key), windows: o.Spec.MaintenanceWindows}
	inv.touchNamespace(o.Namespace)
}

func (inv *Inventory) putPolicy(o *v1alpha1.HealthPolicy) {
	key := objectKey{o.Namespace, o.Name}
	old := inv.policies[key]
	if old != nil && old.uid == o.UID && old.policy.Generation == o.Generation && o.Generation != 0 {
		return // only its status changed
	}
	p := &Policy{Namespace: o.Namespace, Name: o.Name, Generation: o.Generation}
	p.Model, p.Err = health.FromPolicy(&o.Spec)
	if p.Err != nil {
		inv.log.Warn("health policy can't be used as it is; the last valid one stays in force", "namespace", o.Namespace, "policy", o.Name, "err", p.Err)
		p.Model = nil
		if old != nil {
			p.Model = old.policy.Model
		}
	}
	inv.policies[key] = &policyRecord{key: key, priority: o.Spec.Priority, selector: inv.selector(&o.Spec.SiteSelector, "HealthPolicy", key), policy: p, uid: o.UID}
	inv.touchNamespace(o.Namespace)
}

// selector never fails the caller: admission refuses bad ones, and one that got
// through selects nothing.
func (inv *Inventory) selector(s *metav1.LabelSelector, kind string, key objectKey) labels.Selector {
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		inv.log.Warn("selector can't be read and selects no site", "kind", kind, "namespace", key.namespace, "name", key.name, "err", err)
		return labels.Nothing()
	}
	return sel
}

func (inv *Inventory) putNamespace(name, tenant string) {
	short, ok := strings.CutPrefix(name, tenant+"-")
	if !ok || tenant == "" {
		inv.dropNamespace(name)
		return
	}
	if n := (namespace{tenant, short}); inv.namespaces[name] != n {
		inv.dropNamespace(name)
		inv.namespaces[name] = n
		inv.dirtyAll[tenant] = true
		inv.placeAll(name)
	}
}

func (inv *Inventory) dropNamespace(name string) {
	if n, ok := inv.namespaces[name]; ok {
		delete(inv.namespaces, name)
		inv.dirtyAll[n.tenant] = true
		inv.placeAll(name)
	}
}

// placeAll looks at a namespace's sites again: they may have another tenant now.
func (inv *Inventory) placeAll(ns string) {
	for _, r := range inv.sites {
		if r.key.namespace == ns {
			inv.dirty[r] = true
		}
	}
	inv.touch()
}

func (inv *Inventory) touchNamespace(ns string) {
	if n, ok := inv.namespaces[ns]; ok {
		inv.dirtyAll[n.tenant] = true
		inv.touch()
	}
}

func (inv *Inventory) touch() {
	inv.stale = true
	select {
	case inv.changed <- struct{}{}:
	default:
	}
}

// refreshLocked applies what changed and makes the next snapshot.
func (inv *Inventory) refreshLocked() {
	for tenant := range inv.dirtyAll {
		inv.byTenant[tenant] = inv.indexTenant(tenant)
	}
	if len(inv.dirtyAll) > 0 {
		for _, r := range inv.sites {
			if n, ok := inv.namespaces[r.key.namespace]; ok && inv.dirtyAll[n.tenant] {
				inv.dirty[r] = true
			}
		}
	}
	for r := range inv.dirty {
		inv.place(r)
	}
	clear(inv.dirty)
	clear(inv.dirtyAll)

	next := &Snapshot{Version: 1}
	if inv.snapshot != nil {
		next.Version = inv.snapshot.Version + 1
		next.Sites = make([]*Site, 0, len(inv.snapshot.Sites)+16)
	}
	for _, r := range inv.sites {
		if r.out != nil {
			next.Sites = append(next.Sites, r.out)
		}
	}
	slices.SortFunc(next.Sites, compareSites)
	for _, v := range inv.virtual {
		if n, ok := inv.namespaces[v.key.namespace]; ok {
			next.VirtualSites = append(next.VirtualSites, &VirtualSite{Tenant: n.tenant, Namespace: n.short, Name: v.key.name, Description: v.description})
		}
	}
	for tenant, index := range inv.byTenant {
		for _, p := range index.policies {
			next.Policies = append(next.Policies, p.policy)
		}
		if len(index.policies)+len(index.virtual) == 0 && !inv.tenants[tenant] {
			delete(inv.byTenant, tenant)
		}
	}
	slices.SortFunc(next.Policies, func(a, b *Policy) int {
		if c := strings.Compare(a.Tenant, b.Tenant); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	for t := range inv.tenants {
		next.Tenants = append(next.Tenants, t)
	}
	next.fill()
	inv.snapshot, inv.stale = next, false
}

// indexTenant collects a tenant's virtual sites, and its policies in the order in
// which they win: higher priority first, then the name.
func (inv *Inventory) indexTenant(tenant string) *tenantIndex {
	t := &tenantIndex{}
	for _, v := range inv.virtual {
		if n, ok := inv.namespaces[v.key.namespace]; ok && n.tenant == tenant {
			t.virtual = append(t.virtual, v)
		}
	}
	for _, p := range inv.policies {
		// Only in the system namespace: who may write apps may not write policies.
		if n, ok := inv.namespaces[p.key.namespace]; ok && n.tenant == tenant && n.short == "system" {
			if p.policy.Tenant != tenant {
				named := *p.policy
				named.Tenant = tenant
				p.policy = &named
			}
			t.policies = append(t.policies, p)
		}
	}
	slices.SortFunc(t.policies, func(a, b *policyRecord) int {
		if a.priority != b.priority {
			return int(b.priority - a.priority)
		}
		return strings.Compare(a.key.name, b.key.name)
	})
	return t
}

// place works out where a site belongs.
func (inv *Inventory) place(r *siteRecord) {
	n, ok := inv.namespaces[r.key.namespace]
	r.edge = time.Time{}
	if !ok || n.short != "system" {
		r.out = nil
		return
	}
	site := r.base
	site.ID.Tenant = n.tenant
	windows := site.windows
	if index := inv.byTenant[n.tenant]; index != nil {
		set := labels.Set(site.Labels)
		if site.Counts() {
			for _, v := range index.virtual {
				if v.selector.Matches(set) {
					site.VirtualSites = append(site.VirtualSites, inv.namespaces[v.key.namespace].short+"/"+v.key.name)
					windows = append(slices.Clip(windows), v.windows...)
				}
			}
			slices.Sort(site.VirtualSites)
		}
		for _, p := range index.policies {
			if p.policy.Model != nil && p.selector.Matches(set) {
				site.Policy = p.policy
				break
			}
		}
	}
	if len(windows) > 0 {
		inv.applyWindows(r, &site, windows)
	}
	r.out = &site
}

// windowHorizon is how far ahead edges of windows are looked for at a time.
const windowHorizon = 24 * time.Hour

// applyWindows puts the site in maintenance while one of its windows, or of its
// virtual sites', is open.
func (inv *Inventory) applyWindows(r *siteRecord, site *Site, windows []v1alpha1.MaintenanceWindow) {
	now := inv.now()
	if r.edge = maintenance.NextEdge(windows, now, windowHorizon); r.edge.IsZero() {
		r.edge = now.Add(windowHorizon)
	}
	if inv.nextEdge.IsZero() || r.edge.Before(inv.nextEdge) {
		inv.nextEdge = r.edge
	}
	span, open := maintenance.Open(windows, now)
	if !open {
		return
	}
	// What a person said by hand stands, if it lasts longer.
	if m := site.Maintenance; m == nil || !m.Until.IsZero() && m.Until.Before(span.End) {
		site.Maintenance = &Maintenance{Reason: span.Reason, Until: span.End}
	}
}

// passEdges looks again at the sites whose windows opened or closed since.
func (inv *Inventory) passEdges() {
	now := inv.now()
	if inv.nextEdge.IsZero() || now.Before(inv.nextEdge) {
		return
	}
	inv.nextEdge, inv.stale = time.Time{}, true
	for _, r := range inv.sites {
		switch {
		case r.edge.IsZero():
		case !r.edge.After(now):
			inv.dirty[r] = true
		case inv.nextEdge.IsZero() || r.edge.Before(inv.nextEdge):
			inv.nextEdge = r.edge
		}
	}
}
