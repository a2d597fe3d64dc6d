package simsite

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// noFault marks what a site logs always.
const noFault fault = -1

// logSource is something that logs: each pod of an app, or a unit of each node.
type logSource struct {
	app, unit string // one of them
	fault     fault  // logs only while it is active; noFault: always
	first     bool   // only the first node, or the first pods as the fault has it
	every     int    // seconds between two lines, for each pod or node
	severity  string
	// text has {n} for a small number, {ms} for milliseconds, {id} for an id.
	text string
}

// logSources are what the sites log: a line in a few seconds while all is well, and
// for each fault what the real one would leave in the logs.
var logSources = []logSource{
	{app: "checkout", fault: noFault, every: 20, severity: "info", text: "order {id} paid, {n} items, {ms} ms"},
	{app: "catalog", fault: noFault, every: 45, severity: "info", text: "GET /v1/products?page={n} 200 {ms} ms"},
	{app: "payments", fault: noFault, every: 30, severity: "info", text: "authorised {id} in {ms} ms"},
	{app: "payments", fault: noFault, every: 400, severity: "warning", text: "retry {n} for {id}: issuer answered after {ms} ms"},
	{app: "postgres", fault: noFault, every: 60, severity: "info", text: "checkpoint complete: wrote {n} buffers in {ms} ms"},
	{app: "coredns", fault: noFault, every: 120, severity: "info", text: "reloading configuration, hash {id}"},
	{unit: "kubelet.service", fault: noFault, every: 90, severity: "info", text: "SyncLoop (housekeeping) took {ms} ms"},
	{unit: "containerd.service", fault: noFault, every: 120, severity: "info", text: "garbage collected {n} snapshots in {ms} ms"},
	{unit: "sshd.service", fault: noFault, every: 600, severity: "info", text: "Connection closed by 10.0.0.{n} port 51{n} [preauth]"},

	{unit: "muster-edge.service", fault: uplinkDown, first: true, every: 10, severity: "warning", text: "uplink: dial regional: i/o timeout after {ms} ms; the spool keeps what is collected"},
	{unit: "kernel", fault: packetLoss, every: 15, severity: "warning", text: "eth0: transmit queue 0 timed out {ms} ms"},
	{app: "kube-state-metrics", fault: exporterDown, every: 5, severity: "error", text: "failed to list *v1.Pod: the server was unable to return a response in the time allotted, {n} retries"},
	{unit: "kubelet.service", fault: nodeNotReady, first: true, every: 5, severity: "error", text: "Error updating node status, will retry: failed to patch status, attempt {n}"},
	{app: "checkout", fault: crashLoop, first: true, every: 4, severity: "error", text: "panic: runtime error: invalid memory address or nil pointer dereference [signal SIGSEGV: segmentation violation addr=0x{n}]"},
	{unit: "kubelet.service", fault: crashLoop, first: true, every: 10, severity: "error", text: "Error syncing pod, skipping: back-off {n}s restarting failed container=checkout (CrashLoopBackOff)"},
	{unit: "kubelet.service", fault: podsPending, first: true, every: 15, severity: "warning", text: "0/{n} nodes are available: insufficient memory"},
	{app: "catalog", fault: deploymentShort, first: true, every: 15, severity: "warning", text: "readiness probe failed: connection refused, {n} times"},
	{unit: "kernel", fault: oomKills, first: true, every: 15, severity: "error", text: "Memory cgroup out of memory: Killed process {n} (payments) total-vm:{ms}kB, out of memory"},
	{unit: "kernel", fault: filesystemReadonly, first: true, every: 10, severity: "error", text: "EXT4-fs (nvme0n1p2): Remounting filesystem read-only after {n} errors"},
	{app: "postgres", fault: volumeFull, every: 5, severity: "error", text: "could not extend file \"base/16384/{n}\": No space left on device"},
	{unit: "containerd.service", fault: diskFull, first: true, every: 5, severity: "error", text: "failed to pull image: write /var/lib/containerd/tmp/{id}: no space left on device"},
	{unit: "kubelet.service", fault: diskFull, first: true, every: 10, severity: "warning", text: "eviction manager: attempting to reclaim ephemeral-storage, {n} pods"},
	{unit: "kubelet.service", fault: diskFilling, first: true, every: 60, severity: "warning", text: "image garbage collection: disk usage over the high threshold, freeing {n} images"},
	{unit: "kernel", fault: inodesFull, first: true, every: 10, severity: "error", text: "EXT4-fs warning: no free inodes in group {n}"},
	{unit: "kernel", fault: diskSlow, first: true, every: 10, severity: "warning", text: "nvme nvme0: I/O {n} QID 3 timeout, completion polled after {ms} ms"},
	{unit: "kubelet.service", fault: memoryPressure, first: true, every: 8, severity: "warning", text: "eviction manager: must evict pod(s) to reclaim memory, {n} candidates"},
	{app: "checkout", fault: cpuSaturated, every: 10, severity: "warning", text: "slow request: order {id} took {ms}{n} ms"},
	{app: "checkout", fault: cpuThrottled, every: 10, severity: "warning", text: "deadline exceeded after {ms} ms, order {id}"},
	{unit: "chronyd.service", fault: clockSkew, first: true, every: 10, severity: "error", text: "System clock wrong by 2.{n} seconds"},
	{unit: "kubelet.service", fault: certExpiring, first: true, every: 20, severity: "error", text: "certificate rotation failed: cannot create certificate signing request, attempt {n}"},
	{app: "cilium", fault: policyDenied, every: 2, severity: "warning", text: "policy denied: 10.42.0.{n}:41{n} -> 10.42.1.{n}:5432 tcp SYN, identity {n}"},
	{app: "cilium", fault: policyProbing, every: 30, severity: "warning", text: "policy denied: 10.42.0.{n}:41{n} -> 10.42.1.{n}:22 tcp SYN"},
	{unit: "sshd.service", fault: policyDenied, first: true, every: 5, severity: "warning", text: "Failed password for root from 203.0.113.{n} port 4{n} ssh2"},
	{unit: "unattended-upgrades.service", fault: patchOverdue, every: 60, severity: "error", text: "apt: 404 Not Found, {n} packages kept back"},
}

