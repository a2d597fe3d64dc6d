package desired

import (
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired/render"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/software"
	"muster.dev/muster/internal/wire"
)

// KindSoftwarePolicy as the inventory has it.
const KindSoftwarePolicy = "SoftwarePolicy"

// releases renders which version of each component a site shall run. Its methods are
// called with the Store's lock held.
type releases struct {
	root func() []byte
	log  *slog.Logger
	// versions that were released, by tenant, then COMPONENT-VERSION.
	versions map[string]map[string]v1alpha1.SoftwareVersionSpec
	// made is what was rendered, by all that it depends on, so that a thousand sites that
	// shall run the same are encoded once.
	made map[wish]*render.List
}

// wish is what a rendered component depends on besides the versions and the root.
type wish struct {
	tenant    string
	component v1alpha1.SoftwareComponent
	policy    *inventory.Policy // nil: the site names the version itself
	pin       string
	zone      string // of the site, if the policy has windows
	retry     int
}

func newReleases(root func() []byte, log *slog.Logger) *releases {
	if root == nil {
		root = func() []byte { return nil }
	}
	return &releases{root: root, log: log, versions: map[string]map[string]v1alpha1.SoftwareVersionSpec{}, made: map[wish]*render.List{}}
}

// forget drops what was made of former policies, versions or roots.
func (r *releases) forget() { clear(r.made) }

// sameForSoftware tells whether both shall run the same, the policies that select them apart.
func sameForSoftware(a, b *inventory.Site) bool {
	return maps.Equal(a.Pins, b.Pins) && a.Retry == b.Retry && a.Labels[fleet.LabelTimeZone] == b.Labels[fleet.LabelTimeZone]
}

// SoftwareFor is what says which version of a component the site shall run: its own word,
// or else the strongest policy of the component. ok is false if nothing does.
func SoftwareFor(site *inventory.Site, component v1alpha1.SoftwareComponent) (pin string, policy *inventory.Policy, ok bool) {
	if pin = site.Pins[component]; pin != "" {
		return pin, nil, true
	}
	for _, p := range site.PoliciesOf(KindSoftwarePolicy) {
		if p.Object.(*v1alpha1.SoftwarePolicy).Spec.Component == component {
			return "", p, true
		}
	}
	return "", nil, false
}

// Render returns a list of one item for each component that something is said of.
func (r *releases) Render(site *inventory.Site) []*render.List {
	if !site.Counts() {
		return nil
	}
	var out []*render.List
	for _, name := range software.Components {
		component := v1alpha1.SoftwareComponent(name)
		pin, policy, ok := SoftwareFor(site, component)
		if !ok {
			continue
		}
		w := wish{tenant: site.ID.Tenant, component: component, policy: policy, pin: pin, retry: site.Retry}
		if policy != nil && len(policy.Object.(*v1alpha1.SoftwarePolicy).Spec.Windows) > 0 {
			if zone := fleet.TimeZone(site.Labels); zone != nil {
				w.zone = zone.String()
			}
		}
		list := r.made[w]
		if list == nil {
			list = r.render(w)
			r.made[w] = list
		}
		out = append(out, list)
	}
	return out
}

func (r *releases) render(w wish) *render.List {
	wanted := software.Wanted{Component: string(w.component), Version: w.pin, TimeZone: w.zone, Retry: w.retry}
	if w.policy != nil {
		spec := &w.policy.Object.(*v1alpha1.SoftwarePolicy).Spec
		wanted.Version, wanted.DeferBy, wanted.BytesPerSecond = spec.Version, spec.OperatorMayDefer.Duration, int(spec.BytesPerSecond)
		if spec.NotBefore != nil {
			wanted.NotBefore = spec.NotBefore.UTC()
		}
		for _, x := range spec.Windows {
			wanted.Windows = append(wanted.Windows, fleet.Window(x))
		}
	}
	if wanted.Version == "" { // the site alone knows what ran before
		for _, v := range r.versions[w.tenant] {
			if v.Component != w.component || v.Withdrawn == "" {
				continue
			}
			if wanted.WithdrawnOf == nil {
				wanted.WithdrawnOf = map[string]string{}
			}
			wanted.WithdrawnOf[v.Version] = v.Withdrawn
		}
	}
	if v, ok := r.versions[w.tenant][versionName(w.component, wanted.Version)]; ok {
		wanted.Withdrawn = v.Withdrawn
		for _, b := range v.Bundles {
			wanted.Files = append(wanted.Files, software.File{Architecture: b.Architecture, Target: b.Target, Digest: b.Digest, Size: b.Size})
		}
		for c, oldest := range v.Requires {
			if wanted.Requires == nil {
				wanted.Requires = map[string]string{}
			}
			wanted.Requires[string(c)] = oldest
		}
	}
	if root := r.root(); json.Valid(root) {
		wanted.Root = root
	} else if len(root) > 0 {
		r.log.Error("the root metadata of the repository of software is no JSON; sites get what they shall run without it, and those that never had one can't install anything", "bytes", len(root))
	}
	blob := wanted.Encode()
	return &render.List{Pieces: []*render.Piece{{Item: &wire.Item{Kind: software.Kind, Name: wanted.Component, Digest: wire.DigestOf(blob), Size: int64(len(blob))}, Blob: blob}}}
}

