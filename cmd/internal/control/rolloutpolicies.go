package control

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout"
	"muster.dev/muster/control/rollout/decide"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

// policySites tells which sites have a policy under a rollout, or may have, and what they
// make of it.
type policySites struct {
	kind, name string
	state      *v1alpha1.RolloutState // nil: it is under none yet
	// rendered is a site as it was when what it should have was rendered; nil: it was not.
	rendered func(fleet.SiteID) *inventory.Site
	// told is what a site says of what it should have, and why it failed.
	told func(*inventory.Site) (decide.Applied, string)
}

// of looks at sites, which are sorted by name.
func (p *policySites) of(sites []*inventory.Site) []rollout.Site {
	contents := p.selectors()
	var has map[string]int
	if p.state != nil {
		has = p.state.Spec.Assigned()
	}
	var out []rollout.Site
	for _, site := range sites {
		if !site.Counts() {
			continue
		}
		if p.state == nil {
			if p.on(site) != nil {
				out = append(out, rollout.Site{Name: site.ID.Name, State: decide.Ready})
			}
			continue
		}
		if !slices.ContainsFunc(contents, func(s labels.Selector) bool { return s.Matches(labels.Set(site.Labels)) }) {
			continue
		}
		s := rollout.Site{Name: site.ID.Name}
		if p.settled(site, contents, has[site.ID.Name]) {
			s.State = decide.Ready
			if p.told != nil {
				s.State, s.Why = p.told(site)
			}
		}
		out = append(out, s)
	}
	return out
}

// on is the policy as it counts on a site; nil: it does not select it.
func (p *policySites) on(site *inventory.Site) *inventory.Policy {
	for _, at := range site.PoliciesOf(p.kind) {
		if at.Name == p.name {
			return at
		}
	}
	return nil
}

// settled tells whether what the site should have follows from the state: before that its
// word is about what it had.
func (p *policySites) settled(site *inventory.Site, contents []labels.Selector, digit int) bool {
	at := p.rendered(site.ID)
	if at == nil {
		return false
	}
	if !p.state.Spec.Held {
		digit = len(contents) - 1
	}
	policy := p.on(at)
	if policy == nil {
		return digit >= len(contents) || !contents[digit].Matches(labels.Set(at.Labels))
	}
	if !p.state.Spec.Held {
		return policy.Content == 0
	}
	return policy.Content == digit+1 && policy.Object.GetAnnotations()[v1alpha1.AnnotationRollout] == p.state.Name
}

// selectors are those of the policy's contents; one that can't be read selects nothing.
func (p *policySites) selectors() []labels.Selector {
	var out []labels.Selector
	if p.state == nil {
		return nil
	}
	for _, o := range p.state.Spec.Objects {
		if o.Kind != p.kind || o.Name != p.name {
			continue
		}
		for _, content := range o.Contents {
			var of struct {
				Spec struct {
					SiteSelector metav1.LabelSelector `json:"siteSelector"`
				} `json:"spec"`
			}
			selector := labels.Nothing()
			if utiljson.Unmarshal(content.Raw, &of) == nil {
				if s, err := metav1.LabelSelectorAsSelector(&of.Spec.SiteSelector); err == nil {
					selector = s
				}
			}
			out = append(out, selector)
		}
	}
	return out
}
