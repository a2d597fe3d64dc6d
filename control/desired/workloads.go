package desired

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired/render"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/workload"
)

// Changes of workloads are gathered until none came for quiet, and for gather at most: a
// chart's objects come one by one and shall reach a site as one list.
const (
	quiet  = 60 * time.Millisecond
	gather = 200 * time.Millisecond
)

// workloads renders the objects of virtual Kubernetes. It has a lock of its own:
// objects are read and encoded while others ask the Store. The Store's lock is taken first.
type workloads struct {
	wake chan struct{}

	mu     sync.Mutex
	spaces map[string]*render.Space // by namespace in Kubernetes
	of     map[string][]string      // tenant → its namespaces with a space, sorted
	dirty  map[string]bool          // tenants whose sites are to be rendered
	// dirtySites are those to be rendered of other tenants.
	dirtySites map[fleet.SiteID]bool
	total      int
}

func newWorkloads() *workloads {
	return &workloads{wake: make(chan struct{}, 1), spaces: map[string]*render.Space{}, of: map[string][]string{}, dirty: map[string]bool{}, dirtySites: map[fleet.SiteID]bool{}}
}

// Render returns a list for each namespace that has something for the site. Sites that get
// the same get the same lists, and a list that changes is another one.
func (w *workloads) Render(site *inventory.Site) []*render.List {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*render.List
	for _, ns := range w.of[site.ID.Tenant] {
		if l := w.spaces[ns].On(site.ID.Name, site.VirtualSites); l != nil {
			out = append(out, l)
		}
	}
	return out
}

func (w *workloads) objects() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

// in calls fn with a namespace's space, if there is one, and notes whether it changed.
func (w *workloads) in(namespace string, fn func(*render.Space) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sp := w.spaces[namespace]
	if sp == nil {
		return
	}
	before := sp.Objects()
	if fn(sp) {
		w.touchLocked(sp.Tenant())
	}
	w.total += sp.Objects() - before
}

func (w *workloads) touchLocked(tenant string) {
	w.dirty[tenant] = true
	w.wakeUp()
}

func (w *workloads) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// ConfigureWorkloads says which namespace has a virtual Kubernetes, and how it is set. It
// returns whether the namespace is new: its objects are to be told then.
func (s *Store) ConfigureWorkloads(tenant, namespace string, now render.Settings) (isNew bool) {
	w := s.kube
	w.mu.Lock()
	defer w.mu.Unlock()
	sp := w.spaces[namespace]
	if sp != nil && sp.Tenant() != tenant {
		w.removeLocked(namespace)
		sp = nil
	}
	if isNew = sp == nil; isNew {
		sp = render.NewSpace(tenant, namespace)
		w.spaces[namespace] = sp
		w.of[tenant] = append(slices.Clone(w.of[tenant]), namespace)
		slices.Sort(w.of[tenant])
	}
	if sp.Configure(now) {
		w.touchLocked(tenant)
	}
	return isNew
}

// RemoveWorkloads says that a namespace has no virtual Kubernetes any more: its objects go
// from all sites.
func (s *Store) RemoveWorkloads(namespace string) {
	s.kube.mu.Lock()
	defer s.kube.mu.Unlock()
	s.kube.removeLocked(namespace)
}

func (w *workloads) removeLocked(namespace string) {
	sp := w.spaces[namespace]
	if sp == nil {
		return
	}
	tenant := sp.Tenant()
	w.total -= sp.Objects()
	delete(w.spaces, namespace)
	w.of[tenant] = slices.DeleteFunc(slices.Clone(w.of[tenant]), func(ns string) bool { return ns == namespace })
	if len(w.of[tenant]) == 0 {
		delete(w.of, tenant)
	}
	w.touchLocked(tenant)
}

// tenantOf a namespace with a virtual Kubernetes.
func (s *Store) tenantOf(namespace string) string {
	s.kube.mu.Lock()
	defer s.kube.mu.Unlock()
	if sp := s.kube.spaces[namespace]; sp != nil {
		return sp.Tenant()
	}
	return ""
}

