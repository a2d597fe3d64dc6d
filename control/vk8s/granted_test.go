package vk8s_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/control/desired/render"
	"muster.dev/muster/control/vk8s"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubeapi"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// machine is a kind that administrators grant.
var machine = offered.Kind{Group: "summed.example.com", Version: "v1", Kind: "Machine", Resource: "machines", Spec: true, Custom: true}

// virtualMachine is KubeVirt's.
var virtualMachine = offered.Kind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachine", Resource: "virtualmachines", Spec: true, Custom: true}

// TestVirtualMachines: a VirtualMachine of KubeVirt's own definition is written through the
// virtual Kubernetes, goes to sites as it was written, and kubectl get vm says what it says on
// its sites.
func TestVirtualMachines(t *testing.T) {
	admin, edits := start(t)
	ctx := t.Context()
	b, err := os.ReadFile("testdata/kubevirt-virtualmachines.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(b, crd); err != nil {
		t.Fatal(err)
	}
	definitions := apiextensions.NewForConfigOrDie(admin).ApiextensionsV1().CustomResourceDefinitions()
	if _, err := definitions.Create(ctx, crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = definitions.Delete(context.Background(), crd.Name, metav1.DeleteOptions{}) })
	paris, rome := fleet.SiteID{Tenant: "vk", Name: "paris"}, fleet.SiteID{Tenant: "vk", Name: "rome"}
	var boots atomic.Bool // on rome
	boots.Store(true)
	c, _ := summing(t, admin, map[string][]fleet.SiteID{"till": {paris, rome}}, func(_ string, site fleet.SiteID) string {
		if site == rome && boots.Load() {
			return `{"created":true,"printableStatus":"Starting","runStrategy":"Always","conditions":[{"type":"Ready","status":"False","reason":"GuestNotRunning","message":"Guest VM is not reported as running","lastProbeTime":null}]}`
		}
		return `{"created":true,"ready":true,"printableStatus":"Running","runStrategy":"Always","conditions":[{"type":"Ready","status":"True","lastProbeTime":null},{"type":"LiveMigratable","status":"False","reason":"DisksNotLiveMigratable"}],"volumeSnapshotStatuses":[{"name":"root","enabled":false}]}`
	}, func(site fleet.SiteID) workload.State {
		if site == rome && boots.Load() {
			return workload.Progressing
		}
		return workload.Ready
	})
	kubeapi.Mount(t).Serve(vk8s.Backend{Virtual: func(ns, name string) (vk8s.Virtual, bool) {
		return vk8s.Virtual{Namespace: ns, Name: name, Tenant: "vk"}, ns == mine
	}, Offered: func(gr schema.GroupResource) bool { _, ok := offered.NewSet(virtualMachine).OfResource(gr); return ok }})
	machines := dynamic.NewForConfigOrDie(through(edits, mine)).Resource(virtualMachine.GroupVersionResource()).Namespace(mine)
	written := map[string]any{"runStrategy": "Always", "template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"kubevirt.io/vm": "till"}}, "spec": map[string]any{
		"domain":  map[string]any{"memory": map[string]any{"guest": "1Gi"}, "cpu": map[string]any{"cores": int64(2)}, "devices": map[string]any{"disks": []any{map[string]any{"name": "root", "disk": map[string]any{"bus": "virtio"}}}}},
		"volumes": []any{map[string]any{"name": "root", "containerDisk": map[string]any{"image": "quay.io/containerdisks/fedora:42"}}},
	}}}
	vm := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": map[string]any{"name": "till"}, "spec": written}}
	testkit.Eventually(t, "the kind is served", func() error {
		_, err := machines.Create(ctx, vm, metav1.CreateOptions{FieldValidation: "Strict"})
		return err
	})
	t.Cleanup(func() { _ = machines.Delete(context.Background(), "till", metav1.DeleteOptions{}) })

	// What sites get is what was written.
	made, err := machines.Get(ctx, "till", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	store := desired.New(desired.Options{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	store.Apply(inventory.NewBook("vk").Put(&v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: "vk-shared", Name: "all"}},
		&v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "vk-system", Name: "paris"}, Spec: v1alpha1.SiteSpec{Approved: true}}).Snapshot())
	store.ConfigureWorkloads("vk", mine, render.Settings{DefaultVirtualSite: "shared/all"})
	if err := store.SetWorkload(virtualMachine, mine, 1, made.Object); err != nil {
		t.Fatal(err)
	}
	store.Start()
	const item = "VirtualMachine.kubevirt.io/" + mine + "/till"
	items := store.State(paris).GetItems()
	i := slices.IndexFunc(items, func(it *wire.Item) bool { return it.Name == item })
	if i < 0 {
		t.Fatalf("no %s among %v", item, items)
	}
	blob, _ := store.Blob(items[i].Digest)
	carried := &unstructured.Unstructured{}
	if err := carried.UnmarshalJSON(blob); err != nil || !equality.Semantic.DeepEqual(carried.Object["spec"], any(written)) || carried.Object["status"] != nil || carried.GetUID() != "" {
		t.Errorf("%s, %v", blob, err)
	}

	// And what they say of it is shown.
	says := func(what string, want ...string) {
		t.Helper()
		c.Touch([]string{item})
		testkit.Eventually(t, what, func() error {
			cells, err := cellsOf(ctx, through(edits, mine), "/apis/kubevirt.io/v1/namespaces/"+mine+"/virtualmachines/till")
			if err == nil && !slices.Equal(cells, want) {
				err = fmt.Errorf("kubectl get vm says %v, want %v", cells, want)
			}
			return err
		})
	}
	says("rome boots", "till", "Starting", "False")
	boots.Store(false)
	says("it runs on both", "till", "Running", "True")
	settled, err := machines.Get(ctx, "till", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if ready, _, _ := unstructured.NestedBool(settled.Object, "status", "ready"); !ready {
		t.Errorf("%v", settled.Object["status"])
	}
}

