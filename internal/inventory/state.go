package inventory

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/maintenance"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// state is what was heard of the API server, and what follows from it. Puts and drops
// only note what changed; next works it out. It has no lock of its own.
type state struct {
	log        *slog.Logger
	namespaces map[string]namespace // by full name
	sites      map[objectKey]*siteRecord
	virtual    map[objectKey]*virtualRecord
	policies   map[policyKey]*policyRecord
	rollouts   map[objectKey]*rolloutRecord
	tenants    map[string]v1alpha1.TenantQuotas
	byTenant   map[string]*tenantIndex

	// What changed since the last snapshot.
	order        []*siteRecord // sorted; nil: sites came or went
	dirty        map[*siteRecord]bool
	dirtyVirtual map[*virtualRecord]bool
	dirtyTenants map[string]bool // whose sites must all be looked at again
	loud, quiet  bool
}

type objectKey struct{ namespace, name string }

type policyKey struct {
	kind string
	objectKey
}

type namespace struct {
	tenant string
	short  string // as users type it
}

type siteRecord struct {
	key      objectKey
	base     Site // without tenant, virtual sites and policies
	own      *maintenance.Plan
	virtual  []*virtualRecord // those that select it, sorted
	policies []*Policy
	out      *Site // nil until placed, or if it is nobody's
}

type virtualRecord struct {
	key         objectKey
	space       namespace
	generation  int64
	description string
	source      metav1.LabelSelector
	selector    labels.Selector // of source
	windows     []v1alpha1.MaintenanceWindow
	plan        *maintenance.Plan
	gone        bool
	affected    bool // members are to be counted anew
	out         *VirtualSite
}

func (v *virtualRecord) name() string { return v.space.short + "/" + v.key.name }

type policyRecord struct {
	key     policyKey
	kind    *PolicyKind
	policy  *Policy // nil: nothing but waiting
	rollout string  // that it names
	// variants are what sites have while the rollout holds it, has says which.
	variants []*Policy
	has      map[string]int
	waiting  *waitingPolicy
}

// tenantIndex is what a tenant's sites are matched against.
type tenantIndex struct {
	virtual  []*virtualRecord // sorted
	policies []*Policy        // by kind, the strongest first
	// records are what the policies are of. Where one is held the policies of a site are
	// to be sorted.
	records []*policyRecord
	held    bool
}

func newState(log *slog.Logger) *state {
	return &state{
		log: log, namespaces: map[string]namespace{}, sites: map[objectKey]*siteRecord{}, virtual: map[objectKey]*virtualRecord{}, policies: map[policyKey]*policyRecord{}, rollouts: map[objectKey]*rolloutRecord{},
		tenants: map[string]v1alpha1.TenantQuotas{}, byTenant: map[string]*tenantIndex{},
		dirty: map[*siteRecord]bool{}, dirtyVirtual: map[*virtualRecord]bool{}, dirtyTenants: map[string]bool{}, loud: true,
	}
}

func (st *state) putTenant(o *v1alpha1.Tenant) {
	if old, ok := st.tenants[o.Name]; !ok || !equality.Semantic.DeepEqual(old, o.Spec.Quotas) {
		st.tenants[o.Name] = o.Spec.Quotas
		st.loud = true
	}
}

func (st *state) dropTenant(name string) {
	delete(st.tenants, name)
	st.loud = true
}

func (st *state) putNamespace(name, tenant string) {
	short, ok := strings.CutPrefix(name, tenant+"-")
	if !ok || tenant == "" {
		st.dropNamespace(name)
		return
	}
	if n := (namespace{tenant, short}); st.namespaces[name] != n {
		st.dropNamespace(name)
		st.namespaces[name] = n
		st.moved(name, tenant)
	}
}

func (st *state) dropNamespace(name string) {
	if n, ok := st.namespaces[name]; ok {
		delete(st.namespaces, name)
		st.moved(name, n.tenant)
	}
}

// moved notes that a namespace came to a tenant or left it, with all that is in it.
func (st *state) moved(ns, tenant string) {
	st.dirtyTenants[tenant], st.loud = true, true
	for key, r := range st.sites {
		if key.namespace == ns {
			st.dirty[r] = true
			st.order = nil
		}
	}
}

