package simsite

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// cluster is the state of all that a site's exporters report on, between two
// changes. A change makes a new one; a page is rendered from one of them.
type cluster struct {
	at    float64 // unix seconds, when it began: what counters have summed up to
	nodes []nodeState
	pods  []podState
	// replicas wanted of each deployment.
	replicas []int
	pages    []pageState // by page, and node: page*nodes+node
	volume   level       // share of the database's volume that is free
	uplink   Uplink
}

// nodeState is one node. Its zero value is a node as usual.
type nodeState struct {
	off         bool // the machine is
	kubeletDead bool // or the machine is
	cordoned    bool
	diskPressure, memoryPressure,
	pidPressure bool
	lostAt  float64           // unix seconds, when Kubernetes notices that the kubelet is dead
	bootAt  float64           // 0: with the site
	runBase [numWaves]float64 // what the site's rhythms had come to at bootAt
	memory  level             // share available
	load    level             // of one CPU, as multiple of it
	fs      [4]fsState
	clock   level // seconds ahead of the time
	offset  level // that the kernel knows of, seconds
	unsynced, reboot,
	linkDown bool
	certEnd         float64 // unix seconds; 0: as usual
	security, other level
	aptAt           float64 // of the package lists; 0: as usual
	blocked         float64
	unreachable     float64 // other nodes, as this node's Cilium sees it
	zone            level   // seconds east of UTC
	counters        [numNodeCounters]summed
	conntrack, fds  level // share used
	temperature     level
}

type fsState struct {
	free, inodes  level // shares
	readonly, bad bool  // bad: the device gives errors
}

type podState struct {
	gone, pending, unready, done bool
	waiting                      string // why its containers don't run
	failed                       string // why the pod has failed for good
	crash                        crashes
	oomKilled                    bool  // what ends its containers is the kernel
	memory                       level // share of the limit
	counters                     [numPodCounters]summed
}

type pageState struct {
	down    bool
	slow    time.Duration
	skip    []string    // families that this version of the exporter does not have
	garbage [][2]string // metric, and what is wrong with it
	// zeros is what its counters had come to when it was started anew, by line; nil: never was.
	zeros map[*line]float64
}

// Uplink is a site's way to its regional, which whoever composes the site has to
// bring about.
type Uplink struct {
	Down   bool          // nothing passes
	Stream bool          // the stream can't be held; pushes pass
	Push   bool          // pushes fail; the stream holds
	Delay  time.Duration // of each push
	Loss   float64       // share of the pushes that fail
}

// level is a number, which may be on its way to another. The zero value is none: as
// usual.
type level struct {
	set        bool
	from, to   float64
	begin, end float64 // unix seconds
}

func steady(v float64) level { return level{set: true, from: v, to: v} }

func (l level) at(now float64) float64 {
	switch {
	case now >= l.end || l.end <= l.begin:
		return l.to
	case now <= l.begin:
		return l.from
	}
	return l.from + (l.to-l.from)*(now-l.begin)/(l.end-l.begin)
}

// or is the level's value now, or what is usual.
func (l level) or(now, usual float64) float64 {
	if !l.set {
		return usual
	}
	return l.at(now)
}

// nodeMonitorGrace is after how many seconds without a word of a kubelet its node counts
// as not ready.
const nodeMonitorGrace = 40

// summed is what states add to a counter: base up to the cluster's at, and rate a
// second since.
type summed struct{ base, rate float64 }

// nodeCounter is a rate that is 0 as usual.
type nodeCounter int

const (
	cntCPU           nodeCounter = iota // share of CPU time taken from idle
	cntIOWait                           // share of CPU time that waits for the disk
	cntLoss                             // 1 while packets are lost
	cntDenied                           // 1 while policies deny 25 packets a second, and 10 the other way
	cntPSICPU                           // seconds a second
	cntPSIMemory                        //
	cntPSIMemoryFull                    //
	cntPSIIO                            //
	cntPSIIOFull                        //
	cntMajorFaults                      // 1 while memory is short
	cntRenew                            // failed renewals a second
	cntEvictions                        // a second
	numNodeCounters
)

type podCounter int

