package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/control/desired/render"
	"muster.dev/muster/internal/few"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/wire"
)

// Workloads is what the controllers need of *desired.Store to tell what a virtual
// Kubernetes reaches.
type Workloads interface {
	Workloads(namespace string) (desired.Reach, bool)
	// VirtualHost tells what became of one, AdvertisePolicy why one does not count.
	VirtualHost(tenant, namespace, name string) (desired.HostReach, bool)
	AdvertisePolicy(tenant, namespace, name string) (reason, problem string)
	// SubscribeWorkloads calls fn with each tenant in which that may have changed; fn must
	// be quick.
	SubscribeWorkloads(fn func(tenant string))
}

// Offered is what the controllers need of *granted.Grants to give tenants' users their
// rights.
type Offered interface {
	Set() *offered.Set
	Changed() <-chan struct{}
}

// URLOf is where a virtual Kubernetes is served, below the API server's address.
func URLOf(vk *v1alpha1.VirtualKubernetes) string {
	return wire.VirtualPath(vk.Namespace, vk.Name)
}

// workloadRoles gives the tenants' roles the kinds that are offered now.
func (r *Runner) workloadRoles(ctx context.Context) error {
	if r.o.Offered == nil {
		return nil
	}
	for _, role := range offered.Roles {
		var have rbacv1.ClusterRole
		if err := r.o.Cache.Get(ctx, client.ObjectKey{Name: role.Name}, &have); err != nil {
			return fmt.Errorf("role %s: %w", role.Name, err)
		}
		rules := role.Rules(r.o.Offered.Set())
		if equality.Semantic.DeepEqual(have.Rules, rules) {
			continue
		}
		have.Rules = rules
		if err := r.o.Client.Update(ctx, &have); err != nil {
			return fmt.Errorf("role %s: %w", role.Name, err)
		}
	}
	return nil
}

// virtualKubernetes counts what each reaches; of several in a namespace, the oldest is in
// effect.
func (r *Runner) virtualKubernetes(ctx context.Context, known *inventory.Snapshot, tenant string, namespaces []string) error {
	if r.o.Workloads == nil {
		return nil
	}
	var errs []error
	for _, short := range namespaces {
		var list v1alpha1.VirtualKubernetesList
		if err := r.o.Cache.List(ctx, &list, client.InNamespace(tenant+"-"+short)); err != nil {
			return err
		}
		if len(list.Items) == 0 {
			continue
		}
		slices.SortFunc(list.Items, func(a, b v1alpha1.VirtualKubernetes) int {
			if desired.InEffect(&a, &b) {
				return -1
			}
			return 1
		})
		for i := range list.Items {
			vk := &list.Items[i]
			before := vk.DeepCopy()
			st := v1alpha1.VirtualKubernetesStatus{Conditions: vk.Status.Conditions}
			ready := metav1.Condition{Type: "Ready", ObservedGeneration: vk.Generation}
			if i > 0 {
				ready.Status, ready.Reason = metav1.ConditionFalse, "AnotherIsInEffect"
				ready.Message = fmt.Sprintf("the namespace has %s, which is older; delete one of them", list.Items[0].Name)
			} else {
				reach, _ := r.o.Workloads.Workloads(vk.Namespace)
				st.URL, st.Sites, st.Objects = URLOf(vk), int32(len(reach.Sites)), int32(reach.Objects)
				for _, s := range reach.Sites {
					if s.Phase == fleet.PhaseOnline {
						st.Online++
					}
				}
				ready.Status, ready.Reason, ready.Message = reachCondition(known, tenant, short, vk.Spec.DefaultVirtualSite, reach)
			}
			meta.SetStatusCondition(&st.Conditions, ready)
			vk.Status = st
			errs = append(errs, r.patchStatus(ctx, vk, before))
		}
	}
	return errors.Join(errs...)
}

func reachCondition(known *inventory.Snapshot, tenant, namespace, defaultSite string, reach desired.Reach) (metav1.ConditionStatus, string, string) {
	key, err := render.VirtualSite(defaultSite, namespace)
	exists := slices.ContainsFunc(known.VirtualSitesOf(tenant), func(v *inventory.VirtualSite) bool { return v.Key() == key })
	switch {
	case err != nil:
		return metav1.ConditionFalse, "NoSuchVirtualSite", "spec.defaultVirtualSite: " + err.Error()
	case !exists:
		return metav1.ConditionFalse, "NoSuchVirtualSite", "there is no virtual site " + key + ": make it, or name another one in spec.defaultVirtualSite; until then objects that name no virtual site themselves go nowhere"
	case len(reach.TooMany) > 0:
		return metav1.ConditionFalse, "TooManyObjects", "objects stay as they were on " + few.Of(reach.TooMany, maxNamed, ", ") + ", which would hold more of them than a site takes, " + strconv.Itoa(wire.MaxItems) + ": spread them over virtual sites"
	case len(reach.Sites) == 0:
		return metav1.ConditionTrue, "NoSiteMatches", "served; its virtual sites have no members yet"
	}
	return metav1.ConditionTrue, "Served", "what stands in the namespace is carried to its sites"
}

// overrides tells which of their sites there are.
func (r *Runner) overrides(ctx context.Context, known *inventory.Snapshot, tenant string, namespaces []string) error {
	var errs []error
	for _, short := range namespaces {
		var list v1alpha1.OverrideList
		if err := r.o.Cache.List(ctx, &list, client.InNamespace(tenant+"-"+short)); err != nil {
			return err
		}
		for i := range list.Items {
			o := &list.Items[i]
			before := o.DeepCopy()
			var missing []string
			for _, name := range o.Spec.SiteList {
				if i := known.Find(tenant, name); i < 0 || !known.Sites[i].Listed() {
					missing = append(missing, name)
				}
			}
			slices.Sort(missing)
			o.Status.Sites, o.Status.Missing = int32(len(o.Spec.SiteList)-len(missing)), int32(len(missing))
			c := metav1.Condition{Type: "SitesExist", ObservedGeneration: o.Generation, Status: metav1.ConditionTrue, Reason: "Found", Message: "every site of siteList exists"}
			if len(missing) > 0 {
				c.Status, c.Reason, c.Message = metav1.ConditionFalse, "NoSuchSite", "not there, or not yet: "+few.Of(missing, maxNamed, ", ")
			}
			meta.SetStatusCondition(&o.Status.Conditions, c)
			errs = append(errs, r.patchStatus(ctx, o, before))
		}
	}
	return errors.Join(errs...)
}
