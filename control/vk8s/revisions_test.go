package vk8s_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/vk8s/sum"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// summing runs what sums up the status of workloads of the namespace mine, by name, on these
// sites, each of which has what it should have and says status of it, until the test ends.
func summing(t *testing.T, admin *rest.Config, sites map[string][]fleet.SiteID, status func(name string, site fleet.SiteID) string, state ...func(fleet.SiteID) workload.State) (*sum.Controller, client.Client) {
	t.Helper()
	return summingWith(t, admin, func(*sum.Options) {}, sites, status, state...)
}

// summingWith is summing with other options.
func summingWith(t *testing.T, admin *rest.Config, with func(*sum.Options), sites map[string][]fleet.SiteID, status func(name string, site fleet.SiteID) string, state ...func(fleet.SiteID) workload.State) (*sum.Controller, client.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	scheme := runtime.NewScheme()
	if err := sum.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api, err := client.New(admin, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	informers, err := cache.New(admin, cache.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = informers.Start(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	o := sum.Options{
		Cache: informers, Client: api, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Items: func(string) []string { return nil },
		Online:  func(fleet.SiteID) bool { return true },
		Granted: offered.NewSet(machine, virtualMachine).Of,
		Placed: func(item string) (sum.Placement, bool) {
			_, _, ns, name, _ := workload.ParseItemName(item)
			p := sum.Placement{Version: 1 << 62, Digests: map[fleet.SiteID]string{}}
			for _, id := range sites[name] {
				p.Digests[id] = "new"
			}
			return p, ns == mine && sites[name] != nil
		},
		States: func(item string) map[fleet.SiteID]*wire.WorkloadStatus {
			_, _, _, name, _ := workload.ParseItemName(item)
			out := map[fleet.SiteID]*wire.WorkloadStatus{}
			for _, id := range sites[name] {
				is := workload.Ready
				for _, of := range state {
					is = of(id)
				}
				out[id] = &wire.WorkloadStatus{Digest: "new", Wanted: "new", State: string(is), Status: []byte(status(name, id))}
			}
			return out
		},
	}
	with(&o)
	c := sum.New(o)
	if err := c.Watch(ctx); err != nil {
		t.Fatal(err)
	}
	running.Go(func() { _ = c.Run(ctx) })
	return c, api
}

// TestRevisions: what kubectl rollout and Helm read of a Deployment is there, and what it
// was is kept, through the real API server.
func TestRevisions(t *testing.T) {
	admin, _ := start(t)
	ctx := t.Context()
	paris, rome := fleet.SiteID{Tenant: "vk", Name: "paris"}, fleet.SiteID{Tenant: "vk", Name: "rome"}
	ready := map[fleet.SiteID]int{paris: 3, rome: 2}
	_, api := summing(t, admin, map[string][]fleet.SiteID{"revised": {paris, rome}}, func(_ string, site fleet.SiteID) string {
		return fmt.Sprintf(`{"replicas":3,"updatedReplicas":3,"readyReplicas":%d,"availableReplicas":%[1]d}`, ready[site])
	})

	kube := kubernetes.NewForConfigOrDie(admin)
	deployments := kube.AppsV1().Deployments(mine)
	labels, three, two := map[string]string{"app": "revised"}, int32(3), int32(2)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "revised"}, Spec: appsv1.DeploymentSpec{Replicas: &three, RevisionHistoryLimit: &two, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "app:1"}}}}}}
	if _, err := deployments.Create(ctx, d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// now checks the revision in effect, its image, and which there are.
	now := func(what, revision, image string, sets int) {
		t.Helper()
		testkit.Eventually(t, what, func() error {
			d, err := deployments.Get(ctx, "revised", metav1.GetOptions{})
			if err != nil {
				return err
			}
			list, err := kube.AppsV1().ReplicaSets(mine).List(ctx, metav1.ListOptions{LabelSelector: "app=revised"})
			if err != nil {
				return err
			}
			if is := d.Annotations["deployment.kubernetes.io/revision"]; is != revision || len(list.Items) != sets {
				return fmt.Errorf("revision %s, %d ReplicaSets", is, len(list.Items))
			}
			for _, rs := range list.Items {
				if rs.Annotations["deployment.kubernetes.io/revision"] != revision {
					if *rs.Spec.Replicas != 0 {
						return fmt.Errorf("an old one has %d replicas", *rs.Spec.Replicas)
					}
					continue
				}
				if rs.Spec.Template.Spec.Containers[0].Image != image || rs.Status.ObservedGeneration != rs.Generation || rs.Status.ReadyReplicas != 2 {
					return fmt.Errorf("%s, %+v", rs.Spec.Template.Spec.Containers[0].Image, rs.Status)
				}
				return nil
			}
			return fmt.Errorf("none is of revision %s", revision)
		})
	}
	set := func(image string) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, image)
		if err := api.Patch(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: mine, Name: "revised"}}, client.RawPatch("application/strategic-merge-patch+json", patch)); err != nil {
			t.Fatal(err)
		}
	}
	now("the first, ready as the site is that has fewest", "1", "app:1", 1)
	set("app:2")
	now("the second", "2", "app:2", 2)
	set("app:1") // as kubectl rollout undo does
	now("back to the first, with a number of its own", "3", "app:1", 2)
	set("app:3")
	now("the limit's former ones are kept", "4", "app:3", 3)
	set("app:4")
	now("and no more", "5", "app:4", 3)
	// What is left behind is a namesake's, as on any cluster.
	orphan := metav1.DeletePropagationOrphan
	if err := deployments.Delete(ctx, "revised", metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the Deployment is gone", func() error {
		_, err := deployments.Get(ctx, "revised", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
	d.Spec.Template.Spec.Containers[0].Image = "app:4"
	if _, err := deployments.Create(ctx, d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	now("its namesake has its revisions", "5", "app:4", 3)
	background := metav1.DeletePropagationBackground
	if err := deployments.Delete(ctx, "revised", metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "they go with their Deployment", func() error {
		list, err := kube.AppsV1().ReplicaSets(mine).List(ctx, metav1.ListOptions{LabelSelector: "app=revised"})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are left", len(list.Items))
		}
		return err
	})
}

// behind is a cache that has not seen yet what workloads were.
type behind struct{ cache.Cache }

func (b behind) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	switch list.(type) {
	case *appsv1.ReplicaSetList, *appsv1.ControllerRevisionList:
		return nil
	}
	return b.Cache.List(ctx, list, opts...)
}

