// Package conformance runs cases of Kubernetes' own conformance suite, as they are, against a
// virtual Kubernetes: those that need neither a node nor what a namespace has not. The suite
// makes a namespace for each case; its framework lets that be replaced. It is a module of its
// own, as it links the whole suite, and knows nothing of Muster: `make test-conformance` says
// which cases, and a kubeconfig where.
package conformance
