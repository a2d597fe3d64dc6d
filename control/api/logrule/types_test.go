package logrule

import (
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/crds"
	"muster.dev/muster/control/api/v1alpha1"
)

// What the schema lets in is what the table has, every option that a type names is a field of the rule, and no
// field is one that no type knows.
func TestTypesAreThoseOfTheSchema(t *testing.T) {
	b, err := crds.Files.ReadFile("muster.dev_logrules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(b, &crd); err != nil {
		t.Fatal(err)
	}
	rule := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["rules"].Items.Schema
	var enum []string
	for _, e := range rule.Properties["type"].Enum {
		var name string
		if err := yaml.Unmarshal(e.Raw, &name); err != nil {
			t.Fatal(err)
		}
		enum = append(enum, name)
	}
	if !slices.Equal(enum, Types()) {
		t.Errorf("the schema lets in %v, the table has %v: make generate", enum, Types())
	}
	options := optionsOf(v1alpha1.LogRule{})
	for option := range options {
		if len(knowing(option)) == 0 {
			t.Errorf("no type knows %s: name it with one, or in ofEveryType", option)
		}
	}
	for _, typ := range types {
		for _, option := range slices.Concat(typ.Needs, typ.Knows, typ.OneOf[:]) {
			if _, ok := options[option]; !ok && option != "" {
				t.Errorf("%s names %s, which is no option of a rule", typ.Name, option)
			}
		}
	}
	for _, name := range ofEveryType {
		if _, ok := rule.Properties[name]; !ok {
			t.Errorf("ofEveryType has %s, which is no field of a rule", name)
		}
	}
}