func (st *state) putSite(o *v1alpha1.Site) {
	key := objectKey{o.Namespace, o.Name}
	r := st.sites[key]
	if r == nil {
		r = &siteRecord{key: key}
		st.sites[key] = r
		st.order = nil
	}
	base := siteOf(o)
	if r.out != nil && !st.dirty[r] {
		placed, seen := r.base.sameDecisions(&base), r.base.sameReports(&base)
		if placed { // it belongs where it did
			r.base = base
			site := base
			site.ID, site.VirtualSites, site.would, site.Policies, site.plans = r.out.ID, r.out.VirtualSites, r.out.would, r.out.Policies, r.out.plans
			r.out = &site
			if st.loud = st.loud || !seen; seen {
				st.quiet = true
			}
			return
		}
	}
	r.base, r.own = base, maintenance.NewPlan(base.Windows)
	st.dirty[r], st.loud = true, true
}

func (st *state) dropSite(key objectKey) {
	if r := st.sites[key]; r != nil {
		delete(st.sites, key)
		delete(st.dirty, r)
		for _, v := range r.virtual {
			v.affected = true
		}
		st.order, st.loud = nil, true
	}
}

func siteOf(o *v1alpha1.Site) Site {
	s := Site{
		ID: fleet.SiteID{Name: o.Name}, Region: o.Labels[fleet.LabelRegion], Labels: o.Labels, Phase: o.Status.Phase, Regional: o.Status.Regional, CreatedAt: o.CreationTimestamp.UTC(),
		ByHand: o.Spec.Maintenance, Windows: o.Spec.MaintenanceWindows, Health: o.Status.Health, PolicyHash: o.Status.PolicyHash,
		PolicyRefused: meta.IsStatusConditionFalse(o.Status.Conditions, fleet.KindCollectionPolicy+"Applied"), InStatus: o.Status.Maintenance,
		Versions: o.Status.Versions, Pins: o.Spec.Software, Software: o.Status.Software,
	}
	if n, err := strconv.ParseInt(o.Annotations[v1alpha1.AnnotationSoftwareRetry], 10, 31); err == nil && n > 0 {
		s.Retry = int(n)
	}
	if r := o.Status.Reset; r != nil && o.Spec.Reset != nil && r.ID == o.Spec.Reset.ID && (r.Phase == v1alpha1.ResetAsked || r.Phase == v1alpha1.ResetConfirmed) {
		s.Reset = r
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
	switch { // what people decided comes before what was observed
	case o.Spec.Decommissioned || o.DeletionTimestamp != nil:
		s.Phase = fleet.PhaseDecommissioned
	case !o.Spec.Approved:
		s.Phase = fleet.PhasePending
	case s.Phase != fleet.PhaseOnline && s.Phase != fleet.PhaseOffline:
		s.Phase = fleet.PhaseApproved
	}
	return s
}

// sameDecisions tells whether the site belongs to the same sets as before.
func (s *Site) sameDecisions(b *Site) bool {
	return s.Counts() == b.Counts() && s.Listed() == b.Listed() && maps.Equal(s.Labels, b.Labels) && equality.Semantic.DeepEqual(s.Windows, b.Windows)
}

// sameReports tells whether nothing changed that readers would want to look at soon.
func (s *Site) sameReports(b *Site) bool {
	colour := func(h *v1alpha1.SiteHealth) fleet.Colour {
		if h == nil {
			return ""
		}
		return h.Colour
	}
	return s.Phase == b.Phase && s.Regional == b.Regional && s.CreatedAt.Equal(b.CreatedAt) && s.LastSeen.IsZero() == b.LastSeen.IsZero() &&
		(s.Place == nil) == (b.Place == nil) && (s.Place == nil || *s.Place == *b.Place) && equality.Semantic.DeepEqual(s.ByHand, b.ByHand) &&
		colour(s.Health) == colour(b.Health) && s.PolicyHash == b.PolicyHash && s.PolicyRefused == b.PolicyRefused &&
		maps.Equal(s.Pins, b.Pins) && s.Retry == b.Retry && equality.Semantic.DeepEqual(s.Reset, b.Reset) && slices.EqualFunc(s.Software, b.Software, sameSoftware)
}

// sameSoftware leaves out how far a download is.
func sameSoftware(a, b v1alpha1.SiteSoftware) bool {
	return a.Component == b.Component && a.Running == b.Running && a.Wanted == b.Wanted && a.State == b.State && a.Digest == b.Digest
}

func (st *state) putVirtual(o *v1alpha1.VirtualSite) {
	key := objectKey{o.Namespace, o.Name}
	if old := st.virtual[key]; old != nil {
		if old.generation == o.Generation && equality.Semantic.DeepEqual(old.source, o.Spec.SiteSelector) && old.description == o.Spec.Description && equality.Semantic.DeepEqual(old.windows, o.Spec.MaintenanceWindows) {
			return // only its status changed
		}
		st.dropVirtual(key)
	}
	v := &virtualRecord{key: key, generation: o.Generation, description: o.Spec.Description, source: o.Spec.SiteSelector, selector: st.selector(&o.Spec.SiteSelector, "VirtualSite", key),
		windows: o.Spec.MaintenanceWindows, plan: maintenance.NewPlan(o.Spec.MaintenanceWindows)}
	st.virtual[key] = v
	st.dirtyVirtual[v], st.loud = true, true
}

func (st *state) dropVirtual(key objectKey) {
	if v := st.virtual[key]; v != nil {
		v.gone = true
		delete(st.virtual, key)
		st.dirtyVirtual[v], st.loud = true, true
	}
}

func (st *state) putPolicy(k *PolicyKind, o client.Object) {
	key := policyKey{k.Kind, objectKey{o.GetNamespace(), o.GetName()}}
	rollout := o.GetAnnotations()[v1alpha1.AnnotationRollout]
	r := st.policies[key]
	if r == nil {
		r = &policyRecord{key: key, kind: k}
		st.policies[key] = r
	}
	last, named := r.policy, r.rollout
	if r.waiting != nil {
		last, named = r.waiting.policy, r.waiting.rollout
	}
	if last != nil && last.uid == o.GetUID() && last.Generation == o.GetGeneration() && named == rollout && o.GetGeneration() != 0 {
		return // only its status changed
	}
	st.takePolicy(r, st.policyOf(k, o), rollout)
}

func (st *state) policyOf(k *PolicyKind, o client.Object) *Policy {
	selector, priority := k.Spec(o)
	return &Policy{Kind: k.Kind, Name: o.GetName(), Priority: priority, Generation: o.GetGeneration(), Object: o, selector: st.selector(selector, k.Kind, keyOf(o)), uid: o.GetUID()}
}

func (st *state) dropPolicy(key policyKey) {
	delete(st.policies, key)
	st.policiesChanged(key.namespace)
}

func (st *state) policiesChanged(ns string) {
	if n, ok := st.namespaces[ns]; ok {
		st.dirtyTenants[n.tenant], st.loud = true, true
	}
}

// selector never fails the caller: admission refuses bad ones, and one that got
// through selects nothing.
func (st *state) selector(s *metav1.LabelSelector, kind string, key objectKey) labels.Selector {
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		st.log.Warn("selector can't be read and selects no site", "kind", kind, "namespace", key.namespace, "name", key.name, "err", err)
		return labels.Nothing()
	}
	return sel
}

