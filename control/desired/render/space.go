package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

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
	Quotas             *v1alpha1.SiteQuotas      // nil: no bounds
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

// object is one of the users' objects, as far as it is needed to render it for any site.
type object struct {
	kind  offered.Kind
	name  string // of the item
	base  []byte // as sites get it that no Override names
	where []string
	// overrides in their order; flavor as asked for.
	overrides []string
	flavor    string
	// scales is the item whose replicas it sets, of an autoscaler.
	scales   string
	version  uint64
	variants map[variant]*Piece
	// rollout is the RolloutState that it names, live then what it was made of, as JSON.
	rollout string
	live    []byte
}

type variant struct {
	override string
	scaled   bool
	content  int // of a rollout, from 1; 0: its own
}

type override struct {
	sites []string // sorted
	kind  string
	spec  []byte // a JSON object
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

// VersionOf is the resource version of an item's object; false: it is not carried.
func (s *Space) VersionOf(item string) (uint64, bool) {
	o := s.objects[item]
	if o == nil {
		return 0, false
	}
	return o.version, true
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
	name, _ := child(content, "metadata")["name"].(string)
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
		old.version = o.version
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

func (o *object) same(p *object) bool {
	return bytes.Equal(o.base, p.base) && o.rollout == p.rollout && o.flavor == p.flavor && slices.Equal(o.where, p.where) && slices.Equal(o.overrides, p.overrides)
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

// newObject reads an object. With an error it may be nil, or be what is left without what
// could not be read.
func newObject(kind offered.Kind, namespace, short string, content map[string]any) (*object, error) {
	meta := child(content, "metadata")
	name, _ := meta["name"].(string)
	if name == "" {
		return nil, fmt.Errorf("a %s without a name", kind.Kind)
	}
	o := &object{kind: kind, name: workload.ItemName(kind.Group, kind.Kind, namespace, name), variants: map[variant]*Piece{}}
	var problem error
	note := func(key string, err error) {
		if err != nil && problem == nil {
			problem = fmt.Errorf("annotation %s: %w", key, err)
		}
	}
	annotations := child(meta, "annotations")
	if v, ok := annotations[v1alpha1.AnnotationRollout].(string); ok && v != "" && !kind.Secret {
		live, err := json.Marshal(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.name, err)
		}
		o.rollout, o.live = v, live
	}
	if v, ok := annotations[workload.VirtualSites].(string); ok {
		where, err := VirtualSites(v, short)
		note(workload.VirtualSites, err)
		o.where = append([]string{}, where...) // not nil: what can't be read goes nowhere
	}
	if v, ok := annotations[workload.Overrides].(string); ok && kind.Spec {
		names, err := Overrides(v)
		note(workload.Overrides, err)
		o.overrides = names
	}
	if v, ok := annotations[workload.Flavor].(string); ok && kind.Template != nil {
		_, err := workload.ParseFlavor(v)
		note(workload.Flavor, err)
		if err == nil {
			o.flavor = v
		}
	}
	if kind.Kind == "HorizontalPodAutoscaler" {
		ref := child(content, "spec", "scaleTargetRef")
		refKind, _ := ref["kind"].(string)
		refName, _ := ref["name"].(string)
		apiVersion, _ := ref["apiVersion"].(string)
		if gv, err := schema.ParseGroupVersion(apiVersion); err == nil {
			o.scales = workload.ItemName(gv.Group, refKind, namespace, refName)
		}
	}
	base, err := o.encode(namespace, content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.name, err)
	}
	o.base = base
	return o, problem
}

// encode is an object as sites get it; it is changed.
func (o *object) encode(namespace string, content map[string]any) ([]byte, error) {
	strip(o.kind, content)
	child(content, "metadata")["namespace"] = namespace
	if o.kind.Template != nil {
		if err := size(child(content, o.kind.Template...), o.flavor); err != nil {
			return nil, err
		}
	}
	return json.Marshal(content)
}

// piece is the object with the spec of an Override, the content that a rollout holds, or
// its own, and without replicas where an autoscaler sets them.
func (s *Space) piece(o *object, v variant, by *override) *Piece {
	if p := o.variants[v]; p != nil {
		return p
	}
	blob := o.base
	if v.content > 0 {
		b, err := s.withContent(o, v.content-1)
		if err != nil || bytes.Equal(b, o.base) {
			v.content = 0
			return s.piece(o, v, by)
		}
		blob = b
	}
	if by != nil || v.scaled {
		if b, err := o.vary(blob, v, by); err == nil {
			blob = b
		}
	}
	p := newPiece(o.name, blob)
	o.variants[v] = p
	return p
}

func (o *object) vary(base []byte, v variant, by *override) ([]byte, error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(base, &top); err != nil {
		return nil, err
	}
	from := []byte(top["spec"])
	if by != nil {
		from = by.spec
	}
	spec := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(from))
	d.UseNumber()
	if err := d.Decode(&spec); err != nil || spec == nil {
		return nil, fmt.Errorf("the Override's spec is no object: %w", err)
	}
	if by != nil && o.kind.Template != nil {
		if err := size(child(map[string]any{"spec": spec}, o.kind.Template...), o.flavor); err != nil {
			return nil, err
		}
	}
	if v.scaled {
		delete(spec, "replicas")
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	top["spec"] = raw
	return json.Marshal(top)
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
		// What runs goes where it is told to. What it needs beside it, such as a ConfigMap,
		// goes wherever anything of the namespace goes.
		case o.kind.Template != nil || o.kind.Custom:
			if !byDefault {
				continue
			}
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
