package simsite

import (
	"math"
	"strings"
)

// frame is a site at one moment: all that values depend on.
type frame struct {
	shape *shape
	seed  uint64
	now   float64 // unix seconds
	boot  float64
	made  float64
	// wave are slow oscillations in [-1, 1]; run is the time since boot, with each
	// wave's half amplitude added as speed: it never stops or goes back.
	wave, run [numWaves]float64
	st        *cluster
}

const numWaves = 8

var wavePeriods = [numWaves]float64{97, 151, 233, 307, 421, 601, 877, 1201} // seconds

// snapshot fills f with the state of the site now.
func (s *Site) snapshot(f *frame) {
	s.mu.Lock()
	c := s.cluster
	s.mu.Unlock()
	s.frame(f, c, max(unix(s.now()), c.at)) // a clock that was set back must not turn counters back
}

// frame fills f with a state of the site at a moment.
func (s *Site) frame(f *frame, c *cluster, now float64) {
	f.shape, f.seed, f.now, f.boot, f.made, f.st = s.tmpl.shape, s.seed, now, s.boot, s.made, c
	f.wave, f.run = s.rhythms(now)
}

// rhythms are the waves and the runs of a frame.
func (s *Site) rhythms(now float64) (wave, run [numWaves]float64) {
	t := now - s.boot
	for k := range wave {
		omega := 2 * math.Pi / wavePeriods[k]
		phase := unit(s.seed+uint64(k)) * 2 * math.Pi
		wave[k] = math.Cos(omega*t + phase)
		run[k] = t + 0.5/omega*math.Sin(omega*t+phase)
	}
	return wave, run
}

// unit maps a hash to [0, 1).
func unit(h uint64) float64 { return float64(mix(h)>>11) / (1 << 53) }

// valueFunc is the value of a series now. It must be cheap and must not allocate.
type valueFunc func(*frame, *line) float64

// condFunc says whether a series is there now.
type condFunc func(*frame, *line) bool

// own is a number in [0, 1) that belongs to this series of this site for good.
func (f *frame) own(l *line) float64 { return unit(l.hash ^ f.seed) }

func (f *frame) waveOf(l *line) float64 { return f.wave[l.hash%numWaves] }
func (f *frame) runOf(l *line) float64  { return f.runAt(l, int(l.hash%numWaves)) }

// runAt is how far a rhythm has come since the line's node booted.
func (f *frame) runAt(l *line, k int) float64 {
	if l.ent.node >= 0 {
		return f.run[k] - f.st.nodes[l.ent.node].runBase[k]
	}
	return f.run[k]
}

func (f *frame) node(l *line) *nodeState { return &f.st.nodes[l.ent.node] }

// bootOf is when the line's node booted.
func (f *frame) bootOf(l *line) float64 {
	if l.ent.node >= 0 && f.node(l).bootAt > 0 {
		return f.node(l).bootAt
	}
	return f.boot
}

// added is what the node's state has added to a counter.
func (f *frame) added(l *line, k nodeCounter) float64 { return f.sum(f.node(l).counters[k]) }

func (f *frame) sum(s summed) float64 { return s.base + s.rate*(f.now-f.st.at) }

// steady is a number in [0, 1) that belongs to an entity of this site for good.
func (f *frame) steady(kind uint64, i int32) float64 { return unit(f.seed ^ kind<<40 ^ uint64(i)) }

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (f *frame) notReady(node int32) bool {
	n := &f.st.nodes[node]
	return n.kubeletDead && f.now >= n.lostAt
}

func (f *frame) pod(l *line) *podState { return &f.st.pods[l.ent.pod] }

func (f *frame) pending(pod int) bool { return f.st.pods[pod].pending }

// ended says that a pod's containers have, for good.
func (p *podState) ended() bool { return p.done || p.failed != "" }

// runs says whether the containers of the line's pod do.
func (f *frame) runs(l *line) bool {
	p := f.pod(l)
	return !p.ended() && p.waitingReason(f.now) == ""
}

func (f *frame) podReady(pod int) bool {
	p := &f.st.pods[pod]
	return !p.gone && !p.pending && !p.unready && !p.ended() && !f.notReady(int32(f.shape.pods[pod].node)) && p.waitingReason(f.now) == ""
}

// phase of a pod.
func (f *frame) phase(l *line) string {
	p := f.pod(l)
	switch {
	case p.failed != "":
		return "Failed"
	case p.done:
		return "Succeeded"
	case p.pending, p.waiting != "" && !p.crash.on:
		return "Pending"
	}
	return "Running"
}

