package kube_test

import (
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/agent/kube"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/workload"
)

// TestTwoSitesOnOneCluster installs the agent of another site on a cluster that is a site
// already, as a manifest that is applied to the wrong cluster does.
func TestTwoSitesOnOneCluster(t *testing.T) {
	t.Parallel() // it waits most of the time
	first := newSite(t)
	first.put(namespace(ns), configMap("settings", "first"))
	first.is(apiMap, workload.Ready, "")

	second := &site{
		Cluster: first.Cluster, t: t, root: t, id: fleet.SiteID{Tenant: "acme", Name: "nantes"}, dir: t.TempDir(), cfg: first.cfg, dyn: first.dyn,
		want: map[string]string{}, blob: map[string][]byte{}, good: map[string]string{}, said: map[string]string{}, bad: map[string]bool{},
	}
	second.start(func(o *kube.Options) { o.ClaimFor = time.Hour })
	second.put(namespace("acme-bakery"))
	const other = "Namespace/-/acme-bakery"
	second.is(other, workload.Waiting, "of acme/lille applies to it", workload.Ready)
	if got := second.condition(kube.Reachable); !strings.HasPrefix(got, "False HeldByAnotherSite") {
		t.Errorf("the second site says %q", got)
	}
	first.put(configMap("settings", "again"))
	first.is(apiMap, workload.Ready, "")
	if cm := first.configMap("settings"); cm == nil || cm.Data["v"] != "again" {
		t.Errorf("the first site's object is %v", cm)
	}

	// An agent of the same site, as a Deployment's next pod is, need not wait.
	first.stop()
	first.start(func(o *kube.Options) { o.ClaimFor = time.Hour })
	first.put(configMap("settings", "restarted"))
	first.is(apiMap, workload.Ready, "")

	// The site gets another name, or its cluster another site.
	first.stop()
	second.stop()
	second.start(func(o *kube.Options) { o.ClaimFor = time.Millisecond })
	second.is(other, workload.Ready, "")
	testkit.EventuallyTrue(t, "what the first site left is removed", func() bool { return first.configMap("settings") == nil })
	first.start(func(o *kube.Options) { o.ClaimFor = time.Hour })
	testkit.EventuallyTrue(t, "the first site says that it has no cluster any more", func() bool {
		return strings.HasPrefix(first.condition(kube.Reachable), "False HeldByAnotherSite")
	})
}
