package edge

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/collector"
	"muster.dev/muster/control/agent/software/bootc"
	"muster.dev/muster/control/agent/software/components"
	"muster.dev/muster/control/agent/software/grub"
	"muster.dev/muster/control/agent/software/images"
	"muster.dev/muster/control/agent/software/lease"
	"muster.dev/muster/control/agent/software/rauc"
	"muster.dev/muster/control/agent/software/self"
	"muster.dev/muster/internal/conf"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/software"
)

// Software says how parts of the site are replaced, each by a driver.
type Software struct {
	Dir        string             `yaml:"dir"`
	Root       string             `yaml:"root"`
	Hold       conf.Duration      `yaml:"hold"`
	Within     conf.Duration      `yaml:"within"`
	Components SoftwareComponents `yaml:"components"`
}

// SoftwareComponents are the parts.
type SoftwareComponents struct {
	Agent SoftwareAgent `yaml:"agent"`
	OS    SoftwareOS    `yaml:"os"`
}

// SoftwareAgent is how the agent itself is replaced.
type SoftwareAgent struct {
	Driver string `yaml:"driver"`
}

// SoftwareOS is how the operating system is replaced.
type SoftwareOS struct {
	Driver  string        `yaml:"driver"`
	Version string        `yaml:"version"`
	Grub    SoftwareGrub  `yaml:"grub"`
	Lease   SoftwareLease `yaml:"lease"`
}

// SoftwareLease has the nodes of a cluster restart one at a time.
type SoftwareLease struct {
	Kubeconfig   string        `yaml:"kubeconfig"`
	Node         string        `yaml:"node"`
	Namespace    string        `yaml:"namespace"`
	MinAvailable int           `yaml:"minAvailable"`
	DrainWithin  conf.Duration `yaml:"drainWithin"`
}

// SoftwareGrub are two root images that GRUB chooses between.
type SoftwareGrub struct {
	Env   string            `yaml:"env"`
	Slots map[string]string `yaml:"slots"`
}

// The drivers.
const (
	driverSelf       = "self"
	driverKubernetes = "kubernetes"
	driverGrub       = "grub"
	driverRAUC       = "rauc"
	driverBootc      = "bootc"
)

var osDrivers = []string{"", driverGrub, driverRAUC, driverBootc}

// WatchWithin is by when the watchdog wants a new agent marked good.
const WatchWithin = 15 * time.Minute

func (s *Software) validate() error {
	if d := s.Components.Agent.Driver; d != "" && d != driverSelf && d != driverKubernetes {
		return fmt.Errorf("software.components.agent.driver: %q: want %s, %s, or nothing", d, driverSelf, driverKubernetes)
	}
	switch o := s.Components.OS; {
	case !slices.Contains(osDrivers, o.Driver):
		return fmt.Errorf("software.components.os.driver: %q: want %s, or nothing", o.Driver, strings.Join(osDrivers[1:], ", "))
	case (o.Driver == driverGrub || o.Driver == driverBootc) && o.Grub.Env == "":
		return errors.New("software.components.os.grub.env: want GRUB's environment block, such as /boot/grub/grubenv")
	case o.Driver == driverGrub && len(o.Grub.Slots) != 2:
		return fmt.Errorf("software.components.os.grub.slots: %d: want two, such as {a: /dev/disk/by-partlabel/root-a, b: /dev/disk/by-partlabel/root-b}", len(o.Grub.Slots))
	case o.Lease.Kubeconfig != "" && o.Driver == "":
		return errors.New("software.components.os.lease: needs software.components.os.driver: nothing else restarts the machine")
	case o.Lease.Kubeconfig != "" && o.Lease.Namespace == "":
		return errors.New("software.components.os.lease.namespace: say in which namespace the lease is, the same on all nodes")
	case o.Lease.MinAvailable < 0:
		return fmt.Errorf("software.components.os.lease.minAvailable: %d: want 0 or more", o.Lease.MinAvailable)
	case o.Lease.DrainWithin.D() < time.Second || o.Lease.DrainWithin.D() > time.Hour:
		return fmt.Errorf("software.components.os.lease.drainWithin: %s: want 1s to 1h", o.Lease.DrainWithin.D())
	}
	if d := s.Hold.D(); d < time.Second || d > time.Hour {
		return fmt.Errorf("software.hold: %s: want 1s to 1h", d)
	}
	if d := s.Within.D(); d < s.Hold.D() || d > WatchWithin-time.Minute {
		return fmt.Errorf("software.within: %s: want at least hold, %s, and at most %s, for the watchdog waits %s", d, s.Hold.D(), WatchWithin-time.Minute, WatchWithin)
	}
	return nil
}

// version is this binary's as a SoftwareVersion would name it.
func version() string { return strings.TrimPrefix(obs.Version, "v") }

