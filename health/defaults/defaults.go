// Package defaults holds the HealthPolicy and the CollectionPolicy that Muster
// ships, as the YAML that a user would write. cmd/internal hands them to control,
// which gives every tenant a copy; the health engine falls back to them for a site
// that no policy selects.
//
// It parses its embedded files and does nothing else.
package defaults

import (
	_ "embed"
	"fmt"

	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/health"
)

// HealthPolicyYAML is the shipped HealthPolicy with its comments.
//
//go:embed healthpolicy.yaml
var HealthPolicyYAML []byte

// CollectionPolicyYAML is the shipped CollectionPolicy with its comments.
//
//go:embed collectionpolicy.yaml
var CollectionPolicyYAML []byte

// HealthPolicy returns a new copy of the shipped HealthPolicy, without a namespace.
func HealthPolicy() *v1alpha1.HealthPolicy {
	var p v1alpha1.HealthPolicy
	parse("healthpolicy.yaml", HealthPolicyYAML, &p)
	return &p
}

// CollectionPolicy returns a new copy of the shipped CollectionPolicy, without a
// namespace.
func CollectionPolicy() *v1alpha1.CollectionPolicy {
	var p v1alpha1.CollectionPolicy
	parse("collectionpolicy.yaml", CollectionPolicyYAML, &p)
	return &p
}

// Model returns the model of the shipped HealthPolicy.
func Model() *health.Model {
	m, err := health.FromPolicy(&HealthPolicy().Spec)
	if err != nil {
		panic(fmt.Sprintf("healthpolicy.yaml: %v", err)) // embedded; a test reads it
	}
	return m
}

func parse(name string, data []byte, out any) {
	if err := yaml.UnmarshalStrict(data, out); err != nil {
		panic(fmt.Sprintf("%s: %v", name, err)) // embedded; a test reads it
	}
}

// CasesYAML are the unit tests of the shipped HealthPolicy, for policytest.
//
//go:embed cases.yaml
var CasesYAML []byte
