package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/control/fleetapi"
	"muster.dev/muster/internal/few"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

// Software is what the controllers need of *desired.Store and *fleetapi.Server to count
// who runs what it shall.
type Software interface {
	// SoftwareDigest is that of what a site is told of a component, SoftwareGenerations are
	// those of a tenant's policies that it answers from.
	SoftwareDigest(fleet.SiteID, v1alpha1.SoftwareComponent) string
	SoftwareGenerations(tenant string) map[string]int64
	// Released tells whether there is a version, and why it was withdrawn.
	Released(tenant string, c v1alpha1.SoftwareComponent, version string) (withdrawn string, ok bool)
	// SoftwareOf is what a site said last.
	SoftwareOf(fleet.SiteID) fleetapi.SoftwareSaid
}

// conditionOverridden of a SoftwarePolicy is True while something else decides for sites
// that it selects.
const conditionOverridden = "Overridden"

// softwareSites are the sites of a software policy: each of those that it decides for is
// in one list.
type softwareSites struct {
	done, failed, waiting, moving, away []string
	why                                 string // of the first that failed
	others                              map[string][]string
}

func (p *softwareSites) all() int {
	return len(p.done) + len(p.failed) + len(p.waiting) + len(p.moving) + len(p.away)
}

// software counts the sites that each software policy decides for.
func (r *Runner) software(ctx context.Context, known *inventory.Snapshot, tenant string, next *soonest) error {
	if r.o.Software == nil {
		return nil
	}
	generations := r.o.Software.SoftwareGenerations(tenant) // asked first
	var list v1alpha1.SoftwarePolicyList
	if err := r.o.Cache.List(ctx, &list, client.InNamespace(fleet.SystemNamespace(tenant))); err != nil || len(list.Items) == 0 {
		return err
	}
	byName := r.softwareSites(known, tenant)
	var errs []error
	for i := range list.Items {
		p := &list.Items[i]
		if generations[p.Name] < p.Generation {
			next.add(next.now.Add(settle))
			continue
		}
		before := p.DeepCopy()
		sites := byName[p.Name]
		if sites == nil {
			sites = &softwareSites{}
		}
		st := &p.Status
		st.Sites, st.Done, st.Failed, st.ObservedGeneration = int32(sites.all()), int32(len(sites.done)), int32(len(sites.failed)), p.Generation
		withdrawn, released := r.o.Software.Released(tenant, p.Spec.Component, p.Spec.Version)
		for _, c := range []metav1.Condition{softwareCondition(p, sites, released, withdrawn), overridden(sites)} {
			c.ObservedGeneration = p.Generation
			meta.SetStatusCondition(&st.Conditions, c)
		}
		errs = append(errs, r.patchStatus(ctx, p, before))
	}
	return errors.Join(errs...)
}

func (r *Runner) softwareSites(known *inventory.Snapshot, tenant string) map[string]*softwareSites {
	byName := map[string]*softwareSites{}
	of := func(name string) *softwareSites {
		if byName[name] == nil {
			byName[name] = &softwareSites{others: map[string][]string{}}
		}
		return byName[name]
	}
	for _, s := range known.SitesOf(tenant) {
		if !s.Counts() {
			continue
		}
		var said fleetapi.SoftwareSaid
		policies := s.PoliciesOf(desired.KindSoftwarePolicy)
		if len(policies) > 0 {
			said = r.o.Software.SoftwareOf(s.ID)
		}
		for _, p := range policies {
			spec := &p.Object.(*v1alpha1.SoftwarePolicy).Spec
			pin, decides, _ := desired.SoftwareFor(s, spec.Component)
			to := of(p.Name)
			switch {
			case decides == nil:
				to.others["the site's own spec.software says "+pin] = append(to.others["the site's own spec.software says "+pin], s.ID.Name)
				continue
			case decides != p:
				to.others["SoftwarePolicy "+decides.Name] = append(to.others["SoftwarePolicy "+decides.Name], s.ID.Name)
				continue
			}
			standing, why := said.Standing(spec.Component, r.o.Software.SoftwareDigest(s.ID, spec.Component), spec.Version)
			list := &to.moving
			switch online := s.Phase == fleet.PhaseOnline; {
			case standing == fleetapi.SoftwareDone:
				list = &to.done
			case standing == fleetapi.SoftwareFailed:
				if list = &to.failed; to.why == "" {
					to.why = why
				}
			case !online:
				list = &to.away
			case standing == fleetapi.SoftwareWaits:
				list = &to.waiting
			}
			*list = append(*list, s.ID.Name) // sorted, as the sites are
		}
	}
	return byName
}

