package registration

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// admit makes the Site of a key that has none yet: name, quota, one use of the
// token, object. What was reserved is given back when a later step fails. made is false
// if the key had made the Site a moment before.
func (s *Service) admit(ctx context.Context, req *wire.RegisterRequest, rt *v1alpha1.RegistrationToken, tenant *v1alpha1.Tenant, csr pki.CSR, a *attempt) (site *v1alpha1.Site, made bool, err error) {
	if err := s.usable(rt); err != nil {
		return nil, false, err // before the name: who holds a dead token learns no names
	}
	if s.opts.Cache != nil {
		if site, made, err := s.admitAs(ctx, req, rt, tenant, csr, a, true); err == nil {
			return site, made, nil
		}
		// A cache that is behind knows neither what this key made a moment ago nor whose a name
		// has become since.
	}
	return s.admitAs(ctx, req, rt, tenant, csr, a, false)
}

// admitAs is admit with a name that the cache may say to be free, where it is trusted: it
// nearly always is, and else the Site can't be made.
func (s *Service) admitAs(ctx context.Context, req *wire.RegisterRequest, rt *v1alpha1.RegistrationToken, tenant *v1alpha1.Tenant, csr pki.CSR, a *attempt, trust bool) (site *v1alpha1.Site, made bool, err error) {
	name, there, err := s.chooseName(ctx, req, rt, tenant.Name, csr, trust)
	if err != nil {
		return nil, false, err
	}
	a.rec.Site = name
	if there != nil {
		if there.Spec.PublicKey == csr.KeyHash {
			return there, false, nil
		}
		site, err := s.spendAndCreate(ctx, req, rt, name, there, csr)
		return site, err == nil, err
	}
	done, err := s.reserveQuota(ctx, tenant)
	if err != nil {
		return nil, false, err
	}
	site, err = s.spendAndCreate(ctx, req, rt, name, nil, csr)
	done(err == nil)
	return site, err == nil, err
}

// chooseName returns the wanted or derived name, and the Site of that name if it has this
// key already, or if somebody made it by hand for this machine to claim. That the first is
// free the cache may say, where it is trusted.
func (s *Service) chooseName(ctx context.Context, req *wire.RegisterRequest, rt *v1alpha1.RegistrationToken, tenant string, csr pki.CSR, trust bool) (string, *v1alpha1.Site, error) {
	pattern := (*regexp.Regexp)(nil)
	if p := rt.Spec.SiteNamePattern; p != "" {
		re, err := regexp.Compile("^(?:" + p + ")$")
		if err != nil {
			return "", nil, refuse(BadPolicy, codes.FailedPrecondition, fmt.Sprintf("registration token %s: spec.siteNamePattern is not a regular expression; make a new token", rt.Name))
		}
		pattern = re
	}
	names := []string{req.GetSite()}
	if req.GetSite() == "" {
		host := fleet.SiteName(req.GetSystemLabels()["hostname"])
		if host == "" || host == "localhost" {
			names = []string{"site-" + csr.KeyHash[:10]}
		} else {
			// The second is for a machine whose host name another machine has, too.
			names = []string{host, fleet.SiteName(host[:min(len(host), 56)] + "-" + csr.KeyHash[:6])}
		}
	}
	for i, name := range names {
		id := fleet.SiteID{Tenant: tenant, Name: name}
		if err := id.Validate(); err != nil {
			return "", nil, refuse(BadName, codes.InvalidArgument, clip(err.Error(), 300)+"; choose another with --site")
		}
		if pattern != nil && !pattern.MatchString(name) {
			return "", nil, refuse(BadName, codes.PermissionDenied, fmt.Sprintf("site name %q: registration token %s is for names that match %q; choose another with --site", name, rt.Name, rt.Spec.SiteNamePattern))
		}
		var site v1alpha1.Site
		key := types.NamespacedName{Namespace: rt.Namespace, Name: name}
		if trust && i == 0 && apierrors.IsNotFound(s.opts.Cache.Get(ctx, key, &site)) {
			return name, nil, nil
		}
		err := s.opts.Client.Get(ctx, key, &site)
		switch {
		case apierrors.IsNotFound(err):
			return name, nil, nil
		case err != nil:
			return "", nil, fmt.Errorf("read site %s: %w", id, err)
		case site.Spec.PublicKey == csr.KeyHash:
			return name, &site, nil
		case site.Spec.PublicKey == "" && !site.Spec.Decommissioned && site.DeletionTimestamp == nil:
			return name, &site, nil
		case i == len(names)-1:
			return "", nil, nameTaken(name)
		}
	}
	panic("unreachable: the last name returns")
}

