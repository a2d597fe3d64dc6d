// Package hostexporter serves the metrics of the host that it runs on: those of
// Prometheus' node_exporter, from its own collectors, in this process.
//
// It opens no port and pushes nothing: the edge binary hands its Handler to the
// collector as an in-process target, like any node_exporter's page.
package hostexporter

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/node_exporter/collector"
)

// Options configures New. The zero value is good for a Linux host.
type Options struct {
	// Collectors are the names of node_exporter's collectors; default Default().
	Collectors []string
	// RootFS, ProcFS and SysFS are where the host's file systems are mounted, when
	// this process runs in a container; default "/", "/proc", "/sys".
	RootFS, ProcFS, SysFS string
	// TextfileDir, if set, is a directory with *.prom files to be served too. It
	// then also is where node_reboot_required comes from (apt_info.py writes it).
	TextfileDir string
	Logger      *slog.Logger
}

// Default lists the collectors that the default health policy and dashboards
// need. node_exporter has more; most of them are for hardware that an edge node
// does not have.
func Default() []string {
	return []string{
		"conntrack", "cpu", "diskstats", "dmi", "filefd", "filesystem", "hwmon", "loadavg", "meminfo", "netdev",
		"netstat", "os", "pressure", "schedstat", "sockstat", "stat", "thermal_zone", "time", "timex", "uname", "vmstat",
	}
}

// node_exporter keeps its flags and its collectors in package variables: they can
// be parsed once in a process, so the first New decides the paths.
var (
	parseOnce sync.Once
	parseErr  error
	parsed    string
)

// New returns a handler of the host's metrics. All of one process must be made
// with the same paths.
func New(o Options) (http.Handler, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	args := flags(o)
	parseOnce.Do(func() {
		parsed = strings.Join(args, " ")
		_, parseErr = kingpin.CommandLine.Parse(args)
	})
	if parseErr != nil {
		return nil, fmt.Errorf("host exporter: %w", parseErr)
	}
	if got := strings.Join(args, " "); got != parsed {
		return nil, fmt.Errorf("host exporter: paths %q differ from the first ones in this process, %q", got, parsed)
	}
	names := o.Collectors
	if len(names) == 0 {
		names = Default()
		if o.TextfileDir != "" {
			names = append(names, "textfile")
		}
	}
	node, err := collector.NewNodeCollector(o.Logger, names...)
	if err != nil {
		return nil, fmt.Errorf("host exporter: %w", err)
	}
	reg := prometheus.NewRegistry()
	if err := reg.Register(node); err != nil {
		return nil, fmt.Errorf("host exporter: %w", err)
	}
	if o.TextfileDir == "" {
		reg.MustRegister(rebootRequired(o.RootFS))
	}
	// One file that can't be read must not cost the whole page.
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError,
	}), nil
}

// rebootRequired says what Debian's and Ubuntu's packages leave behind when an
// update takes effect at the next boot only. The name is that of node_exporter's
// textfile script apt_info.py.
func rebootRequired(root string) prometheus.Collector {
	path := filepath.Join("/", root, "run/reboot-required")
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "node_reboot_required", Help: "1 if an installed update wants a reboot.",
	}, func() float64 {
		if _, err := os.Stat(path); err != nil {
			return 0
		}
		return 1
	})
}

func flags(o Options) []string {
	var args []string
	add := func(name, value string) {
		if value != "" {
			args = append(args, "--"+name+"="+value)
		}
	}
	if o.RootFS != "" {
		add("path.udev.data", filepath.Join(o.RootFS, "run/udev/data"))
		// In a container other pods' mounts are seen too: volumes, which the kubelet tells
		// of, and what no one but root may look at. They are no file systems of the host.
		add("collector.filesystem.mount-points-exclude", `^/(dev|proc|sys|run/credentials/.+|run/containerd/.+|run/k3s/.+|run/user/.+|run/netns/.+|var/lib/docker/.+|var/lib/containerd/.+|var/lib/containers/.+|var/lib/kubelet/.+|var/lib/rancher/.+)($|/)`)
	}
	add("path.rootfs", o.RootFS)
	add("path.procfs", o.ProcFS)
	add("path.sysfs", o.SysFS)
	add("collector.textfile.directory", o.TextfileDir)
	slices.Sort(args)
	return args
}