// next works out what changed since last, and returns last if nothing did. loud: more
// than what a reader of the next tick can wait for.
func (st *state) next(last *Snapshot) (s *Snapshot, loud bool) {
	if last != nil && !st.loud && !st.quiet && len(st.dirtyTenants)+len(st.dirtyVirtual)+len(st.dirty) == 0 {
		return last, false
	}
	st.place()
	s = &Snapshot{Version: 1}
	if last != nil {
		s.Version = last.Version + 1
	}
	if st.order == nil || last == nil {
		for _, r := range st.sites {
			if r.out != nil {
				st.order = append(st.order, r)
			}
		}
		slices.SortFunc(st.order, func(a, b *siteRecord) int { return compareSites(a.out, b.out) })
		for _, v := range st.virtual {
			v.affected = true // positions moved
		}
		last = nil
	}
	s.Sites = make([]*Site, len(st.order))
	for i, r := range st.order {
		s.Sites[i] = r.out
	}
	if last != nil {
		s.index = last.index
	} else {
		s.index = indexOf(s.Sites)
	}
	st.virtualSites(s)
	st.policiesAndTenants(s)
	loud = st.loud
	st.loud, st.quiet = false, false
	return s, loud
}

// place works out where what changed belongs.
func (st *state) place() {
	for v := range st.dirtyVirtual {
		v.space = st.namespaces[v.key.namespace]
	}
	for tenant := range st.dirtyTenants {
		for _, v := range st.virtual {
			if n := st.namespaces[v.key.namespace]; n.tenant == tenant || v.space.tenant == tenant {
				v.space, v.affected = n, true
			}
		}
		st.byTenant[tenant] = st.indexTenant(tenant)
	}
	changed := map[string][]*virtualRecord{} // of tenants whose other virtual sites stand
	for v := range st.dirtyVirtual {
		if t := v.space.tenant; t != "" && !st.dirtyTenants[t] {
			changed[t] = append(changed[t], v)
		}
	}
	for tenant, list := range changed {
		st.byTenant[tenant] = st.indexTenant(tenant)
		for _, v := range list {
			v.affected = true
		}
	}
	if len(changed)+len(st.dirtyTenants) == 0 { // most often: a few sites alone
		for r := range st.dirty {
			st.placeSite(r, st.namespaces[r.key.namespace])
		}
	} else {
		for _, r := range st.sites {
			n := st.namespaces[r.key.namespace]
			switch list := changed[n.tenant]; {
			case st.dirty[r] || st.dirtyTenants[n.tenant]:
				st.placeSite(r, n)
			case len(list) > 0 && r.out != nil:
				st.replaceIn(r, list)
			}
		}
	}
	clear(st.dirty)
	clear(st.dirtyVirtual)
	clear(st.dirtyTenants)
}

