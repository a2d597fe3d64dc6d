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
	on        [numFaults]bool
	since     [numFaults]float64
	effect    [numEffects]float64
}

const numWaves = 8

var wavePeriods = [numWaves]float64{97, 151, 233, 307, 421, 601, 877, 1201} // seconds

// snapshot fills f with the state of the site now.
func (s *Site) snapshot(f *frame) {
	s.mu.Lock()
	now := unix(s.now())
	s.settleLocked(now)
	f.on, f.since, f.effect = s.active, s.since, s.effect
	f.now = max(now, s.upTo) // a clock that was set back must not turn counters back
	s.mu.Unlock()
	f.shape, f.seed, f.boot, f.made = s.tmpl.shape, s.seed, s.boot, s.made
	t := f.now - f.boot
	for k := range f.wave {
		omega := 2 * math.Pi / wavePeriods[k]
		phase := unit(s.seed+uint64(k)) * 2 * math.Pi
		f.wave[k] = math.Cos(omega*t + phase)
		f.run[k] = t + 0.5/omega*math.Sin(omega*t+phase)
	}
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
func (f *frame) runOf(l *line) float64  { return f.run[l.hash%numWaves] }

// steady is a number in [0, 1) that belongs to an entity of this site for good.
func (f *frame) steady(kind uint64, i int32) float64 { return unit(f.seed ^ kind<<40 ^ uint64(i)) }

// first says whether the series is about the node that faults of one node hit.
func first(l *line) bool { return l.ent.node == 0 }

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (f *frame) notReady(node int32) bool { return node == 0 && f.on[nodeNotReady] }

// crashing: two of three replicas of the shop's first application.
func (f *frame) crashing(l *line) bool {
	return f.on[crashLoop] && f.crashVictim(l)
}

func (f *frame) crashVictim(l *line) bool {
	return f.podOf(l, "checkout") && f.shape.pods[l.ent.pod].replica < 2
}

func (f *frame) oomVictim(l *line) bool { return f.podOf(l, "payments") }

func (f *frame) podOf(l *line, deployment string) bool {
	if l.ent.pod < 0 {
		return false
	}
	d := f.shape.pods[l.ent.pod].deployment
	return d >= 0 && f.shape.deployments[d].name == deployment
}

func (f *frame) pending(pod int) bool { return f.on[podsPending] && pod >= len(f.shape.pods)-3 }

func (f *frame) podReady(pod int) bool {
	p := &f.shape.pods[pod]
	if f.pending(pod) || f.notReady(int32(p.node)) {
		return false
	}
	if p.deployment < 0 {
		return true
	}
	switch f.shape.deployments[p.deployment].name {
	case "checkout":
		return !f.on[crashLoop] || p.replica >= 2
	case "catalog":
		return !f.on[deploymentShort] || p.replica < 1
	}
	return true
}

// readyReplicas of a deployment.
func (f *frame) readyReplicas(d int32) (ready, want int) {
	for i := range f.shape.pods {
		if f.shape.pods[i].deployment == int(d) {
			want++
			if f.podReady(i) {
				ready++
			}
		}
	}
	return ready, want
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
		if p := &f.shape.pods[i]; p.node == int(node) && !f.pending(i) {
			pods++
			containers += p.containers
		}
	}
	return pods, containers
}

// rareConds are conditions that do not hold on a healthy site: their series don't
// count to its size.
var rareConds = map[string]bool{"short": true, "notready": true, "diskpressure": true, "memorypressure": true, "crashed": true, "crashing": true, "oomkilled": true, "pending": true}

