package rig

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/workload"
)

// The virtual Kubernetes of the run.
const (
	shop, vk8s = "shop", "vk8s"
	replicas   = 3
)

// workloads applies a Deployment to all sites through the virtual Kubernetes, changes it,
// reads it back as its users do, takes it away, and applies another one. It begins when
// control has written what it learnt of sites as they came: that takes a processor for a
// while, and a fleet does not come anew with each Deployment.
func (r *run) workloads(ctx context.Context, _ *Phase) error {
	if err := r.sitesWritten(ctx); err != nil {
		return err
	}
	stop := r.profileSoon(ctx, PhaseWorkloads, 0)
	defer stop()
	kube, err := r.virtual(ctx)
	if err != nil {
		return err
	}
	namespace := tenant + "-" + shop
	item := workload.ItemName("apps", "Deployment", namespace, "web")
	api := kube.AppsV1().Deployments(namespace)
	began := time.Now()
	web, err := api.Create(ctx, deployment("web"), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("apply a Deployment: %w", err)
	}
	old := r.f.Digests(item)
	if err := r.deployed(ctx, kube, item, old, web.Generation, began, "the first Deployment of a virtual Kubernetes"); err != nil {
		return err
	}
	old = r.f.Digests(item)
	began = time.Now()
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if web, err = api.Get(ctx, "web", metav1.GetOptions{}); err != nil {
			return err
		}
		web.Spec.Template.Spec.Containers[0].Image = "nginx:1.30"
		web, err = api.Update(ctx, web, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("change the Deployment: %w", err)
	}
	if err := r.deployed(ctx, kube, item, old, web.Generation, began, "another image"); err != nil {
		return err
	}
	if err := r.readPods(ctx, kube, namespace); err != nil {
		return err
	}
	if err := r.undeploy(ctx, api, item); err != nil {
		return err
	}
	item = workload.ItemName("apps", "Deployment", namespace, "other")
	began = time.Now()
	other, err := api.Create(ctx, deployment("other"), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("apply another Deployment: %w", err)
	}
	return r.deployed(ctx, kube, item, nil, other.Generation, began, "a new Deployment")
}

// undeploy deletes a Deployment and waits until no site has it.
func (r *run) undeploy(ctx context.Context, api appsclient.DeploymentInterface, item string) error {
	_, _, _, name, err := workload.ParseItemName(item)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := api.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the Deployment: %w", err)
	}
	err = until(ctx, "every site to have removed the Deployment", 50*time.Millisecond, func(context.Context) (bool, string, error) {
		gone := r.f.Digests(item)[""]
		return gone == r.f.Sites(), fmt.Sprintf("%d of %d", gone, r.f.Sites()), nil
	})
	if err == nil {
		r.row("workloads: deleted from all sites, s", time.Since(began).Seconds(), "%.1f")
	}
	return err
}

// sitesWritten waits until no status of a Site has waited to be written for some seconds:
// those that changed twice come again a little later.
func (r *run) sitesWritten(ctx context.Context) error {
	const looks = 5
	none := 0
	return until(ctx, "control to have written the status of all sites", time.Second, func(ctx context.Context) (bool, string, error) {
		m, err := r.c.metrics(ctx, "control")
		if err != nil {
			return false, "", err
		}
		waiting := m.sum("muster_fleetapi_status_writes_pending")
		if none++; waiting > 0 {
			none = 0
		}
		return none == looks, fmt.Sprintf("%.0f wait", waiting), nil
	})
}

// deployment is one as the run's sites get them.
func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	n := int32(replicas)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx:1.29"}}},
		}},
	}
}

