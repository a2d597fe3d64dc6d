// Package e2e drives a whole fleet on one machine as a user would: it starts
// `bin/muster demo`, breaks and heals sites, kills roles, and opens the page in
// Chromium. TestKubernetes has a fleet of its own, whose sites are Kubernetes clusters
// (internal/testkit/kubesite). It holds tests only and nobody imports it. The tests need what `make
// build` makes and run with MUSTER_E2E=1 (`make test-e2e`), because they take the
// product's own ports and minutes of time.
package e2e