// indexTenant collects a tenant's virtual sites and policies.
func (st *state) indexTenant(tenant string) *tenantIndex {
	t := &tenantIndex{}
	for _, v := range st.virtual {
		if v.space.tenant == tenant {
			t.virtual = append(t.virtual, v)
		}
	}
	slices.SortFunc(t.virtual, compareVirtual)
	for _, r := range st.policies {
		n, ok := st.namespaces[r.key.namespace]
		if !ok || n.tenant != tenant || n.short != "system" || r.policy == nil {
			continue
		}
		if r.policy.Tenant != tenant {
			r.policy = r.policy.named(tenant)
		}
		for i, p := range r.variants {
			if p.Tenant != tenant {
				r.variants[i] = p.named(tenant)
			}
		}
		t.records = append(t.records, r)
		t.policies = append(t.policies, r.all()...)
		t.held = t.held || len(r.variants) > 0
	}
	slices.SortFunc(t.records, func(a, b *policyRecord) int { return comparePolicies(a.policy, b.policy) })
	slices.SortFunc(t.policies, comparePolicies)
	return t
}

func (p *Policy) named(tenant string) *Policy {
	out := *p
	out.Tenant = tenant
	return &out
}

func comparePolicies(a, b *Policy) int {
	return cmp.Or(strings.Compare(a.Kind, b.Kind), cmp.Compare(b.Priority, a.Priority), strings.Compare(a.Name, b.Name), cmp.Compare(a.Content, b.Content))
}

func compareVirtual(a, b *virtualRecord) int {
	return cmp.Or(strings.Compare(a.space.short, b.space.short), strings.Compare(a.key.name, b.key.name))
}

// placeSite matches a site against everything.
func (st *state) placeSite(r *siteRecord, n namespace) {
	was := r.virtual
	r.virtual, r.policies = nil, nil
	if n.short != "system" {
		if r.out != nil {
			r.out, st.order = nil, nil
		}
		return
	}
	if r.out == nil {
		st.order = nil
	}
	set := labels.Set(r.base.Labels)
	if index := st.byTenant[n.tenant]; index != nil && r.base.Listed() {
		for _, v := range index.virtual {
			if v.selector.Matches(set) {
				r.virtual = append(r.virtual, v)
			}
		}
		for _, record := range index.records {
			if p := record.of(r.key.name); p.selector.Matches(set) {
				r.policies = append(r.policies, p)
			}
		}
		if index.held {
			slices.SortFunc(r.policies, comparePolicies)
		}
	}
	counted := r.out != nil && r.out.Counts() == r.base.Counts()
	for _, v := range was {
		v.affected = v.affected || !counted || !slices.Contains(r.virtual, v)
	}
	for _, v := range r.virtual {
		v.affected = v.affected || !counted || !slices.Contains(was, v)
	}
	r.make(n.tenant)
}