// holdTenants has their sites stay as they are, by 1, and be rendered again, by -1. What is
// held twice has to be let go twice.
func (s *Store) holdTenants(tenants map[string]bool, by int) {
	s.update(func() {
		for t := range tenants {
			s.heldTenants[t] += by
			if s.heldTenants[t] > 0 {
				continue
			}
			delete(s.heldTenants, t)
			if !s.started || s.known == nil {
				continue
			}
			for _, site := range s.known.SitesOf(t) {
				if site.Listed() {
					s.renderLocked(site)
				}
			}
		}
	})
}

// WorkloadNamespaces are those with a virtual Kubernetes, sorted.
func (s *Store) WorkloadNamespaces() []string {
	s.kube.mu.Lock()
	defer s.kube.mu.Unlock()
	return slices.Sorted(maps.Keys(s.kube.spaces))
}

// SetWorkload adds or changes an object, which is taken over, at a resource version; it
// does nothing in a namespace without a virtual Kubernetes. The error says what of its
// annotations can't be read; the rest counts.
func (s *Store) SetWorkload(kind offered.Kind, namespace string, version uint64, object map[string]any) (err error) {
	s.kube.in(namespace, func(sp *render.Space) (changed bool) {
		changed, err = sp.Set(kind, version, object)
		return changed
	})
	return err
}

// DeleteWorkload removes an object.
func (s *Store) DeleteWorkload(kind offered.Kind, namespace, name string, version uint64) {
	s.kube.in(namespace, func(sp *render.Space) bool { return sp.Delete(kind, name, version) })
}

// KeepWorkloads removes all objects of a kind but these, by namespace and name; in one
// namespace or, "", in all.
func (s *Store) KeepWorkloads(kind offered.Kind, namespace string, names map[string]map[string]bool) {
	for _, ns := range s.WorkloadNamespaces() {
		if namespace != "" && ns != namespace {
			continue
		}
		s.kube.in(ns, func(sp *render.Space) bool { return sp.DeleteKind(kind, names[ns]) })
	}
}

// RereadWorkloads has all objects of a kind taken again.
func (s *Store) RereadWorkloads(kind offered.Kind) {
	for _, ns := range s.WorkloadNamespaces() {
		s.kube.in(ns, func(sp *render.Space) bool { sp.Reread(kind); return false })
	}
}

// LoadWorkloads calls fn, which tells all objects of a namespace while the watch goes on.
func (s *Store) LoadWorkloads(namespace string, fn func() error) error {
	s.kube.in(namespace, func(sp *render.Space) bool { sp.Loading(); return false })
	defer s.kube.in(namespace, func(sp *render.Space) bool { sp.Loaded(); return false })
	return fn()
}

// SetOverride adds or changes an Override.
func (s *Store) SetOverride(namespace, name string, spec *v1alpha1.OverrideSpec) {
	s.kube.in(namespace, func(sp *render.Space) bool { return sp.SetOverride(name, spec) })
}

// DeleteOverride removes one.
func (s *Store) DeleteOverride(namespace, name string) {
	s.kube.in(namespace, func(sp *render.Space) bool { return sp.DeleteOverride(name) })
}

// Reach is where a namespace's objects go, and how many there are.
type Reach struct {
	Sites   []*inventory.Site
	Objects int
	// TooMany are those of the sites that would hold more than a site takes, sorted: what
	// they have stays as it was.
	TooMany []string
}

// Workloads tells what a namespace with a virtual Kubernetes reaches; false: there is none.
func (s *Store) Workloads(namespace string) (Reach, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	known := s.known
	w := s.kube
	w.mu.Lock()
	defer w.mu.Unlock()
	sp := w.spaces[namespace]
	if sp == nil {
		return Reach{}, false
	}
	r := Reach{Objects: sp.Objects()}
	if known != nil {
		for _, site := range known.SitesOf(sp.Tenant()) {
			if site.Listed() && sp.Reaches(site.VirtualSites) {
				r.Sites = append(r.Sites, site)
				if s.tooMany[site.ID] > 0 {
					r.TooMany = append(r.TooMany, site.ID.Name)
				}
			}
		}
	}
	return r, true
}

// WorkloadItems are the items of a namespace that are carried to sites.
func (s *Store) WorkloadItems(namespace string) []string {
	s.kube.mu.Lock()
	defer s.kube.mu.Unlock()
	if sp := s.kube.spaces[namespace]; sp != nil {
		return sp.Items()
	}
	return nil
}

