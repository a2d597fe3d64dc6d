// Package facts discovers what a machine is: architecture, operating system,
// kernel, hardware or cloud vendor, CPUs and memory. The agent sends the result as
// labels muster.dev/system-* and as versions.
//
// It reads files under a root that is handed in, runs nothing and asks nobody on
// the network; what it can't find it leaves out.
package facts

import (
	"bufio"
	"bytes"
	"io/fs"
	"runtime"
	"strconv"
	"strings"
)

// Options of Discover.
type Options struct {
	// Root holds proc, sys and etc, as os.DirFS("/") does.
	Root fs.FS
	// Arch and Hostname of the machine; default: of this build, of proc.
	Arch     string
	Hostname string
}

// Facts is what was found. Empty fields were not.
type Facts struct {
	Arch      string // GOARCH, e.g. amd64
	OS        string // ID of os-release, e.g. debian
	OSVersion string // VERSION_ID of it, e.g. 13
	OSName    string // PRETTY_NAME of it
	Kernel    string // release, e.g. 6.12.48-amd64
	Vendor    string // of the hardware or the cloud, e.g. Dell Inc.
	Product   string // model, e.g. PowerEdge R640
	Cloud     string // aws, gcp, azure, …; empty on bare metal and where unknown
	Hostname  string
	CPUs      int
	MemoryMiB int64

	// Of a site that is a Kubernetes cluster.
	Kubernetes   string // version of its API server, e.g. v1.35.4+k3s1
	Distribution string // k3s, rke2, eks, gke, …; empty where the version does not say
	Nodes        int
}

// Discover reads the files. It never fails.
func Discover(o Options) Facts {
	if o.Arch == "" {
		o.Arch = runtime.GOARCH
	}
	line := func(name string) string {
		b, err := fs.ReadFile(o.Root, name)
		if err != nil || len(b) > 4096 {
			return ""
		}
		return strings.TrimSpace(strings.ToValidUTF8(strings.Trim(string(b), "\x00\n"), ""))
	}
	f := Facts{Arch: o.Arch, Hostname: o.Hostname, Kernel: line("proc/sys/kernel/osrelease")}
	if f.Hostname == "" {
		f.Hostname = line("proc/sys/kernel/hostname")
	}
	rel := osRelease(o.Root)
	f.OS, f.OSVersion, f.OSName = rel["ID"], rel["VERSION_ID"], rel["PRETTY_NAME"]
	dmi := func(name string) string { return meaningful(line("sys/class/dmi/id/" + name)) }
	f.Vendor, f.Product = dmi("sys_vendor"), dmi("product_name")
	if f.Vendor == "" {
		f.Vendor = dmi("board_vendor")
	}
	if f.Product == "" {
		// Boards without DMI, such as a Raspberry Pi, tell their device tree.
		f.Product = line("proc/device-tree/model")
		if f.Product == "" {
			f.Product = line("sys/firmware/devicetree/base/model")
		}
		if f.Vendor == "" {
			f.Vendor, _, _ = strings.Cut(f.Product, " ")
		}
	}
	f.Cloud = cloudOf(f.Vendor, f.Product, dmi("bios_vendor"), dmi("chassis_asset_tag"))
	f.CPUs, f.MemoryMiB = cpus(o.Root), memory(o.Root)
	return f
}

// Labels are the facts as system labels, without the prefix muster.dev/system-.
func (f Facts) Labels() map[string]string {
	out := map[string]string{}
	set := func(k, v string) {
		if v != "" {
			out[k] = v
		}
	}
	set("arch", f.Arch)
	set("os", f.OS)
	set("os-version", f.OSVersion)
	set("kernel", f.Kernel)
	set("vendor", f.Vendor)
	set("product", f.Product)
	set("cloud", f.Cloud)
	set("hostname", f.Hostname)
	set("kubernetes", strings.ReplaceAll(f.Kubernetes, "+", "-")) // no + in a label
	set("distribution", f.Distribution)
	if f.Nodes > 0 {
		out["nodes"] = strconv.Itoa(f.Nodes)
	}
	if f.CPUs > 0 {
		out["cpus"] = strconv.Itoa(f.CPUs)
	}
	if f.MemoryMiB > 0 {
		// What the kernel keeps for itself must not make 16 GiB into 15.
		out["memory"] = strconv.FormatInt((f.MemoryMiB+1023)/1024, 10) + "Gi"
	}
	return out
}