// softwareCondition tells how far a policy has come. As a collection policy's it is True
// when every connected site that may begin has it.
func softwareCondition(p *v1alpha1.SoftwarePolicy, sites *softwareSites, released bool, withdrawn string) metav1.Condition {
	c := metav1.Condition{Type: conditionApplied, Status: metav1.ConditionFalse}
	version, all := string(p.Spec.Component)+" "+p.Spec.Version, sites.all()
	var says []string
	switch {
	case p.Spec.Version == "":
		c.Status, c.Reason = metav1.ConditionTrue, "NoVersion"
		says = append(says, "it names no version: sites stay at what they run, or go back to what they ran before they were asked for another")
		if len(sites.failed)+len(sites.moving) > 0 {
			c.Status = metav1.ConditionFalse
		}
	case !released:
		c.Reason = "NoSuchVersion"
		says = append(says, fmt.Sprintf("there is no SoftwareVersion %s-%s in %s: release it with muster software add, or name another one in spec.version", p.Spec.Component, p.Spec.Version, p.Namespace))
	case withdrawn != "" && len(sites.done) < all:
		c.Reason = "Withdrawn"
		says = append(says, fmt.Sprintf("%s was withdrawn (%s), and no further site begins to install it: name another one in spec.version", version, withdrawn))
	case all == 0 && len(sites.others) > 0:
		c.Status, c.Reason = metav1.ConditionUnknown, "Overridden"
		says = append(says, "on every site that it selects something else decides")
	case all == 0:
		c.Status, c.Reason = metav1.ConditionUnknown, "NoSiteMatches"
		says = append(says, "the selector takes none of the tenant's sites")
	case len(sites.failed) > 0:
		c.Reason = "Failed"
	case len(sites.moving) > 0:
		c.Reason = "InProgress"
		says = append(says, fmt.Sprintf("%d of %d sites run %s; not yet %s", len(sites.done), all, version, few.Of(sites.moving, maxNamed, ", ")))
	default:
		c.Status, c.Reason = metav1.ConditionTrue, "Applied"
		says = append(says, fmt.Sprintf("%d of %d sites run %s", len(sites.done), all, version))
	}
	if len(sites.failed) > 0 {
		says = append(says, fmt.Sprintf("failed on %s, first: %s", few.Of(sites.failed, maxNamed, ", "), sites.why))
	}
	if len(sites.waiting) > 0 {
		says = append(says, "begin later, in their window or when their operators have it: "+few.Of(sites.waiting, maxNamed, ", "))
	}
	if len(sites.away) > 0 {
		says = append(says, "not connected, and will begin when they return: "+few.Of(sites.away, maxNamed, ", "))
	}
	c.Message = cut(strings.Join(says, "; "))
	return c
}

// overridden says what else decides for sites that the policy selects.
func overridden(sites *softwareSites) metav1.Condition {
	c := metav1.Condition{Type: conditionOverridden, Status: metav1.ConditionFalse, Reason: "Decides", Message: "it decides for all sites that it selects"}
	var says []string
	for by, names := range sites.others {
		says = append(says, fmt.Sprintf("%s, on %s", by, few.Of(names, maxNamed, ", ")))
	}
	if len(says) > 0 {
		slices.Sort(says)
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Overridden", cut("something else decides: "+strings.Join(says, "; "))
	}
	return c
}
