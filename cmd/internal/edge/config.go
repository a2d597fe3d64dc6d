package edge

import (
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"muster.dev/muster/collector"
	"muster.dev/muster/control/agent"
	"muster.dev/muster/internal/conf"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/obs"
)

// Sample is the annotated configuration of muster-edge; it parses to the defaults.
//
//go:embed edge.yaml
var Sample []byte

// Config is muster-edge's file. Every field is described in edge.yaml.
type Config struct {
	StateDir          string            `yaml:"stateDir"`
	OpsListen         string            `yaml:"opsListen"`
	Gateways          []string          `yaml:"gateways"`
	CAHash            string            `yaml:"caHash"`
	Token             string            `yaml:"token"`
	TokenFile         string            `yaml:"tokenFile"`
	Site              string            `yaml:"site"`
	HostMetrics       bool              `yaml:"hostMetrics"`
	ScrapeConfigs     []any             `yaml:"scrapeConfigs"`
	SpoolSync         conf.Duration     `yaml:"spoolSync"`
	ProbeListen       string            `yaml:"probeListen"`
	LogsListen        string            `yaml:"logsListen"`
	Kubernetes        Kubernetes        `yaml:"kubernetes"`
	Software          Software          `yaml:"software"`
	HostConfiguration HostConfiguration `yaml:"hostConfiguration"`
	FactoryReset      FactoryReset      `yaml:"factoryReset"`
	Log               Log               `yaml:"log"`
}

// Kubernetes says what muster-edge does as a pod of the cluster that is the site.
type Kubernetes struct {
	Enabled          bool   `yaml:"enabled"`
	Discovery        bool   `yaml:"discovery"`
	Kubeconfig       string `yaml:"kubeconfig"`
	Namespace        string `yaml:"namespace"`
	StateSecret      string `yaml:"stateSecret"`
	HostNamespace    string `yaml:"hostNamespace"`
	HostSecret       string `yaml:"hostSecret"`
	HostMetrics      bool   `yaml:"hostMetrics"`
	KubeStateMetrics string `yaml:"kubeStateMetrics"`
	VerifyKubelets   bool   `yaml:"verifyKubelets"`
	TenantPods       bool   `yaml:"tenantPods"`
	Workloads        bool   `yaml:"workloads"`
	VirtualHosts     bool   `yaml:"virtualHosts"`
	Address          string `yaml:"address"`
	MaxPods          int    `yaml:"maxPods"`
	// LookEvery is how often the cluster is looked at, for tests; 0: each minute.
	LookEvery time.Duration `yaml:"-"`
}

// HostConfiguration says whether the centre may configure this host.
type HostConfiguration struct {
	Enabled bool          `yaml:"enabled"`
	Root    string        `yaml:"root"`
	Every   conf.Duration `yaml:"every"`
}

func (h *HostConfiguration) validate(pod bool) error {
	switch {
	case h.Enabled && pod:
		return errors.New("hostConfiguration.enabled: a pod has no host of its own; run muster-edge on the machine itself, as its systemd unit does")
	case !filepath.IsAbs(h.Root):
		return fmt.Errorf("hostConfiguration.root: %q: want the path of the host's files, / if it is this machine", h.Root)
	case h.Every.D() < time.Second || h.Every.D() > time.Hour:
		return fmt.Errorf("hostConfiguration.every: %s: want 1s to 1h", h.Every.D())
	}
	return nil
}

// FactoryReset says whether the centre may have this site reset itself.
type FactoryReset struct {
	Enabled bool `yaml:"enabled"`
}

// Log says how muster-edge logs.
type Log struct {
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
}

// DefaultConfig is what an empty file means.
func DefaultConfig() Config {
	return Config{StateDir: "/var/lib/muster-edge", OpsListen: "127.0.0.1:9106", HostMetrics: true, Kubernetes: Kubernetes{Discovery: true, MaxPods: 2000}, SpoolSync: conf.Duration(collector.DefaultSpoolSync), Log: Log{Level: "info", Format: "logfmt"}, HostConfiguration: HostConfiguration{Root: "/", Every: conf.Duration(time.Minute)},
		Software: Software{Hold: conf.Duration(time.Minute), Within: conf.Duration(10 * time.Minute), Components: SoftwareComponents{Agent: SoftwareAgent{Driver: driverSelf}, OS: SoftwareOS{Grub: SoftwareGrub{Env: "/boot/grub/grubenv"}, Lease: SoftwareLease{Namespace: "muster-edge", DrainWithin: conf.Duration(10 * time.Minute)}}}}}
}

// LoadConfig reads a file over the defaults; a file that is not there is an error
// unless optional.
func LoadConfig(path string, optional bool) (Config, error) {
	c := DefaultConfig()
	if optional {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return c, nil
		}
	}
	return c, conf.Load(path, &c)
}

// Validate names the first field that can't work, and what to write instead.
func (c *Config) Validate() error {
	if c.StateDir == "" {
		return errors.New("stateDir: must not be empty")
	}
	if _, err := obs.NewLogger(os.Stderr, obs.LogOptions(c.Log)); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	for i, g := range c.Gateways {
		if _, _, err := net.SplitHostPort(g); err != nil {
			return fmt.Errorf("gateways[%d]: %q: want HOST:PORT, such as gw.example.com:7443", i, g)
		}
	}
	if d := c.SpoolSync.D(); d < 0 || d > time.Minute {
		return fmt.Errorf("spoolSync: %s: want 0s, for at once, to 1m", d)
	}
	if c.CAHash != "" {
		if err := identity.ValidateCAHash(c.CAHash); err != nil {
			return fmt.Errorf("caHash: %w", err)
		}
	}
	for name, addr := range map[string]string{"probeListen": c.ProbeListen, "logsListen": c.LogsListen} {
		if addr == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return fmt.Errorf("%s: %q: want HOST:PORT, such as :9108", name, addr)
		}
	}
	if c.LogsListen != "" && (!c.Kubernetes.Enabled || c.Kubernetes.HostSecret == "") {
		return errors.New("logsListen: needs kubernetes.hostSecret, whose key pair its senders show")
	}
	if err := c.Kubernetes.validate(); err != nil {
		return err
	}
	if c.Software.Components.Agent.Driver == driverKubernetes && !c.Kubernetes.Enabled {
		return errors.New("software.components.agent.driver: kubernetes: needs kubernetes.enabled")
	}
	if err := c.Software.validate(); err != nil {
		return err
	}
	if err := c.HostConfiguration.validate(c.Kubernetes.Enabled); err != nil {
		return err
	}
	if c.Token != "" && c.TokenFile != "" {
		return errors.New("token: set token or tokenFile, not both")
	}
	if c.Site != "" {
		if err := (fleet.SiteID{Tenant: "x", Name: c.Site}).Validate(); err != nil {
			return fmt.Errorf("site: %w", err)
		}
	}
	return nil
}

// token returns the registration token, from the file or the field; empty if the site has
// joined before and neither is there any more.
func (c *Config) token() (string, error) {
	if c.TokenFile == "" {
		return c.Token, nil
	}
	b, err := os.ReadFile(c.TokenFile)
	if errors.Is(err, os.ErrNotExist) {
		if _, jerr := agent.Joined(agentDir(c.StateDir)); jerr == nil {
			return "", nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("tokenFile: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// scrapeYAML returns the scrape configs as Prometheus' own YAML.
func (c *Config) scrapeYAML() ([]byte, error) { return yaml.Marshal(c.ScrapeConfigs) }