// cellsOf are the cells of an object in kubectl's table, but for its age.
func cellsOf(ctx context.Context, cfg *rest.Config, path string) ([]string, error) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", asTable)
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var table metav1.Table
	if err := json.NewDecoder(resp.Body).Decode(&table); err != nil || len(table.Rows) != 1 {
		return nil, fmt.Errorf("%d rows: %w", len(table.Rows), err)
	}
	var out []string
	for i, c := range table.ColumnDefinitions {
		if c.Name != "Age" {
			out = append(out, fmt.Sprint(table.Rows[0].Cells[i]))
		}
	}
	return out, nil
}

// TestConditionsOfAnyKind: an object of a granted CRD has the conditions of its sites, such as
// kubectl wait waits for.
func TestConditionsOfAnyKind(t *testing.T) {
	admin, _ := start(t)
	ctx := t.Context()
	keep := true
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "machines.summed.example.com"}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: machine.Group, Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: machine.Resource, Singular: "machine", Kind: machine.Kind, ListKind: "MachineList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep}}}},
	}}
	definitions := apiextensions.NewForConfigOrDie(admin).ApiextensionsV1().CustomResourceDefinitions()
	if _, err := definitions.Create(ctx, crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	paris, rome := fleet.SiteID{Tenant: "vk", Name: "paris"}, fleet.SiteID{Tenant: "vk", Name: "rome"}
	said := make(chan string, 1) // of rome
	said <- `{"conditions":[{"type":"Ready","status":"False","message":"no image"}]}`
	c, _ := summing(t, admin, map[string][]fleet.SiteID{"vm": {paris, rome}}, func(_ string, site fleet.SiteID) string {
		if site == rome {
			s := <-said
			said <- s
			return s
		}
		return `{"conditions":[{"type":"Ready","status":"True","message":"runs"},{"type":"Paused","status":"False"}]}`
	})
	machines := dynamic.NewForConfigOrDie(admin).Resource(machine.GroupVersionResource()).Namespace(mine)
	vm := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "summed.example.com/v1", "kind": "Machine", "metadata": map[string]any{"name": "vm"}, "spec": map[string]any{"cores": int64(2)}}}
	testkit.Eventually(t, "the kind is served", func() error {
		_, err := machines.Create(ctx, vm, metav1.CreateOptions{})
		return err
	})
	t.Cleanup(func() { _ = machines.Delete(context.Background(), "vm", metav1.DeleteOptions{}) })
	const item = "Machine.summed.example.com/" + mine + "/vm"
	since := map[string]time.Time{}
	is := func(what string, want map[string]string) {
		t.Helper()
		c.Touch([]string{item})
		testkit.Eventually(t, what, func() error {
			o, err := machines.Get(ctx, "vm", metav1.GetOptions{})
			if err != nil {
				return err
			}
			var is struct {
				Status struct {
					ObservedGeneration int64              `json:"observedGeneration"`
					Conditions         []metav1.Condition `json:"conditions"`
				} `json:"status"`
			}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &is); err != nil {
				return err
			}
			got := map[string]string{}
			for _, c := range is.Status.Conditions {
				got[c.Type] = string(c.Status) + " " + c.Message
				since[c.Type] = c.LastTransitionTime.Time
			}
			if fmt.Sprint(got) != fmt.Sprint(want) || is.Status.ObservedGeneration != o.GetGeneration() {
				return fmt.Errorf("%v of generation %d", got, is.Status.ObservedGeneration)
			}
			return nil
		})
	}
	is("one of two", map[string]string{"Ready": "False it is on 1 of 2 sites: rome says no image", "SitesReady": "True 2 of 2 sites are ready", "SitesOnline": "True all sites are connected", "SitesInSync": "True all sites have it as it is here"})
	online := since["SitesOnline"]
	<-said
	said <- `{"conditions":[{"type":"Ready","status":"True"}]}`
	is("both", map[string]string{"Ready": "True it is on 2 of 2 sites", "SitesReady": "True 2 of 2 sites are ready", "SitesOnline": "True all sites are connected", "SitesInSync": "True all sites have it as it is here"})
	if !since["SitesOnline"].Equal(online) {
		t.Errorf("what stayed as it was changed at %s and %s", online, since["SitesOnline"])
	}
}
