package render

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/hold"
)

// rollout is a RolloutState, as far as it says what sites get.
type rollout struct {
	name    string
	version uint64
	// absent: there is none of this name, which is as good as one that holds nothing.
	absent bool
	held   bool
	ended  bool
	spec   *v1alpha1.RolloutStateSpec // not changed
	has    map[string]int             // site → content; a site that is not in it: 0
}

// Touched is who a change of a rollout matters to.
type Touched struct {
	All   bool     // sites of the namespace
	Sites []string // these, if not all
}

// SetRollout adds or changes a RolloutState at a resource version; an older one than what
// is there is ignored. ended: nothing more comes of it by itself. The spec is kept, and must
// not be changed.
//
// Objects that waited for it are taken. Where nothing but the contents that sites have
// differ, those sites are all that is touched.
func (s *Space) SetRollout(name string, version uint64, spec *v1alpha1.RolloutStateSpec, ended bool) Touched {
	old := s.rollouts[name]
	if old != nil && version != 0 && version <= old.version {
		return Touched{}
	}
	now := &rollout{name: name, version: version, held: spec.Held, ended: ended, spec: spec, has: spec.Assigned()}
	s.rollouts[name] = now
	if old != nil && !old.absent && old.held == now.held && old.ended == now.ended && sameContents(old.spec, now.spec) {
		if !now.held || !s.names(name) {
			return Touched{}
		}
		if i := slices.Index(s.holding, old); i >= 0 {
			s.holding[i] = now
		}
		return Touched{Sites: differ(old.has, now.has)}
	}
	return Touched{All: s.rolloutChanged(name)}
}

// DeleteRollout says that there is no such state any more: what names it is not held.
func (s *Space) DeleteRollout(name string) Touched {
	if s.rollouts[name] == nil && !s.names(name) {
		return Touched{}
	}
	return s.absent(name)
}

// NoRollout says that there is no such state, to objects that wait for it.
func (s *Space) NoRollout(name string) Touched {
	if s.rollouts[name] != nil {
		return Touched{}
	}
	return s.absent(name)
}

func (s *Space) absent(name string) Touched {
	s.rollouts[name] = &rollout{name: name, absent: true}
	out := Touched{All: s.rolloutChanged(name)}
	if !s.names(name) {
		delete(s.rollouts, name)
	}
	return out
}

// WaitsFor are the states that objects name and that are not known, sorted.
func (s *Space) WaitsFor() []string {
	if len(s.waiting) == 0 {
		return nil
	}
	names := map[string]bool{}
	for _, o := range s.waiting {
		names[o.rollout] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// RolloutOf is the state under which an item is rendered, and the resource version of it
// that counts; "": under none.
func (s *Space) RolloutOf(item string) (name string, version uint64) {
	o := s.objects[item]
	if o == nil || o.rollout == "" {
		return "", 0
	}
	if r := s.rollouts[o.rollout]; r != nil {
		version = r.version
	}
	return o.rollout, version
}

// Over tells whether the rollout that holds an item has ended: sites that do not have what
// the object is now will not get it.
func (s *Space) Over(item string) bool {
	o := s.objects[item]
	if o == nil {
		return false
	}
	r := s.rollouts[o.rollout]
	return r != nil && r.held && r.ended
}

// names tells whether an object names a state.
func (s *Space) names(rollout string) bool {
	for _, o := range s.objects {
		if o.rollout == rollout {
			return true
		}
	}
	for _, o := range s.waiting {
		if o.rollout == rollout {
			return true
		}
	}
	return false
}

// rolloutChanged takes what waited for a state and has what it holds rendered again; it
// says whether there is any.
func (s *Space) rolloutChanged(name string) bool {
	any := false
	for _, o := range s.objects {
		if o.rollout == name {
			o.dropContents()
			any = true
		}
	}
	for key, o := range s.waiting {
		if o.rollout == name {
			delete(s.waiting, key)
			any = s.take(o) || any
		}
	}
	if any {
		s.changed()
	}
	return any
}

func (o *object) dropContents() {
	maps.DeleteFunc(o.variants, func(v variant, _ *Piece) bool { return v.content > 0 })
}

func sameContents(a, b *v1alpha1.RolloutStateSpec) bool {
	return slices.EqualFunc(a.Objects, b.Objects, func(x, y v1alpha1.RolloutObject) bool {
		if x.APIVersion != y.APIVersion || x.Kind != y.Kind || x.Name != y.Name || len(x.Contents) != len(y.Contents) {
			return false
		}
		for i := range x.Contents {
			if !bytes.Equal(x.Contents[i].Raw, y.Contents[i].Raw) {
				return false
			}
		}
		return true
	})
}

// differ are the sites of which two assignments say something else, sorted.
func differ(a, b map[string]int) []string {
	var out []string
	for site, d := range a {
		if b[site] != d {
			out = append(out, site)
		}
	}
	for site, d := range b {
		if _, was := a[site]; !was && d != 0 {
			out = append(out, site)
		}
	}
	slices.Sort(out)
	return out
}

// digitsOf tells which contents a site has of what is held: a digit for each of holding.
func (s *Space) digitsOf(site string) string {
	if s.holding == nil {
		s.holding = []*rollout{}
		seen := map[string]bool{}
		for _, o := range s.objects {
			if r := s.rollouts[o.rollout]; r != nil && r.held && !seen[r.name] {
				seen[r.name] = true
				s.holding = append(s.holding, r)
			}
		}
		slices.SortFunc(s.holding, func(a, b *rollout) int { return strings.Compare(a.name, b.name) })
	}
	if len(s.holding) == 0 {
		return ""
	}
	digits := make([]byte, len(s.holding))
	for i, r := range s.holding {
		digits[i] = '0' + byte(r.has[site])
	}
	return string(digits)
}

// contentOf is the content of an object, from 1, for sites with these digits; 0: its own.
func (s *Space) contentOf(o *object, digits string) int {
	if o.rollout == "" {
		return 0
	}
	for i, r := range s.holding {
		if r.name != o.rollout {
			continue
		}
		held := hold.Find(r.spec, o.kind, o.item())
		if held == nil || len(held.Contents) == 0 {
			return 0
		}
		if d := int(digits[i] - '0'); d < len(held.Contents) {
			return d + 1
		}
		return 1
	}
	return 0
}

// item is the object's name.
func (o *object) item() string { return o.name[strings.LastIndexByte(o.name, '/')+1:] }

// withContent is the object as sites get it that have this content of it.
func (s *Space) withContent(o *object, content int) ([]byte, error) {
	live := map[string]any{}
	if err := utiljson.Unmarshal(o.live, &live); err != nil {
		return nil, err
	}
	held := hold.Find(s.rollouts[o.rollout].spec, o.kind, o.item())
	with, err := hold.With(o.kind, live, held.Contents[content])
	if err != nil {
		return nil, err
	}
	return o.encode(s.namespace, with)
}