// replaceIn matches a site against those virtual sites that changed.
func (st *state) replaceIn(r *siteRecord, list []*virtualRecord) {
	if !r.base.Listed() {
		return
	}
	var next []*virtualRecord // nil: as before
	for _, v := range list {
		i, in := slices.BinarySearchFunc(r.virtual, v, compareVirtual)
		is := in && r.virtual[i] == v // else it is a former one of the same name
		if belongs := !v.gone && v.selector.Matches(labels.Set(r.base.Labels)); belongs == is {
			continue
		}
		if next == nil {
			next = slices.Clone(r.virtual)
		}
		if is {
			next = slices.DeleteFunc(next, func(x *virtualRecord) bool { return x == v })
		} else {
			next = append(next, v)
		}
	}
	if next == nil {
		return
	}
	slices.SortFunc(next, compareVirtual)
	r.virtual = next
	r.make(r.out.ID.Tenant)
}

// make puts together what readers see.
func (r *siteRecord) make(tenant string) {
	site := r.base
	site.ID.Tenant, site.Policies = tenant, r.policies
	if r.own != nil {
		site.plans = append(site.plans, r.own)
	}
	names := make([]string, len(r.virtual))
	for i, v := range r.virtual {
		names[i] = v.name()
		if v.plan != nil && site.Counts() {
			site.plans = append(site.plans, v.plan)
		}
	}
	slices.Sort(names) // not as by namespace and name: '-' comes before '/'
	switch {
	case len(names) == 0:
	case r.out != nil && site.Counts() && slices.Equal(r.out.VirtualSites, names):
		site.VirtualSites = r.out.VirtualSites
	case site.Counts():
		site.VirtualSites = names
	default:
		site.would = names
	}
	r.out = &site
}

// virtualSites counts the members of those that something came to or left.
func (st *state) virtualSites(s *Snapshot) {
	affected := map[string]bool{}
	for _, v := range st.virtual {
		if v.space.tenant == "" {
			v.out = nil
			continue
		}
		if v.affected || v.out == nil {
			v.affected = true
			v.out = &VirtualSite{Tenant: v.space.tenant, Namespace: v.space.short, Name: v.key.name, Generation: v.generation, Description: v.description, Windows: v.windows, plan: v.plan}
			affected[v.space.tenant] = true
		}
		s.VirtualSites = append(s.VirtualSites, v.out)
	}
	sortVirtual(s.VirtualSites)
	if len(affected) == 0 {
		return
	}
	for i, r := range st.order {
		if !affected[r.out.ID.Tenant] {
			continue
		}
		for _, v := range r.virtual {
			switch {
			case !v.affected:
			case r.out.Counts():
				v.out.Members = append(v.out.Members, int32(i))
			default:
				v.out.Waiting++
			}
		}
	}
	for _, v := range st.virtual {
		v.affected = false
	}
}

func (st *state) policiesAndTenants(s *Snapshot) {
	names := map[string]bool{}
	for t := range st.tenants {
		names[t] = true
	}
	for t := range s.index {
		names[t] = true
	}
	for _, t := range slices.Sorted(maps.Keys(names)) {
		quotas, exists := st.tenants[t]
		s.Tenants = append(s.Tenants, &Tenant{Name: t, Exists: exists, Quotas: quotas})
	}
	for _, t := range slices.Sorted(maps.Keys(st.byTenant)) {
		index := st.byTenant[t]
		s.Policies = append(s.Policies, index.policies...)
		if len(index.policies)+len(index.virtual) == 0 && !names[t] {
			delete(st.byTenant, t)
		}
	}
}