// TestGoingBackInTheSameSecond: what a workload was a moment ago is kept when somebody goes
// back to it, though no status is written meanwhile, and the cache is behind.
func TestGoingBackInTheSameSecond(t *testing.T) {
	admin, _ := start(t)
	ctx := t.Context()
	paris := fleet.SiteID{Tenant: "vk", Name: "paris"}
	_, api := summingWith(t, admin, func(o *sum.Options) { o.Every, o.Cache = time.Hour, behind{o.Cache} },
		map[string][]fleet.SiteID{"hasty": {paris}}, func(string, fleet.SiteID) string { return `{"replicas":1,"readyReplicas":1}` })
	labels, one := map[string]string{"app": "hasty"}, int32(1)
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "app:1"}}}}
	at := metav1.ObjectMeta{Namespace: mine, Name: "hasty"}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	objects := map[string]client.Object{
		"Deployment":  &appsv1.Deployment{ObjectMeta: at, Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: selector, Template: template}},
		"StatefulSet": &appsv1.StatefulSet{ObjectMeta: at, Spec: appsv1.StatefulSetSpec{Replicas: &one, Selector: selector, Template: template}},
	}
	revisions := map[string]func() (map[string]int64, error){
		"Deployment": func() (map[string]int64, error) {
			var list appsv1.ReplicaSetList
			err := api.List(ctx, &list, client.InNamespace(mine), client.MatchingLabels(labels))
			out := map[string]int64{}
			for _, rs := range list.Items {
				out[rs.Spec.Template.Spec.Containers[0].Image], _ = strconv.ParseInt(rs.Annotations["deployment.kubernetes.io/revision"], 10, 64)
			}
			return out, err
		},
		"StatefulSet": func() (map[string]int64, error) {
			var list appsv1.ControllerRevisionList
			err := api.List(ctx, &list, client.InNamespace(mine), client.MatchingLabels(labels))
			out := map[string]int64{}
			for _, r := range list.Items {
				_, image, _ := strings.Cut(string(r.Data.Raw), `"image":"`)
				image, _, _ = strings.Cut(image, `"`)
				out[image] = r.Revision
			}
			return out, err
		},
	}
	for kind, o := range objects {
		if err := api.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
		has := func(want map[string]int64) {
			t.Helper()
			testkit.Eventually(t, fmt.Sprintf("the revisions of the %s are %v", kind, want), func() error {
				got, err := revisions[kind]()
				if err == nil && !maps.Equal(got, want) {
					err = fmt.Errorf("%v", got)
				}
				return err
			})
		}
		set := func(image string) {
			t.Helper()
			patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, image)
			if err := api.Patch(ctx, o, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
				t.Fatal(err)
			}
		}
		has(map[string]int64{"app:1": 1})
		set("app:2")
		has(map[string]int64{"app:1": 1, "app:2": 2})
		set("app:1") // as kubectl rollout undo does, which goes to the last but one
		has(map[string]int64{"app:1": 3, "app:2": 2})
		set("app:3")
		has(map[string]int64{"app:1": 3, "app:2": 2, "app:3": 4})
		if err := api.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
	}
}

