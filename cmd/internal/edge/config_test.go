package edge

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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
