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
	"muster.dev/muster/internal/hostconfig"
	"muster.dev/muster/internal/inventory"
)

// Hosts is what the controllers need of *desired.Store and *fleetapi.Server to count whose
// host is configured as it shall be.
type Hosts interface {
	// HostDigest is that of what a site is told, HostGenerations are those of a tenant's
	// objects that it answers from.
	HostDigest(fleet.SiteID) string
	HostGenerations(tenant string) map[string]int64
	// HostOf is what a site said last.
	HostOf(fleet.SiteID) fleetapi.HostSaid
}

const conditionHostApplied = hostconfig.Kind + "Applied"

// hosts counts the sites that each HostConfiguration selects, and says which of them
// contradict each other.
func (r *Runner) hosts(ctx context.Context, known *inventory.Snapshot, tenant string, next *soonest) error {
	if r.o.Hosts == nil {
		return nil
	}
	generations := r.o.Hosts.HostGenerations(tenant) // asked first
	var list v1alpha1.HostConfigurationList
	if err := r.o.Cache.List(ctx, &list, client.InNamespace(fleet.SystemNamespace(tenant))); err != nil || len(list.Items) == 0 {
		return err
	}
	byName := sitesByPolicy(known, tenant, hostconfig.Kind, func(s *inventory.Site) (applied, refused bool) {
		said, want := r.o.Hosts.HostOf(s.ID), r.o.Hosts.HostDigest(s.ID)
		return !said.Refused && want != "" && said.Hash == want, said.Refused
	})
	conflicts := hostConflicts(known, tenant)
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
			sites = &policySites{}
		}
		st := &p.Status
		st.Sites, st.Applied, st.Rejected = int32(sites.all()), int32(len(sites.applied)), sites.rejected
		conflict := metav1.Condition{Type: v1alpha1.ConditionConflict, Status: metav1.ConditionFalse, Reason: "NoConflict", Message: "no stronger HostConfiguration sets what it sets to another value"}
		if says := conflicts[p.Name]; says != "" {
			conflict.Status, conflict.Reason, conflict.Message = metav1.ConditionTrue, "Overruled", cut(says)
		}
		for _, c := range []metav1.Condition{appliedCondition(sites, conditionHostApplied), conflict} {
			c.ObservedGeneration = p.Generation
			meta.SetStatusCondition(&st.Conditions, c)
		}
		errs = append(errs, r.patchStatus(ctx, p, before))
	}
	return errors.Join(errs...)
}

// hostConflicts says for each object what a stronger one sets to another value, and where.
func hostConflicts(known *inventory.Snapshot, tenant string) map[string]string {
	type pair struct{ loser, winner string }
	settings, sites := map[pair][]string{}, map[pair][]string{}
	made := map[string][]desired.HostConflict{} // by the objects that select a site
	for _, s := range known.SitesOf(tenant) {
		chosen := s.PoliciesOf(hostconfig.Kind)
		if len(chosen) < 2 || !s.Counts() {
			continue
		}
		key := ""
		for _, p := range chosen {
			key += fmt.Sprintf("%s/%d,", p.Name, p.Content)
		}
		found, ok := made[key]
		if !ok {
			found = desired.HostConflicts(chosen)
			made[key] = found
		}
		for _, c := range found {
			at := pair{c.Loser, c.Winner}
			if !slices.Contains(settings[at], c.Setting) {
				settings[at] = append(settings[at], c.Setting)
			}
			if n := len(sites[at]); n == 0 || sites[at][n-1] != s.ID.Name {
				sites[at] = append(sites[at], s.ID.Name)
			}
		}
	}
	lines := map[string][]string{}
	for at := range settings {
		lines[at.loser] = append(lines[at.loser], fmt.Sprintf("HostConfiguration %s sets %s to another value, and decides by its priority, then its name; on %s", at.winner, few.Of(settings[at], maxNamed, ", "), few.Of(sites[at], maxNamed, ", ")))
	}
	out := map[string]string{}
	for name, l := range lines {
		slices.Sort(l)
		out[name] = strings.Join(l, "; ") + ": take it out of one of the two, or change spec.priority"
	}
	return out
}