// restarts of the containers of a pod.
func (f *frame) restarts(p *podState) float64 {
	after, _ := p.crash.state(f.now)
	before, _ := p.crash.state(f.st.at)
	return math.Floor(f.sum(p.counters[cntRestarts]) + after - before)
}

// readyReplicas of a deployment.
func (f *frame) readyReplicas(d int32) (ready, want int) {
	for i := range f.shape.pods {
		if f.shape.pods[i].deployment == int(d) && f.podReady(i) {
			ready++
		}
	}
	return ready, f.st.replicas[d]
}

func (f *frame) daemonReady(d int32) (n int) {
	for i := range f.shape.pods {
		if f.shape.pods[i].daemon == int(d) && f.podReady(i) {
			n++
		}
	}
	return n
}

func (f *frame) onNode(node int32) (pods, containers int) {
	for i := range f.shape.pods {
		if p := &f.shape.pods[i]; p.node == int(node) && !f.pending(i) && !f.st.pods[i].gone {
			pods++
			containers += p.containers
		}
	}
	return pods, containers
}

// rareConds are conditions that do not hold on a healthy site: their series don't
// count to its size.
var rareConds = map[string]bool{"short": true, "notready": true, "diskpressure": true, "memorypressure": true, "crashed": true, "oomkilled": true, "pending": true, "cordoned": true, "pidpressure": true}

var conds = map[string]condFunc{
	"complete":       func(f *frame, l *line) bool { r, w := f.readyReplicas(l.ent.deployment); return r >= w-w/4 },
	"short":          func(f *frame, l *line) bool { r, w := f.readyReplicas(l.ent.deployment); return r < w-w/4 },
	"notready":       func(f *frame, l *line) bool { return f.notReady(l.ent.node) },
	"diskpressure":   func(f *frame, l *line) bool { return f.node(l).diskPressure },
	"memorypressure": func(f *frame, l *line) bool { return f.node(l).memoryPressure },
	"pidpressure":    func(f *frame, l *line) bool { return f.node(l).pidPressure },
	"cordoned":       func(f *frame, l *line) bool { return f.node(l).cordoned },
	"scheduled":      func(f *frame, l *line) bool { return !f.pending(int(l.ent.pod)) },
	"pending":        func(f *frame, l *line) bool { return f.pending(int(l.ent.pod)) },
	"podready":       func(f *frame, l *line) bool { return f.podReady(int(l.ent.pod)) },
	"running":        func(f *frame, l *line) bool { return f.runs(l) },
	"crashed": func(f *frame, l *line) bool {
		p := f.pod(l)
		return !p.oomKilled && (f.restarts(p) >= 1 || p.waitingReason(f.now) == "CrashLoopBackOff")
	},
	"oomkilled": func(f *frame, l *line) bool { return f.pod(l).oomKilled },
}

// condOf gets the reasons of waiting by name.
func condOf(name string) (condFunc, bool) {
	if reason, ok := strings.CutPrefix(name, "waits_"); ok {
		return func(f *frame, l *line) bool { return !f.pod(l).ended() && f.pod(l).waitingReason(f.now) == reason }, true
	}
	c, ok := conds[name]
	return c, ok
}

func counter(f *frame, l *line) float64 {
	return math.Floor(l.a * (0.6 + 0.8*f.own(l)) * f.runOf(l))
}

func seconds(f *frame, l *line) float64 { return milli(l.a * (0.6 + 0.8*f.own(l)) * f.runOf(l)) }

func milli(v float64) float64 { return math.Floor(v*1000) / 1000 }

func gauge(f *frame, l *line) float64 {
	return math.Round(l.a*(0.85+0.3*f.own(l))*(1+l.b/100*f.waveOf(l))*1000) / 1000
}

const page4K = 4096

func bytesGauge(f *frame, l *line) float64 { return math.Round(gauge(f, l)/page4K) * page4K }

const (
	memTotal  = 16657678336
	ephemeral = 0.05 // of an ext4 file system is reserved for root
	days      = 86400.0
)

// up is the time since the line's node booted, in seconds.
func (f *frame) up(l *line) float64 { return f.now - f.bootOf(l) }

// cpuSeconds of a mode; all busy ones together are about 0.17 on a healthy node.
func (f *frame) cpuSeconds(l *line, share float64) float64 {
	return share * (0.95 + 0.1*f.steady(1, l.ent.node<<8+l.ent.item)) * (f.up(l) + 0.2*(f.runAt(l, 3)-f.up(l)))
}

