// Package chronicle tells the timeline what happens to Muster's objects: sites that come, go,
// connect, change versions and are worked on, edits of whatever says how the fleet is run, and
// what rollouts decide. It watches the objects and remembers, with the timeline, what it told
// of each, so that a restart neither repeats nor skips anything that still shows in them. It
// writes nothing to the API server. cmd/internal runs it in control.
package chronicle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/timeline"
	"muster.dev/muster/internal/wire"
)

// Options of New. All but Edited and Now are needed.
type Options struct {
	Cache    cache.Cache
	Timeline *timeline.Store
	// Fleet knows which virtual sites a site belongs to; nil answers: nobody does yet.
	Fleet func() *inventory.Snapshot
	// TenantOf is whose a namespace is; "": nobody's.
	TenantOf func(namespace string) string
	// Edited is told of each edit of a spec, and must not wait; nil: nobody is.
	Edited func(o client.Object, text string)
	Logger *slog.Logger
	Now    func() time.Time // nil: time.Now
}

// Chronicle watches and tells.
type Chronicle struct {
	o    Options
	told *timeline.Tracker
	wake chan struct{}

	mu    sync.Mutex
	dirty map[objectKey]client.Object // nil: deleted
}

type objectKey struct{ kind, namespace, name string }

func (k objectKey) String() string { return k.kind + "/" + k.namespace + "/" + k.name }

// teller says what follows from a change of an object of its kind. was is what it returned
// for the object last, "" for one that is new; the object is nil if it is gone. An empty
// value forgets the object.
type teller func(c *Chronicle, id identity, was string, o client.Object) (value string, events []wire.TimelineEvent)

// identity is whose an object is, and what it is called.
type identity struct {
	objectKey
	tenant, short string // namespace as users type it; "": the system one, or none
}

// kind is what is watched.
type kind struct {
	name string
	new  func() client.Object
	tell teller
}

var kinds = []kind{
	{"Site", func() client.Object { return &v1alpha1.Site{} }, tellSite},
	{"Rollout", func() client.Object { return &v1alpha1.Rollout{} }, tellRollout},
	{"RolloutState", func() client.Object { return &v1alpha1.RolloutState{} }, tellSteps},

	{"Tenant", func() client.Object { return &v1alpha1.Tenant{} }, tellEdit},
	{"VirtualSite", func() client.Object { return &v1alpha1.VirtualSite{} }, tellEdit},
	{"RegistrationToken", func() client.Object { return &v1alpha1.RegistrationToken{} }, tellEdit},
	{"CollectionPolicy", func() client.Object { return &v1alpha1.CollectionPolicy{} }, tellEdit},
	{"HealthPolicy", func() client.Object { return &v1alpha1.HealthPolicy{} }, tellEdit},
	{"SoftwarePolicy", func() client.Object { return &v1alpha1.SoftwarePolicy{} }, tellEdit},
	{"AlertRules", func() client.Object { return &v1alpha1.AlertRules{} }, tellEdit},
	{"LogRules", func() client.Object { return &v1alpha1.LogRules{} }, tellEdit},
	{"AlertRoute", func() client.Object { return &v1alpha1.AlertRoute{} }, tellEdit},
	{"VirtualKubernetes", func() client.Object { return &v1alpha1.VirtualKubernetes{} }, tellEdit},
	{"Override", func() client.Object { return &v1alpha1.Override{} }, tellEdit},
	{"RolloutPolicy", func() client.Object { return &v1alpha1.RolloutPolicy{} }, tellEdit},
	{"SoftwareVersion", func() client.Object { return &v1alpha1.SoftwareVersion{} }, tellEdit},
	{"HostConfiguration", func() client.Object { return &v1alpha1.HostConfiguration{} }, tellEdit},
	{"VirtualHost", func() client.Object { return &v1alpha1.VirtualHost{} }, tellEdit},
	{"AdvertisePolicy", func() client.Object { return &v1alpha1.AdvertisePolicy{} }, tellEdit},
}

// New reads what was told, and has the timeline show edits of policies with the sites that they select.
func New(o Options) (*Chronicle, error) {
	if o.Cache == nil || o.Timeline == nil || o.Fleet == nil || o.TenantOf == nil || o.Logger == nil {
		return nil, errors.New("chronicle: Cache, Timeline, Fleet, TenantOf and Logger must be set")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	told, err := o.Timeline.Track("objects")
	if err != nil {
		return nil, err
	}
	c := &Chronicle{o: o, told: told, wake: make(chan struct{}, 1), dirty: map[objectKey]client.Object{}}
	o.Timeline.Relate(c.policiesOf)
	return c, nil
}

// gather is how long changes are gathered: one transaction serves all of them.
const gather = 500 * time.Millisecond

// Run watches and tells until ctx ends.
func (c *Chronicle) Run(ctx context.Context) error {
	var synced []toolscache.InformerSynced
	for _, k := range kinds {
		informer, err := c.o.Cache.GetInformer(ctx, k.new())
		if err != nil {
			return fmt.Errorf("chronicle: watch %s: %w", k.name, err)
		}
		reg, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { c.put(k.name, o, false) },
			UpdateFunc: func(_, o any) { c.put(k.name, o, false) },
			DeleteFunc: func(o any) { c.put(k.name, o, true) },
		})
		if err != nil {
			return fmt.Errorf("chronicle: watch %s: %w", k.name, err)
		}
		defer func() { _ = informer.RemoveEventHandler(reg) }()
		synced = append(synced, reg.HasSynced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return ctx.Err()
	}
	for c.o.Fleet() == nil { // or sites would be told of without their virtual sites
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(gather):
		}
	}
	c.sweep()
	for {
		c.writeChanges()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.wake:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(gather):
		}
	}
}