// deaf is a cache whose watch of workloads says nothing while it is stopped, as one that is late.
type deaf struct {
	cache.Cache
	stopped *atomic.Bool
}

type deafInformer struct {
	cache.Informer
	stopped *atomic.Bool
}

func (d deaf) GetInformer(ctx context.Context, o client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	i, err := d.Cache.GetInformer(ctx, o, opts...)
	switch o.(type) {
	case *appsv1.ReplicaSet, *appsv1.ControllerRevision:
		return i, err
	}
	return deafInformer{i, d.stopped}, err
}

func (i deafInformer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { h.OnAdd(o, false) },
		UpdateFunc: func(was, o any) {
			if !i.stopped.Load() {
				h.OnUpdate(was, o)
			}
		},
		DeleteFunc: func(o any) {
			if !i.stopped.Load() {
				h.OnDelete(o)
			}
		},
	})
}

// TestWhatIsOrphanedStays: a workload that goes and leaves its revisions behind doesn't take them
// back, though the controller has not heard yet that it goes.
func TestWhatIsOrphanedStays(t *testing.T) {
	admin, _ := start(t)
	ctx := t.Context()
	var stopped atomic.Bool
	var writes atomic.Int64
	var late cache.Cache
	c, api := summingWith(t, admin, func(o *sum.Options) {
		late, o.Every, o.Cache = o.Cache, 10*time.Millisecond, deaf{o.Cache, &stopped}
		placed := o.Placed
		o.Placed = func(item string) (sum.Placement, bool) { writes.Add(1); return placed(item) }
	}, map[string][]fleet.SiteID{"orphans": {{Tenant: "vk", Name: "paris"}}}, func(string, fleet.SiteID) string { return `{"replicas":1,"readyReplicas":1}` })
	labels, one := map[string]string{"app": "orphans"}, int32(1)
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "app:1"}}}}
	at, selector := metav1.ObjectMeta{Namespace: mine, Name: "orphans"}, &metav1.LabelSelector{MatchLabels: labels}
	for kind, of := range map[string]struct {
		workload  client.Object
		revisions client.ObjectList
	}{
		"Deployment":  {&appsv1.Deployment{ObjectMeta: at, Spec: appsv1.DeploymentSpec{Replicas: &one, Selector: selector, Template: template}}, &appsv1.ReplicaSetList{}},
		"StatefulSet": {&appsv1.StatefulSet{ObjectMeta: at, Spec: appsv1.StatefulSetSpec{Replicas: &one, Selector: selector, Template: template}}, &appsv1.ControllerRevisionList{}},
	} {
		stopped.Store(false)
		if err := api.Create(ctx, of.workload); err != nil {
			t.Fatal(err)
		}
		var revision client.Object
		owned := func(by client.Reader, n int) error {
			if err := by.List(ctx, of.revisions, client.InNamespace(mine), client.MatchingLabels(labels)); err != nil {
				return err
			}
			list, err := meta.ExtractList(of.revisions)
			if err != nil {
				return err
			}
			if len(list) != 1 {
				return fmt.Errorf("%d revisions", len(list))
			}
			revision = list[0].(client.Object)
			if is := revision.GetOwnerReferences(); len(is) != n {
				return fmt.Errorf("it is owned by %v", is)
			}
			return nil
		}
		testkit.Eventually(t, "the revision of the "+kind+" is its own", func() error { return owned(late, 1) })
		testkit.EventuallyTrue(t, "the controller knows the status that it wrote", func() bool {
			err := api.Get(ctx, client.ObjectKeyFromObject(of.workload), of.workload)
			return err == nil && observed(of.workload) == of.workload.GetGeneration()
		})
		stopped.Store(true)
		if err := api.Delete(ctx, of.workload, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "it is nobody's", func() error { return owned(late, 0) })
		began := writes.Load()
		testkit.EventuallyTrue(t, "the controller looked at it", func() bool {
			c.Touch([]string{workload.ItemName("apps", kind, mine, "orphans")})
			return writes.Load() > began+2 // the third begins when the second is over
		})
		if err := owned(api, 0); err != nil {
			t.Errorf("the revision of the %s that is gone: %v", kind, err)
		} else if err := api.Delete(ctx, revision); err != nil {
			t.Fatal(err)
		}
	}
}

func observed(o client.Object) int64 {
	switch o := o.(type) {
	case *appsv1.Deployment:
		return o.Status.ObservedGeneration
	case *appsv1.StatefulSet:
		return o.Status.ObservedGeneration
	}
	return 0
}
