package sum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// Options of a Controller; all but Every are required.
type Options struct {
	Cache  cache.Cache
	Client client.Client // writes status, and what workloads were, past the Cache
	// States is what sites say of an item.
	States func(item string) map[fleet.SiteID]*wire.WorkloadStatus
	// Items are those of a namespace that are carried to sites, and those of which any site has
	// said something.
	Items  func(namespace string) []string
	Online func(fleet.SiteID) bool
	// Placed tells where an item goes; false: it is not carried.
	Placed func(item string) (Placement, bool)
	// Content is what a digest names, if it is still at hand. Only Handler asks for it.
	Content func(ctx context.Context, digest string) ([]byte, error)
	// Granted tells of a kind that is carried to sites.
	Granted func(schema.GroupKind) (offered.Kind, bool)
	Logger  *slog.Logger
	// Every bounds how often the status of one object is written, unless it is changed: what
	// it was is kept at once, for who goes back in the same second. 0: a second.
	Every time.Duration
}

// Controller writes the status of workloads.
type Controller struct {
	o     Options
	queue workqueue.TypedRateLimitingInterface[string]

	mu      sync.RWMutex
	objects map[string]client.Object // by item; of the cache, not to be changed
	spaces  map[string]map[string]bool
}

// New returns a Controller that knows nothing until it runs.
func New(o Options) *Controller {
	o.Every = cmp.Or(o.Every, time.Second)
	return &Controller{o: o, objects: map[string]client.Object{}, spaces: map[string]map[string]bool{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](o.Every, time.Minute))}
}

// summed are the kinds whose status is a sum.
func summed() map[string]client.Object {
	return map[string]client.Object{"Deployment": &appsv1.Deployment{}, "StatefulSet": &appsv1.StatefulSet{}, "DaemonSet": &appsv1.DaemonSet{}, "Job": &batchv1.Job{}, "CronJob": &batchv1.CronJob{},
		"PersistentVolumeClaim": &corev1.PersistentVolumeClaim{}, "Service": &corev1.Service{}}
}

// AddToScheme teaches a scheme the kinds that are summed: the Cache and the Client of a
// Controller need them.
func AddToScheme(s *runtime.Scheme) error {
	return errors.Join(appsv1.AddToScheme(s), batchv1.AddToScheme(s), corev1.AddToScheme(s))
}

func groupOf(kind string) string {
	switch kind {
	case "Job", "CronJob":
		return "batch"
	case "PersistentVolumeClaim", "Service":
		return ""
	}
	return "apps"
}

// Touch says that something of items changed: what sites say of them, or where they go.
func (c *Controller) Touch(items []string) {
	for _, item := range items {
		c.queue.AddAfter(item, c.o.Every)
	}
}

// TouchTenant says that where the objects of a tenant go may have changed.
func (c *Controller) TouchTenant(tenant string) {
	c.mu.RLock()
	var items []string
	for ns, of := range c.spaces {
		if strings.HasPrefix(ns, tenant+"-") {
			for item := range of {
				items = append(items, item)
			}
		}
	}
	c.mu.RUnlock()
	c.Touch(items)
}

// UID is that of an object of the centre.
func (c *Controller) UID(group, kind, namespace, name string) (types.UID, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	o := c.objects[workload.ItemName(group, kind, namespace, name)]
	if o == nil {
		return "", false
	}
	return o.GetUID(), true
}

// Watch begins to follow workloads; it returns when all there are are known.
func (c *Controller) Watch(ctx context.Context) error {
	for _, o := range []client.Object{&appsv1.ReplicaSet{}, &appsv1.ControllerRevision{}} { // see revisions.go
		if _, err := c.o.Cache.GetInformer(ctx, o); err != nil {
			return fmt.Errorf("watch revisions: %w", err)
		}
	}
	for kind, o := range summed() {
		informer, err := c.o.Cache.GetInformer(ctx, o)
		if err != nil {
			return fmt.Errorf("watch %s: %w", kind, err)
		}
		item := func(o client.Object) string {
			return workload.ItemName(groupOf(kind), kind, o.GetNamespace(), o.GetName())
		}
		put := func(o any, after time.Duration) {
			if o, ok := o.(client.Object); ok {
				c.mu.Lock()
				c.objects[item(o)] = o
				if c.spaces[o.GetNamespace()] == nil {
					c.spaces[o.GetNamespace()] = map[string]bool{}
				}
				c.spaces[o.GetNamespace()][item(o)] = true
				c.mu.Unlock()
				c.queue.AddAfter(item(o), after)
			}
		}
		reg, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(o any) { put(o, 0) }, UpdateFunc: func(was, o any) {
			after := c.o.Every
			if was, ok := was.(client.Object); ok && was.GetGeneration() != o.(client.Object).GetGeneration() {
				after = 0
			}
			put(o, after)
		}, DeleteFunc: func(o any) {
			if d, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = d.Obj
			}
			if o, ok := o.(client.Object); ok {
				c.mu.Lock()
				delete(c.objects, item(o))
				delete(c.spaces[o.GetNamespace()], item(o))
				c.mu.Unlock()
			}
		}})
		if err != nil {
			return fmt.Errorf("watch %s: %w", kind, err)
		}
		if !toolscache.WaitForCacheSync(ctx.Done(), reg.HasSynced) {
			return fmt.Errorf("watch %s: %w", kind, context.Cause(ctx))
		}
	}
	return nil
}

