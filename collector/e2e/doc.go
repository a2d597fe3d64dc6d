// Package e2e tests the collector against a real Kubernetes API server. It holds
// tests only, apart from the collector's own because it links kube-apiserver.
package e2e
