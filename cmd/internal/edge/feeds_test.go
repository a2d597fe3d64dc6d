package edge

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster.dev/muster/collector"
	"muster.dev/muster/collector/cluster"
	"muster.dev/muster/internal/fleet"
)

var reads = fleet.CollectionPolicy{AllowNames: []string{"kube_node_info", "node_load1"}, Reads: []fleet.HealthRead{
	{Dimension: fleet.Connectivity, Metrics: []string{"muster_site_connected", "up"}},
	{Dimension: fleet.Performance, Metrics: []string{"node_cpu_seconds_total"}},
	{Dimension: fleet.Reliability, Metrics: []string{"node_boot_time_seconds"}},
	{Dimension: fleet.Reliability, Pack: "kubernetes", Metrics: []string{"kube_node_info", "kube_pod_status_phase"}},
	{Dimension: fleet.Reliability, Pack: "longhorn", Metrics: []string{"longhorn_volume_robustness"}},
	{Dimension: fleet.Security, Pack: "cilium", Metrics: []string{"cilium_drop_count_total"}},
}}

func lacksOf(f feeds) string {
	var out []string
	for _, d := range f.Dimensions {
		for _, l := range d.Lacks {
			out = append(out, string(d.Dimension)+" lacks "+l)
		}
	}
	return strings.Join(out, "\n")
}

func TestFeeds(t *testing.T) {
	host := map[string]map[string]int{"up": {"node": 1}, "node_cpu_seconds_total": {"node": 8}, "node_boot_time_seconds": {"node": 1}}
	targets := []collector.TargetStatus{{Job: "muster-edge", Up: true}, {Job: "node", Up: true}, {Job: "node"}}

	machine := feedsOf(reads, host, targets, nil)
	if got := lacksOf(machine); got != "" {
		t.Errorf("a machine without Kubernetes lacks nothing, but: %s", got)
	}
	if diff := cmp.Diff([]feedsJob{{"muster-edge", 1, 1}, {"node", 2, 1}}, machine.Jobs); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"kube_node_info", "node_load1"}, machine.Unseen); diff != "" {
		t.Error(diff)
	}
	if got := lacksOf(feedsOf(reads, host, targets, &cluster.Status{})); got != "reliability lacks kube-state-metrics: none of its metrics has come" {
		t.Errorf("a cluster without kube-state-metrics: %s", got)
	}
	delete(host, "node_cpu_seconds_total")
	st := &cluster.Status{Lacks: []cluster.Lack{{Job: "kube-state-metrics", Reason: cluster.NotFound, Message: "install one"}, {Job: "cilium-agent", Reason: cluster.MetricsOff, Message: "turn them on"}}}
	want := "reliability lacks kube-state-metrics: install one\nsecurity lacks Cilium: turn them on\nperformance lacks host metrics: none of its metrics has come"
	if diff := cmp.Diff(want, lacksOf(feedsOf(reads, host, targets, st))); diff != "" {
		t.Error(diff)
	}
	if f := feedsOf(fleet.CollectionPolicy{}, host, targets, st); f.Policy || len(f.Dimensions) > 0 {
		t.Errorf("before the centre has said what health reads: %+v", f)
	}

	// Each gap is told once, by the dimension that it costs.
	var out bytes.Buffer
	problems := printStatus(&out, status{Feeds: feedsOf(reads, host, targets, st), Cluster: st}, time.Now())
	if text := out.String(); problems != 3 || strings.Count(text, "install one") != 1 || !strings.Contains(text, "node 1/2") || !strings.Contains(text, "nothing") {
		t.Errorf("%d problems:\n%s", problems, text)
	}
}
