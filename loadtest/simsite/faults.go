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
		s.settleLocked(now)
		s.active[f], s.since[f] = true, now
	}
	return nil
}

// Heal ends all faults, those of the profile included.
func (s *Site) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleLocked(unix(s.now()))
	s.active = [numFaults]bool{}
}

// HealFault ends one fault.
func (s *Site) HealFault(name string) error {
	f, err := faultOf(name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleLocked(unix(s.now()))
	s.active[f] = false
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

// effect is a rate that faults set and counters sum up. It only changes when a
// fault begins or ends, so a counter is the sum up to the last change plus the
// rate since: it goes on from where it is, whatever comes and goes.
type effect int

const (
	effCPU           effect = iota // share of CPU time taken from idle
	effIOWait                      // share of the first node's CPU time that waits for the disk
	effCrash                       // restarts a second
	effOOM                         // kills a second
	effLoss                        // 1 while packets are lost
	effDenied                      // 1 while policies deny much, less for little
	effPSICPU                      // seconds a second
	effPSIMemory                   //
	effPSIMemoryFull               //
	effPSIIO                       //
	effPSIIOFull                   //
	effThrottle                    // 1 while throttled
	effMajorFaults                 // 1 while memory is short
	effRenew                       // failed renewals a second
	numEffects
)

func (e effect) rate(on *[numFaults]bool) float64 {
	first := func(cases ...struct {
		f fault
		v float64
	}) float64 {
		for _, c := range cases {
			if on[c.f] {
				return c.v
			}
		}
		return 0
	}
	type is = struct {
		f fault
		v float64
	}
	switch e {
	case effCPU:
		return first(is{cpuSaturated, 0.80}, is{cpuBusy, 0.69})
	case effIOWait:
		if on[cpuSaturated] || on[cpuBusy] {
			return 0 // no idle time to wait in
		}
		return first(is{diskSlow, 0.30})
	case effCrash:
		return first(is{crashLoop, 1. / 20})
	case effOOM:
		return first(is{oomKills, 1. / 15})
	case effLoss:
		return first(is{packetLoss, 1})
	case effDenied:
		return first(is{policyDenied, 1}, is{policyProbing, 0.06})
	case effPSICPU:
		return first(is{cpuSaturated, 0.79}, is{cpuBusy, 0.14})
	case effPSIMemory:
		return first(is{memoryPressure, 0.45})
	case effPSIMemoryFull:
		return first(is{memoryPressure, 0.30})
	case effPSIIO:
		return first(is{diskSlow, 0.69}, is{memoryPressure, 0.10})
	case effPSIIOFull:
		return first(is{diskSlow, 0.54})
	case effThrottle:
		return first(is{cpuThrottled, 1})
	case effMajorFaults:
		return first(is{memoryPressure, 1})
	case effRenew:
		return first(is{certExpiring, 1. / 60})
	}
	return 0
}

// settleLocked sums the effects up to now, before the set of faults changes.
func (s *Site) settleLocked(now float64) {
	if dt := now - s.upTo; dt > 0 {
		for e := range numEffects {
			s.effect[e] += e.rate(&s.active) * dt
		}
		s.upTo = now
	}
}