// SubscribeWorkloads calls fn with each tenant in which what is carried to sites changed,
// after they were rendered; fn must be quick. It is called before Run.
func (s *Store) SubscribeWorkloads(fn func(tenant string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workloadSubs = append(s.workloadSubs, fn)
}

// runWorkloads renders the sites of tenants whose objects changed, until ctx ends.
func (s *Store) runWorkloads(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kube.wake:
		}
		latest := time.NewTimer(gather)
		still := time.NewTimer(quiet)
	gathering:
		for {
			select {
			case <-ctx.Done():
				return
			case <-latest.C:
				break gathering
			case <-still.C:
				break gathering
			case <-s.kube.wake:
				still.Reset(quiet)
			}
		}
		latest.Stop()
		still.Stop()
		s.renderWorkloads()
	}
}

// renderWorkloads renders them now.
func (s *Store) renderWorkloads() {
	if !s.Started() {
		return // Start renders all there is
	}
	w := s.kube
	w.mu.Lock()
	dirty, sites := w.dirty, w.dirtySites
	w.dirty, w.dirtySites = map[string]bool{}, map[fleet.SiteID]bool{}
	w.mu.Unlock()
	s.update(func() {
		for tenant := range dirty {
			if s.known == nil {
				continue
			}
			for _, site := range s.known.SitesOf(tenant) {
				if site.Listed() {
					s.renderLocked(site)
				}
			}
		}
		for id := range sites {
			if dirty[id.Tenant] || s.known == nil {
				continue
			}
			if i := s.known.Find(id.Tenant, id.Name); i >= 0 && s.known.Sites[i].Listed() {
				s.renderLocked(s.known.Sites[i])
			}
		}
	})
	w.mu.Lock()
	for tenant := range dirty {
		for _, ns := range w.of[tenant] {
			w.spaces[ns].Settled()
		}
	}
	w.mu.Unlock()
	s.mu.RLock()
	subs := s.workloadSubs
	s.mu.RUnlock()
	for id := range sites {
		dirty[id.Tenant] = true
	}
	for tenant := range dirty {
		for _, fn := range subs {
			fn(tenant)
		}
	}
}

// Placement is where an object is carried to.
type Placement struct {
	Version uint64                  // the resource version that was rendered
	Created time.Time               // of that object
	Digests map[fleet.SiteID]string // site → the blob that it should have
	// Held are those of the sites at which a rollout keeps what was there before the object
	// became what it is; Over: it has ended, and they will not get it.
	Held map[fleet.SiteID]bool
	Over bool
	// VirtualSites that it goes to, by its annotation or without, NAMESPACE/NAME as users type
	// them, sorted.
	VirtualSites []string
}

// Placed tells where an item goes; false: it is not carried.
func (s *Store) Placed(item string) (Placement, bool) {
	_, _, ns, _, err := workload.ParseItemName(item)
	if err != nil {
		return Placement{}, false
	}
	s.mu.RLock()
	known := s.known
	s.mu.RUnlock()
	w := s.kube
	w.mu.Lock()
	defer w.mu.Unlock()
	sp := w.spaces[ns]
	if sp == nil || known == nil {
		return Placement{}, false
	}
	version, ok := sp.VersionOf(item)
	if !ok {
		return Placement{}, false
	}
	p := Placement{Version: version, Created: sp.CreatedOf(item), Digests: map[fleet.SiteID]string{}, Held: map[fleet.SiteID]bool{}, Over: sp.Over(item), VirtualSites: sp.Where(item)}
	pieces := map[*render.List]*render.Piece{} // sites that hold the same share a list
	for _, site := range known.SitesOf(sp.Tenant()) {
		if !site.Listed() {
			continue
		}
		list := sp.On(site.ID.Name, site.VirtualSites)
		if list == nil {
			continue
		}
		piece, known := pieces[list]
		if !known {
			if i := slices.IndexFunc(list.Pieces, func(p *render.Piece) bool { return p.Item.Name == item }); i >= 0 {
				piece = list.Pieces[i]
			}
			pieces[list] = piece
		}
		if piece == nil {
			continue
		}
		if p.Digests[site.ID] = piece.Item.Digest; piece.Held {
			p.Held[site.ID] = true
		}
	}
	return p, true
}
