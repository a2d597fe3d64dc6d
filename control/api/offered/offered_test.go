package offered

import (
	"errors"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func crd(change func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
	c := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "virtualmachines.kubevirt.io", Labels: map[string]string{LabelGranted: Granted}}}
	c.Spec = apiextensionsv1.CustomResourceDefinitionSpec{Group: "kubevirt.io", Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "VirtualMachine", Plural: "virtualmachines"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			{Name: "v1alpha3", Served: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{}}},
			{Name: "v1", Served: true, Storage: true, Subresources: &apiextensionsv1.CustomResourceSubresources{Scale: &apiextensionsv1.CustomResourceSubresourceScale{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {}}}}},
			{Name: "v2", Served: true},
		}}
	if change != nil {
		change(c)
	}
	return c
}

func TestFromCRD(t *testing.T) {
	k, err := FromCRD(crd(nil))
	if want := (Kind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachine", Resource: "virtualmachines", Spec: true, Scale: true, Custom: true}); err != nil || k.GroupVersionKind() != want.GroupVersionKind() || k.Resource != want.Resource || !k.Spec || !k.Scale || !k.Custom {
		t.Errorf("%+v, %v", k, err)
	}
	if _, err := FromCRD(crd(func(c *apiextensionsv1.CustomResourceDefinition) { c.Labels = nil })); !errors.Is(err, ErrNotGranted) {
		t.Errorf("without the label: %v", err)
	}
	if _, err := FromCRD(crd(func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Group = "muster.dev" })); err == nil {
		t.Error("Muster's own group can be granted")
	}
	if _, err := FromCRD(crd(func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Scope = apiextensionsv1.ClusterScoped })); err == nil || !strings.Contains(err.Error(), "namespaced") {
		t.Errorf("outside of namespaces: %v", err)
	}
}

func TestSet(t *testing.T) {
	vm, err := FromCRD(crd(nil))
	if err != nil {
		t.Fatal(err)
	}
	// A CRD can't take the place of a stock kind.
	s := NewSet(vm, Kind{Group: "apps", Version: "v9", Kind: "Deployment", Resource: "deployments"})
	if len(s.Kinds()) != len(Stock)+1 {
		t.Errorf("%d kinds: %v", len(s.Kinds()), s.Names())
	}
	if k, ok := s.Of(schema.GroupKind{Group: "apps", Kind: "Deployment"}); !ok || k.Version != "v1" {
		t.Errorf("%+v", k)
	}
	if k, ok := s.OfResource(schema.GroupResource{Group: "kubevirt.io", Resource: "virtualmachines"}); !ok || k.Kind != "VirtualMachine" {
		t.Errorf("%+v", k)
	}
	if _, ok := NewSet().Of(schema.GroupKind{Group: "kubevirt.io", Kind: "VirtualMachine"}); ok {
		t.Error("offered without a grant")
	}
	if _, ok := NewSet().Of(schema.GroupKind{Kind: "Node"}); ok {
		t.Error("nodes are offered")
	}
}

func TestRoles(t *testing.T) {
	vm, err := FromCRD(crd(nil))
	if err != nil {
		t.Fatal(err)
	}
	may := func(r Role, verb, group, resource string) bool {
		for _, rule := range r.Rules(NewSet(vm)) {
			if slices.Contains(rule.APIGroups, group) && slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, verb) {
				return true
			}
		}
		return false
	}
	for _, c := range []struct {
		verb, group, resource string
		editor, viewer        bool
	}{
		{"create", "apps", "deployments", true, false}, {"watch", "apps", "deployments", true, true}, {"update", "apps", "deployments/scale", true, false}, {"get", "apps", "deployments/scale", true, true},
		{"get", "", "secrets", true, false}, {"update", "apps", "deployments/status", false, false}, {"list", "", "pods", true, true}, {"delete", "", "pods", true, false}, {"create", "", "pods", false, false},
		{"get", "", "pods/log", true, true}, {"create", "", "pods/exec", true, false}, {"get", "", "pods/portforward", true, false}, {"create", "", "pods/eviction", true, false}, {"list", "", "nodes", true, true}, {"delete", "", "nodes", false, false},
		{"patch", "kubevirt.io", "virtualmachines", true, false}, {"get", "kubevirt.io", "virtualmachines", true, true}, {"create", "rbac.authorization.k8s.io", "roles", false, false},
	} {
		for i, want := range []bool{c.editor, c.editor, c.viewer} {
			if got := may(Roles[i], c.verb, c.group, c.resource); got != want {
				t.Errorf("%s %s %s/%s: %v", Roles[i].Name, c.verb, c.group, c.resource, got)
			}
		}
	}
}