func (c *Chronicle) put(kind string, o any, deleted bool) {
	if d, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = d.Obj
	}
	obj, ok := o.(client.Object)
	if !ok {
		return
	}
	k := objectKey{kind, obj.GetNamespace(), obj.GetName()}
	if deleted {
		obj = nil
	}
	c.mu.Lock()
	c.dirty[k] = obj
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// sweep finds what was deleted while nobody watched.
func (c *Chronicle) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.told.Keys() {
		if p := strings.SplitN(key, "/", 3); len(p) == 3 {
			k := objectKey{p[0], p[1], p[2]}
			if _, there := c.dirty[k]; !there {
				c.dirty[k] = nil
			}
		}
	}
}

// writeChanges writes what changed into the timeline. What can't be written is told with the next change.
func (c *Chronicle) writeChanges() {
	c.mu.Lock()
	dirty := c.dirty
	c.dirty = map[objectKey]client.Object{}
	c.mu.Unlock()
	var changes []timeline.Change
	edits := map[client.Object]string{}
	for k, o := range dirty {
		was := c.told.Get(k.String())
		id, ok := c.identify(k)
		if !ok && was == "" {
			continue
		}
		for _, x := range kinds {
			if x.name != k.kind {
				continue
			}
			value, events := "", []wire.TimelineEvent(nil)
			if ok { // else its namespace has gone before it
				value, events = x.tell(c, id, was, o)
			}
			for _, e := range events {
				if e.Kind == wire.EventPolicy && e.After == edited && c.o.Edited != nil {
					edits[o] = e.Text
					if e.By != "" {
						edits[o] += " (" + e.By + ")"
					}
				}
			}
			if value != was || len(events) > 0 {
				changes = append(changes, timeline.Change{Key: k.String(), Value: value, Events: events})
			}
		}
	}
	if err := c.told.Commit(changes); err != nil {
		c.o.Logger.Error("chronicle: not in the timeline yet", "objects", len(dirty), "err", err)
		c.mu.Lock()
		for k, o := range dirty {
			if _, newer := c.dirty[k]; !newer {
				c.dirty[k] = o
			}
		}
		c.mu.Unlock()
		time.AfterFunc(10*time.Second, func() {
			select {
			case c.wake <- struct{}{}:
			default:
			}
		})
		return
	}
	for o, text := range edits {
		c.o.Edited(o, text)
	}
}

// identify finds the tenant; false: it is nobody's.
func (c *Chronicle) identify(k objectKey) (identity, bool) {
	id := identity{objectKey: k}
	switch tenant, system := fleet.TenantOfSystemNamespace(k.namespace); {
	case k.namespace == "":
		id.tenant = k.name // a Tenant
	case system:
		id.tenant = tenant
	default:
		id.tenant = c.o.TenantOf(k.namespace)
		id.short = strings.TrimPrefix(k.namespace, id.tenant+"-")
	}
	return id, id.tenant != ""
}

// virtualSites that a site belongs to now.
func (c *Chronicle) virtualSites(tenant, site string) []string {
	s := c.o.Fleet()
	if i := s.Find(tenant, site); i >= 0 {
		return s.Sites[i].VirtualSites
	}
	return nil
}

// policiesOf are the policies that select a site now, as events name their objects.
func (c *Chronicle) policiesOf(tenant, site string) []string {
	s := c.o.Fleet()
	if s == nil {
		return nil
	}
	var out []string
	if i := s.Find(tenant, site); i >= 0 {
		for _, p := range s.Sites[i].Policies {
			out = append(out, p.Kind+"/"+p.Name)
		}
	}
	return out
}

// changedBy is who changed the spec last; "": Muster did, or nobody knows.
func changedBy(o client.Object) string {
	by := o.GetAnnotations()[v1alpha1.AnnotationChangedBy]
	if strings.HasPrefix(by, "system:") || strings.HasPrefix(by, "muster:") {
		return ""
	}
	return by
}

// changedAt is when the object was last written, other than its status.
func changedAt(o client.Object, now time.Time) time.Time {
	var at time.Time
	for _, f := range o.GetManagedFields() {
		if f.Subresource == "" && f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	if at.IsZero() || at.After(now) {
		return now
	}
	return at.UTC()
}

func timeOf(t *metav1.Time, or time.Time) time.Time {
	if t == nil || t.IsZero() || t.After(or) {
		return or
	}
	return t.UTC()
}
