// Package simsite is a simulated edge site: the metrics pages that a small
// Kubernetes cluster's exporters serve, with their real metric names, labels,
// types and help texts, values that move as real ones do, and faults that change
// exactly what the real fault would change.
//
// It stands in for hardware: the demo and the load tests scrape it with the real
// collector. It simulates no Kubernetes API and no network (UplinkDown only says
// what the composition is to cut), and no real site links it. Callers are
// loadtest/simfleet and cmd/internal.
//
// # Pages
//
// A Site serves, after node_exporter 1.10, kube-state-metrics 2.17, kubelet and
// cAdvisor of Kubernetes 1.35, and Cilium 1.18:
//
//	/node-exporter/metrics       the hosts, with the textfile collector's apt_info
//	/kube-state-metrics/metrics  the objects
//	/kubelet/metrics             the kubelets
//	/cadvisor/metrics            the containers, pods and cgroups
//	/cilium-agent/metrics        the network and its policies
//
// One page has all nodes of the site; where an exporter runs on each node, the
// series carry the label node, as target relabelling in a cluster adds it. The
// exporters directory lists every family with its source's help text, its labels
// and what moves it, a page a file:
//
//	# HELP and # TYPE            as served
//	@SCOPE[?COND] NAME{LABELS} VALUE [ARGS]
//
// where SCOPE is what there is one series of (node, cpu, fs, nic, pod, container,
// deployment, …), COND hides the series unless it holds, $name in LABELS is filled
// in for each, and VALUE is a function of values.go.
//
// # Values
//
// Every value is a pure function of the seed, the time, and how long each fault
// has been active, so a page needs no state but that, and sites of one shape share
// all text (Templates). Counters never go back, whatever faults come and go.
package simsite

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Profile is how a site feels when it is made. Heal makes each of them healthy.
type Profile string

// The profiles.
const (
	Healthy  Profile = "healthy"  // no fault
	Degraded Profile = "degraded" // several mild ones: meant to be orange
	Failing  Profile = "failing"  // one critical and others: meant to be red
	Offline  Profile = "offline"  // uplink-down: meant to be red, or grey if it never connected
)

// Profiles lists all of them.
var Profiles = []Profile{Healthy, Degraded, Failing, Offline}

// Options of a Site.
type Options struct {
	// Name is the site's; its nodes are NAME-n1, NAME-n2, ….
	Name string
	// Seed makes the site different from others; 0 derives it from Name.
	Seed uint64
	// Nodes, Pods: the size of the cluster; 0 lets Series decide (3 and 17 for 5,000).
	Nodes, Pods int
	// Series is how many series all pages have together, to within 5 %; default 5,000.
	Series int
	// Spares is how many pods each deployment has in reserve, which exist once Set says
	// so: those that a rolling update or a drain brings.
	Spares int
	// Families, if set, are the only ones that the pages have: what a collector drops
	// anyway costs time. Sites that share Templates must have the same.
	Families func(name string) bool
	// Profile is Healthy by default.
	Profile Profile
	// Templates is shared by the sites of one process; nil: the site's own.
	Templates *Templates
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// Site is one simulated site. Safe for concurrent use.
type Site struct {
	name string
	seed uint64
	now  func() time.Time
	tmpl *template
	vars []string // what differs between sites of one template: names, ids, addresses
	boot float64  // unix seconds
	made float64  // unix seconds

	mu       sync.Mutex
	active   [numFaults]bool
	since    [numFaults]float64 // unix seconds; of the active ones
	settings []setting
	cluster  *cluster // never changed once a page is made from it, but by rebuildLocked and onceLocked
}

// DefaultSeries is about what a small edge cluster's exporters serve.
const DefaultSeries = 5000

// New makes a site.
func New(o Options) (*Site, error) {
	if o.Name == "" {
		return nil, errors.New("simulated site: name: want one")
	}
	if o.Seed == 0 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(o.Name))
		o.Seed = h.Sum64()
	}
	if o.Series == 0 {
		o.Series = DefaultSeries
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Templates == nil {
		o.Templates = NewTemplates()
	}
	faults, err := profileFaults(o.Profile, o.Seed)
	if err != nil {
		return nil, fmt.Errorf("simulated site %s: %w", o.Name, err)
	}
	tmpl, err := o.Templates.get(o.Nodes, o.Pods, o.Series, o.Spares, o.Families)
	if err != nil {
		return nil, fmt.Errorf("simulated site %s: %w", o.Name, err)
	}
	now := unix(o.Now())
	s := &Site{name: o.Name, seed: mix(o.Seed), now: o.Now, tmpl: tmpl, made: now, cluster: newCluster(tmpl.shape, now), boot: bootTime(now, o.Seed)}
	s.vars = tmpl.shape.siteVars(o.Name, s.seed)
	for _, f := range faults {
		s.active[f], s.since[f] = true, now
	}
	s.rebuildLocked(now)
	return s, nil
}

