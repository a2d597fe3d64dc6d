package vk8s_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
)

// machine is a kind that administrators grant.
var machine = offered.Kind{Group: "summed.example.com", Version: "v1", Kind: "Machine", Resource: "machines", Spec: true, Custom: true}

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
	is("one of two", map[string]string{"Ready": "False it is on 1 of 2 sites: rome says no image", "SitesReady": "True 2 of 2 sites are ready", "SitesOnline": "True all sites are connected"})
	online := since["SitesOnline"]
	<-said
	said <- `{"conditions":[{"type":"Ready","status":"True"}]}`
	is("both", map[string]string{"Ready": "True it is on 2 of 2 sites", "SitesReady": "True 2 of 2 sites are ready", "SitesOnline": "True all sites are connected"})
	if !since["SitesOnline"].Equal(online) {
		t.Errorf("what stayed as it was changed at %s and %s", online, since["SitesOnline"])
	}
}