// LogLine is one line of a site's logs.
type LogLine struct {
	Time                      time.Time
	Node                      string
	Namespace, Pod, Container string // of a container's line
	Unit                      string // of a systemd unit's
	Severity, Text            string
}

// Logs are the lines that the site wrote after from and not after to, in the order of
// their times. Like the pages they are a pure function of the seed, the time and the
// active faults.
func (s *Site) Logs(from, to time.Time) []LogLine {
	var out []LogLine
	shape := s.tmpl.shape
	nodes := s.Nodes()
	for i, src := range logSources {
		if src.fault != noFault && !s.isActive(src.fault) {
			continue
		}
		if src.unit != "" {
			for n, node := range nodes {
				if src.first && n > 0 {
					break
				}
				out = s.emit(out, src, uint64(i)<<32|uint64(n), from, to, LogLine{Node: node, Unit: src.unit})
			}
			continue
		}
		for p, pod := range shape.pods {
			// A fault of an app hits its first replicas only: two of three.
			if pod.app != src.app || src.first && pod.replica >= 2 {
				continue
			}
			out = s.emit(out, src, uint64(i)<<32|uint64(p), from, to, LogLine{Node: nodes[pod.node], Namespace: pod.namespace, Pod: pod.name, Container: shape.containers[pod.firstContainer].name})
		}
	}
	slices.SortStableFunc(out, func(a, b LogLine) int { return a.Time.Compare(b.Time) })
	return out
}

// emit appends the lines of one emitter: one in each period, at a time in it that
// only the seed knows.
func (s *Site) emit(out []LogLine, src logSource, key uint64, from, to time.Time, line LogLine) []LogLine {
	period := int64(src.every) * 1000
	for n := from.UnixMilli() / period; n <= to.UnixMilli()/period; n++ {
		h := mix(s.seed ^ mix(key) + uint64(n))
		at := time.UnixMilli(n*period + int64(h%uint64(period)))
		if !at.After(from) || at.After(to) {
			continue
		}
		line.Time, line.Severity, line.Text = at, src.severity, fill(src.text, h)
		out = append(out, line)
	}
	return out
}

// fill puts numbers into a text.
func fill(text string, h uint64) string {
	for {
		i := strings.IndexByte(text, '{')
		if i < 0 {
			return text
		}
		j := i + strings.IndexByte(text[i:], '}')
		h = mix(h)
		var v string
		switch text[i+1 : j] {
		case "n":
			v = strconv.FormatUint(h%200+1, 10)
		case "ms":
			v = strconv.FormatUint(h%900+12, 10)
		default:
			v = fmt.Sprintf("%08x", uint32(h))
		}
		text = text[:i] + v + text[j+1:]
	}
}

// AppendJSON appends the line as Fluent Bit writes it after its kubernetes filter or
// its systemd input, and a line feed.
func (l LogLine) AppendJSON(b []byte) []byte {
	rec := map[string]any{"date": float64(l.Time.UnixMicro()) / 1e6}
	if l.Unit != "" {
		rec["MESSAGE"], rec["_SYSTEMD_UNIT"], rec["_HOSTNAME"], rec["PRIORITY"] = l.Text, l.Unit, l.Node, priority(l.Severity)
	} else {
		rec["log"], rec["stream"], rec["level"] = l.Text, "stdout", l.Severity
		rec["kubernetes"] = map[string]string{"namespace_name": l.Namespace, "pod_name": l.Pod, "container_name": l.Container, "host": l.Node}
	}
	line, err := json.Marshal(rec)
	if err != nil {
		panic(err) // strings and a number: can't fail
	}
	return append(append(b, line...), '\n')
}

// priority is syslog's number, as journald writes it.
func priority(severity string) string {
	switch severity {
	case "error":
		return "3"
	case "warning":
		return "4"
	default:
		return "6"
	}
}