const (
	cntRestarts podCounter = iota // a second, besides those of crashes
	cntOOMs                       // a second
	cntThrottle                   // share of the periods
	numPodCounters
)

// crashes are those of a container that ends after it ran for a while and is started
// again by a kubelet that waits twice as long each time. The zero value does not.
type crashes struct {
	on                bool
	since             float64 // unix seconds
	runs, first, most float64 // seconds that it runs; the first and the longest wait
}

// state says how often the container was started again by now, and whether it waits.
func (c crashes) state(now float64) (restarts float64, waiting bool) {
	x := now - c.since
	if !c.on || x < 0 {
		return 0, false
	}
	for wait := c.first; ; wait = min(2*wait, c.most) {
		cycle := c.runs + wait
		if wait == c.most {
			n := math.Floor(x / cycle)
			return restarts + n, x-n*cycle >= c.runs
		}
		if x < cycle {
			return restarts, x >= c.runs
		}
		x -= cycle
		restarts++
	}
}

func newCluster(s *shape, at float64) *cluster {
	c := &cluster{at: at, nodes: make([]nodeState, s.nodes), pods: make([]podState, len(s.pods)), replicas: make([]int, len(s.deployments)), pages: make([]pageState, len(pages)*s.nodes)}
	for i := range s.deployments {
		c.replicas[i] = s.deployments[i].replicas
	}
	for i := range s.pods {
		c.pods[i].gone = s.pods[i].spare
	}
	return c
}

// setting is one word of Set.
type setting struct {
	object, property, value string
	at                      float64
	apply                   func(*cluster)
}

// rebuildLocked makes the cluster of now: as usual, then the faults, then what was
// set. Counters go on from what they have come to.
func (s *Site) rebuildLocked(now float64) {
	now = max(now, s.cluster.at)
	shape, was := s.tmpl.shape, s.cluster
	c := newCluster(shape, now)
	for i := range c.nodes {
		n, old := &c.nodes[i], &was.nodes[i]
		n.bootAt, n.runBase = old.bootAt, old.runBase
		for k := range n.counters {
			n.counters[k].base = old.counters[k].base + old.counters[k].rate*(now-was.at)
		}
	}
	for i := range c.pods {
		p, old := &c.pods[i], &was.pods[i]
		for k := range p.counters {
			p.counters[k].base = old.counters[k].base + old.counters[k].rate*(now-was.at)
		}
		after, _ := old.crash.state(now)
		before, _ := old.crash.state(was.at)
		p.counters[cntRestarts].base += after - before
		p.oomKilled = old.oomKilled
	}
	for i := range c.pages {
		c.pages[i].zeros = was.pages[i].zeros
	}
	for f, on := range s.active {
		if on {
			fault(f).apply(shape, c, s.since[f])
		}
	}
	for _, set := range s.settings {
		set.apply(c)
	}
	for i := range c.nodes {
		n := &c.nodes[i].counters // nobody waits in time that is not idle
		n[cntIOWait].rate = min(n[cntIOWait].rate, max(0, 0.8-n[cntCPU].rate))
	}
	s.cluster = c
}

