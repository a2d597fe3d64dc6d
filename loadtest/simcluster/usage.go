package simcluster

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ServeUsage serves what a cAdvisor of each node would say of what the pods use, on one
// page with the label node: CPU and working set of each container, and of the nodes.
func (c *Cluster) ServeUsage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	_, _ = w.Write(c.usage(time.Now()))
}

func (c *Cluster) usage(now time.Time) []byte {
	type used struct {
		labels      string
		cpu, memory float64
	}
	var all []used
	c.mu.Lock()
	node := [Nodes]struct{ cores, memory float64 }{}
	for _, w := range c.running {
		if w.kind == "Job" || w.broken() != nil {
			continue
		}
		for _, p := range w.pods {
			for _, ct := range w.Spec.Template.Spec.Containers {
				cores, memory := c.takes(p, ct, now)
				all = append(all, used{fmt.Sprintf(`node=%q,namespace=%q,pod=%q,container=%q,id="/kubepods/%s/%s",image=%q,name=%q`, nodeName(p.ordinal), w.namespace, p.name, ct.Name, c.uid(w, p), ct.Name, ct.Image, p.name+"-"+ct.Name), cores * now.Sub(p.made).Seconds(), memory})
				n := &node[p.ordinal%Nodes]
				n.cores, n.memory = n.cores+cores, n.memory+memory
			}
		}
	}
	for i, n := range node {
		// A counter, whatever pods come and go.
		c.spent[i] += (n.cores + 0.2) * now.Sub(c.spentAt).Seconds()
		if len(c.running) > 0 {
			all = append(all, used{fmt.Sprintf(`node=%q,namespace="",pod="",container="",id="/",image="",name=""`, nodeName(i)), c.spent[i], n.memory + 900<<20})
		}
	}
	c.spentAt = now
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b used) int { return strings.Compare(a.labels, b.labels) })
	var b []byte
	b = append(b, "# TYPE container_cpu_usage_seconds_total counter\n"...)
	for _, u := range all {
		b = fmt.Appendf(b, "container_cpu_usage_seconds_total{%s,cpu=\"total\"} %.3f\n", u.labels, u.cpu)
	}
	b = append(b, "# TYPE container_memory_working_set_bytes gauge\n"...)
	for _, u := range all {
		b = fmt.Appendf(b, "container_memory_working_set_bytes{%s} %.0f\n", u.labels, u.memory)
	}
	return b
}

// takes is what a container uses: of its limits a share that is its own.
func (c *Cluster) takes(p *pod, ct corev1.Container, now time.Time) (cores, memory float64) {
	share := float64(hashOf(c.site, p.name, ct.Name)%1000) / 1000
	cores, memory = 0.1, 100<<20
	if q := ct.Resources.Limits.Cpu(); !q.IsZero() {
		cores = q.AsApproximateFloat64()
	}
	if q := ct.Resources.Limits.Memory(); !q.IsZero() {
		memory = q.AsApproximateFloat64()
	}
	return cores * (0.1 + 0.5*share), memory * (0.4 + 0.3*share + 0.05*math.Sin(float64(now.Unix())/600+6*share))
}
