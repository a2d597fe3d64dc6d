// Package v1alpha1 is Muster's API: the custom resources of group muster.dev. It
// holds types, markers and the functions that read them, no behaviour and no I/O.
// The CRDs in control/api/crds and docs/reference/api.md are generated from it.
//
// +kubebuilder:object:generate=true
// +groupName=muster.dev
package v1alpha1

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.20.1 object crd:generateEmbeddedObjectMeta=true paths=. output:crd:dir=../crds