// deployed waits until all sites hold another version of the item than in old, and until
// the Deployment's own status says so.
func (r *run) deployed(ctx context.Context, kube kubernetes.Interface, item string, old map[string]int, generation int64, began time.Time, what string) error {
	_, _, namespace, name, err := workload.ParseItemName(item)
	if err != nil {
		return err
	}
	shown := make(chan error, 1)
	var shownAfter time.Duration
	go func() {
		err := until(ctx, "the Deployment's status to say that all sites are ready", 250*time.Millisecond, func(ctx context.Context) (bool, string, error) {
			d, err := kube.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error(), nil
			}
			// In terms of the spec: all of it when all sites are ready, and not before.
			st := d.Status
			return st.ObservedGeneration >= generation && st.UpdatedReplicas == replicas && st.AvailableReplicas == replicas, fmt.Sprintf("generation %d of %d; of %d replicas %d are updated, %d available", st.ObservedGeneration, generation, replicas, st.UpdatedReplicas, st.AvailableReplicas), nil
		})
		shownAfter = time.Since(began)
		shown <- err
	}()
	err = until(ctx, "every site to hold the Deployment", 20*time.Millisecond, func(context.Context) (bool, string, error) {
		n := 0
		for digest, sites := range r.f.Digests(item) {
			if digest != "" && old[digest] == 0 {
				n += sites
			}
		}
		return n == r.f.Sites(), fmt.Sprintf("%d of %d", n, r.f.Sites()), nil
	})
	if err != nil {
		return err
	}
	r.row("workloads: "+what+" on all sites, s", time.Since(began).Seconds(), "%.1f")
	if err := <-shown; err != nil {
		return err
	}
	r.row("workloads: "+what+" shown as ready on all sites, s", shownAfter.Seconds(), "%.1f")
	return nil
}

// readPods lists the pods of all sites as kubectl does.
func (r *run) readPods(ctx context.Context, kube kubernetes.Interface, namespace string) error {
	want := replicas * r.f.Sites()
	began := time.Now()
	list, err := kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the pods: %w", err)
	}
	if len(list.Items) != want {
		return fmt.Errorf("list the pods: %d, want %d", len(list.Items), want)
	}
	r.row("workloads: list of all pods, ms", ms(time.Since(began)), "%.0f")
	began = time.Now()
	page, err := kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 500})
	if err != nil {
		return fmt.Errorf("list the first pods: %w", err)
	}
	if len(page.Items) != min(500, want) {
		return fmt.Errorf("list the first pods: %d", len(page.Items))
	}
	r.row("workloads: list of the first 500 pods, ms", ms(time.Since(began)), "%.0f")
	return nil
}

// virtual makes the virtual Kubernetes over all sites, if it is not there, and returns a
// client of it.
func (r *run) virtual(ctx context.Context) (kubernetes.Interface, error) {
	if r.shop != nil {
		return r.shop, nil
	}
	var t v1alpha1.Tenant
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := r.kube.Get(ctx, types.NamespacedName{Name: tenant}, &t); err != nil {
			return err
		}
		t.Spec.Namespaces = append(t.Spec.Namespaces, shop)
		return r.kube.Update(ctx, &t)
	})
	if err != nil {
		return nil, fmt.Errorf("give the tenant a namespace: %w", err)
	}
	objects := []client.Object{
		&v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: tenant + "-shared", Name: "everywhere"}},
		&v1alpha1.VirtualKubernetes{ObjectMeta: metav1.ObjectMeta{Namespace: tenant + "-" + shop, Name: vk8s}, Spec: v1alpha1.VirtualKubernetesSpec{DefaultVirtualSite: "shared/everywhere"}},
	}
	for _, o := range objects {
		if err := r.kube.Create(ctx, o); err != nil {
			return nil, fmt.Errorf("make %s: %w", o.GetName(), err)
		}
	}
	cfg := rest.CopyConfig(r.cfg)
	cfg.Host += "/api/vK8s/namespaces/" + tenant + "-" + shop + "/" + vk8s
	cfg.QPS = -1
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	r.shop = kube
	return kube, until(ctx, "the virtual Kubernetes to be served", 100*time.Millisecond, func(ctx context.Context) (bool, string, error) {
		_, err := kube.CoreV1().ConfigMaps(tenant+"-"+shop).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return false, err.Error(), nil
		}
		return true, "", nil
	})
}
