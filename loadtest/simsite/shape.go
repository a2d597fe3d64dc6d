package simsite

import (
	"fmt"
	"strconv"
	"strings"
)

// shape is what a cluster consists of. Sites of one shape share their text.
type shape struct {
	nodes       int
	pods        []podSpec
	containers  []containerSpec
	deployments []deploymentSpec
	daemonSets  []string
	configMaps  int
	secrets     int
	pvcPod      int // the pod that has the volume
	spares      int // of each deployment
}

type podSpec struct {
	namespace, name, app       string
	ownerKind, owner           string
	node, deployment, daemon   int // deployment and daemon: -1 if none
	replica                    int // of its deployment
	spare                      bool
	firstContainer, containers int
}

type containerSpec struct {
	pod         int
	name, image string
	limited     bool // has a CPU limit, and so CFS figures
}

type deploymentSpec struct {
	namespace, name, replicaSet string
	replicas                    int
}

const cpus = 4

var (
	filesystems = []struct{ device, fstype, mount string }{
		{"/dev/nvme0n1p2", "ext4", "/"},
		{"/dev/nvme0n1p1", "vfat", "/boot/efi"},
		{"/dev/mapper/vg0-containerd", "xfs", "/var/lib/containerd"},
		{"tmpfs", "tmpfs", "/run"},
	}
	disks      = []string{"nvme0n1", "dm-0"}
	nics       = []string{"eth0", "lo", "cilium_host", "cilium_net", "lxc_health"}
	collectors = strings.Fields("arp bcache bonding conntrack cpu cpufreq diskstats dmi entropy filefd filesystem hwmon loadavg meminfo netclass netdev netstat nvme os pressure schedstat sockstat softnet stat textfile thermal_zone time timex udp_queues uname vmstat")
	cgroups    = []string{"/", "/system.slice", "/system.slice/containerd.service", "/system.slice/kubelet.service", "/kubepods.slice"}
	operations = strings.Fields("container_status create_container exec_sync image_status list_containers list_images list_podsandbox podsandbox_status pull_image remove_container run_podsandbox start_container status stop_container version")
	namespaces = []string{"kube-system", "monitoring", "shop", "default"}
	// apps of the shop, in the order in which a growing cluster gets them.
	apps = []struct {
		name     string
		replicas int
		sidecar  bool
	}{
		{"checkout", 3, false}, {"catalog", 3, true}, {"payments", 1, false}, {"inventory-sync", 1, false},
		{"pos-gateway", 2, false}, {"edge-cache", 2, false}, {"kiosk-ui", 2, false}, {"price-tags", 1, false},
		{"loyalty", 2, true}, {"camera-index", 2, false}, {"signage", 1, false}, {"queue-meter", 1, false},
	}
)

// minPods is what the faults need: the system's pods, and the shop's first three
// applications.
func minPods(nodes int) int { return 2*nodes + 4 + 7 }

func newShape(nodes, pods, fill, spares int) (*shape, error) {
	if nodes < 1 || nodes > 1000 {
		return nil, fmt.Errorf("nodes: %d: want 1 to 1000", nodes)
	}
	if want := minPods(nodes); pods < want {
		return nil, fmt.Errorf("pods: %d: want at least %d with %d nodes", pods, want, nodes)
	}
	s := &shape{nodes: nodes, spares: spares, daemonSets: []string{"cilium", "node-exporter"}}
	for d, name := range s.daemonSets {
		ns := namespaces[d] // cilium in kube-system, node-exporter in monitoring
		for n := range nodes {
			s.addPod(podSpec{namespace: ns, name: name + "-" + suffix(name, n, 5), app: name, ownerKind: "DaemonSet", owner: name, node: n, deployment: -1, daemon: d}, name)
		}
	}
	s.addDeployment("kube-system", "coredns", 2, false, false)
	s.addDeployment("monitoring", "kube-state-metrics", 1, false, false)
	s.pvcPod = len(s.pods)
	s.addPod(podSpec{namespace: "shop", name: "postgres-0", app: "postgres", ownerKind: "StatefulSet", owner: "postgres", node: nodes - 1, deployment: -1, daemon: -1}, "postgres")
	for i, n := 0, len(s.pods)-2*spares; n < pods; i++ {
		a := apps[i%len(apps)]
		name := a.name
		if round := i / len(apps); round > 0 {
			name += "-" + strconv.Itoa(round+1)
		}
		s.addDeployment("shop", name, min(a.replicas, pods-n), true, a.sidecar)
		n += min(a.replicas, pods-n)
	}
	// ConfigMaps and secrets fill up to the wanted number: clusters are full of them.
	s.configMaps = fill / 3
	return s, nil
}

