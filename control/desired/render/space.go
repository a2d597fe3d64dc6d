package render

import (
	"bytes"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// Piece is one object as a site gets it. It is never changed once made, and shared by all
// sites that get the same.
type Piece struct {
	Item *wire.Item
	Blob []byte
	// Secret: it is to be written nowhere that it has not been.
	Secret bool
	// Held: a rollout keeps it as it is here, which is not as the object is.
	Held bool
}

func newPiece(name string, blob []byte) *Piece {
	return &Piece{Item: &wire.Item{Kind: workload.Kind, Name: name, Digest: wire.DigestOf(blob), Size: int64(len(blob))}, Blob: blob}
}

// List is what a site gets of a namespace, sorted by the items' names. It is never changed
// once made; sites that get the same get the same *List.
type List struct{ Pieces []*Piece }

// Settings of a namespace.
type Settings struct {
	// DefaultVirtualSite as of VirtualSite; "": there is no virtual Kubernetes (any more).
	DefaultVirtualSite string
	PodSecurity        v1alpha1.PodSecurityLevel // "": Baseline
	Quotas             *v1alpha1.SiteQuotas      // nil: none but of node ports
}

// Space is what users want in one namespace. It renders what a site gets, and remembers
// what it rendered: a change of one object renders that one. Not safe for concurrent use.
type Space struct {
	tenant, namespace, short string
	settings                 Settings
	own                      []*Piece // what every site's namespace has
	objects                  map[string]*object
	sorted                   []*object // nil: to be sorted
	overrides                map[string]*override
	named                    map[string]int      // virtual sites → by how many objects
	bySite                   map[string][]string // site → overrides, sorted; nil: to be made
	lists, before            map[string]*List    // by what tells sites apart
	// gone are the versions at which objects were deleted, while what is there is listed.
	gone map[string]uint64

	rollouts map[string]*rollout
	// waiting are objects as they are now whose rollout is not known; what objects has of
	// them is as they were.
	waiting map[string]*object
	holding []*rollout // those that hold an object, sorted; nil: to be made
}

// NewSpace returns an empty one, for a Kubernetes namespace of the tenant.
func NewSpace(tenant, namespace string) *Space {
	short, _ := Short(tenant, namespace)
	return &Space{tenant: tenant, namespace: namespace, short: short, objects: map[string]*object{}, overrides: map[string]*override{}, named: map[string]int{}, lists: map[string]*List{}, rollouts: map[string]*rollout{}, waiting: map[string]*object{}}
}

// Tenant whose namespace it is.
func (s *Space) Tenant() string { return s.tenant }

// Objects is how many are carried.
func (s *Space) Objects() int { return len(s.objects) }

// Items are the names that those have on sites, in no order.
func (s *Space) Items() []string { return slices.Collect(maps.Keys(s.objects)) }

// VersionOf is the resource version of an item's object; false: it is not carried.
func (s *Space) VersionOf(item string) (uint64, bool) {
	o := s.objects[item]
	if o == nil {
		return 0, false
	}
	return o.version, true
}

// CreatedOf is when an item's object was made; zero: it is not carried.
func (s *Space) CreatedOf(item string) time.Time {
	if o := s.objects[item]; o != nil {
		return o.created
	}
	return time.Time{}
}

// changed has what was rendered looked at again.
func (s *Space) changed() {
	s.holding = nil
	if len(s.lists) > 0 {
		s.before, s.lists = s.lists, map[string]*List{}
	}
}

// Configure sets the settings, and says whether they differ from before.
func (s *Space) Configure(now Settings) bool {
	before := s.own
	s.own = s.namespaceObjects(now)
	same := s.settings.DefaultVirtualSite == now.DefaultVirtualSite && slices.EqualFunc(before, s.own, func(a, b *Piece) bool { return a.Item.Digest == b.Item.Digest })
	s.settings = now
	if same {
		s.own = before
		return false
	}
	s.changed()
	return true
}

// Set adds or changes an object, and says whether that makes a difference for any site.
// The object is taken over. version is its resource version; an older one than what is
// there is ignored. One whose rollout is not known stays as it was until it is. With bad annotations it is carried all the same, and they are the error:
// virtual sites that can't be read are none, the others count as not written.
func (s *Space) Set(kind offered.Kind, version uint64, content map[string]any) (bool, error) {
	meta := child(content, "metadata")
	name, _ := meta["name"].(string)
	made, _ := meta["creationTimestamp"].(string)
	key := s.itemName(kind, name)
	old := s.objects[key]
	if old != nil && version != 0 && version <= old.version {
		return false, nil
	}
	if version != 0 && version <= s.gone[key] {
		return false, nil
	}
	if w := s.waiting[key]; w != nil && version != 0 && version <= w.version {
		return false, nil
	}
	if !Carried(kind, content) {
		return s.Delete(kind, name, version), nil
	}
	o, err := newObject(kind, s.namespace, s.short, content)
	if o == nil {
		return false, err
	}
	o.version = version
	o.created, _ = time.Parse(time.RFC3339, made) // without one it is not known
	if o.rollout != "" && s.rollouts[o.rollout] == nil {
		s.waiting[key] = o
		return false, err
	}
	delete(s.waiting, key)
	return s.take(o), err
}

// take puts an object in the place of what it was, and says whether that makes a
// difference for any site.
func (s *Space) take(o *object) bool {
	key := o.name
	old := s.objects[key]
	if old != nil && old.same(o) {
		old.version, old.created = o.version, o.created
		return false
	}
	if old != nil {
		s.forget(old)
		if bytes.Equal(old.base, o.base) && old.flavor == o.flavor {
			o.base, o.variants = old.base, old.variants
			if old.rollout != o.rollout {
				o.dropContents()
			}
		}
		i := sort.Search(len(s.sorted), func(i int) bool { return s.sorted[i].name >= key })
		if s.sorted != nil {
			s.sorted[i] = o
		}
	} else {
		s.sorted = nil
	}
	s.objects[key] = o
	for _, w := range o.where {
		s.named[w]++
	}
	s.changed()
	return true
}

// Loading says that objects are being listed beside the watch that brings changes: until
// Loaded, what was deleted meanwhile does not come back by the list.
func (s *Space) Loading() { s.gone = map[string]uint64{} }

// Loaded ends Loading.
func (s *Space) Loaded() { s.gone = nil }

// Delete removes an object, at a resource version, and says whether it was there.
func (s *Space) Delete(kind offered.Kind, name string, version uint64) bool {
	key := s.itemName(kind, name)
	if s.gone != nil {
		s.gone[key] = max(version, s.gone[key])
	}
	delete(s.waiting, key)
	o := s.objects[key]
	if o == nil {
		return false
	}
	s.forget(o)
	delete(s.objects, key)
	s.sorted = nil
	s.changed()
	return true
}

// DeleteKind removes all objects of a kind but those named, and says whether any was
// there.
func (s *Space) DeleteKind(kind offered.Kind, but map[string]bool) bool {
	any := false
	for _, o := range s.all() {
		if o.kind.GroupKind() != kind.GroupKind() {
			continue
		}
		if name := o.name[strings.LastIndexByte(o.name, '/')+1:]; !but[name] {
			any = s.Delete(kind, name, 0) || any
		}
	}
	return any
}

// Reread has the objects of a kind taken again though their versions are known: as when
// they come in another version of their API.
func (s *Space) Reread(kind offered.Kind) {
	for _, o := range s.all() {
		if o.kind.GroupKind() == kind.GroupKind() {
			o.version = 0
		}
	}
}

// all are the objects as they are rendered, and those that wait.
func (s *Space) all() []*object {
	return slices.AppendSeq(slices.Collect(maps.Values(s.objects)), maps.Values(s.waiting))
}

func (s *Space) forget(o *object) {
	for _, w := range o.where {
		if s.named[w]--; s.named[w] == 0 {
			delete(s.named, w)
		}
	}
}

// SetOverride adds or changes one, and says whether it differs.
func (s *Space) SetOverride(name string, spec *v1alpha1.OverrideSpec) bool {
	o := &override{sites: slices.Sorted(slices.Values(spec.SiteList)), kind: spec.Kind, spec: spec.Spec.Raw}
	if old := s.overrides[name]; old != nil && slices.Equal(old.sites, o.sites) && old.kind == o.kind && bytes.Equal(old.spec, o.spec) {
		return false
	}
	s.dropVariants(name)
	s.overrides[name] = o
	return true
}

// DeleteOverride removes one, and says whether it was there.
func (s *Space) DeleteOverride(name string) bool {
	if s.overrides[name] == nil {
		return false
	}
	s.dropVariants(name)
	delete(s.overrides, name)
	return true
}

func (s *Space) dropVariants(name string) {
	for _, o := range s.objects {
		if slices.Contains(o.overrides, name) {
			delete(o.variants, variant{override: name})
			delete(o.variants, variant{override: name, scaled: true})
		}
	}
	s.bySite = nil
	s.changed()
}

func (s *Space) itemName(kind offered.Kind, name string) string {
	return workload.ItemName(kind.Group, kind.Kind, s.namespace, name)
}

// On is what a site gets: its name and the virtual sites that it belongs to, as keys; nil:
// nothing, not even the namespace.
func (s *Space) On(site string, virtualSites []string) *List {
	if s.settings.DefaultVirtualSite == "" {
		return nil
	}
	var in []string
	for _, key := range virtualSites {
		if key == s.settings.DefaultVirtualSite || s.named[key] > 0 {
			in = append(in, key)
		}
	}
	if len(in) == 0 {
		return nil
	}
	overrides := s.overridesOf(site)
	digits := s.digitsOf(site)
	kind := strings.Join(in, ",") + "|" + strings.Join(overrides, ",") + "|" + digits
	if l := s.lists[kind]; l != nil {
		return l
	}
	l := s.list(in, overrides, digits)
	if was := s.before[kind]; was != nil && slices.Equal(was.Pieces, l.Pieces) {
		l = was
	}
	s.lists[kind] = l
	return l
}

// Where are the virtual sites whose sites get an item's object, as keys, sorted; nil: it is
// not carried.
func (s *Space) Where(item string) []string {
	o := s.objects[item]
	switch {
	case o == nil || s.settings.DefaultVirtualSite == "":
		return nil
	case o.where != nil:
		return slices.Clone(o.where)
	}
	out := []string{s.settings.DefaultVirtualSite}
	if o.everywhere() {
		out = slices.AppendSeq(out, maps.Keys(s.named))
		slices.Sort(out)
	}
	return slices.Compact(out)
}

// Reaches tells whether a site of these virtual sites gets anything.
func (s *Space) Reaches(virtualSites []string) bool {
	return s.settings.DefaultVirtualSite != "" && slices.ContainsFunc(virtualSites, func(key string) bool { return key == s.settings.DefaultVirtualSite || s.named[key] > 0 })
}

// Settled forgets what was rendered before the last change; to be called once every site
// has been asked for.
func (s *Space) Settled() { s.before = nil }

func (s *Space) overridesOf(site string) []string {
	if len(s.overrides) == 0 {
		return nil
	}
	if s.bySite == nil {
		s.bySite = map[string][]string{}
		for _, name := range slices.Sorted(maps.Keys(s.overrides)) {
			for _, site := range s.overrides[name].sites {
				s.bySite[site] = append(s.bySite[site], name)
			}
		}
	}
	return s.bySite[site]
}

// list renders for sites that belong to these of the virtual sites, that these Overrides
// name, and that have these contents of what is held.
func (s *Space) list(in, overrides []string, digits string) *List {
	if s.sorted == nil {
		s.sorted = slices.SortedFunc(maps.Values(s.objects), func(a, b *object) int { return strings.Compare(a.name, b.name) })
	}
	byDefault := slices.Contains(in, s.settings.DefaultVirtualSite)
	var here []*object
	scaled := map[string]bool{}
	for _, o := range s.sorted {
		switch {
		case o.where != nil:
			if !slices.ContainsFunc(o.where, func(w string) bool { return slices.Contains(in, w) }) {
				continue
			}
		case !o.everywhere() && !byDefault:
			continue
		}
		here = append(here, o)
		if o.scales != "" {
			scaled[o.scales] = true
		}
	}
	out := &List{Pieces: slices.Grow(slices.Clone(s.own), len(here))}
	for _, o := range here {
		v := variant{scaled: scaled[o.name]}
		var by *override
		for _, name := range o.overrides {
			if candidate := s.overrides[name]; candidate != nil && slices.Contains(overrides, name) && (candidate.kind == "" || candidate.kind == o.kind.Kind) {
				v.override, by = name, candidate
				break
			}
		}
		if by == nil {
			v.content = s.contentOf(o, digits)
		}
		out.Pieces = append(out.Pieces, s.piece(o, v, by))
	}
	slices.SortFunc(out.Pieces, func(a, b *Piece) int { return strings.Compare(a.Item.Name, b.Item.Name) })
	return out
}