// Set changes one property of one object of the site's cluster from now on. An empty
// value makes it as usual again. Objects and properties:
//
//	node/N             power on|off · kubelet up|dead · boot now · cordoned · diskpressure, memorypressure, pidpressure
//	                   cpu, iowait SHARE (of the CPUs' time, beside the usual) · memory SHARE (available) · load
//	                   psi-cpu, psi-memory, psi-io SHARE · loss RATE · denied RATE · network down
//	                   clock SECONDS (ahead) · offset SECONDS (that the kernel knows of) · synced no · zone SECONDS
//	                   certificate DURATION (left) · renew failing · security COUNT · reboot wanted
//	                   conntrack, files SHARE · temperature DEGREES · evictions RATE · unreachable COUNT
//	filesystem/N:MOUNT used, inodes SHARE · readonly · device-error
//	deployment/D       replicas COUNT
//	pod/D-R            gone · pending · unready · done · waiting REASON · failed REASON · oom RATE · throttled SHARE
//	                   memory SHARE (of the limit) · crash RUNS[,FIRST[,MOST]] (durations, see kubelet's back-off)
//	                   restarted COUNT (more restarts, at once)
//	exporter/E[@N]     down · slow DURATION · skip FAMILY,… · garbage METRIC=WHAT,…
//	                   restarted now (its counters begin at 0; not kube-state-metrics', which are the cluster's)
//	volume/database    used SHARE
//	uplink             state up|down|stream|push · delay DURATION · loss SHARE
//
// N is n1, n2, … or * for all; D names a deployment or "postgres", R one of its
// replicas from 0 on, or *: from the number of replicas on they are the spares. E is a
// page's name. A SHARE is a number or a percentage; numbers may be on their way:
// "60%..100% in 40m". What can be wrong with a metric is a value (NaN, +Inf, 1e308,
// -5), "twice", "counter" or "gauge" (the type), or "at+1h" (the timestamp).
func (s *Site) Set(object, property, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := unix(s.now())
	if property == "boot" || property == "restarted" {
		s.rebuildLocked(now)
		return s.onceLocked(object, property, value, now)
	}
	apply, err := s.tmpl.shape.setting(object, property, value, now)
	if err != nil {
		return fmt.Errorf("simulated site %s: %s: %s %q: %w", s.name, object, property, value, err)
	}
	s.settings = slices.DeleteFunc(s.settings, func(o setting) bool { return o.object == object && o.property == property })
	if value != "" {
		s.settings = append(s.settings, setting{object, property, value, now, apply})
	}
	s.rebuildLocked(now)
	return nil
}

// onceLocked does what happens in a moment and is no state.
func (s *Site) onceLocked(object, property, value string, now float64) error {
	kind, name, _ := strings.Cut(object, "/")
	c := s.cluster
	switch {
	case kind == "node" && property == "boot":
		ns, err := s.tmpl.shape.nodesNamed(name)
		if err != nil {
			return err
		}
		for _, i := range ns {
			n := &c.nodes[i]
			n.bootAt, n.counters = now, [numNodeCounters]summed{}
			_, n.runBase = s.rhythms(now)
			for p := range pages {
				c.pages[p*len(c.nodes)+i].zeros = nil // they began with the machine
			}
			for j := range c.pods {
				if s.tmpl.shape.pods[j].node == i { // cgroups as well
					c.pods[j].counters[cntThrottle].base, c.pods[j].counters[cntOOMs].base = 0, 0
				}
			}
		}
	case kind == "pod" && property == "restarted":
		ps, err := s.tmpl.shape.podsNamed(name)
		if err != nil {
			return err
		}
		more, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return err
		}
		for _, i := range ps {
			c.pods[i].counters[cntRestarts].base += more
		}
	case kind == "exporter" && property == "restarted":
		p, ns, err := s.tmpl.shape.exporterNamed(name)
		if err != nil {
			return err
		}
		if !pages[p].perNode || value != "now" {
			return fmt.Errorf("simulated site %s: %s: restarted %q: want now, of an exporter of a node", s.name, object, value)
		}
		var f frame
		s.frame(&f, c, now)
		for _, i := range ns {
			c.pages[p*len(c.nodes)+i].zeros = s.tmpl.counters(&f, p, int32(i))
		}
	default:
		return fmt.Errorf("simulated site %s: %s has no property %q", s.name, object, property)
	}
	return nil
}

// Uplink is how the site's way to its regional is to be.
func (s *Site) Uplink() Uplink {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.cluster.uplink
	u.Down = u.Down || s.active[uplinkDown]
	return u
}

// NodeOff says whether a node's machine is off, so that nobody answers there.
func (s *Site) NodeOff(node int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cluster.nodes[node].off
}

func (s *shape) nodesNamed(name string) ([]int, error) {
	if name == "*" {
		out := make([]int, s.nodes)
		for i := range out {
			out[i] = i
		}
		return out, nil
	}
	n, err := strconv.Atoi(strings.TrimPrefix(name, "n"))
	if err != nil || n < 1 || n > s.nodes {
		return nil, fmt.Errorf("node %q: want n1 to n%d, or *", name, s.nodes)
	}
	return []int{n - 1}, nil
}