func nameTaken(name string) *Refusal {
	return refuse(NameTaken, codes.AlreadyExists, fmt.Sprintf("site %s is registered with another key; choose another name with --site, or delete the Site if that machine is gone", name))
}

func (s *Service) spendAndCreate(ctx context.Context, req *wire.RegisterRequest, rt *v1alpha1.RegistrationToken, name string, claim *v1alpha1.Site, csr pki.CSR) (*v1alpha1.Site, error) {
	rt, err := s.spend(rt, +1)
	if err != nil {
		return nil, err
	}
	site, certain, err := s.createSite(ctx, req, rt, name, claim, csr)
	if err != nil && certain {
		if _, back := s.spend(rt, -1); back != nil {
			s.opts.Logger.Warn("a use of a token stays counted though its registration failed", "token", rt.Namespace+"/"+rt.Name, "err", back)
		}
	}
	return site, err
}

// createSite makes or claims the Site. When it fails and is not certain that
// nothing was made, the use stays counted: too few uses left, never too many.
func (s *Service) createSite(ctx context.Context, req *wire.RegisterRequest, rt *v1alpha1.RegistrationToken, name string, claim *v1alpha1.Site, csr pki.CSR) (_ *v1alpha1.Site, certain bool, _ error) {
	site := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: rt.Namespace, Name: name}}
	if claim != nil {
		site = claim.DeepCopy()
	}
	tenant, _ := fleet.TenantOfSystemNamespace(rt.Namespace)
	labels := map[string]string{}
	maps.Copy(labels, rt.Spec.SiteLabels)
	maps.Copy(labels, site.Labels) // what somebody set by hand on a Site to be claimed wins
	maps.Copy(labels, fleet.SystemLabels(req.GetSystemLabels()))
	labels[fleet.LabelTenant], labels[LabelKey] = tenant, csr.KeyHash[:63]
	site.Labels = labels
	site.Spec.PublicKey, site.Spec.Token = csr.KeyHash, rt.Name
	site.Spec.Approved = site.Spec.Approved || rt.Spec.AutoApprove

	write := s.opts.Client.Create
	if claim != nil {
		write = func(ctx context.Context, o client.Object, _ ...client.CreateOption) error {
			return s.opts.Client.Update(ctx, o)
		}
	}
	switch err := write(ctx, site); {
	case err == nil:
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		return nil, true, nameTaken(name)
	case apierrors.HasStatusCause(err, v1alpha1.CauseQuotaExceeded):
		return nil, true, refuse(Quota, codes.ResourceExhausted, clip(err.Error(), 300))
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		return nil, true, refuse(BadPolicy, codes.FailedPrecondition, clip(fmt.Sprintf("registration token %s stamps what a Site can't hold: %v", rt.Name, err), 300))
	default:
		var now v1alpha1.Site
		gerr := s.opts.Client.Get(ctx, client.ObjectKeyFromObject(site), &now)
		if gerr != nil || now.Spec.PublicKey != csr.KeyHash {
			return nil, apierrors.IsNotFound(gerr), fmt.Errorf("make site %s/%s: %w", tenant, name, err)
		}
		site = &now // it was written; only the answer was lost
	}
	return site, true, nil
}

