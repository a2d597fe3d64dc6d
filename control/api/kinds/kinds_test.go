package kinds

import (
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/crds"
	"muster.dev/muster/control/api/v1alpha1"
)

// Every type of the API has a row, every row a type, and the generated CRDs are those
// of the rows.
func TestEveryKindHasARow(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for name, typ := range scheme.KnownTypes(v1alpha1.GroupVersion) {
		if _, spec := typ.FieldByName("Spec"); !spec || strings.HasSuffix(name, "List") {
			continue
		}
		k, err := Of(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := reflect.TypeOf(k.New()).Elem(); got != typ {
			t.Errorf("%s: New makes a %s", name, got)
		}
	}
	crd := map[string]apiextensionsv1.CustomResourceDefinition{}
	names, err := fs.Glob(crds.Files, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := crds.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var c apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(b, &c); err != nil {
			t.Fatal(err)
		}
		crd[c.Spec.Names.Kind] = c
		if _, err := Of(c.Spec.Names.Kind); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, k := range All {
		c, ok := crd[k.Name]
		if !ok {
			t.Errorf("%s has no CRD in control/api/crds: run make generate", k.Name)
			continue
		}
		if c.Spec.Names.Plural != k.Resource || (c.Spec.Scope == apiextensionsv1.ClusterScoped) != (k.Scope == Cluster) {
			t.Errorf("%s: the CRD says %s, %s; the row %s, %s", k.Name, c.Spec.Names.Plural, c.Spec.Scope, k.Resource, k.Scope)
		}
		if !slices.Contains([]Scope{Cluster, System, Anywhere, Workloads}, k.Scope) || k.Check == nil {
			t.Errorf("%s: the row lacks its scope, or its Check; one with nothing to check says Unchecked", k.Name)
		}
		if k.View > k.Edit || k.Edit > k.Admin {
			t.Errorf("%s: a lesser role may do more: admin %s, edit %s, view %s", k.Name, k.Admin, k.Edit, k.View)
		}
		if k.Scope == Cluster && k.Admin != None {
			t.Errorf("%s: a tenant's roles are bound in its namespaces; they can't be given what is outside of them", k.Name)
		}
	}
}

func TestUnknownKindIsAnError(t *testing.T) {
	if _, err := Of("Nothing"); err == nil || !strings.Contains(err.Error(), "Nothing") {
		t.Errorf("%v", err)
	}
}

func TestRoles(t *testing.T) {
	verbs := func(r TenantRole, resource string) string {
		for _, rule := range r.Rules() {
			if slices.Contains(rule.Resources, resource) {
				return strings.Join(rule.Verbs, " ")
			}
		}
		return ""
	}
	write, read := strings.Join(Write.Verbs(), " "), strings.Join(Read.Verbs(), " ")
	for resource, want := range map[string][3]string{
		"alertrules": {write, write, read}, "alertroutes": {write, read, read}, "sites": {write, read, read}, "registrationtokens": {write, read, read},
		"secrets": {write, "", ""}, "logs": {"get", "get", "get"}, "silences": {"get list create delete", "get list create delete", "get list"}, "tenants": {"", "", ""},
	} {
		for i, r := range TenantRoles {
			if got := verbs(r, resource); got != want[i] {
				t.Errorf("%s %s: %q, want %q", r.Name, resource, got, want[i])
			}
		}
	}
}