// newSoftware is what replaces parts of the site. restart has this process end; in is the
// cluster that it is a pod of, nil: none.
func newSoftware(ctx context.Context, c Config, in *inCluster, env *role.Env, healthy func(context.Context) error, restart func()) (*components.Components, error) {
	o := components.Options{
		Dir: cmp.Or(c.Software.Dir, filepath.Join(c.StateDir, "software")), Root: c.Software.Root, Healthy: healthy,
		Versions: map[string]string{"agent": version()}, Remedies: map[string]string{}, Logger: env.Log,
	}
	agent := components.Component{Name: "agent", Hold: c.Software.Hold.D(), Within: c.Software.Within.D()}
	switch slot := os.Getenv(self.EnvSlot); {
	case c.Software.Components.Agent.Driver == "":
		o.Remedies["agent"] = "set software.components.agent.driver in its edge.yaml"
	case c.Software.Components.Agent.Driver == driverKubernetes:
		switch d, refused, err := in.software(ctx, env); {
		case err != nil:
			return nil, fmt.Errorf("software.components.agent: %w", err)
		case refused != nil:
			env.Log.Error("this site's agent can't be replaced", "err", refused)
			o.Remedies["agent"] = "apply its manifest with the feature upgrades again (" + refused.Error() + ")"
		default:
			agent.Driver, agent.Architecture, agent.Healthy = d, software.Kubernetes, d.Hosts
			o.Store = images.Memory{Client: in.kube, Namespace: in.conf.Namespace}
			o.Components = append(o.Components, agent)
		}
	case slot == "" && c.Kubernetes.Enabled:
		o.Remedies["agent"] = "switch the feature upgrades on (features.upgrades of its chart), or upgrade it with muster site manifest or Helm"
	case slot == "":
		o.Remedies["agent"] = "start it with muster-edge watch, as its systemd unit does"
	default:
		d, err := self.New(os.Getenv(self.EnvDir), disk.OS{}, slot, os.Getenv(self.EnvBoot), func(context.Context) error {
			restart()
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("software.components.agent: %w", err)
		}
		agent.Driver, agent.Image = d, d.Image
		o.Components = append(o.Components, agent)
	}
	os, err := newOS(c, filepath.Join(o.Dir, "os"))
	if err != nil {
		return nil, fmt.Errorf("software.components.os: %w", err)
	}
	if os != nil {
		o.Components = append(o.Components, *os)
	}
	return components.New(o)
}

// newOS is what replaces the operating system; nil: nothing does.
func newOS(c Config, dir string) (*components.Component, error) {
	conf := c.Software.Components.OS
	if conf.Driver == "" {
		return nil, nil //nolint:nilnil // it stays as it is
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, err
	}
	out := &components.Component{Name: "os", Hold: c.Software.Hold.D(), Within: c.Software.Within.D()}
	if turn, err := conf.Lease.turn(); err != nil {
		return nil, fmt.Errorf("lease: %w", err)
	} else if turn != nil {
		out.BeforeBoot, out.AfterTrial = turn.Take, turn.GiveBack
	}
	bootID := strings.TrimSpace(string(boot))
	switch conf.Driver {
	case driverRAUC:
		out.Driver, err = rauc.New(context.Background(), rauc.Options{Dir: filepath.Join(dir, "rauc"), Version: conf.Version, BootID: bootID, Reboot: reboot})
		return out, err
	case driverBootc:
		out.Driver, err = bootc.New(bootc.Options{Dir: filepath.Join(dir, "bootc"), Env: grub.Block{Path: conf.Grub.Env, FS: disk.OS{}, Settle: grub.Settle}, BootID: bootID, Reboot: reboot})
		return out, err
	}
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return nil, err
	}
	d, err := grub.New(grub.Options{Env: conf.Grub.Env, Slots: conf.Grub.Slots, Running: slotOf(string(cmdline)), BootID: bootID, Reboot: reboot})
	if err != nil {
		return nil, fmt.Errorf("grub: %w; the kernel has to be told which one it runs from, as muster.slot=a", err)
	}
	out.Driver, out.Image = d, d.Image
	return out, nil
}

// turn is this node's; nil: it needs none.
func (l *SoftwareLease) turn() (*lease.Turn, error) {
	if l.Kubeconfig == "" {
		return nil, nil //nolint:nilnil // a machine of its own
	}
	k := Kubernetes{Kubeconfig: l.Kubeconfig}
	config, err := k.restConfig()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	node := l.Node
	if node == "" {
		if node, err = os.Hostname(); err != nil {
			return nil, err
		}
		node = strings.ToLower(node) // as kubelets do
	}
	return lease.New(lease.Options{Client: client, Node: node, Namespace: l.Namespace, MinAvailable: l.MinAvailable, DrainWithin: l.DrainWithin.D()})
}

// slotOf is the slot that a kernel's command line names.
func slotOf(cmdline string) string {
	for _, word := range strings.Fields(cmdline) {
		if slot, ok := strings.CutPrefix(word, "muster.slot="); ok {
			return slot
		}
	}
	return ""
}

// reboot restarts this machine in good order.
func reboot(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "systemctl", "reboot").CombinedOutput()
	if err != nil {
		return fmt.Errorf("systemctl reboot: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// healthy is the site's own judgement of a new version: what it collects arrives. That it
// is connected is asked for besides.
func healthy(s **Site) func(context.Context) error {
	return func(context.Context) error {
		if *s == nil || (*s).Collector == nil {
			return errors.New("it has not started yet")
		}
		st := (*s).Collector.Status()
		up, bad := 0, ""
		for _, t := range st.Targets {
			if t.Up {
				up++
			} else if t.Error != "" {
				bad = t.URL + ": " + t.Error
			}
		}
		if len(st.Targets) > 0 && up == 0 {
			return fmt.Errorf("none of its %d targets can be scraped: %s", len(st.Targets), cmp.Or(bad, "it was not tried yet"))
		}
		if st.PolicyHash != "" && len(st.Targets) > 0 && st.Push.LastSuccess.IsZero() {
			return fmt.Errorf("the regional has not taken samples of it yet: %s", cmp.Or(st.Push.LastError, "none were sent"))
		}
		for _, c := range (*s).Collector.Conditions() {
			if c.Type == collector.PushFailing && c.Status == "True" {
				return errors.New(c.Message)
			}
		}
		return nil
	}
}