// bootTime gives a site the same boot time when the process is started anew, so
// that its counters go on: the sites reboot every 97 days, each on its own day.
func bootTime(now float64, seed uint64) float64 {
	const period = 97 * 86400
	offset := float64(mix(seed^1) % period)
	boot := offset + period*float64(int64((now-offset)/period))
	if now-boot < 3600 {
		boot -= period
	}
	return boot
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// Name is the site's name.
func (s *Site) Name() string { return s.name }

// Series is how many series the pages of the site have together while it is
// healthy.
func (s *Site) Series() int { return s.tmpl.series }

// Nodes are the names of the site's nodes.
func (s *Site) Nodes() []string {
	out := make([]string, s.tmpl.shape.nodes)
	for i := range out {
		out[i] = s.vars[s.tmpl.shape.varIndex(varNode, i)]
	}
	return out
}

// Pages are the paths under which Handler serves metrics.
func Pages() []string {
	out := make([]string, len(pages))
	for i, p := range pages {
		out[i] = "/" + p.name + "/metrics"
	}
	return out
}

// buffers keeps rendered pages between scrapes: a page is a few hundred kilobytes,
// and a fleet asks for hundreds of them each interval.
type buffers struct{ pool sync.Pool }

func (b *buffers) get() *[]byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return p
	}
	return new([]byte)
}

// Handler serves the pages. NodePages has them node by node.
func (s *Site) Handler() http.Handler {
	mux := http.NewServeMux()
	for i, p := range pages {
		mux.Handle("GET /"+p.name+"/metrics", s.pageHandler(i, allNodes))
	}
	return mux
}

// NodePage is what one exporter serves on one node, or for the cluster.
type NodePage struct {
	Exporter string // the page's name, without slashes
	Node     int    // -1: the exporter runs once in the cluster
	Handler  http.Handler

	site *Site
	page int
	node int32
}

// NodePages are the pages as the exporters of a cluster serve them: one for each node
// where an exporter runs on each.
func (s *Site) NodePages() []NodePage {
	var out []NodePage
	for i, p := range pages {
		if !p.perNode {
			out = append(out, NodePage{p.name, -1, s.pageHandler(i, allNodes), s, i, allNodes})
			continue
		}
		for n := range s.tmpl.shape.nodes {
			out = append(out, NodePage{p.name, n, s.pageHandler(i, int32(n)), s, i, int32(n)})
		}
	}
	return out
}

// allNodes instead of a node: all that are.
const allNodes = int32(-1)

func (s *Site) pageHandler(page int, node int32) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		down, slow := s.pageState(page, node)
		if slow > 0 {
			select {
			case <-time.After(slow):
			case <-r.Context().Done():
				return
			}
		}
		if down {
			http.Error(w, pages[page].name+" is down", http.StatusServiceUnavailable)
			return
		}
		buf := s.tmpl.buffers.get()
		*buf = s.appendPage((*buf)[:0], page, node)
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Header().Set("Content-Length", strconv.Itoa(len(*buf)))
		_, _ = w.Write(*buf)
		s.tmpl.buffers.pool.Put(buf)
	})
}

// AppendPage appends the page of one of Pages to buf, in the text exposition
// format, without allocating when buf is large enough.
func (s *Site) AppendPage(buf []byte, path string) ([]byte, error) {
	i := slices.IndexFunc(pages, func(p page) bool { return "/"+p.name+"/metrics" == path })
	if i < 0 {
		return buf, fmt.Errorf("simulated site %s: no page %q", s.name, path)
	}
	if down, _ := s.pageState(i, allNodes); down {
		return buf, fmt.Errorf("simulated site %s: %s is down", s.name, path)
	}
	return s.appendPage(buf, i, allNodes), nil
}

// pageState says whether a page is down, and how long it takes. A page of all nodes is
// down when those of all nodes are.
func (s *Site) pageState(page int, node int32) (down bool, slow time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cluster
	if node != allNodes {
		p := &c.pages[page*len(c.nodes)+int(node)]
		n := &c.nodes[node]
		return p.down || n.off || pages[page].dies && n.kubeletDead, p.slow
	}
	down = true
	for i := range c.nodes {
		p := &c.pages[page*len(c.nodes)+i]
		down, slow = down && p.down, max(slow, p.slow)
	}
	return down, slow
}

func pageIndex(name string) int {
	return slices.IndexFunc(pages, func(p page) bool { return p.name == name })
}
