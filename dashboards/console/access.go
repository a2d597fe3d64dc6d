package console

import (
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	authzv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

const (
	cachedDecisions  = 65536
	parallelReviews  = 8
	everyNamespace   = ""
	tenantListAlways = "tenants"
)

// access decides which tenants a user may read: those in whose system namespace
// the API server lets the user list sites; for logs and silences, those in which it
// grants these.
type access struct {
	kube      *kube
	met       *instruments
	tenants   *reviewCache[[]v1alpha1.Tenant]
	virtual   *reviewCache[taken[[]v1alpha1.VirtualKubernetes]]
	hosts     *reviewCache[taken[hostObjects]]
	decisions *reviewCache[bool]
}

func newAccess(k *kube, tm timing, now func() time.Time, met *instruments) *access {
	return &access{kube: k, met: met,
		// Who makes one looks for it at once.
		virtual: newReviewCache(1, now, tm.outageGrace, func(l taken[[]v1alpha1.VirtualKubernetes]) (time.Duration, bool) { return l.goodFor(tm.badFor), true }),
		hosts:   newReviewCache(1, now, tm.outageGrace, func(l taken[hostObjects]) (time.Duration, bool) { return l.goodFor(tm.badFor), true }),
		tenants: newReviewCache(1, now, tm.outageGrace, func([]v1alpha1.Tenant) (time.Duration, bool) { return tm.goodFor, true }),
		// In an outage a refusal stands as well as a permission.
		decisions: newReviewCache(cachedDecisions, now, tm.outageGrace, func(bool) (time.Duration, bool) { return tm.goodFor, true }),
	}
}

// right is what a user must be allowed to do in a namespace, most often a tenant's
// system namespace.
type right struct {
	verb, resource string
	// platform: also in the platform's own pseudo tenant.
	platform bool
	// stock: the resource, which may have a subresource, is not muster.dev's but this
	// group's.
	stock *string
}

// logs and silences are no resources of the API server: they are there for RBAC alone.
var (
	readSites      = right{verb: "list", resource: "sites"}
	readAlerts     = right{verb: "list", resource: "sites", platform: true}
	readMetrics    = readAlerts // the platform's rules are about its own series
	readLogs       = right{verb: "get", resource: "logs", platform: true}
	readSilences   = right{verb: "get", resource: "silences", platform: true}
	createSilences = right{verb: "create", resource: "silences", platform: true}
	deleteSilences = right{verb: "delete", resource: "silences", platform: true}
)

func (r right) group() string {
	if r.stock != nil {
		return *r.stock
	}
	return v1alpha1.GroupVersion.Group
}

func (r right) String() string {
	return strings.TrimSuffix(r.verb+" "+r.resource+"."+r.group(), ".")
}

// does says it in a sentence about a tenant.
func (r right) does() string {
	if r.resource == "sites" {
		return "read"
	}
	return r.verb + " " + r.resource + " of"
}

// readable is the set of tenants that a user may read.
type readable struct {
	all   bool     // everything, also tenants to come
	names []string // sorted
}

func (s readable) has(tenant string) bool {
	_, ok := slices.BinarySearch(s.names, tenant)
	return ok
}

func (s readable) equal(o readable) bool { return s.all == o.all && slices.Equal(s.names, o.names) }

// payers are the tenants among which a stream about the set is counted: who reads
// everything is none's.
func (s readable) payers() []string {
	if s.all {
		return []string{""}
	}
	return s.names
}

// header is the set as the health role takes it.
func (s readable) header() string {
	if s.all {
		return wire.AllTenants
	}
	return strings.Join(s.names, ",")
}

// tenantList lists all tenants, sorted by name.
func (a *access) tenantList(ctx context.Context) ([]v1alpha1.Tenant, error) {
	list, err := a.tenants.get(ctx, tenantListAlways, func(ctx context.Context) ([]v1alpha1.Tenant, error) {
		list, err := a.kube.listTenants(ctx)
		if err != nil {
			return nil, err
		}
		// A name with a comma or a line break would forge a header of ours. The API
		// server refuses such names; so do we.
		out := slices.DeleteFunc(list.Items, func(t v1alpha1.Tenant) bool { return fleet.ValidateTenant(t.Name) != nil })
		slices.SortFunc(out, func(a, b v1alpha1.Tenant) int { return strings.Compare(a.Name, b.Name) })
		return out, nil
	})
	if err != nil {
		return nil, unavailable(err, "the API server can't list the tenants; it may be starting")
	}
	return list, nil
}

// tenantNames lists all tenants, sorted.
func (a *access) tenantNames(ctx context.Context) ([]string, error) {
	list, err := a.tenantList(ctx)
	names := make([]string, len(list))
	for i, t := range list {
		names[i] = t.Name
	}
	return names, err
}

// all returns every tenant that the user may read.
func (a *access) all(ctx context.Context, id identity) (readable, error) {
	return a.allOf(ctx, id, readSites)
}

// allOf returns every tenant in which the user has the right.
func (a *access) allOf(ctx context.Context, id identity, need right) (readable, error) {
	names, err := a.tenantNames(ctx)
	if err != nil {
		return readable{}, err
	}
	if ok, err := a.may(ctx, id, need, everyNamespace); err != nil {
		return readable{}, err
	} else if ok {
		return readable{all: true, names: names}, nil
	}
	allowed := make([]bool, len(names))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelReviews)
	for i, name := range names {
		g.Go(func() (err error) {
			allowed[i], err = a.may(gctx, id, need, fleet.SystemNamespace(name))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return readable{}, err
	}
	out := readable{names: []string{}}
	for i, name := range names {
		if allowed[i] {
			out.names = append(out.names, name)
		}
	}
	return out, nil
}

// one returns the set of just this tenant, or a problem. A tenant that doesn't
// exist and one in which the user has no such right look the same.
func (a *access) one(ctx context.Context, id identity, need right, tenant string) (readable, error) {
	names, err := a.tenantNames(ctx)
	if err != nil {
		return readable{}, err
	}
	if _, exists := slices.BinarySearch(names, tenant); exists || need.platform && tenant == fleet.PlatformTenant {
		ok, err := a.may(ctx, id, need, fleet.SystemNamespace(tenant))
		if err != nil {
			return readable{}, err
		}
		if ok {
			return readable{names: []string{tenant}}, nil
		}
	}
	return readable{}, forbidden("you may not %s tenant %q, or there is none; an administrator can let you `%s` in namespace %q", need.does(), tenant, need, fleet.SystemNamespace(tenant))
}

// scope is what a request may see: the tenant that it names, or all that the user
// may read.
func (a *access) scope(ctx context.Context, id identity, tenant string) (readable, error) {
	return a.scopeOf(ctx, id, readSites, tenant)
}

// scopeOf is scope for another right.
func (a *access) scopeOf(ctx context.Context, id identity, need right, tenant string) (readable, error) {
	if tenant != "" {
		return a.one(ctx, id, need, tenant)
	}
	set, err := a.allOf(ctx, id, need)
	if err == nil && !set.all && len(set.names) == 0 {
		err = forbidden("you may %s no tenant; an administrator can let you `%s` in the namespace <tenant>-system", need.does(), need)
	}
	return set, err
}

func (a *access) may(ctx context.Context, id identity, need right, namespace string) (bool, error) {
	key := id.key + need.String() + " " + namespace
	if ok, hit := a.decisions.fresh(key); hit {
		a.met.reviews.WithLabelValues("access", "cached").Inc()
		return ok, nil
	}
	ok, err := a.decisions.get(ctx, key, func(ctx context.Context) (bool, error) { return a.ask(ctx, id, need, namespace) })
	switch {
	case err != nil:
		a.met.reviews.WithLabelValues("access", "failed").Inc()
		return false, unavailable(err, "the API server can't be asked what you may read; it may be starting")
	case ok:
		a.met.reviews.WithLabelValues("access", "accepted").Inc()
	default:
		a.met.reviews.WithLabelValues("access", "refused").Inc()
	}
	return ok, nil
}

func (a *access) ask(ctx context.Context, id identity, need right, namespace string) (bool, error) {
	extra := make(map[string]authzv1.ExtraValue, len(id.extra))
	for k, v := range id.extra {
		extra[k] = v
	}
	resource, sub, _ := strings.Cut(need.resource, "/")
	version := v1alpha1.GroupVersion.Version
	if need.stock != nil {
		version = "*"
	}
	sar := &authzv1.SubjectAccessReview{Spec: authzv1.SubjectAccessReviewSpec{
		User: id.name, UID: id.uid, Groups: id.groups, Extra: extra,
		ResourceAttributes: &authzv1.ResourceAttributes{
			Namespace: namespace, Verb: need.verb, Resource: resource, Subresource: sub, Group: need.group(), Version: version,
		},
	}}
	out, err := a.kube.reviews.Create(ctx, sar, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return out.Status.Allowed && !out.Status.Denied, nil
}
