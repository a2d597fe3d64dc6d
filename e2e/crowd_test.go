package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubesite"
	"muster.dev/muster/internal/workload"
	"muster.dev/muster/loadtest/fleetload"
)

const (
	// crowdSize is how many agents without a cluster behind them stand beside the clusters.
	crowdSize      = 1000
	crowdNamespace = "main-crowd"
)

// crowd is agents by the thousand, which stay until the test ends, and a virtual Kubernetes that
// they and the clusters have in common.
type crowd struct {
	*fleetload.Fleet
	f    *clusters
	kube kubernetes.Interface
	item string // the Deployment of all
}

func (f *clusters) crowd() *crowd {
	t := f.t
	t.Helper()
	c := &crowd{f: f, item: workload.ItemName("apps", "Deployment", crowdNamespace, "everywhere")}
	if err := kubesite.Apply(t.Context(), f.admin, `
apiVersion: muster.dev/v1alpha1
kind: Tenant
metadata: {name: main}
spec: {namespaces: [shop, crowd]}
---
apiVersion: muster.dev/v1alpha1
kind: VirtualSite
metadata: {name: world, namespace: main-shared}
spec: {siteSelector: {matchExpressions: [{key: region, operator: In, values: [eu, elsewhere]}]}}
`); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the namespace of all", func() error {
		return kubesite.Apply(t.Context(), f.admin, `
apiVersion: muster.dev/v1alpha1
kind: VirtualKubernetes
metadata: {name: all, namespace: `+crowdNamespace+`}
spec: {defaultVirtualSite: shared/world}
`)
	})
	cfg := rest.CopyConfig(f.admin)
	cfg.Host += "/api/vK8s/namespaces/" + crowdNamespace + "/all"
	c.kube = kubernetes.NewForConfigOrDie(cfg)

	hash, err := fleetload.ReadCAHash(f.path("data"))
	if err != nil {
		t.Fatal(err)
	}
	token := f.muster("token", "create", "--auto-approve", "--max-uses", "0", "--label", "region=elsewhere", "--token-only", "-T", "main")
	var stop func()
	if c.Fleet, stop, err = fleetload.Join(t.Context(), fleetload.Options{Sites: crowdSize, Series: 1, Server: f.gateway, CAHash: hash, Token: token}, 16); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return c
}

// holds waits until each agent has the Deployment of all, or none has.
func (c *crowd) holds(t *testing.T, present bool) {
	t.Helper()
	testkit.EventuallyWithin(t, fmt.Sprintf("%d agents have it: %t", crowdSize, present), 2*time.Minute, func() error {
		of := c.Digests(c.item)
		if n := of[""]; len(of) != 1 || present == (n > 0) {
			return fmt.Errorf("%d have none, and there are %d versions of it; %d of %d are connected", n, len(of), c.Connected(), crowdSize)
		}
		return nil
	})
}

// ready waits until the Deployment of all is ready on so many sites, and tells of their pods.
func (c *crowd) ready(t *testing.T, sites int) (nodes map[string]bool) {
	t.Helper()
	testkit.EventuallyWithin(t, "it is ready everywhere", 2*time.Minute, func() error {
		d, err := c.kube.AppsV1().Deployments(crowdNamespace).Get(t.Context(), "everywhere", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, x := range d.Status.Conditions {
			if x.Type == "SitesReady" && x.Message == fmt.Sprintf("%d of %[1]d sites are ready", sites) && d.Status.AvailableReplicas == 1 {
				return nil
			}
		}
		return fmt.Errorf("%d replicas are available; %+v", d.Status.AvailableReplicas, d.Status.Conditions)
	})
	list, err := c.kube.CoreV1().Pods(crowdNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=everywhere"})
	if err != nil {
		t.Fatal(err)
	}
	nodes = map[string]bool{}
	for _, p := range list.Items {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			nodes[p.Spec.NodeName] = true
		}
	}
	return nodes
}

// testCrowd: one Deployment goes onto clusters and a thousand agents alike, and its status is that of
// all of them.
func testCrowd(t *testing.T, f *clusters, c *crowd) {
	one := web("nginx:1.27")
	n, l := int32(1), map[string]string{"app": "everywhere"}
	one.Name, one.Spec.Replicas, one.Spec.Selector.MatchLabels, one.Spec.Template.Labels = "everywhere", &n, l, l
	b, err := json.Marshal(one)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the virtual Kubernetes takes it", func() error {
		_, err := c.kube.AppsV1().Deployments(crowdNamespace).Patch(t.Context(), one.Name, types.ApplyPatchType, b, metav1.PatchOptions{FieldManager: "e2e"})
		return err
	})
	c.holds(t, true)
	if nodes := c.ready(t, crowdSize+2); len(nodes) != crowdSize+2 {
		t.Errorf("pods are told of %d sites, want %d", len(nodes), crowdSize+2)
	}
}

// testCrowdLeft: all that happened to the clusters meanwhile was not seen by the agents; a cluster that
// came since has what is for all; and it ends everywhere.
func testCrowdLeft(t *testing.T, f *clusters, c *crowd) {
	c.holds(t, true)
	if nodes := c.ready(t, crowdSize+3); len(nodes) != crowdSize+3 {
		t.Errorf("pods are told of %d sites, want %d", len(nodes), crowdSize+3)
	}
	if of := c.Digests(workload.ItemName("apps", "Deployment", shopNamespace, "web")); of[""] != crowdSize {
		t.Errorf("what is for the clusters went to agents too: %v", of)
	}
	if n := c.Connected(); n != crowdSize {
		t.Errorf("%d of %d agents are connected", n, crowdSize)
	}
	if err := c.kube.AppsV1().Deployments(crowdNamespace).Delete(t.Context(), "everywhere", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.holds(t, false)
	testkit.EventuallyWithin(t, "the clusters have removed it", time.Minute, func() error {
		for name, site := range f.sites {
			if _, err := site.Client.AppsV1().Deployments(crowdNamespace).Get(t.Context(), "everywhere", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s: %v", name, err)
			}
		}
		return nil
	})
}
