package simsite

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

type fault int

// The faults, in the order in which they are listed.
const (
	uplinkDown fault = iota
	packetLoss
	exporterDown
	nodeNotReady
	crashLoop
	podsPending
	deploymentShort
	oomKills
	filesystemReadonly
	volumeFull
	diskFull
	diskFilling
	inodesFull
	diskSlow
	memoryPressure
	memoryTight
	cpuSaturated
	cpuBusy
	cpuThrottled
	clockSkew
	certExpiring
	certAgeing
	policyDenied
	policyProbing
	patchOverdue
	updatesPending
	numFaults
)

// Fault describes one kind of fault.
type Fault struct {
	Name string
	// Dimension is the one of the health model that is meant to fall.
	Dimension string
	// Mild faults cost points without turning a healthy site red by themselves.
	Mild bool
	// Text says in a line what happens.
	Text string
}

var catalogue = [numFaults]Fault{
	uplinkDown:         {"uplink-down", "connectivity", false, "the site's connection to its regional is cut; nothing on the site changes"},
	packetLoss:         {"packet-loss", "connectivity", false, "6 % of the packets on eth0 of every node are lost, 12 % of TCP segments are sent again"},
	exporterDown:       {"exporter-down", "connectivity", false, "kube-state-metrics answers 503"},
	nodeNotReady:       {"node-not-ready", "reliability", false, "the first node's kubelet is dead: Ready is unknown, its pods are not ready, its kubelet and cAdvisor figures end"},
	crashLoop:          {"crash-loop", "reliability", false, "two of three checkout pods crash every 20 s and wait in CrashLoopBackOff"},
	podsPending:        {"pods-pending", "reliability", false, "the shop's last three pods can't be scheduled"},
	deploymentShort:    {"deployment-short", "reliability", true, "catalog has one of three replicas available"},
	oomKills:           {"oom-kills", "reliability", false, "payments is killed for memory every 15 s"},
	filesystemReadonly: {"filesystem-readonly", "reliability", false, "the first node's / is read-only"},
	volumeFull:         {"volume-full", "performance", false, "the database's volume has 1 % left"},
	diskFull:           {"disk-full", "performance", false, "the first node's / and /var/lib/containerd have 1.5 % left, and it has DiskPressure"},
	diskFilling:        {"disk-filling", "performance", true, "the first node's / and /var/lib/containerd have 13 % left"},
	inodesFull:         {"inodes-full", "performance", false, "the first node's / has 1 % of its inodes left"},
	diskSlow:           {"disk-slow", "performance", false, "the first node waits for its disk 70 % of the time"},
	memoryPressure:     {"memory-pressure", "performance", false, "the first node has 3 % of its memory available, stalls, and has MemoryPressure"},
	memoryTight:        {"memory-tight", "performance", true, "the first node has 11 % of its memory available"},
	cpuSaturated:       {"cpu-saturated", "performance", false, "all CPUs of all nodes are busy, and work waits for them 80 % of the time"},
	cpuBusy:            {"cpu-busy", "performance", true, "all CPUs of all nodes are 85 % busy"},
	cpuThrottled:       {"cpu-throttled", "performance", false, "the checkout containers are throttled in 90 % of their periods"},
	clockSkew:          {"clock-skew", "security", false, "the first node's clock is not synchronised and 2.5 s off"},
	certExpiring:       {"cert-expiring", "security", false, "the first node's kubelet certificate expires in 20 hours and can't be renewed"},
	certAgeing:         {"cert-ageing", "security", true, "the first node's kubelet certificate expires in 11 days"},
	policyDenied:       {"policy-denied", "security", false, "network policies deny 35 packets a second on every node"},
	policyProbing:      {"policy-probing", "security", true, "network policies deny 2 packets a second on every node"},
	patchOverdue:       {"patch-overdue", "security", false, "41 security updates and a reboot are due on every node; no look for updates for 45 days"},
	updatesPending:     {"updates-pending", "security", true, "12 security updates and a reboot are due on the first node"},
}

// Catalogue lists all faults.
func Catalogue() []Fault { return slices.Clone(catalogue[:]) }

func faultOf(name string) (fault, error) {
	for i, f := range catalogue {
		if f.Name == name {
			return fault(i), nil
		}
	}
	var list strings.Builder
	for _, f := range catalogue {
		fmt.Fprintf(&list, "\n  %-20s %s", f.Name, f.Text)
	}
	return 0, fmt.Errorf("no fault %q; there are:%s", name, list.String())
}

func profileFaults(p Profile, seed uint64) ([]fault, error) {
	pick := func(of ...[]fault) []fault { return of[mix(seed^2)%uint64(len(of))] }
	switch p {
	case "", Healthy:
		return nil, nil
	case Degraded:
		return pick(
			[]fault{deploymentShort, diskFilling, cpuBusy, updatesPending, policyProbing},
			[]fault{deploymentShort, memoryTight, cpuBusy, updatesPending, certAgeing, policyProbing},
			[]fault{deploymentShort, diskFilling, memoryTight, policyProbing, certAgeing, updatesPending},
		), nil
	case Failing:
		return pick(
			[]fault{crashLoop, diskFull, patchOverdue},
			[]fault{nodeNotReady, policyDenied, cpuThrottled},
			[]fault{crashLoop, memoryPressure, policyDenied},
			[]fault{nodeNotReady, patchOverdue},
		), nil
	case Offline:
		return []fault{uplinkDown}, nil
	default:
		return nil, fmt.Errorf("profile %q: want one of %v", p, Profiles)
	}
}