// Run writes until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	go func() { <-ctx.Done(); c.queue.ShutDown() }()
	for {
		item, stop := c.queue.Get()
		if stop {
			return nil
		}
		err := c.write(ctx, item)
		switch {
		case err == nil:
			c.queue.Forget(item)
		case apierrors.IsNotFound(err):
		// The watch brings the newer one, or one goes of which a namesake takes the place.
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
			c.queue.AddAfter(item, c.o.Every)
		case ctx.Err() == nil:
			c.o.Logger.Error("write the status of a workload", "item", item, "err", err)
			c.queue.AddRateLimited(item)
		}
		c.queue.Done(item)
	}
}

// of is an object with its sites.
func (c *Controller) of(item string) (o client.Object, p Placement, all, ignored []place, ok bool) {
	c.mu.RLock()
	o = c.objects[item]
	c.mu.RUnlock()
	ignore := o != nil && o.GetAnnotations()[workload.OfflineSites] == workload.Ignore
	if p, ok = c.o.Placed(item); !ok {
		return o, p, nil, nil, false
	}
	all, ignored = places(p, c.o.States(item), c.o.Online, ignore)
	return o, p, all, ignored, true
}

// At is what a site has made of what it should have of an item.
type At struct {
	Site fleet.SiteID
	// Wanted is the digest that it should have.
	Wanted string
	// Applied: that is in effect. Ready: and is ready. Over: it could not be applied or will
	// not become ready, and nothing more comes of it by itself.
	Applied, Ready, Over bool
	// Why, as the site says it, of what is not ready; empty: it says nothing.
	Why string
}

// Sites tells what an item is on each site that should have it, by name; false: it is not
// carried.
func (c *Controller) Sites(item string) ([]At, bool) {
	_, _, all, ignored, ok := c.of(item)
	if !ok {
		return nil, false
	}
	all = append(all, ignored...)
	slices.SortFunc(all, func(a, b place) int { return strings.Compare(a.site.Name, b.site.Name) })
	out := make([]At, len(all))
	for i, at := range all {
		out[i] = At{Site: at.site, Wanted: at.wanted, Applied: at.applied(), Ready: at.ready(), Over: at.over()}
		if !at.ready() && at.said != nil {
			out[i].Why = cmp.Or(at.said.GetMessage(), at.said.GetReason())
		}
	}
	return out, true
}

func versionOf(o client.Object) uint64 {
	version, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	return version
}

// Pods are those of a Deployment or StatefulSet on all sites together, and of a Job the
// completions that they should have, and have; false: it is not carried, or of another kind.
func (c *Controller) Pods(gr schema.GroupResource, namespace, name string) (workload.Pods, bool) {
	kind := map[string]string{"deployments": "Deployment", "statefulsets": "StatefulSet", "jobs": "Job"}[gr.Resource]
	o, _, all, _, ok := c.of(workload.ItemName(gr.Group, kind, namespace, name))
	if !ok {
		return workload.Pods{}, false
	}
	switch d := o.(type) {
	case *appsv1.Deployment:
		return sumPods(d.Spec.Replicas, all), true
	case *appsv1.StatefulSet:
		return sumPods(d.Spec.Replicas, all), true
	case *batchv1.Job:
		return workload.Pods{Desired: int(replicas(d.Spec.Completions)) * len(all), Ready: completions(d, all)}, true
	}
	return workload.Pods{}, false
}

func (c *Controller) write(ctx context.Context, item string) error {
	if kind, namespace, name, ok := c.granted(item); ok {
		return c.writeGranted(ctx, kind, item, namespace, name)
	}
	o, p, all, ignored, ok := c.of(item)
	if o == nil || !ok {
		return nil
	}
	version := versionOf(o)
	now := metav1.Now().Rfc3339Copy()
	var changed bool
	var revised error
	next := o.DeepCopyObject().(client.Object)
	switch d := next.(type) {
	case *appsv1.Deployment:
		was := d.Status
		revised = c.reviseDeployment(ctx, o.(*appsv1.Deployment), all)
		d.Status = Deployment(d, version, p, all, ignored, now)
		changed = !equality.Semantic.DeepEqual(was, d.Status)
	case *appsv1.StatefulSet:
		was := d.Status
		revised = c.revise(ctx, "StatefulSet", d, was.ObservedGeneration, &d.Spec.Template, d.Spec.RevisionHistoryLimit)
		d.Status = StatefulSet(d, version, p, all, ignored, now)
		changed = !equality.Semantic.DeepEqual(was, d.Status)
	case *appsv1.DaemonSet:
		was := d.Status
		revised = c.revise(ctx, "DaemonSet", d, was.ObservedGeneration, &d.Spec.Template, d.Spec.RevisionHistoryLimit)
		d.Status = DaemonSet(d, version, p, all, ignored, now)
		changed = !equality.Semantic.DeepEqual(was, d.Status)
	case *batchv1.Job:
		was := d.Status
		if slices.ContainsFunc(was.Conditions, func(c batchv1.JobCondition) bool {
			return c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed)
		}) {
			return nil // as in any Kubernetes, that is its end
		}
		d.Status = Job(d, version, p, all, ignored, now)
		changed = !equality.Semantic.DeepEqual(was, d.Status)
	case *corev1.PersistentVolumeClaim:
		was := d.Status
		d.Status = PersistentVolumeClaim(d, all, ignored, now)
		changed = !equality.Semantic.DeepEqual(was, d.Status)
	case *corev1.Service:
		was := d.Status
		d.Status = Service(d, all)
		changed = !equality.Semantic.DeepEqual(was, d.Status)
	case *batchv1.CronJob:
		was := d.Status
		d.Status = CronJob(d, all)
		changed = !equality.Semantic.DeepEqual(was, d.Status)
	}
	if !changed {
		return revised
	}
	return errors.Join(revised, c.o.Client.Status().Update(ctx, next))
}
