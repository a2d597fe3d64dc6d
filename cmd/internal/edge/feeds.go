package edge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"muster.dev/muster/collector"
	"muster.dev/muster/collector/cluster"
	"muster.dev/muster/internal/fleet"
)

// feeds says what feeds the site's health, and what it lacks. It judges nothing: scores are
// the centre's.
type feeds struct {
	// Policy is false until the centre has said which metrics health reads.
	Policy     bool             `json:"policy"`
	Dimensions []feedsDimension `json:"dimensions"`
	Jobs       []feedsJob       `json:"jobs"`
	// Unseen are the metrics that the CollectionPolicy allows by name and no target has.
	Unseen []string `json:"unseen"`
}

type feedsDimension struct {
	Dimension fleet.Dimension `json:"dimension"`
	// By are the exporters whose metrics it has.
	By []feedsExporter `json:"by"`
	// Lacks are the exporters that it reads and no target is, in words.
	Lacks []string `json:"lacks"`
}

type feedsExporter struct {
	Exporter string   `json:"exporter"`
	Jobs     []string `json:"jobs"`
	Seen     []string `json:"seen"`
	// Unseen may be right: some metrics exist only while something is wrong.
	Unseen []string `json:"unseen,omitempty"`
}

type feedsJob struct {
	Job     string `json:"job"`
	Targets int    `json:"targets"`
	Up      int    `json:"up"`
}

// exporters tells by a metric's name whose it is.
var exporters = []struct {
	prefix, exporter string
	job              string // under which the cluster's discovery finds it
}{
	{"up", "muster-edge", ""}, {"muster_", "muster-edge", ""}, {"kube_", "kube-state-metrics", "kube-state-metrics"}, {"kubelet_", "kubelet", "kubelet"},
	{"container_", "cAdvisor", "cadvisor"}, {"apt_", "apt_info.py", ""}, {"node_", "host metrics", "node"}, {"cilium_", "Cilium", "cilium-agent"},
	{"coredns_", "CoreDNS", "coredns"}, {"felix_", "Calico", ""}, {"etcd_", "etcd", ""}, {"longhorn_", "Longhorn", ""}, {"diskpool_", "OpenEBS", ""},
	{"disk_pool_", "OpenEBS", ""}, {"k3s_", "k3s", ""}, {"DCGM_", "DCGM", ""},
}

func exporterOf(metric string) (exporter, job string) {
	for _, e := range exporters {
		if strings.HasPrefix(metric, e.prefix) {
			return e.exporter, e.job
		}
	}
	return "others", ""
}

// ofGateway are metrics that the gateway has of each site; no site can lack them.
func ofGateway(metric string) bool { return strings.HasPrefix(metric, "muster_site_") }

// everyCluster are the dimensions that need an exporter in every cluster, though the policy
// does without it where there is no cluster. cAdvisor is not among them: it has no figures of
// limits where there are none.
var everyCluster = map[string][]fleet.Dimension{
	"kube-state-metrics": {fleet.Reliability}, "kubelet": {fleet.Reliability, fleet.Security},
}

// feedsOf compares what health reads with what the targets have. st is nil on a machine
// that is no cluster.
func feedsOf(policy fleet.CollectionPolicy, seen map[string]map[string]int, targets []collector.TargetStatus, st *cluster.Status) feeds {
	out := feeds{Policy: len(policy.Reads) > 0, Dimensions: []feedsDimension{}, Jobs: []feedsJob{}, Unseen: []string{}}
	for _, t := range targets {
		if n := len(out.Jobs); n == 0 || out.Jobs[n-1].Job != t.Job {
			out.Jobs = append(out.Jobs, feedsJob{Job: t.Job})
		}
		j := &out.Jobs[len(out.Jobs)-1]
		j.Targets++
		if t.Up {
			j.Up++
		}
	}
	for _, name := range policy.AllowNames {
		if len(seen[name]) == 0 {
			out.Unseen = append(out.Unseen, name)
		}
	}
	if !out.Policy {
		return out
	}
	for _, d := range fleet.Dimensions {
		out.Dimensions = append(out.Dimensions, dimensionOf(d, policy.Reads, seen, st))
	}
	return out
}

func dimensionOf(d fleet.Dimension, reads []fleet.HealthRead, seen map[string]map[string]int, st *cluster.Status) feedsDimension {
	out := feedsDimension{Dimension: d, By: []feedsExporter{}, Lacks: []string{}}
	needed := map[string]string{} // exporter → job, of those that the site must have
	by := map[string]*feedsExporter{}
	jobs := map[string]map[string]bool{}
	for _, r := range reads {
		if r.Dimension != d {
			continue
		}
		for _, name := range r.Metrics {
			if ofGateway(name) {
				continue
			}
			exporter, job := exporterOf(name)
			if r.Pack == "" || st != nil && slices.Contains(everyCluster[exporter], d) {
				needed[exporter] = job
			}
			e := by[exporter]
			if e == nil {
				e = &feedsExporter{Exporter: exporter}
				by[exporter], jobs[exporter] = e, map[string]bool{}
			}
			if len(seen[name]) == 0 {
				e.Unseen = append(e.Unseen, name)
				continue
			}
			e.Seen = append(e.Seen, name)
			for j := range seen[name] {
				jobs[exporter][j] = true
			}
		}
	}
	for _, exporter := range slices.Sorted(maps.Keys(by)) {
		e := by[exporter]
		e.Jobs = slices.Sorted(maps.Keys(jobs[exporter]))
		for _, l := range []*[]string{&e.Seen, &e.Unseen} {
			*l = slices.Compact(slices.Sorted(slices.Values(*l)))
		}
		_, job := exporterOf(cmp.Or(slices.Concat(e.Seen, e.Unseen)...))
		switch _, must := needed[exporter]; {
		case len(e.Seen) > 0:
			out.By = append(out.By, *e)
		case must:
			out.Lacks = append(out.Lacks, exporter+": "+why(job, st))
		case job != "" && st != nil && hasLack(job, st):
			out.Lacks = append(out.Lacks, exporter+": "+why(job, st))
		}
	}
	return out
}

func hasLack(job string, st *cluster.Status) bool {
	return slices.ContainsFunc(st.Lacks, func(l cluster.Lack) bool { return l.Job == job })
}

// why an exporter is not there, as far as it is known.
func why(job string, st *cluster.Status) string {
	if st != nil {
		for _, l := range st.Lacks {
			if l.Job == job || l.Job == "all" {
				return l.Message
			}
		}
	}
	return "none of its metrics has come"
}

// line is one dimension for a person.
func (d feedsDimension) line() string {
	var list []string
	for _, e := range d.By {
		s := fmt.Sprintf("%s (%d)", e.Exporter, len(e.Seen))
		list = append(list, s)
	}
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}