// versionName is the name of the SoftwareVersion of a version.
func versionName(component v1alpha1.SoftwareComponent, version string) string {
	return string(component) + "-" + version
}

// SetSoftwareVersion adds or changes a SoftwareVersion of the tenant. The spec is kept, and
// must not be changed.
func (s *Store) SetSoftwareVersion(tenant, name string, spec v1alpha1.SoftwareVersionSpec) {
	s.update(func() {
		if was, ok := s.software.versions[tenant][name]; ok && equality.Semantic.DeepEqual(was, spec) {
			return
		}
		if s.software.versions[tenant] == nil {
			s.software.versions[tenant] = map[string]v1alpha1.SoftwareVersionSpec{}
		}
		was := s.software.versions[tenant][name]
		s.software.versions[tenant][name] = spec
		s.releasedLocked(tenant, versionName(spec.Component, spec.Version), was.Withdrawn != spec.Withdrawn)
	})
}

// DeleteSoftwareVersion forgets one.
func (s *Store) DeleteSoftwareVersion(tenant, name string) {
	s.update(func() {
		was, ok := s.software.versions[tenant][name]
		if !ok {
			return
		}
		delete(s.software.versions[tenant], name)
		s.releasedLocked(tenant, name, was.Withdrawn != "")
	})
}

// SoftwareChanged tells that Options.SoftwareRoot answers otherwise than before.
func (s *Store) SoftwareChanged() {
	s.update(func() {
		s.software.forget()
		s.renderSoftwareLocked(func(*inventory.Site) bool { return true })
	})
}

// releasedLocked follows a change of a version: the sites that shall run it are rendered,
// and, if it is of whether it was withdrawn, those that shall run what ran before, which it
// may be.
func (s *Store) releasedLocked(tenant, name string, withdrawn bool) {
	maps.DeleteFunc(s.software.made, func(w wish, _ *render.List) bool {
		return w.tenant == tenant && strings.HasPrefix(name, string(w.component)+"-")
	})
	s.renderSoftwareLocked(func(site *inventory.Site) bool {
		return site.ID.Tenant == tenant && slices.ContainsFunc(software.Components, func(c string) bool {
			pin, policy, ok := SoftwareFor(site, v1alpha1.SoftwareComponent(c))
			if ok && policy != nil {
				pin = policy.Object.(*v1alpha1.SoftwarePolicy).Spec.Version
			}
			return ok && (versionName(v1alpha1.SoftwareComponent(c), pin) == name || withdrawn && pin == "" && strings.HasPrefix(name, c+"-"))
		})
	})
}

func (s *Store) renderSoftwareLocked(of func(*inventory.Site) bool) {
	if s.known == nil || !s.started {
		return
	}
	for _, site := range s.known.Sites {
		if site.Listed() && of(site) {
			s.renderLocked(site)
		}
	}
}

// Released tells whether a version of a component was released to a tenant, and why it was
// withdrawn; "": it was not.
func (s *Store) Released(tenant string, component v1alpha1.SoftwareComponent, version string) (withdrawn string, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	v, ok := s.software.versions[tenant][versionName(component, version)]
	return v.Withdrawn, ok
}

// SoftwareGenerations are the generations of a tenant's software policies, by name, that
// SoftwareDigest answers from. Never nil.
func (s *Store) SoftwareGenerations(tenant string) map[string]int64 {
	return s.generations(tenant, KindSoftwarePolicy)
}

// SoftwareDigest is that of the item which says what version of a component a site shall
// run; "": it has none, or is not known.
func (s *Store) SoftwareDigest(id fleet.SiteID, component v1alpha1.SoftwareComponent) string {
	for _, it := range s.State(id).GetItems() {
		if it.Kind == software.Kind && it.Name == string(component) {
			return it.Digest
		}
	}
	return ""
}
