package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

const (
	indexPending = "pending"
	indexName    = "name"
)

// pendingSites watches the sites of all tenants as the console: pages ask for the
// pending ones every few seconds, and the API server has no index for them. Of the
// others only the names are kept, about 1 kB each (TestMemoryPerSite).
//
// It filters by tenant, never by itself: callers hand in what the user may read.
type pendingSites struct {
	log      *slog.Logger
	informer cache.SharedIndexInformer
}

func newPendingSites(k *kube, log *slog.Logger) *pendingSites {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			out := &v1alpha1.SiteList{}
			return out, k.own.Get().Resource("sites").VersionedParams(&o, k.params).Do(ctx).Into(out)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			return k.own.Get().Resource("sites").VersionedParams(&o, k.params).Watch(ctx)
		},
	}
	inf := cache.NewSharedIndexInformer(lw, &v1alpha1.Site{}, 0, siteIndexers())
	if err := inf.SetTransform(slim); err != nil {
		panic(err) // only after the start
	}
	return &pendingSites{log: log, informer: inf}
}

func siteIndexers() cache.Indexers {
	return cache.Indexers{
		indexPending: func(o any) ([]string, error) {
			if s, ok := o.(*v1alpha1.Site); ok && isPending(s) {
				return []string{indexPending}, nil
			}
			return nil, nil
		},
		indexName: func(o any) ([]string, error) { return []string{o.(*v1alpha1.Site).Name}, nil },
	}
}

func isPending(s *v1alpha1.Site) bool { return !s.Spec.Approved && !s.Spec.Decommissioned }

// slim takes off what the console doesn't need.
func slim(o any) (any, error) {
	s, ok := o.(*v1alpha1.Site)
	if !ok {
		return o, nil
	}
	if isPending(s) {
		s.ManagedFields, s.Annotations, s.Status = nil, nil, v1alpha1.SiteStatus{}
		return s, nil
	}
	return &v1alpha1.Site{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace, UID: s.UID, ResourceVersion: s.ResourceVersion},
		Spec:       v1alpha1.SiteSpec{Approved: s.Spec.Approved, Decommissioned: s.Spec.Decommissioned},
	}, nil
}

func (p *pendingSites) run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(p.log.Handler()))
	p.informer.RunWithContext(ctx)
	return ctx.Err()
}

var errNotLoaded = errors.New("the list of sites is being loaded from the API server")

func (p *pendingSites) ready() error {
	if !p.informer.HasSynced() {
		return errNotLoaded
	}
	return nil
}

// tenantsOf returns the tenants, of those in the set, that have a site of this name.
func (p *pendingSites) tenantsOf(name string, set readable) []string {
	objs, err := p.informer.GetIndexer().ByIndex(indexName, name)
	if err != nil {
		panic(err) // only for an index that doesn't exist
	}
	var out []string
	for _, o := range objs {
		if t, ok := fleet.TenantOfSystemNamespace(o.(*v1alpha1.Site).Namespace); ok && set.has(t) {
			out = append(out, t)
		}
	}
	slices.Sort(out)
	return out
}

// awaitDecision waits until the watch has brought the written site, for at most a
// second: who approves a site and lists again must not see it again.
func (p *pendingSites) awaitDecision(ctx context.Context, s *v1alpha1.Site) {
	if isPending(s) || p.ready() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for p.holdsPending(s.Namespace+"/"+s.Name, s.UID) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (p *pendingSites) holdsPending(key string, uid types.UID) bool {
	o, ok, err := p.informer.GetStore().GetByKey(key)
	if err != nil || !ok {
		return false
	}
	s := o.(*v1alpha1.Site)
	return s.UID == uid && isPending(s)
}

// registrationView is a site that waits for approval.
type registrationView struct {
	Name         string            `json:"name"`
	Tenant       string            `json:"tenant"`
	Labels       map[string]string `json:"labels"`
	SystemLabels map[string]string `json:"systemLabels"`
	Token        string            `json:"token"`
	CreatedAt    time.Time         `json:"createdAt"`
	PublicKey    string            `json:"publicKey"` // SHA-256 of the key, in hex
}

type registrationList struct {
	Registrations []registrationView `json:"registrations"`
	NextCursor    string             `json:"nextCursor,omitempty"`
}

// position is a place in the list, oldest first. A cursor is the last one that was
// returned. It carries no rights: those are checked again for each page.
type position struct {
	CreatedAt int64  `json:"c"` // Unix seconds, as precise as the API server is
	Tenant    string `json:"t"`
	Name      string `json:"n"`
}

func (a position) compare(b position) int {
	return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
}

func (a position) cursor() string { return wire.EncodeCursor(a) }

func parseCursor(s string) (position, error) {
	var at position
	err := wire.DecodeCursor(s, &at)
	if err == nil {
		err = fleet.SiteID{Tenant: at.Tenant, Name: at.Name}.Validate()
	}
	if err != nil {
		return at, fmt.Errorf("not a cursor of this list: %w", err)
	}
	return at, nil
}

func (c *Console) listRegistrations(w http.ResponseWriter, cl *call) error {
	var after *position
	if s := cl.q.Get("cursor"); s != "" {
		at, err := parseCursor(s)
		if err != nil {
			return invalid("cursor", "take it unchanged from nextCursor of the page before")
		}
		after = &at
	}
	set, err := c.access.scope(cl.Context(), cl.id, cl.q.Get("tenant"))
	if err != nil {
		return err
	}
	if err := c.pending.ready(); err != nil {
		return unavailable(err, "the list of sites is not loaded yet")
	}
	return writeJSON(w, http.StatusOK, c.pending.page(set, after, limitOf(cl.q)))
}

// page returns the pending sites of the set after a position.
func (p *pendingSites) page(set readable, after *position, limit int) registrationList {
	objs, err := p.informer.GetIndexer().ByIndex(indexPending, indexPending)
	if err != nil {
		panic(err) // only for an index that doesn't exist
	}
	type entry struct {
		at   position
		site *v1alpha1.Site
	}
	var found []entry
	for _, o := range objs {
		s := o.(*v1alpha1.Site)
		tenant, ok := fleet.TenantOfSystemNamespace(s.Namespace)
		if !ok || !set.has(tenant) {
			continue
		}
		at := position{s.CreationTimestamp.Unix(), tenant, s.Name}
		if after == nil || at.compare(*after) > 0 {
			found = append(found, entry{at, s})
		}
	}
	slices.SortFunc(found, func(a, b entry) int { return a.at.compare(b.at) })
	out := registrationList{Registrations: []registrationView{}}
	for i, e := range found {
		if i == limit {
			out.NextCursor = found[i-1].at.cursor()
			break
		}
		v := registrationView{Name: e.site.Name, Tenant: e.at.Tenant, Token: e.site.Spec.Token,
			CreatedAt: e.site.CreationTimestamp.UTC(), PublicKey: e.site.Spec.PublicKey}
		v.Labels, v.SystemLabels = splitLabels(e.site.Labels)
		out.Registrations = append(out.Registrations, v)
	}
	return out
}
