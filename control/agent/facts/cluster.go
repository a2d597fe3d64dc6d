package facts

import (
	"regexp"
	"strings"
)

// Node is one node of a Kubernetes cluster, as it describes itself to its API server.
type Node struct {
	Arch       string
	OSImage    string // e.g. Debian GNU/Linux 13 (trixie)
	Kernel     string
	ProviderID string // e.g. aws:///eu-west-3a/i-0123
	CPUs       int
	MemoryMiB  int64
}

// OfCluster are the facts of a site that is a Kubernetes cluster: what most of its nodes
// are, with the CPUs and the memory of all. version is the API server's, as v1.35.4+k3s1.
func OfCluster(nodes []Node, version string) Facts {
	most := func(of func(*Node) string) string {
		count, best := map[string]int{}, ""
		for i := range nodes {
			v := of(&nodes[i])
			count[v]++
			if n := count[v]; n > count[best] || n == count[best] && v < best || best == "" {
				best = v
			}
		}
		return best
	}
	f := Facts{
		Arch: most(func(n *Node) string { return n.Arch }), Kernel: most(func(n *Node) string { return n.Kernel }),
		OSName: most(func(n *Node) string { return n.OSImage }), Cloud: most(func(n *Node) string { return cloudOfProvider(n.ProviderID) }),
		Kubernetes: version, Distribution: distribution(version), Nodes: len(nodes),
	}
	f.OS, f.OSVersion = osOfImage(f.OSName)
	for i := range nodes {
		f.CPUs += nodes[i].CPUs
		f.MemoryMiB += nodes[i].MemoryMiB
	}
	return f
}

var imageVersion = regexp.MustCompile(`\d[\d.]*`)

// osOfImage tells ID and VERSION_ID of os-release from its PRETTY_NAME, as well as that
// can be done.
func osOfImage(name string) (id, version string) {
	lower := strings.ToLower(name)
	for _, known := range [][2]string{
		{"debian", "debian"}, {"ubuntu", "ubuntu"}, {"talos", "talos"}, {"flatcar", "flatcar"}, {"bottlerocket", "bottlerocket"}, {"red hat", "rhel"},
		{"rocky", "rocky"}, {"alma", "almalinux"}, {"opensuse", "opensuse"}, {"suse linux", "sles"}, {"sle micro", "sle-micro"}, {"fedora", "fedora"}, {"amazon linux", "amzn"},
		{"container-optimized", "cos"}, {"alpine", "alpine"}, {"raspbian", "raspbian"}, {"windows", "windows"},
	} {
		if strings.Contains(lower, known[0]) {
			return known[1], strings.Trim(imageVersion.FindString(name), ".")
		}
	}
	return "", ""
}

// distribution tells who made a Kubernetes by what it adds to the version.
func distribution(version string) string {
	for _, d := range []string{"k3s", "rke2", "eks", "gke", "k0s", "vmware"} {
		if strings.Contains(version, "+"+d) || strings.Contains(version, "-"+d) || strings.Contains(version, "."+d) {
			return d
		}
	}
	return ""
}

// cloudOfProvider tells the cloud from a node's provider ID, with the names of cloudOf.
func cloudOfProvider(id string) string {
	scheme, _, ok := strings.Cut(id, "://")
	if !ok {
		return ""
	}
	switch scheme {
	case "gce":
		return "gcp"
	case "hcloud":
		return "hetzner"
	case "alicloud":
		return "alibaba"
	case "oci":
		return "oracle"
	case "aws", "azure", "digitalocean", "openstack", "scaleway":
		return scheme
	}
	return ""
}
