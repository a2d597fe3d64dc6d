// Package schema checks objects against the schemas of Muster's kinds where the API server
// does not, since they are not written: a policy that is only tried. Rules in CEL are left
// to the API server. Package validation says what a schema can't.
package schema

import (
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/crds"
)

// healthPolicy is made once: it takes milliseconds.
var healthPolicy = sync.OnceValues(func() (apiservervalidation.SchemaValidator, error) { return of("healthpolicies") })

// HealthPolicy checks a decoded JSON object. Lists and texts that are too long and numbers
// out of their range are in the errors, with their fields.
func HealthPolicy(object map[string]any) (field.ErrorList, error) {
	v, err := healthPolicy()
	if err != nil {
		return nil, err
	}
	return apiservervalidation.ValidateCustomResource(nil, object, v), nil
}

func of(resource string) (apiservervalidation.SchemaValidator, error) {
	b, err := crds.Files.ReadFile("muster.dev_" + resource + ".yaml")
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(b, crd); err != nil {
		return nil, fmt.Errorf("definition of %s: %w", resource, err)
	}
	props := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, props, nil); err != nil {
		return nil, fmt.Errorf("schema of %s: %w", resource, err)
	}
	v, _, err := apiservervalidation.NewSchemaValidator(props)
	return v, err
}
