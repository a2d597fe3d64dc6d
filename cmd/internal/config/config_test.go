package config

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/conf"
)

func TestSampleIsTheDefaults(t *testing.T) {
	var c Config
	if err := conf.Parse("muster.yaml", Sample, &c); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), c, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("muster.yaml is not what the code defaults to (-code +file):\n%s", diff)
	}
}

// Of no quota is a tenant without bounds that says nothing.
func TestEveryQuotaHasADefault(t *testing.T) {
	standard := v1alpha1.TenantQuotas(Default().Control.Quotas).InEffect(v1alpha1.TenantQuotas{})
	for _, name := range v1alpha1.Quotas {
		if standard.Limit(name) == 0 {
			t.Errorf("control.quotas.%s: no limit", name)
		}
	}
}

// Every role has a section of its name, with where its ops pages are, and no such section is of no role.
func TestEveryRoleHasItsSection(t *testing.T) {
	var sample map[string]any
	if err := yaml.Unmarshal(Sample, &sample); err != nil {
		t.Fatal(err)
	}
	c := Default()
	for _, r := range Roles {
		section, field := sample[r.Name], "opsListen"
		if several, ok := sample[r.Name+"s"].([]any); ok && len(several) > 0 {
			section, field = several[0], "queryListen"
		}
		of, _ := section.(map[string]any)
		if at := r.Instances(&c)[0].Ops; of[field] != at || at == "" {
			t.Errorf("role %s: its ops pages are at %q, and %s in its section of muster.yaml is %v", r.Name, at, field, of[field])
		}
		delete(sample, r.Name)
	}
	for name, section := range sample {
		if of, _ := section.(map[string]any); of["opsListen"] != nil {
			t.Errorf("section %s is of a role that has no row in Roles", name)
		}
	}
}

func TestBadConfigsNameTheField(t *testing.T) {
	for in, want := range map[string]string{
		"dataDir: ''":                                                                    "dataDir:",
		"trustDomain: 'a b'":                                                             "trustDomain:",
		"log: {level: loud}":                                                             "log: log level",
		"control: {tenants: [Acme]}":                                                     "control.tenants[0]:",
		"control: {siteCertificateLife: 1s}":                                             "control.siteCertificateLife:",
		"control: {quotas: {objects: -1}}":                                               "control.quotas.objects:",
		"control: {etcd: {caFile: x}}":                                                   "control.etcd.endpoints:",
		"health: {tick: 0s}":                                                             "health.tick:",
		"console: {certFile: x}":                                                         "console.certFile",
		"console: {listen: nowhere}":                                                     "console.listen:",
		"console: {listen: '127.0.0.1:6443'}":                                            "console.listen: 127.0.0.1:6443 is also control.listen",
		"aggregator: {cortex: {url: cortex}}":                                            "aggregator.cortex.url:",
		"regionals: []":                                                                  "regionals:",
		"console: {externalURL: muster.example.com}":                                     "console.externalURL:",
		"console: {externalURL: 'https://example.com/muster'}":                           "console.externalURL:",
		"console: {trustedProxies: [10.0.0.1]}":                                          "console.trustedProxies[0]:",
		"oidc: {issuerURL: 'http://a.example.com', clientID: m}":                         "oidc.issuerURL:",
		"oidc: {issuerURL: 'https://a.example.com'}":                                     "oidc.clientID:",
		oidcWith("groupsPrefix: ''"):                                                     "oidc.groupsPrefix:",
		oidcWith("groupsPrefix: '-'"):                                                    "oidc.groupsPrefix:",
		oidcWith("groupsPrefix: 'system:'"):                                              "oidc.groupsPrefix:",
		oidcWith("groupsPrefix: 'sys'"):                                                  "oidc.groupsPrefix:",
		oidcWith("groupsPrefix: 'muster:'"):                                              "oidc.groupsPrefix:",
		oidcWith("usernamePrefix: ''"):                                                   "oidc.usernamePrefix:",
		oidcWith("usernamePrefix: '-'"):                                                  "oidc.usernamePrefix:",
		oidcWith("scopes: [profile]"):                                                    "oidc.scopes:",
		oidcWith("usernameClaim: ''") + "console: {listen: 'x:80'}":                      "oidc.usernameClaim:",
		oidcWith("caFile: x") + "console: {listen: '0.0.0.0:8080'}":                      "console.externalURL:",
		"regionals: [{name: a, listen: 'x:1', queryListen: 'x:2'}, {name: a}]":           "regionals[1].name:",
		"regionals: [{name: a, listen: 'x:1', queryListen: 'x:2', limits: {series: 0}}]": "regionals[0].limits:",
		"regionals: [{name: a, listen: 'x:1', queryListen: 'x:2', limits: {tenantAlertBytes: 1000}}]": "regionals[0].limits.tenantAlertBytes: 1000: want",
		"regionals: [{name: A}]": "regionals[0].name:",
		"regionals: [{nam: a}]":  "line 1: field nam not found",
	} {
		c := Default()
		err := conf.Parse("f", []byte(in), &c)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: err = %v, want %q", in, err, want)
		}
	}
}

func oidcWith(field string) string {
	return "oidc: {issuerURL: 'https://a.example.com', clientID: m, " + field + "}\n"
}

func TestCheckPortsNamesTheField(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c := Default()
	for _, a := range []*string{&c.Control.Listen, &c.Control.FleetListen, &c.Control.OpsListen, &c.Aggregator.OpsListen, &c.Aggregator.Cortex.Listen,
		&c.Health.OpsListen, &c.Console.OpsListen, &c.Alerting.OpsListen, &c.Alerting.Alertmanager.Listen, &c.Regionals[0].Logs.ForwardListen, &c.Regionals[0].Listen, &c.Regionals[0].QueryListen} {
		*a = "127.0.0.1:0"
	}
	c.Console.Listen = ln.Addr().String()
	err = c.CheckPorts()
	if err == nil || !strings.HasPrefix(err.Error(), "console.listen: "+ln.Addr().String()) || strings.Contains(err.Error(), "\n") {
		t.Errorf("err = %v", err)
	}
}

// Several alerting roles are peers of all others, and what tenants name does not reach them.
func TestSeveralAlertingRoles(t *testing.T) {
	c := Default()
	if got := c.AlertingURLs(); len(got) != 1 || got[0] != "https://"+c.Alerting.OpsListen {
		t.Errorf("by default %v", got)
	}
	c.Alerting.OpsURLs = []string{"https://one.example.com:9107/", "https://two.example.com:9107"}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"https://one.example.com:9107", "https://two.example.com:9107"}, c.AlertingURLs()); diff != "" || c.AlertingURL() != c.AlertingURLs()[0] {
		t.Error(diff, c.AlertingURL())
	}
	i := slices.IndexFunc(Roles, func(r Role) bool { return r.Name == "alerting" })
	for _, u := range c.Alerting.OpsURLs {
		at := strings.Trim(strings.TrimPrefix(u, "https:"), "/")
		if p := c.peers()[at]; p.Role != "alerting" || p.External {
			t.Errorf("%s is %+v", at, p)
		}
		if host, _, _ := net.SplitHostPort(at); !slices.Contains(c.HostNames(), host) {
			t.Errorf("%s is no name of ours: %v", host, c.HostNames())
		}
		if !slices.Contains(c.Egress().Own, u) || !slices.Contains(Roles[i].Instances(&c)[0].Reached, u) {
			t.Errorf("%s: %v, %v", u, c.Egress().Own, Roles[i].Instances(&c)[0].Reached)
		}
	}
}
