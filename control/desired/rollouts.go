package desired

import (
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired/render"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/workload"
)

// touch calls fn with a namespace's space, if there is one, and notes whose sites are to
// be rendered.
func (w *workloads) touch(namespace string, fn func(*render.Space) render.Touched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sp := w.spaces[namespace]
	if sp == nil {
		return
	}
	before := sp.Objects()
	t := fn(sp)
	w.total += sp.Objects() - before
	if t.All {
		w.touchLocked(sp.Tenant())
	} else if len(t.Sites) > 0 {
		for _, site := range t.Sites {
			w.dirtySites[fleet.SiteID{Tenant: sp.Tenant(), Name: site}] = true
		}
		w.wakeUp()
	}
}

// SetRollout adds or changes a RolloutState, at a resource version; it does nothing in a
// namespace without a virtual Kubernetes. ended: nothing more comes of it by itself. The spec is
// kept, and must not be changed.
func (s *Store) SetRollout(namespace, name string, version uint64, spec *v1alpha1.RolloutStateSpec, ended bool) {
	s.kube.touch(namespace, func(sp *render.Space) render.Touched { return sp.SetRollout(name, version, spec, ended) })
}

// DeleteRollout removes one: what named it is not held any more.
func (s *Store) DeleteRollout(namespace, name string) {
	s.kube.touch(namespace, func(sp *render.Space) render.Touched { return sp.DeleteRollout(name) })
}

// NoRollout says that there is no such state, unless it has come meanwhile: objects wait
// for it.
func (s *Store) NoRollout(namespace, name string) {
	s.kube.touch(namespace, func(sp *render.Space) render.Touched { return sp.NoRollout(name) })
}

// UnknownRollouts are the states that objects name and that were not told of, by
// namespace: until they are, or NoRollout is called, those objects stay as they were.
func (s *Store) UnknownRollouts() map[string][]string {
	s.kube.mu.Lock()
	defer s.kube.mu.Unlock()
	out := map[string][]string{}
	for ns, sp := range s.kube.spaces {
		if names := sp.WaitsFor(); len(names) > 0 {
			out[ns] = names
		}
	}
	return out
}

// RolloutOf is the state under which Placed says where an item goes, and the resource
// version of it that counts; "": under none.
func (s *Store) RolloutOf(item string) (name string, version uint64) {
	_, _, ns, _, err := workload.ParseItemName(item)
	if err != nil {
		return "", 0
	}
	s.kube.mu.Lock()
	defer s.kube.mu.Unlock()
	if sp := s.kube.spaces[ns]; sp != nil {
		return sp.RolloutOf(item)
	}
	return "", 0
}

// Site is a site as it was when what it should have was rendered, such as PolicyHash; nil:
// it is not known. It must not be changed.
func (s *Store) Site(id fleet.SiteID) *inventory.Site {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.known == nil || !s.started {
		return nil
	}
	if i := s.known.Find(id.Tenant, id.Name); i >= 0 {
		return s.known.Sites[i]
	}
	return nil
}