func (s *shape) addDeployment(ns, name string, replicas int, limited, sidecar bool) {
	d := len(s.deployments)
	rs := name + "-" + suffix(name, 1000, 10)
	s.deployments = append(s.deployments, deploymentSpec{namespace: ns, name: name, replicaSet: rs, replicas: replicas})
	for r := range replicas + s.spares {
		cs := []string{name}
		if sidecar {
			cs = append(cs, "envoy")
		}
		// Replicas spread from the first node on, so that every fault of "one node"
		// meets some of the shop's pods.
		s.addPod(podSpec{namespace: ns, name: rs + "-" + suffix(name, r, 5), app: name, ownerKind: "ReplicaSet", owner: rs, node: (d + r) % s.nodes, deployment: d, daemon: -1, replica: r, spare: r >= replicas}, cs...)
		if limited {
			for i := range cs {
				s.containers[len(s.containers)-1-i].limited = true
			}
		}
	}
}

func (s *shape) addPod(p podSpec, containers ...string) {
	p.firstContainer, p.containers = len(s.containers), len(containers)
	for _, c := range containers {
		s.containers = append(s.containers, containerSpec{pod: len(s.pods), name: c, image: "registry.example.com/" + p.namespace + "/" + c + ":v1." + strconv.Itoa(len(c)) + ".2"})
	}
	s.pods = append(s.pods, p)
}

// deployment returns the index of a deployment of the shop.
func (s *shape) deployment(name string) int {
	for i, d := range s.deployments {
		if d.name == name {
			return i
		}
	}
	return -1
}

// suffix imitates the random ends of pod names.
func suffix(name string, n, length int) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	h := mix(hashString(name) + uint64(n))
	b := make([]byte, length)
	for i := range b {
		b[i] = alphabet[h%uint64(len(alphabet))]
		h = mix(h)
	}
	return string(b)
}

// siteVar is a kind of text that differs between sites of one shape.
type siteVar int

const (
	varNode siteVar = iota
	varHostIP
	varSystemUUID
	varBootID
	varMachineID
	varMAC
	varDiskSerial
	varUID
	varUIDUnderscore
	varPodIP
	varSandbox
	varCID
	varServiceUID
	numSiteVars
)

func (s *shape) varCount(v siteVar) int {
	switch v {
	case varNode, varHostIP, varSystemUUID, varBootID, varMachineID, varMAC, varDiskSerial:
		return s.nodes
	case varUID, varUIDUnderscore, varPodIP, varSandbox:
		return len(s.pods)
	case varCID:
		return len(s.containers)
	default:
		return len(s.deployments)
	}
}

// varIndex is where the i-th text of a kind stands in a site's vars.
func (s *shape) varIndex(v siteVar, i int) int {
	at := i
	for k := siteVar(0); k < v; k++ {
		at += s.varCount(k)
	}
	return at
}

// siteVars makes a site's own texts, in the order of varIndex.
func (s *shape) siteVars(name string, seed uint64) []string {
	var out []string
	for v := siteVar(0); v < numSiteVars; v++ {
		for i := range s.varCount(v) {
			h := mix(seed + uint64(v)<<32 + uint64(i))
			if v == varUIDUnderscore {
				h = mix(seed + uint64(varUID)<<32 + uint64(i))
			}
			out = append(out, siteText(v, i, name, h))
		}
	}
	return out
}

func siteText(v siteVar, i int, name string, h uint64) string {
	switch v {
	case varNode:
		return name + "-n" + strconv.Itoa(i+1)
	case varHostIP:
		return fmt.Sprintf("192.168.%d.%d", 10+i/200, 11+i%200)
	case varMAC:
		return fmt.Sprintf("02:42:%02x:%02x:%02x:%02x", byte(h), byte(h>>8), byte(h>>16), byte(h>>24))
	case varDiskSerial:
		return fmt.Sprintf("S4EV%010d", h%1e10)
	case varPodIP:
		return fmt.Sprintf("10.42.%d.%d", i/200, 20+i%200)
	case varMachineID:
		return fmt.Sprintf("%016x%016x", h, mix(h))
	case varSandbox, varCID:
		return fmt.Sprintf("%016x%016x%016x%016x", h, mix(h), mix(h+1), mix(h+2))
	default:
		sep := "-"
		if v == varUIDUnderscore {
			sep = "_"
		}
		g := mix(h)
		return strings.Join([]string{fmt.Sprintf("%08x", uint32(h)), fmt.Sprintf("%04x", uint16(h>>32)), fmt.Sprintf("4%03x", (h>>48)&0xfff), fmt.Sprintf("%04x", 0x8000|uint16(g)&0x3fff), fmt.Sprintf("%012x", g>>16)}, sep)
	}
}

// mix is splitmix64's finaliser: nearby numbers become unrelated ones.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func hashString(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return mix(h)
}
