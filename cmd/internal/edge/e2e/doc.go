// Package e2e makes a real Kubernetes API server a site: the manifest is applied to it, and
// muster-edge runs with the rights that it grants. It holds tests only, apart from
// cmd/internal/edge's own because it links kube-apiserver.
package e2e