var conds = map[string]condFunc{
	"complete":       func(f *frame, l *line) bool { r, w := f.readyReplicas(l.ent.deployment); return r >= w-w/4 },
	"short":          func(f *frame, l *line) bool { r, w := f.readyReplicas(l.ent.deployment); return r < w-w/4 },
	"notready":       func(f *frame, l *line) bool { return f.notReady(l.ent.node) },
	"diskpressure":   func(f *frame, l *line) bool { return f.on[diskFull] && first(l) },
	"memorypressure": func(f *frame, l *line) bool { return f.on[memoryPressure] && first(l) },
	"scheduled":      func(f *frame, l *line) bool { return !f.pending(int(l.ent.pod)) },
	"pending":        func(f *frame, l *line) bool { return f.pending(int(l.ent.pod)) },
	"podready":       func(f *frame, l *line) bool { return f.podReady(int(l.ent.pod)) },
	"running":        func(f *frame, l *line) bool { return !f.crashing(l) },
	"crashing":       func(f *frame, l *line) bool { return f.crashing(l) },
	"crashed":        func(f *frame, l *line) bool { return f.effect[effCrash] >= 1 && f.crashVictim(l) || f.crashing(l) },
	"oomkilled":      func(f *frame, l *line) bool { return (f.effect[effOOM] >= 1 || f.on[oomKills]) && f.oomVictim(l) },
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

// cpuBusyShare is about 0.17 on a healthy node.
func (f *frame) cpuSeconds(l *line, share float64) float64 {
	return share * (0.95 + 0.1*f.steady(1, l.ent.node<<8+l.ent.item)) * (f.now - f.boot + 0.2*(f.run[3]-(f.now-f.boot)))
}

// memAvailable is the share of memory that a node has left.
func (f *frame) memAvailable(l *line) float64 {
	switch {
	case first(l) && f.on[memoryPressure]:
		return 0.03 + 0.004*f.wave[2]
	case first(l) && f.on[memoryTight]:
		return 0.11 + 0.005*f.wave[2]
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
	if first(l) && (l.ent.item == 0 || l.ent.item == 2) {
		switch {
		case f.on[diskFull]:
			return 0.015 + 0.001*f.wave[5]
		case f.on[diskFilling]:
			return 0.13 + 0.003*f.wave[5]
		}
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
		case f.on[inodesFull] && first(l) && l.ent.item == 0:
			return math.Floor(n * (0.01 + 0.0005*f.wave[5]))
		}
		return math.Floor(n * (0.88 + 0.05*f.own(l)))
	}
}

// pressure is base plus an effect, on all nodes or the first alone.
func pressure(base float64, e effect, all bool) valueFunc {
	return func(f *frame, l *line) float64 {
		v := base * f.runOf(l)
		if all || first(l) {
			v += f.effect[e]
		}
		return math.Floor(v*1e6) / 1e6
	}
}

// values gets the conditions of nodes by name.
func valueOf(name string) (valueFunc, bool) {
	if rest, ok := strings.CutPrefix(name, "condition_"); ok {
		if condition, status, ok := strings.Cut(rest, "_"); ok {
			return nodeCondition(condition, status), true
		}
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
		case condition == "ready", condition == "diskpressure" && f.on[diskFull] && first(l), condition == "memorypressure" && f.on[memoryPressure] && first(l):
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
	if f.on[oomKills] && f.oomVictim(l) {
		share = 0.97 + 0.02*f.wave[1]
	}
	return f.memoryLimit(l) * share
}

func (f *frame) throttledShare(l *line) float64 {
	v := 0.004 * (f.now - f.boot) * (0.5 + f.steady(4, l.ent.container))
	if f.podOf(l, "checkout") {
		v += 0.89 * f.effect[effThrottle]
	}
	return v
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

	"now":       func(f *frame, _ *line) float64 { return milli(f.now) },
	"boot_time": func(f *frame, _ *line) float64 { return math.Floor(f.boot) },
	"created": func(f *frame, l *line) float64 {
		return math.Floor(f.boot - 30*days*unit(f.seed^uint64(l.ent.pod+7)^uint64(l.ent.deployment+7)<<20^uint64(l.ent.item+7)<<40))
	},
	"started":          func(f *frame, l *line) float64 { return math.Floor(f.boot + 40 + 90*f.steady(5, l.ent.container)) },
	"resource_version": func(f *frame, l *line) float64 { return math.Floor(1e5 + 4e6*f.own(l)) },
	"collector_seconds": func(f *frame, l *line) float64 {
		return math.Round((0.0002+0.004*f.own(l))*(1+0.3*f.waveOf(l))*1e7) / 1e7
	},

	"cpu_idle": func(f *frame, l *line) float64 {
		t := f.now - f.boot
		v := t - f.cpuSeconds(l, 0.171) - f.effect[effCPU]
		if first(l) {
			v -= f.effect[effIOWait]
		}
		return math.Floor(v*100) / 100
	},
	"cpu_user": func(f *frame, l *line) float64 {
		return math.Floor((f.cpuSeconds(l, 0.115)+0.8*f.effect[effCPU])*100) / 100
	},
	"cpu_system": func(f *frame, l *line) float64 {
		return math.Floor((f.cpuSeconds(l, 0.045)+0.2*f.effect[effCPU])*100) / 100
	},
	"cpu_iowait": func(f *frame, l *line) float64 {
		v := f.cpuSeconds(l, 0.004)
		if first(l) {
			v += f.effect[effIOWait]
		}
		return math.Floor(v*100) / 100
	},
	"cpu_irq":     func(*frame, *line) float64 { return 0 },
	"cpu_nice":    func(f *frame, l *line) float64 { return math.Floor(f.cpuSeconds(l, 0.001)*100) / 100 },
	"cpu_softirq": func(f *frame, l *line) float64 { return math.Floor(f.cpuSeconds(l, 0.006)*100) / 100 },
	"cpu_steal":   func(*frame, *line) float64 { return 0 },
	"load": func(f *frame, l *line) float64 {
		v := cpus * (0.24 + 0.05*f.waveOf(l))
		switch {
		case f.on[cpuSaturated]:
			v = cpus * 6 * (1 + 0.05*f.waveOf(l))
		case f.on[cpuBusy]:
			v = cpus * 1.1
		}
		if f.on[diskSlow] && first(l) {
			v += 5
		}
		return math.Round(v*l.a*100) / 100
	},
	"procs_blocked": func(f *frame, l *line) float64 { return 5 * yes(f.on[diskSlow] && first(l)) },

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
	"fs_readonly":   func(f *frame, l *line) float64 { return yes(f.on[filesystemReadonly] && first(l) && l.ent.item == 0) },
	"disk_io_time": func(f *frame, l *line) float64 {
		v := l.a * f.runOf(l)
		if first(l) {
			v += 0.93 * f.effect[effPSIIO] / 0.69
		}
		return milli(v)
	},

	"nic": func(f *frame, l *line) float64 {
		share := []float64{1, 0.4, 0.3, 0.3, 0.001}[l.ent.item]
		return math.Floor(l.a * share * (0.7 + 0.6*f.steady(6, l.ent.node)) * f.run[1])
	},
	"nic_lost": func(f *frame, l *line) float64 {
		if l.ent.item != 0 {
			return 0
		}
		return math.Floor(l.a * f.effect[effLoss])
	},
	"out_segs": func(f *frame, l *line) float64 { return math.Floor(1000 * f.run[1]) },
	"retrans": func(f *frame, l *line) float64 {
		return math.Floor(f.run[1]*(0.6+0.6*f.steady(7, l.ent.node)) + 125*f.effect[effLoss])
	},
	"node_oom_kills": func(f *frame, l *line) float64 {
		d := f.shape.deployment("payments")
		for i := range f.shape.pods {
			if p := &f.shape.pods[i]; p.deployment == d && p.node == int(l.ent.node) {
				return math.Floor(f.effect[effOOM])
			}
		}
		return 0
	},
	"major_faults": func(f *frame, l *line) float64 {
		v := 0.3 * f.runOf(l)
		if first(l) {
			v += 900 * f.effect[effMajorFaults]
		}
		return math.Floor(v)
	},
	"pressure_cpu":         pressure(0.009, effPSICPU, true),
	"pressure_memory":      pressure(0.0006, effPSIMemory, false),
	"pressure_memory_full": pressure(0.0003, effPSIMemoryFull, false),
	"pressure_io":          pressure(0.008, effPSIIO, false),
	"pressure_io_full":     pressure(0.005, effPSIIOFull, false),
	"clock_synced":         func(f *frame, l *line) float64 { return yes(!(f.on[clockSkew] && first(l))) },
	"clock_offset": func(f *frame, l *line) float64 {
		if f.on[clockSkew] && first(l) {
			return 2.5
		}
		return math.Round(1e-4*f.waveOf(l)*1e9) / 1e9
	},
	"clock_max_error": func(f *frame, l *line) float64 {
		if f.on[clockSkew] && first(l) {
			return 16
		}
		return 0.004
	},

	"apt_security": func(f *frame, l *line) float64 {
		switch {
		case f.on[patchOverdue]:
			return 41
		case f.on[updatesPending] && first(l):
			return 12
		}
		return math.Floor(3 * f.own(l))
	},
	"apt_other":       func(f *frame, l *line) float64 { return math.Floor(3+9*f.own(l)) + 60*yes(f.on[patchOverdue]) },
	"reboot_required": func(f *frame, l *line) float64 { return yes(f.on[patchOverdue] || f.on[updatesPending] && first(l)) },
	"apt_cache_time": func(f *frame, l *line) float64 {
		if f.on[patchOverdue] {
			return math.Floor(f.made - 45*days)
		}
		return math.Floor(f.now/days)*days - 3600*math.Floor(12*f.own(l))
	},
	"cert_ttl": func(f *frame, l *line) float64 {
		switch {
		case first(l) && f.on[certExpiring]:
			return math.Trunc(20*3600 - (f.now - f.since[certExpiring]))
		case first(l) && f.on[certAgeing]:
			return math.Trunc(11*days - (f.now - f.since[certAgeing]))
		}
		return math.Trunc((60+240*f.own(l))*days - (f.now - f.made))
	},
	"server_cert_ttl": func(f *frame, l *line) float64 { return math.Trunc((60+240*f.own(l))*days - (f.now - f.made)) },
	"renew_errors":    func(f *frame, l *line) float64 { return math.Floor(f.effect[effRenew]) * yes(first(l)) },
	"policy_denied": func(f *frame, l *line) float64 {
		return math.Floor(0.02*(0.5+f.own(l))*f.runOf(l) + (10+15*l.a)*f.effect[effDenied])
	},
	"policy_denied_bytes": func(f *frame, l *line) float64 {
		return 74 * math.Floor(0.02*(0.5+f.own(l))*f.runOf(l)+(10+15*l.a)*f.effect[effDenied])
	},
	"unreachable_nodes": func(*frame, *line) float64 { return 0 },
	"volume_available":  func(f *frame, l *line) float64 { return f.volumeFree(l) },
	"volume_used":       func(f *frame, l *line) float64 { return 21474836480 - f.volumeFree(l) },

	"node_count":             func(f *frame, _ *line) float64 { return float64(f.shape.nodes) },
	"node_pods":              func(f *frame, l *line) float64 { n, _ := f.onNode(l.ent.node); return float64(n) },
	"node_containers":        func(f *frame, l *line) float64 { _, n := f.onNode(l.ent.node); return float64(n) },
	"started_containers":     func(f *frame, l *line) float64 { return 30 + math.Floor(2*f.effect[effCrash]+f.effect[effOOM]) },
	"daemonset_ready":        func(f *frame, l *line) float64 { return float64(f.daemonReady(l.ent.daemon)) },
	"daemonset_unavailable":  func(f *frame, l *line) float64 { return float64(f.shape.nodes - f.daemonReady(l.ent.daemon)) },
	"statefulset_ready":      func(f *frame, l *line) float64 { return yes(f.podReady(int(l.ent.pod))) },
	"deployment_replicas":    func(f *frame, l *line) float64 { return float64(f.shape.deployments[l.ent.deployment].replicas) },
	"deployment_ready":       func(f *frame, l *line) float64 { r, _ := f.readyReplicas(l.ent.deployment); return float64(r) },
	"deployment_unavailable": func(f *frame, l *line) float64 { r, w := f.readyReplicas(l.ent.deployment); return float64(w - r) },

	"pod_pending":   func(f *frame, l *line) float64 { return yes(f.pending(int(l.ent.pod))) },
	"pod_running":   func(f *frame, l *line) float64 { return yes(!f.pending(int(l.ent.pod))) },
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

	"container_ready": func(f *frame, l *line) float64 {
		return yes(!f.crashing(l) && (!f.podOf(l, "catalog") || f.podReady(int(l.ent.pod))))
	},
	"container_running": func(f *frame, l *line) float64 { return yes(!f.crashing(l)) },
	"container_waiting": func(f *frame, l *line) float64 { return yes(f.crashing(l)) },
	"container_restarts": func(f *frame, l *line) float64 {
		v := yes(f.own(l) > 0.92) // now and then one restarted long ago
		if f.crashVictim(l) {
			v += math.Floor(f.effect[effCrash])
		}
		if f.oomVictim(l) {
			v += math.Floor(f.effect[effOOM])
		}
		return v
	},
	"container_ooms":           func(f *frame, l *line) float64 { return math.Floor(f.effect[effOOM]) * yes(f.oomVictim(l)) },
	"container_memory":         func(f *frame, l *line) float64 { return math.Round(f.containerMemory(l)*l.a/page4K) * page4K },
	"container_memory_max":     func(f *frame, l *line) float64 { return f.memoryLimit(l) * 0.75 },
	"container_memory_limit":   func(f *frame, l *line) float64 { return f.memoryLimit(l) },
	"container_memory_request": func(f *frame, l *line) float64 { return f.memoryLimit(l) / 2 },
	"container_cpu_limit":      func(*frame, *line) float64 { return 0.5 },
	"cfs_periods":              func(f *frame, l *line) float64 { return math.Floor(periodsPerSecond * (f.now - f.boot)) },
	"cfs_throttled":            func(f *frame, l *line) float64 { return math.Floor(periodsPerSecond * f.throttledShare(l)) },
	"cfs_throttled_seconds":    func(f *frame, l *line) float64 { return milli(0.4 * f.throttledShare(l)) },
}

func (f *frame) volumeFree(l *line) float64 {
	share := 0.55 + 0.1*f.steady(8, l.ent.pod)
	if f.on[volumeFull] {
		share = 0.01
	}
	return math.Round(21474836480*share/page4K) * page4K
}