// Break starts a fault. A fault that is active already is left as it is; an
// unknown one is an error that lists those that exist.
func (s *Site) Break(name string) error {
	f, err := faultOf(name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.active[f] {
		now := unix(s.now())
		s.active[f], s.since[f] = true, now
		s.rebuildLocked(now)
	}
	return nil
}

// Heal ends all faults, those of the profile included, and all that was Set.
func (s *Site) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active, s.settings = [numFaults]bool{}, nil
	s.rebuildLocked(unix(s.now()))
}

// HealFault ends one fault.
func (s *Site) HealFault(name string) error {
	f, err := faultOf(name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active[f] = false
	s.rebuildLocked(unix(s.now()))
	return nil
}

// ActiveFault is a fault that a site has now.
type ActiveFault struct {
	Fault
	Since time.Time
}

// Faults are the faults that the site has now.
func (s *Site) Faults() []ActiveFault {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []ActiveFault
	for f, on := range s.active {
		if on {
			out = append(out, ActiveFault{catalogue[f], time.UnixMilli(int64(s.since[f] * 1000))})
		}
	}
	return out
}

// UplinkDown says whether the site's connection is to be cut.
func (s *Site) UplinkDown() bool { return s.isActive(uplinkDown) }

func (s *Site) isActive(f fault) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active[f]
}

// apply brings the fault about in a cluster.
func (f fault) apply(s *shape, c *cluster, since float64) {
	first := &c.nodes[0]
	pods := func(deployment string, keep func(replica int) bool, set func(*podState)) {
		for i := range s.pods {
			if p := &s.pods[i]; p.deployment >= 0 && s.deployments[p.deployment].name == deployment && !p.spare && keep(p.replica) {
				set(&c.pods[i])
			}
		}
	}
	all := func(int) bool { return true }
	rate := func(n *nodeState, k nodeCounter, v float64) { n.counters[k].rate = max(n.counters[k].rate, v) }
	nodes := func(set func(*nodeState)) {
		for i := range c.nodes {
			set(&c.nodes[i])
		}
	}
	switch f {
	case packetLoss:
		nodes(func(n *nodeState) { rate(n, cntLoss, 1) })
	case exporterDown:
		for n := range s.nodes {
			c.pages[pageIndex("kube-state-metrics")*s.nodes+n].down = true
		}
	case nodeNotReady:
		first.kubeletDead = true
	case crashLoop:
		pods("checkout", func(r int) bool { return r < 2 }, func(p *podState) { p.crash = crashes{on: true, since: since, first: 20, most: 20} })
	case podsPending:
		for i, left := len(s.pods)-1, 3; i >= 0 && left > 0; i-- {
			if !s.pods[i].spare {
				c.pods[i].pending = true
				left--
			}
		}
	case deploymentShort:
		pods("catalog", func(r int) bool { return r >= 1 }, func(p *podState) { p.unready = true })
	case oomKills:
		pods("payments", all, func(p *podState) {
			p.counters[cntOOMs].rate, p.counters[cntRestarts].rate, p.oomKilled, p.memory = 1./15, 1./15, true, steady(0.97)
		})
	case filesystemReadonly:
		first.fs[0].readonly = true
	case volumeFull:
		c.volume = steady(0.01)
	case diskFull:
		first.fs[0].free, first.fs[2].free, first.diskPressure = steady(0.015), steady(0.015), true
	case diskFilling:
		first.fs[0].free, first.fs[2].free = least(first.fs[0].free, 0.13), least(first.fs[2].free, 0.13)
	case inodesFull:
		first.fs[0].inodes = steady(0.01)
	case diskSlow:
		rate(first, cntIOWait, 0.30)
		rate(first, cntPSIIO, 0.69)
		rate(first, cntPSIIOFull, 0.54)
		first.blocked = 5
	case memoryPressure:
		first.memory, first.memoryPressure = steady(0.03), true
		rate(first, cntPSIMemory, 0.45)
		rate(first, cntPSIMemoryFull, 0.30)
		rate(first, cntPSIIO, 0.10)
		rate(first, cntMajorFaults, 1)
	case memoryTight:
		first.memory = least(first.memory, 0.11)
	case cpuSaturated:
		nodes(func(n *nodeState) {
			rate(n, cntCPU, 0.80)
			rate(n, cntPSICPU, 0.79)
			n.load = steady(6)
		})
	case cpuBusy:
		nodes(func(n *nodeState) {
			rate(n, cntCPU, 0.69)
			rate(n, cntPSICPU, 0.14)
			if !n.load.set {
				n.load = steady(1.1)
			}
		})
	case cpuThrottled:
		pods("checkout", all, func(p *podState) { p.counters[cntThrottle].rate = 0.89 })
	case clockSkew:
		first.unsynced, first.offset = true, steady(2.5)
	case certExpiring:
		first.certEnd = since + 20*3600
		rate(first, cntRenew, 1./60)
	case certAgeing:
		if first.certEnd == 0 {
			first.certEnd = since + 11*days
		}
	case policyDenied:
		nodes(func(n *nodeState) { rate(n, cntDenied, 1) })
	case policyProbing:
		nodes(func(n *nodeState) { rate(n, cntDenied, 0.06) })
	case patchOverdue:
		nodes(func(n *nodeState) {
			n.security, n.other, n.reboot, n.aptAt = steady(41), steady(60), true, since-45*days
		})
	case updatesPending:
		first.reboot = true
		if !first.security.set {
			first.security = steady(12)
		}
	}
}

func least(l level, v float64) level {
	if l.set {
		v = min(v, l.to)
	}
	return steady(v)
}