// usable tells whether the token lets one more site in.
func (s *Service) usable(rt *v1alpha1.RegistrationToken) error {
	const anew = "ask for a new one (`muster token create`)"
	switch {
	case rt.Spec.Revoked:
		return refuse(Revoked, codes.PermissionDenied, fmt.Sprintf("registration token %s was revoked; %s", rt.Name, anew))
	case rt.Spec.Expires != nil && !s.opts.Now().Before(rt.Spec.Expires.Time):
		return refuse(Expired, codes.PermissionDenied, fmt.Sprintf("registration token %s expired at %s; %s", rt.Name, rt.Spec.Expires.UTC().Format(time.RFC3339), anew))
	case rt.Spec.MaxUses > 0 && rt.Status.Uses >= rt.Spec.MaxUses:
		return refuse(Exhausted, codes.PermissionDenied, fmt.Sprintf("registration token %s is used up (%d of %d); %s", rt.Name, rt.Status.Uses, rt.Spec.MaxUses, anew))
	}
	return nil
}

// siteCounts keeps each tenant's number of sites for a short time, so that a
// thousand registrations don't list the sites a thousand times.
type siteCounts struct {
	mu       sync.Mutex
	byTenant map[string]*siteCount
}

type siteCount struct {
	n        int32 // sites, those under way included
	underway int32 // reserved, not created yet
	asOf     time.Time
}

// reserveQuota makes room for one site of the tenant. done must be called with
// whether the Site was made.
func (s *Service) reserveQuota(ctx context.Context, tenant *v1alpha1.Tenant) (done func(made bool), err error) {
	quota := tenant.Spec.Quotas.InEffect(v1alpha1.TenantQuotas{Sites: s.opts.SiteQuota}).Sites
	if quota == 0 {
		return func(bool) {}, nil
	}
	c := s.sites.of(tenant.Name)
	// c is guarded by the tenant's lock.
	defer s.locks.lock("tenant " + tenant.Name)()
	// Before anybody is refused the sites are counted anew: some may be gone.
	age := s.opts.Now().Sub(c.asOf)
	if c.asOf.IsZero() || age > time.Minute || (c.n >= quota && c.underway == 0 && age > time.Second) {
		listed, err := s.countSites(ctx, tenant.Name)
		if err != nil {
			return nil, err
		}
		// Some under way may be in the list already; counting them twice for a
		// moment refuses too many, never too few.
		c.n, c.asOf = listed+c.underway, s.opts.Now()
	}
	if c.n >= quota {
		return nil, refuse(Quota, codes.ResourceExhausted, fmt.Sprintf("tenant %s has %d sites and may have %d; decommission one, or ask an operator to raise the tenant's spec.quotas.sites", tenant.Name, c.n, quota))
	}
	c.n++
	c.underway++
	return func(made bool) {
		defer s.locks.lock("tenant " + tenant.Name)()
		c.underway--
		if !made {
			c.n--
		}
	}, nil
}

func (c *siteCounts) of(tenant string) *siteCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byTenant == nil {
		c.byTenant = map[string]*siteCount{}
	}
	if c.byTenant[tenant] == nil {
		c.byTenant[tenant] = &siteCount{}
	}
	return c.byTenant[tenant]
}

func (s *Service) countSites(ctx context.Context, tenant string) (int32, error) {
	var n int32
	for cont := ""; ; {
		var list v1alpha1.SiteList
		err := s.opts.Client.List(ctx, &list, client.InNamespace(fleet.SystemNamespace(tenant)), client.Limit(500), client.Continue(cont))
		if err != nil {
			return 0, fmt.Errorf("count the sites of tenant %s: %w", tenant, err)
		}
		for i := range list.Items {
			if !list.Items[i].Spec.Decommissioned {
				n++
			}
		}
		if cont = list.Continue; cont == "" {
			return n, nil
		}
	}
}

// keyedMutex is a mutex a key; keys come and go.
type keyedMutex struct {
	mu sync.Mutex
	m  map[string]*keyLock
}

type keyLock struct {
	sync.Mutex
	users int
}

// lock returns how to unlock.
func (k *keyedMutex) lock(key string) func() {
	k.mu.Lock()
	if k.m == nil {
		k.m = map[string]*keyLock{}
	}
	l := k.m[key]
	if l == nil {
		l = &keyLock{}
		k.m[key] = l
	}
	l.users++
	k.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.m, key)
		}
	}
}