// Versions are the facts that a report carries as versions.
func (f Facts) Versions() map[string]string {
	out := map[string]string{}
	if f.OSName != "" {
		out["os"] = f.OSName
	}
	if f.Kernel != "" {
		out["kernel"] = f.Kernel
	}
	if f.Kubernetes != "" {
		out["kubernetes"] = f.Kubernetes
	}
	return out
}

// osRelease reads os-release(5).
func osRelease(root fs.FS) map[string]string {
	out := map[string]string{}
	for _, name := range []string{"etc/os-release", "usr/lib/os-release"} {
		b, err := fs.ReadFile(root, name)
		if err != nil {
			continue
		}
		for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
			k, v, ok := strings.Cut(strings.TrimSpace(sc.Text()), "=")
			if !ok || strings.HasPrefix(k, "#") {
				continue
			}
			if u, err := strconv.Unquote(v); err == nil && strings.HasPrefix(v, `"`) {
				v = u
			} else {
				v = strings.Trim(v, `"'`)
			}
			out[k] = v
		}
		return out
	}
	return out
}

// meaningful drops what boards say whose maker filled in nothing.
func meaningful(s string) string {
	switch strings.ToLower(s) {
	case "to be filled by o.e.m.", "to be filled by oem", "system manufacturer", "system product name", "default string", "not specified", "none", "unknown", "o.e.m.", "oem", "n/a", "empty":
		return ""
	}
	return s
}

// cloudOf tells the cloud from DMI, as cloud-init's ds-identify does.
func cloudOf(vendor, product, bios, assetTag string) string {
	switch v := strings.ToLower(vendor); {
	case strings.HasPrefix(v, "amazon"), strings.Contains(strings.ToLower(bios), "amazon"):
		return "aws"
	case v == "google", strings.HasPrefix(product, "Google Compute Engine"):
		return "gcp"
	case assetTag == "7783-7084-3265-9085-8269-3286-77": // the tag of every Azure machine
		return "azure"
	case v == "digitalocean":
		return "digitalocean"
	case v == "hetzner":
		return "hetzner"
	case strings.HasPrefix(v, "alibaba"):
		return "alibaba"
	case strings.HasPrefix(v, "openstack"), strings.HasPrefix(product, "OpenStack"):
		return "openstack"
	case strings.HasPrefix(v, "scaleway"):
		return "scaleway"
	case strings.HasPrefix(v, "oracle") || assetTag == "OracleCloud.com":
		if assetTag == "OracleCloud.com" {
			return "oracle"
		}
	}
	return ""
}

// cpus counts the processors that are online.
func cpus(root fs.FS) int {
	if b, err := fs.ReadFile(root, "sys/devices/system/cpu/online"); err == nil {
		if n := countRanges(strings.TrimSpace(string(b))); n > 0 {
			return n
		}
	}
	b, err := fs.ReadFile(root, "proc/cpuinfo")
	if err != nil {
		return 0
	}
	n := 0
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		if strings.HasPrefix(sc.Text(), "processor") {
			n++
		}
	}
	return n
}

// countRanges counts the numbers of a list such as 0-3,8; 0 if it is none.
func countRanges(s string) int {
	n := 0
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, ok := strings.Cut(part, "-")
		a, err := strconv.Atoi(lo)
		if err != nil {
			return 0
		}
		b := a
		if ok {
			if b, err = strconv.Atoi(hi); err != nil {
				return 0
			}
		}
		if b < a || b > 1<<16 {
			return 0
		}
		n += b - a + 1
	}
	return n
}

func memory(root fs.FS) int64 {
	b, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0
	}
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		if v, ok := strings.CutPrefix(sc.Text(), "MemTotal:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")), 10, 64)
			if err != nil {
				return 0
			}
			return kib / 1024
		}
	}
	return 0
}
