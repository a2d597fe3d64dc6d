package registration

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// back answers a machine that comes back after a factory reset; nil: it is none.
func (s *Service) back(ctx context.Context, req *wire.RegisterRequest, tenant string, csr pki.CSR, a *attempt) (*wire.RegisterResponse, Result, error) {
	site, changed, err := s.comesBack(ctx, tenant, req.GetSite(), csr)
	if site == nil || err != nil {
		return nil, "", err
	}
	a.rec.Site = site.Name
	if !changed {
		return s.answer(site, csr, false, a)
	}
	// A certificate of the same second as the end of those of the former key would be refused
	// with them.
	return &wire.RegisterResponse{
		Tenant: tenant, Site: site.Name, RetryAfter: durationpb.New(2 * time.Second), Message: fmt.Sprintf("site %s is back after its factory reset, and gets a certificate in a moment", site.Name),
	}, Returned, nil
}

// comesBack finds the Site that this machine was before a factory reset: the one of the
// wanted name, whose former key vouched for the one that the request is signed with. It gives
// that Site the new key, once; changed says that it did. nil: there is no such Site.
//
// The key alone decides, and no token: the one that the machine joined with may be long over,
// and must not be needed again, nor be enough.
func (s *Service) comesBack(ctx context.Context, tenant, name string, csr pki.CSR) (site *v1alpha1.Site, changed bool, _ error) {
	if (fleet.SiteID{Tenant: tenant, Name: name}).Validate() != nil {
		return nil, false, nil
	}
	key := types.NamespacedName{Namespace: fleet.SystemNamespace(tenant), Name: name}
	if s.opts.Cache != nil {
		var known v1alpha1.Site
		err := s.opts.Cache.Get(ctx, key, &known)
		if apierrors.IsNotFound(err) || err == nil && known.Status.Reset == nil {
			return nil, false, nil // a cache that is behind costs the machine another attempt
		}
	}
	site = &v1alpha1.Site{}
	if err := s.opts.Client.Get(ctx, key, site); apierrors.IsNotFound(err) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, fmt.Errorf("read site %s/%s: %w", tenant, name, err)
	}
	switch {
	case site.Status.Reset == nil || site.DeletionTimestamp != nil:
		return nil, false, nil
	case site.Spec.PublicKey == csr.KeyHash && site.Status.Reset.NextKey == csr.KeyHash:
		return site, false, nil // it has come back before
	case !site.ComesBackAs(csr.KeyHash):
		return nil, false, nil
	case site.Spec.Decommissioned:
		return nil, false, retired(siteID(site))
	}
	before := site.DeepCopy()
	site.Spec.PublicKey = csr.KeyHash
	if site.Labels == nil {
		site.Labels = map[string]string{}
	}
	site.Labels[LabelKey] = csr.KeyHash[:63]
	if r := site.Spec.Reset; r != nil && r.Approval == v1alpha1.ResetManual {
		site.Spec.Approved = false
	}
	// Over what was read: two machines can't both come back, and a Site that was decommissioned
	// meanwhile stays so.
	if err := s.opts.Client.Patch(ctx, site, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, false, fmt.Errorf("give site %s/%s its new key: %w", tenant, name, err)
	}
	return site, true, nil
}