// memAvailable is the share of memory that a node has left.
func (f *frame) memAvailable(l *line) float64 {
	if m := f.node(l).memory; m.set {
		return max(0, m.at(f.now)+0.004*f.wave[2])
	}
	return 0.50 + 0.14*f.steady(2, l.ent.node) + 0.02*f.wave[4]
}

func memory(share func(avail float64) float64) valueFunc {
	return func(f *frame, l *line) float64 {
		return math.Round(memTotal*share(f.memAvailable(l))/page4K) * page4K
	}
}

var fsSizes = []float64{118e9, 535805952, 240e9, 1665765376}

// fsFree is the share of a file system that users have left.
func (f *frame) fsFree(l *line) float64 {
	if free := f.node(l).fs[l.ent.item].free; free.set {
		return max(0, free.at(f.now)+0.001*f.wave[5])
	}
	return 0.45 + 0.14*unit(f.seed^uint64(l.ent.node)<<8^uint64(l.ent.item)<<20) + 0.005*f.wave[7]
}

func fsBytes(extra float64) valueFunc {
	return func(f *frame, l *line) float64 {
		return math.Round(fsSizes[l.ent.item]*(f.fsFree(l)+extra)/page4K) * page4K
	}
}

func fsFiles(free bool) valueFunc {
	inodes := []float64{7340032, 0, 117187840, 2033000}
	return func(f *frame, l *line) float64 {
		n := inodes[l.ent.item]
		switch {
		case !free:
			return n
		case f.node(l).fs[l.ent.item].inodes.set:
			return math.Floor(n * max(0, f.node(l).fs[l.ent.item].inodes.at(f.now)+0.0005*f.wave[5]))
		}
		return math.Floor(n * (0.88 + 0.05*f.own(l)))
	}
}

// pressure is base plus what the node's state adds.
func pressure(base float64, k nodeCounter) valueFunc {
	return func(f *frame, l *line) float64 { return math.Floor((base*f.runOf(l)+f.added(l, k))*1e6) / 1e6 }
}

// values gets the conditions of nodes by name.
func valueOf(name string) (valueFunc, bool) {
	if rest, ok := strings.CutPrefix(name, "condition_"); ok {
		if condition, status, ok := strings.Cut(rest, "_"); ok {
			return nodeCondition(condition, status), true
		}
	}
	if phase, ok := strings.CutPrefix(name, "phase_"); ok {
		return func(f *frame, l *line) float64 { return yes(f.phase(l) == phase) }, true
	}
	if reason, ok := strings.CutPrefix(name, "failed_"); ok {
		return func(f *frame, l *line) float64 { return yes(f.pod(l).failed == reason) }, true
	}
	v, ok := values[name]
	return v, ok
}

func nodeCondition(condition, status string) valueFunc {
	return func(f *frame, l *line) float64 {
		is := "false"
		switch {
		case f.notReady(l.ent.node) && condition != "networkunavailable":
			is = "unknown"
		case condition == "ready", condition == "diskpressure" && f.node(l).diskPressure, condition == "memorypressure" && f.node(l).memoryPressure,
			condition == "pidpressure" && f.node(l).pidPressure:
			is = "true"
		}
		return yes(is == status)
	}
}

// memoryLimit of a container, a power of two between 128 MiB and 1 GiB.
func (f *frame) memoryLimit(l *line) float64 {
	return float64(uint64(128<<20) << (hashString(f.shape.containers[l.ent.container].name) % 4))
}

func (f *frame) containerMemory(l *line) float64 {
	share := 0.35 + 0.3*f.steady(3, l.ent.container) + 0.02*f.wave[l.ent.container%numWaves]
	if m := f.pod(l).memory; m.set {
		share = m.at(f.now) + 0.02*f.wave[1]
	}
	return f.memoryLimit(l) * share
}

func (f *frame) throttledShare(l *line) float64 {
	return 0.004*f.up(l)*(0.5+f.steady(4, l.ent.container)) + f.sum(f.pod(l).counters[cntThrottle])
}

const periodsPerSecond = 10 // of 100 ms, while the container runs without a break