// podsNamed finds pods by deployment and replica, "checkout-1", or by all of their
// name.
func (s *shape) podsNamed(name string) ([]int, error) {
	app, rep, _ := cutLast(name, "-")
	var out []int
	for i := range s.pods {
		p := &s.pods[i]
		named := p.app == app && (rep == "*" && !p.spare || rep == strconv.Itoa(p.replica) && p.daemon < 0 || p.daemon >= 0 && rep == "n"+strconv.Itoa(p.node+1))
		if named || p.name == name {
			out = append(out, i)
		}
	}
	if out == nil {
		return nil, fmt.Errorf("no pod %q", name)
	}
	return out, nil
}

func cutLast(s, sep string) (string, string, bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// setting parses one word of Set into what it does.
func (s *shape) setting(object, property, value string, now float64) (func(*cluster), error) {
	kind, name, _ := strings.Cut(object, "/")
	if value == "" {
		return func(*cluster) {}, nil
	}
	switch kind {
	case "node":
		ns, err := s.nodesNamed(name)
		if err != nil {
			return nil, err
		}
		set, err := nodeSetting(property, value, now)
		return func(c *cluster) {
			for _, i := range ns {
				set(&c.nodes[i])
			}
		}, err
	case "filesystem":
		return s.filesystemSetting(name, property, value, now)
	case "deployment":
		n, err := strconv.Atoi(value)
		d := s.deployment(name)
		if d < 0 || err != nil || property != "replicas" {
			return nil, fmt.Errorf("want the replicas of a deployment that exists")
		}
		return func(c *cluster) { c.replicas[d] = n }, nil
	case "pod":
		ps, err := s.podsNamed(name)
		if err != nil {
			return nil, err
		}
		set, err := podSetting(property, value, now)
		return func(c *cluster) {
			for _, i := range ps {
				set(&c.pods[i])
			}
		}, err
	case "exporter":
		return s.exporterSetting(name, property, value)
	case "volume":
		l, err := parseLevel(value, now)
		if property != "used" {
			return nil, fmt.Errorf("no such property")
		}
		return func(c *cluster) { c.volume = l.rest() }, err
	case "uplink":
		return uplinkSetting(property, value)
	}
	return nil, fmt.Errorf("no such kind of object")
}

// rest is what is left of a share.
func (l level) rest() level {
	l.from, l.to = 1-l.from, 1-l.to
	return l
}

func nodeSetting(property, value string, now float64) (func(*nodeState), error) {
	flags := map[string]struct {
		word string
		set  func(*nodeState)
	}{
		"power":          {"off", func(n *nodeState) { n.off, n.kubeletDead = true, true }},
		"kubelet":        {"dead", func(n *nodeState) { n.kubeletDead = true }},
		"cordoned":       {"yes", func(n *nodeState) { n.cordoned = true }},
		"diskpressure":   {"yes", func(n *nodeState) { n.diskPressure = true }},
		"memorypressure": {"yes", func(n *nodeState) { n.memoryPressure = true }},
		"pidpressure":    {"yes", func(n *nodeState) { n.pidPressure = true }},
		"network":        {"down", func(n *nodeState) { n.linkDown = true }},
		"synced":         {"no", func(n *nodeState) { n.unsynced = true }},
		"renew":          {"failing", func(n *nodeState) { n.counters[cntRenew].rate = 1. / 60 }},
		"reboot":         {"wanted", func(n *nodeState) { n.reboot = true }},
	}
	if f, ok := flags[property]; ok {
		if value != f.word {
			return nil, fmt.Errorf("want %s", f.word)
		}
		return func(n *nodeState) {
			f.set(n)
			n.lostAt = now + nodeMonitorGrace
		}, nil
	}
	if property == "certificate" {
		d, err := time.ParseDuration(value)
		return func(n *nodeState) { n.certEnd = now + d.Seconds() }, err
	}
	levels := map[string]func(*nodeState) *level{
		"memory": func(n *nodeState) *level { return &n.memory }, "load": func(n *nodeState) *level { return &n.load },
		"clock": func(n *nodeState) *level { return &n.clock }, "offset": func(n *nodeState) *level { return &n.offset },
		"security": func(n *nodeState) *level { return &n.security }, "zone": func(n *nodeState) *level { return &n.zone },
		"conntrack": func(n *nodeState) *level { return &n.conntrack }, "files": func(n *nodeState) *level { return &n.fds },
		"temperature": func(n *nodeState) *level { return &n.temperature },
	}
	l, err := parseLevel(value, now)
	if err != nil {
		return nil, err
	}
	if at, ok := levels[property]; ok {
		return func(n *nodeState) { *at(n) = l }, nil
	}
	// A rate is what it comes to: counters sum up one rate between two changes.
	counters := map[string]func(*nodeState, float64){
		"cpu":     func(n *nodeState, v float64) { n.counters[cntCPU].rate = min(v, 0.80) },
		"iowait":  func(n *nodeState, v float64) { n.counters[cntIOWait].rate = v },
		"psi-cpu": func(n *nodeState, v float64) { n.counters[cntPSICPU].rate = v },
		"psi-memory": func(n *nodeState, v float64) {
			n.counters[cntPSIMemory].rate, n.counters[cntPSIMemoryFull].rate = v, v*2/3
		},
		"psi-io":      func(n *nodeState, v float64) { n.counters[cntPSIIO].rate, n.counters[cntPSIIOFull].rate = v, v*0.8 },
		"loss":        func(n *nodeState, v float64) { n.counters[cntLoss].rate = v },
		"denied":      func(n *nodeState, v float64) { n.counters[cntDenied].rate = v / 35 },
		"evictions":   func(n *nodeState, v float64) { n.counters[cntEvictions].rate = v },
		"unreachable": func(n *nodeState, v float64) { n.unreachable = v },
	}
	if set, ok := counters[property]; ok {
		return func(n *nodeState) { set(n, l.to) }, nil
	}
	return nil, fmt.Errorf("no such property")
}

func (s *shape) filesystemSetting(name, property, value string, now float64) (func(*cluster), error) {
	node, mount, _ := strings.Cut(name, ":")
	ns, err := s.nodesNamed(node)
	if err != nil {
		return nil, err
	}
	m := -1
	for i := range filesystems {
		if filesystems[i].mount == mount {
			m = i
		}
	}
	if m < 0 {
		return nil, fmt.Errorf("no filesystem is mounted at %q", mount)
	}
	var set func(*fsState)
	switch property {
	case "readonly":
		set = func(f *fsState) { f.readonly = true }
	case "device-error":
		set = func(f *fsState) { f.bad = true }
	case "used", "inodes":
		l, err := parseLevel(value, now)
		if err != nil {
			return nil, err
		}
		l = l.rest()
		set = func(f *fsState) { f.free = l }
		if property == "inodes" {
			set = func(f *fsState) { f.inodes = l }
		}
	default:
		return nil, fmt.Errorf("no such property")
	}
	return func(c *cluster) {
		for _, i := range ns {
			set(&c.nodes[i].fs[m])
		}
	}, nil
}

func podSetting(property, value string, now float64) (func(*podState), error) {
	switch property {
	case "gone":
		return func(p *podState) { p.gone = value != "no" }, nil
	case "pending":
		return func(p *podState) { p.pending = true }, nil
	case "unready":
		return func(p *podState) { p.unready = true }, nil
	case "done":
		return func(p *podState) { p.done = true }, nil
	case "waiting":
		return func(p *podState) { p.waiting = value }, nil
	case "failed":
		return func(p *podState) { p.failed = value }, nil
	case "crash":
		c := crashes{on: true, since: now, first: 10, most: 300}
		for i, part := range strings.Split(value, ",") {
			d, err := time.ParseDuration(part)
			if err != nil || i > 2 {
				return nil, fmt.Errorf("want RUNS[,FIRST[,MOST]], durations")
			}
			*[]*float64{&c.runs, &c.first, &c.most}[i] = d.Seconds()
		}
		if c.first <= 0 || c.most < c.first {
			return nil, fmt.Errorf("want waits over 0, the longest last")
		}
		return func(p *podState) { p.crash = c }, nil
	}
	l, err := parseLevel(value, now)
	if err != nil {
		return nil, err
	}
	switch property {
	case "oom":
		return func(p *podState) {
			p.counters[cntOOMs].rate, p.counters[cntRestarts].rate, p.oomKilled = l.to, l.to, true
			p.memory = steady(0.97)
		}, nil
	case "throttled":
		return func(p *podState) { p.counters[cntThrottle].rate = l.to }, nil
	case "memory":
		return func(p *podState) { p.memory = l }, nil
	}
	return nil, fmt.Errorf("no such property")
}

// exporterNamed finds an exporter's page and its nodes, of "E@N" or "E" for all of them.
func (s *shape) exporterNamed(name string) (page int, nodes []int, err error) {
	name, node, one := strings.Cut(name, "@")
	for i := range pages {
		if pages[i].name == name {
			if !one {
				node = "*"
			}
			nodes, err = s.nodesNamed(node)
			return i, nodes, err
		}
	}
	return 0, nil, fmt.Errorf("no exporter %q", name)
}

func (s *shape) exporterSetting(name, property, value string) (func(*cluster), error) {
	page, ns, err := s.exporterNamed(name)
	if err != nil {
		return nil, err
	}
	var set func(*pageState)
	switch property {
	case "down":
		set = func(p *pageState) { p.down = true }
	case "slow":
		d, err := time.ParseDuration(value)
		if err != nil {
			return nil, err
		}
		set = func(p *pageState) { p.slow = d }
	case "skip":
		set = func(p *pageState) { p.skip = strings.Split(value, ",") }
	case "garbage":
		var all [][2]string
		for part := range strings.SplitSeq(value, ",") {
			metric, what, ok := strings.Cut(part, "=")
			if _, err := strconv.ParseFloat(what, 64); !ok || err != nil && what != "twice" && what != "counter" && what != "gauge" && !strings.HasPrefix(what, "at+") {
				return nil, fmt.Errorf("%q: want METRIC=WHAT", part)
			}
			all = append(all, [2]string{metric, what})
		}
		set = func(p *pageState) { p.garbage = all }
	default:
		return nil, fmt.Errorf("no such property")
	}
	return func(c *cluster) {
		for _, i := range ns {
			set(&c.pages[page*s.nodes+i])
		}
	}, nil
}

func uplinkSetting(property, value string) (func(*cluster), error) {
	switch property {
	case "state":
		switch value {
		case "up":
			return func(*cluster) {}, nil
		case "down":
			return func(c *cluster) { c.uplink.Down = true }, nil
		case "stream":
			return func(c *cluster) { c.uplink.Stream = true }, nil
		case "push":
			return func(c *cluster) { c.uplink.Push = true }, nil
		}
	case "delay":
		d, err := time.ParseDuration(value)
		return func(c *cluster) { c.uplink.Delay = d }, err
	case "loss":
		l, err := parseLevel(value, 0)
		return func(c *cluster) { c.uplink.Loss = l.to }, err
	}
	return nil, fmt.Errorf("no such property")
}

// parseLevel reads "0.6", "60%", "60%..100% in 40m".
func parseLevel(text string, now float64) (level, error) {
	way, span, moving := strings.Cut(text, " in ")
	from, to, both := strings.Cut(way, "..")
	if moving != both {
		return level{}, fmt.Errorf("want a number, or FROM..TO in DURATION")
	}
	a, err := parseShare(from)
	if err != nil || !both {
		return steady(a), err
	}
	b, err := parseShare(to)
	if err != nil {
		return level{}, err
	}
	d, err := time.ParseDuration(span)
	return level{set: true, from: a, to: b, begin: now, end: now + d.Seconds()}, err
}

func parseShare(text string) (float64, error) {
	plain, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(plain, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%q: want a number or a percentage", text)
	}
	if percent {
		v /= 100
	}
	return v, nil
}

// reason of a container that waits; "" for one that runs.
func (p *podState) waitingReason(now float64) string {
	if _, waits := p.crash.state(now); waits {
		return cmp.Or(p.waiting, "CrashLoopBackOff")
	}
	return p.waiting
}
