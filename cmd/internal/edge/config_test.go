package edge

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/internal/conf"
)

func TestSampleIsTheDefaults(t *testing.T) {
	var c Config
	if err := conf.Parse("edge.yaml", Sample, &c); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(DefaultConfig(), c, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("edge.yaml is not what the code defaults to (-code +file):\n%s", diff)
	}
}

func TestBadConfigsNameTheField(t *testing.T) {
	for in, want := range map[string]string{
		"stateDir: ''":           "stateDir:",
		"gateways: [nowhere]":    "gateways[0]:",
		"caHash: md5:abc":        "caHash:",
		"token: x\ntokenFile: y": "token:",
		"spoolSync: 2h":          "spoolSync:",
		"site: Paris":            "site:",
		"software: {components: {agent: {driver: apt}}}":                                      "software.components.agent.driver:",
		"software: {components: {os: {driver: yum}}}":                                         "software.components.os.driver:",
		"software: {components: {os: {driver: grub}}}":                                        "software.components.os.grub.slots:",
		"software: {components: {os: {driver: bootc, grub: {env: ''}}}}":                      "software.components.os.grub.env:",
		"software: {components: {os: {lease: {kubeconfig: x}}}}":                              "software.components.os.lease: needs",
		"software: {components: {os: {driver: rauc, lease: {minAvailable: -1}}}}":             "software.components.os.lease.minAvailable:",
		"software: {components: {os: {driver: rauc, lease: {drainWithin: 2h}}}}":              "software.components.os.lease.drainWithin:",
		"software: {components: {os: {driver: rauc, lease: {kubeconfig: x, namespace: ''}}}}": "software.components.os.lease.namespace:",
		"software: {within: 20m}":                                                             "software.within:",
		"software: {hold: 0s}":                                                                "software.hold:",
		"log: {format: xml}":                                                                  "log: log format",
		"scrape_configs: []":                                                                  "line 1: field scrape_configs not found",
	} {
		c := DefaultConfig()
		if err := conf.Parse("f", []byte(in), &c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: err = %v, want %q", in, err, want)
		}
	}
}

// A token is for the join. Who runs muster-edge afterwards with what `muster-edge join` left,
// or with a configuration whose token was taken away, as it should be, is the same site.
func TestARunAfterAJoinNeedsNoToken(t *testing.T) {
	joined := agent.JoinConfig{
		Servers: []string{"gw.example.com:7443"}, Token: "muster1.acme.token-x7.secret", CAHash: "sha256:" + strings.Repeat("6d", 32), Site: "fra-17",
	}
	for name, leave := range map[string]func(*Config){
		"nothing in the configuration":  func(*Config) {},
		"gateways without a token":      func(c *Config) { c.Gateways = joined.Servers },
		"gateways and the authority":    func(c *Config) { c.Gateways, c.CAHash = joined.Servers, joined.CAHash },
		"a token's file that is gone":   func(c *Config) { c.Gateways, c.TokenFile = joined.Servers, filepath.Join(c.StateDir, "gone") },
		"another gateway of that fleet": func(c *Config) { c.Gateways = []string{"gw2.example.com:7443"} },
	} {
		t.Run(name, func(t *testing.T) {
			c := DefaultConfig()
			c.StateDir = t.TempDir()
			if err := agent.Join(agentDir(c.StateDir), joined); err != nil {
				t.Fatal(err)
			}
			leave(&c)
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			join, err := c.join()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := NewSite(SiteOptions{Dir: c.StateDir, Join: join, Logger: slog.New(slog.DiscardHandler)}); err != nil {
				t.Fatal(err)
			}
			got, err := agent.Joined(agentDir(c.StateDir))
			if err != nil {
				t.Fatal(err)
			}
			want := joined
			if len(c.Gateways) > 0 && strings.HasPrefix(c.Gateways[0], "gw2") {
				want.Servers = c.Gateways
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the site knows its fleet otherwise than it joined (-want +got):\n%s", diff)
			}
		})
	}

	c := DefaultConfig()
	c.StateDir, c.Gateways, c.TokenFile = t.TempDir(), joined.Servers, filepath.Join(t.TempDir(), "gone")
	if _, err := c.join(); err == nil || !strings.HasPrefix(err.Error(), "tokenFile:") {
		t.Errorf("a machine that never joined, without its token: %v; want the field named", err)
	}
}