var values = map[string]valueFunc{
	"const":            func(_ *frame, l *line) float64 { return l.a },
	"item":             func(_ *frame, l *line) float64 { return float64(l.ent.item) + l.a },
	"counter":          counter,
	"seconds":          seconds,
	"gauge":            gauge,
	"bytes":            bytesGauge,
	"histogram_bucket": func(f *frame, l *line) float64 { return math.Floor(counter(f, l) * l.b) },
	"histogram_sum":    func(f *frame, l *line) float64 { return milli(counter(f, l) * l.b) },

	"now": func(f *frame, l *line) float64 {
		if l.ent.node >= 0 {
			return milli(f.now + f.node(l).clock.or(f.now, 0))
		}
		return milli(f.now)
	},
	"boot_time": func(f *frame, l *line) float64 { return math.Floor(f.bootOf(l)) },
	"zone":      func(f *frame, l *line) float64 { return f.node(l).zone.or(f.now, 0) },
	"created": func(f *frame, l *line) float64 {
		return math.Floor(f.boot - 30*days*unit(f.seed^uint64(l.ent.pod+7)^uint64(l.ent.deployment+7)<<20^uint64(l.ent.item+7)<<40))
	},
	"started":          func(f *frame, l *line) float64 { return math.Floor(f.bootOf(l) + 40 + 90*f.steady(5, l.ent.container)) },
	"resource_version": func(f *frame, l *line) float64 { return math.Floor(1e5 + 4e6*f.own(l)) },
	"collector_seconds": func(f *frame, l *line) float64 {
		return math.Round((0.0002+0.004*f.own(l))*(1+0.3*f.waveOf(l))*1e7) / 1e7
	},

	"cpu_idle": func(f *frame, l *line) float64 {
		return math.Floor((f.up(l)-f.cpuSeconds(l, 0.171)-f.added(l, cntCPU)-f.added(l, cntIOWait))*100) / 100
	},
	"cpu_user": func(f *frame, l *line) float64 {
		return math.Floor((f.cpuSeconds(l, 0.115)+0.8*f.added(l, cntCPU))*100) / 100
	},
	"cpu_system": func(f *frame, l *line) float64 {
		return math.Floor((f.cpuSeconds(l, 0.045)+0.2*f.added(l, cntCPU))*100) / 100
	},
	"cpu_iowait": func(f *frame, l *line) float64 {
		return math.Floor((f.cpuSeconds(l, 0.004)+f.added(l, cntIOWait))*100) / 100
	},
	"cpu_irq":     func(*frame, *line) float64 { return 0 },
	"cpu_nice":    func(f *frame, l *line) float64 { return math.Floor(f.cpuSeconds(l, 0.001)*100) / 100 },
	"cpu_softirq": func(f *frame, l *line) float64 { return math.Floor(f.cpuSeconds(l, 0.006)*100) / 100 },
	"cpu_steal":   func(*frame, *line) float64 { return 0 },
	"load": func(f *frame, l *line) float64 {
		n := f.node(l)
		v := cpus*n.load.or(f.now, 0.24+0.05*f.waveOf(l)) + n.blocked
		return math.Round(v*l.a*100) / 100
	},
	"procs_blocked": func(f *frame, l *line) float64 { return f.node(l).blocked },

	"mem_MemTotal":     func(*frame, *line) float64 { return memTotal },
	"mem_MemAvailable": memory(func(a float64) float64 { return a }),
	"mem_MemFree":      memory(func(a float64) float64 { return 0.35 * a }),
	"mem_Cached":       memory(func(a float64) float64 { return 0.6 * a }),
	"mem_AnonPages":    memory(func(a float64) float64 { return 0.92 * (1 - a) }),
	"mem_Active":       memory(func(a float64) float64 { return 0.5*(1-a) + 0.25*a }),
	"mem_Inactive":     memory(func(a float64) float64 { return 0.35*(1-a) + 0.3*a }),

	"fs_size":       func(_ *frame, l *line) float64 { return fsSizes[l.ent.item] },
	"fs_avail":      fsBytes(0),
	"fs_free":       fsBytes(ephemeral),
	"fs_files":      fsFiles(false),
	"fs_files_free": fsFiles(true),
	"fs_readonly":   func(f *frame, l *line) float64 { return yes(f.node(l).fs[l.ent.item].readonly) },
	"disk_io_time": func(f *frame, l *line) float64 {
		return milli(l.a*f.runOf(l) + 0.93*f.added(l, cntPSIIO)/0.69)
	},

	"nic": func(f *frame, l *line) float64 {
		share := []float64{1, 0.4, 0.3, 0.3, 0.001}[l.ent.item]
		return math.Floor(l.a * share * (0.7 + 0.6*f.steady(6, l.ent.node)) * f.runAt(l, 1))
	},
	"nic_lost": func(f *frame, l *line) float64 {
		if l.ent.item != 0 {
			return 0
		}
		return math.Floor(l.a * f.added(l, cntLoss))
	},
	"out_segs": func(f *frame, l *line) float64 { return math.Floor(1000 * f.runAt(l, 1)) },
	"retrans": func(f *frame, l *line) float64 {
		return math.Floor(f.runAt(l, 1)*(0.6+0.6*f.steady(7, l.ent.node)) + 125*f.added(l, cntLoss))
	},
	"node_oom_kills": func(f *frame, l *line) float64 {
		var kills float64
		for i := range f.shape.pods {
			if f.shape.pods[i].node == int(l.ent.node) {
				kills += math.Floor(f.sum(f.st.pods[i].counters[cntOOMs]))
			}
		}
		return kills
	},
	"major_faults": func(f *frame, l *line) float64 {
		return math.Floor(0.3*f.runOf(l) + 900*f.added(l, cntMajorFaults))
	},
	"pressure_cpu":         pressure(0.009, cntPSICPU),
	"pressure_memory":      pressure(0.0006, cntPSIMemory),
	"pressure_memory_full": pressure(0.0003, cntPSIMemoryFull),
	"pressure_io":          pressure(0.008, cntPSIIO),
	"pressure_io_full":     pressure(0.005, cntPSIIOFull),
	"clock_synced":         func(f *frame, l *line) float64 { return yes(!f.node(l).unsynced) },
	"clock_offset": func(f *frame, l *line) float64 {
		return f.node(l).offset.or(f.now, math.Round(1e-4*f.waveOf(l)*1e9)/1e9)
	},
	"clock_max_error": func(f *frame, l *line) float64 {
		if f.node(l).unsynced {
			return 16
		}
		return 0.004
	},
	"nic_up": func(f *frame, l *line) float64 { return yes(!(f.node(l).linkDown && l.ent.item == 0)) },
	"fs_bad": func(f *frame, l *line) float64 { return yes(f.node(l).fs[l.ent.item].bad) },
	"conntrack": func(f *frame, l *line) float64 {
		return math.Round(262144 * f.node(l).conntrack.or(f.now, 0.011+0.002*f.waveOf(l)))
	},
	"files": func(f *frame, l *line) float64 {
		return math.Round(2.46617e6 * f.node(l).fds.or(f.now, 0.0037+0.0002*f.waveOf(l)))
	},
	"temperature": func(f *frame, l *line) float64 {
		return math.Round(f.node(l).temperature.or(f.now, gauge(f, l))*10) / 10
	},
	"evictions": func(f *frame, l *line) float64 { return math.Floor(f.added(l, cntEvictions)) },
	"cordoned":  func(f *frame, l *line) float64 { return yes(f.node(l).cordoned) },

	"apt_security": func(f *frame, l *line) float64 {
		return math.Floor(f.node(l).security.or(f.now, 3*f.own(l)))
	},
	"apt_other":       func(f *frame, l *line) float64 { return math.Floor(3 + 9*f.own(l) + f.node(l).other.or(f.now, 0)) },
	"reboot_required": func(f *frame, l *line) float64 { return yes(f.node(l).reboot) },
	"apt_cache_time": func(f *frame, l *line) float64 {
		if at := f.node(l).aptAt; at > 0 {
			return math.Floor(at)
		}
		return math.Floor(f.now/days)*days - 3600*math.Floor(12*f.own(l))
	},
	"cert_ttl": func(f *frame, l *line) float64 {
		if end := f.node(l).certEnd; end > 0 {
			return math.Trunc(end - f.now)
		}
		return math.Trunc((60+240*f.own(l))*days - (f.now - f.made))
	},
	"server_cert_ttl": func(f *frame, l *line) float64 { return math.Trunc((60+240*f.own(l))*days - (f.now - f.made)) },
	"renew_errors":    func(f *frame, l *line) float64 { return math.Floor(f.added(l, cntRenew)) },
	"policy_denied": func(f *frame, l *line) float64 {
		return math.Floor(0.02*(0.5+f.own(l))*f.runOf(l) + (10+15*l.a)*f.added(l, cntDenied))
	},
	"policy_denied_bytes": func(f *frame, l *line) float64 {
		return 74 * math.Floor(0.02*(0.5+f.own(l))*f.runOf(l)+(10+15*l.a)*f.added(l, cntDenied))
	},
	"unreachable_nodes": func(f *frame, l *line) float64 { return f.node(l).unreachable },
	"volume_available":  func(f *frame, l *line) float64 { return f.volumeFree(l) },
	"volume_used":       func(f *frame, l *line) float64 { return 21474836480 - f.volumeFree(l) },

	"node_count":            func(f *frame, _ *line) float64 { return float64(f.shape.nodes) },
	"node_pods":             func(f *frame, l *line) float64 { n, _ := f.onNode(l.ent.node); return float64(n) },
	"node_containers":       func(f *frame, l *line) float64 { _, n := f.onNode(l.ent.node); return float64(n) },
	"started_containers":    func(f *frame, l *line) float64 { return 30 + f.restartsOn(l.ent.node) },
	"daemonset_ready":       func(f *frame, l *line) float64 { return float64(f.daemonReady(l.ent.daemon)) },
	"daemonset_unavailable": func(f *frame, l *line) float64 { return float64(f.shape.nodes - f.daemonReady(l.ent.daemon)) },
	"statefulset_ready":     func(f *frame, l *line) float64 { return yes(f.podReady(int(l.ent.pod))) },
	"deployment_replicas":   func(f *frame, l *line) float64 { return float64(f.st.replicas[l.ent.deployment]) },
	"deployment_ready":      func(f *frame, l *line) float64 { r, _ := f.readyReplicas(l.ent.deployment); return float64(r) },
	"deployment_unavailable": func(f *frame, l *line) float64 {
		r, w := f.readyReplicas(l.ent.deployment)
		return float64(max(0, w-r))
	},

	"pod_pending":   func(f *frame, l *line) float64 { return yes(f.pending(int(l.ent.pod))) },
	"pod_scheduled": func(f *frame, l *line) float64 { return yes(!f.pending(int(l.ent.pod))) },
	"pod_ready":     func(f *frame, l *line) float64 { return yes(f.podReady(int(l.ent.pod))) },
	"pod_not_ready": func(f *frame, l *line) float64 { return yes(!f.podReady(int(l.ent.pod))) },
	"pod_memory": func(f *frame, l *line) float64 {
		var sum float64
		p := &f.shape.pods[l.ent.pod]
		for i := range p.containers {
			c := line{ent: l.ent}
			c.ent.container = int32(p.firstContainer + i)
			sum += f.containerMemory(&c)
		}
		return math.Round(sum*l.a/page4K) * page4K
	},

	"container_ready":   func(f *frame, l *line) float64 { return yes(f.runs(l) && !f.pod(l).unready) },
	"container_running": func(f *frame, l *line) float64 { return yes(f.runs(l)) },
	"container_waiting": func(f *frame, l *line) float64 { return yes(!f.pod(l).ended() && f.pod(l).waitingReason(f.now) != "") },
	"container_ended":   func(f *frame, l *line) float64 { return yes(f.pod(l).ended()) },
	"container_restarts": func(f *frame, l *line) float64 {
		return yes(f.own(l) > 0.92 && !f.shape.pods[l.ent.pod].spare) + f.restarts(f.pod(l)) // now and then one restarted long ago
	},
	"container_ooms":           func(f *frame, l *line) float64 { return math.Floor(f.sum(f.pod(l).counters[cntOOMs])) },
	"container_memory":         func(f *frame, l *line) float64 { return math.Round(f.containerMemory(l)*l.a/page4K) * page4K },
	"container_memory_max":     func(f *frame, l *line) float64 { return f.memoryLimit(l) * 0.75 },
	"container_memory_limit":   func(f *frame, l *line) float64 { return f.memoryLimit(l) },
	"container_memory_request": func(f *frame, l *line) float64 { return f.memoryLimit(l) / 2 },
	"container_cpu_limit":      func(*frame, *line) float64 { return 0.5 },
	"cfs_periods":              func(f *frame, l *line) float64 { return math.Floor(periodsPerSecond * f.up(l)) },
	"cfs_throttled":            func(f *frame, l *line) float64 { return math.Floor(periodsPerSecond * f.throttledShare(l)) },
	"cfs_throttled_seconds":    func(f *frame, l *line) float64 { return milli(0.4 * f.throttledShare(l)) },
}

func (f *frame) volumeFree(l *line) float64 {
	share := max(0, f.st.volume.or(f.now, 0.55+0.1*f.steady(8, l.ent.pod)))
	return math.Round(21474836480*share/page4K) * page4K
}

// restartsOn is how often containers were started again on a node.
func (f *frame) restartsOn(node int32) (n float64) {
	for i := range f.shape.pods {
		if f.shape.pods[i].node == int(node) {
			n += f.restarts(&f.st.pods[i])
		}
	}
	return n
}
