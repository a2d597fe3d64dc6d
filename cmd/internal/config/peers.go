package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/peers"
	"muster.dev/muster/internal/wire"
)

// Identities that control keeps beside those of the roles, for people and their tools.
const (
	// Operator may call whatever a role may call.
	Operator = "operator"
	// Reader may query metrics, as Grafana does.
	Reader = "reader"
)

// People are the identities that no role has.
var People = []string{Operator, Reader}

// says is who is believed in the headers in which roles say for whom they ask, and why.
var says = map[string][]string{
	wire.TenantHeader:  {"console", "control", Operator},
	wire.TenantsHeader: {"console", "control", "health", Operator},
	wire.UserHeader:    {"console", Operator},
	wire.HeaderPurpose: {"health"},
	wire.OrgHeader:     {"regional", "health", "console", "control", Operator, Reader},
}

// every role has these on its ops listener.
var everyRole = []peers.Rule{
	// What a Prometheus, a load balancer or a supervisor reads.
	{Pattern: "/metrics", Callers: []string{peers.Anyone}},
	{Pattern: "/-/ready", Callers: []string{peers.Anyone}},
	{Pattern: "/-/healthy", Callers: []string{peers.Anyone}},
	{Pattern: "/debug/", Callers: []string{Operator}},
}

// OpsRules say who may call what on the ops listener of the role of that name.
func OpsRules(role string) []peers.Rule {
	i := slices.IndexFunc(Roles, func(r Role) bool { return r.Name == role })
	return merge(slices.Concat(everyRole, Roles[i].Callers))
}

// AlertmanagerRules say who may call what at the embedded Alertmanager.
func AlertmanagerRules(c *Config) []peers.Rule {
	prefix := ""
	if u, err := url.Parse(c.Alerting.Alertmanager.ExternalURL); err == nil {
		prefix = strings.TrimRight(u.Path, "/")
	}
	at := func(paths ...string) []string {
		for i := range paths {
			paths[i] = prefix + paths[i]
		}
		return paths
	}
	return merge(slices.Concat(
		only(peers.Anyone, at("/metrics", "/-/ready", "/-/healthy")...),
		only("regional", at("/api/v2/alerts")...), // engines and log rules
		only("alerting", at("/api/v2/", "/api/v2/alerts", "/-/reload")...),
		only(Operator, "/"),
	))
}

// CortexRules say who may call what at the embedded Cortex.
func CortexRules() []peers.Rule {
	return merge(slices.Concat(
		only(peers.Anyone, "/metrics", "/ready"),
		only("regional", "/api/v1/push"), only("health", "/api/v1/push"),
		queries("/prometheus", "health", "console", Reader), only("control", "/prometheus/api/v1/query"), only(Reader, "/prometheus/api/v1/read"),
	))
}

// Identity is where control keeps the certificate of an instance of a role, or of one of
// People.
func (c *Config) Identity(instance string) string {
	return c.Path("control", "identities", instance)
}

// RoleHost is a DNS name that the certificate of an instance of a role has, and no other
// certificate, for libraries that know peers by their names alone.
func (c *Config) RoleHost(instance string) string { return instance + ".role." + c.TrustDomain }

// PairFile has the certificate and the key of an identity, TrustFile the CAs.
func (c *Config) PairFile(instance string) string {
	return c.Identity(instance) + "/" + identity.PairFile
}

// TrustFile has the CAs that the holder of an identity trusts.
func (c *Config) TrustFile(instance string) string {
	return c.Identity(instance) + "/" + identity.TrustFile
}

// OpenPeers loads the certificate of an instance of a role.
func (c *Config) OpenPeers(instance string) (*peers.Peers, error) {
	if c.InsecureLoopback {
		return peers.Plain(), nil
	}
	p, err := peers.Open(c.peerOptions(instance, false))
	if err != nil {
		return nil, fmt.Errorf("identity of %s: %w; `muster control` keeps it in %s: copy it from there if that is on another machine", instance, err, c.Identity(instance))
	}
	return p, nil
}

// Probe is for calls with an identity that control may not have made yet.
func (c *Config) Probe(instance string) (*peers.Peers, error) {
	if c.InsecureLoopback {
		return peers.Plain(), nil
	}
	return peers.Open(c.peerOptions(instance, true))
}

func (c *Config) peerOptions(instance string, lazy bool) peers.Options {
	return peers.Options{PairFile: c.PairFile(instance), TrustFile: c.TrustFile(instance), Lazy: lazy, TrustDomain: c.TrustDomain, Peers: c.peers(), Says: says}
}

// peers are the roles that others call, by the address in their URLs.
func (c *Config) peers() map[string]peers.Peer {
	out := map[string]peers.Peer{}
	add := func(s string, p peers.Peer) {
		if u, err := url.Parse(s); err == nil && u.Host != "" {
			out[peers.HostPort(u)] = p
		}
	}
	for _, u := range c.AlertmanagerURLs() {
		add(u, peers.Peer{Role: "alerting", External: len(c.Alerting.Alertmanager.URLs) > 0})
	}
	add(c.CortexURL(), peers.Peer{Role: "aggregator", External: c.Aggregator.Cortex.URL != ""})
	for _, role := range Roles {
		for _, i := range role.Instances(c) {
			add(c.roleURL(i.Ops), peers.Peer{Role: role.Name, Name: i.Regional})
		}
	}
	add(c.ControlURL(), peers.Peer{Role: "control"})
	for _, u := range c.Alerting.OpsURLs {
		add(u, peers.Peer{Role: "alerting"})
	}
	for _, r := range c.Regionals {
		add(c.QueryURL(r), peers.Peer{Role: "regional", Name: r.Name})
	}
	return out
}

// roleURL is the URL of a listener of a role.
func (c *Config) roleURL(addr string) string {
	if c.InsecureLoopback {
		return "http://" + addr
	}
	return "https://" + addr
}

// OpsURL is where an instance of a role serves /metrics and /-/ready, and what else it
// has for other roles.
func (c *Config) OpsURL(i Instance) string { return c.roleURL(i.Ops) }

// HealthURL is where the console reaches the health role.
func (c *Config) HealthURL() string { return c.roleURL(c.Health.OpsListen) }

// AlertingURLs are where other roles reach each alerting role, without a slash at the end.
func (c *Config) AlertingURLs() []string {
	var out []string
	for _, u := range c.Alerting.OpsURLs {
		out = append(out, strings.TrimRight(u, "/"))
	}
	if len(out) == 0 {
		out = append(out, c.roleURL(c.Alerting.OpsListen))
	}
	return out
}

// AlertingURL is the alerting role that is asked for what each of them knows.
func (c *Config) AlertingURL() string { return c.AlertingURLs()[0] }

// roleListeners are the addresses at which roles call each other.
func (c *Config) roleListeners() []listener {
	var out []listener
	for _, l := range c.listeners() {
		if l.roles {
			out = append(out, l)
		}
	}
	return out
}

// validateRoleURLs has roles talk TLS to each other, or plain HTTP that leaves no machine.
func (c *Config) validateRoleURLs() error {
	for i, r := range c.Regionals {
		if r.QueryURL == "" {
			continue
		}
		if err := c.validateRoleURL(fmt.Sprintf("regionals[%d].queryURL", i), r.QueryURL, "https://regional-one.example.com:9091"); err != nil {
			return err
		}
	}
	for i, s := range c.Alerting.OpsURLs {
		at := fmt.Sprintf("alerting.opsURLs[%d]", i)
		if err := c.validateRoleURL(at, s, "https://alerting-one.example.com:9107"); err != nil {
			return err
		}
		if slices.Contains(c.AlertingURLs()[:i], strings.TrimRight(s, "/")) {
			return fmt.Errorf("%s: %q stands there already: name each alerting role once", at, s)
		}
	}
	if !c.InsecureLoopback {
		return nil
	}
	gossip := c.Alerting.Alertmanager.Cluster.Listen
	for _, l := range append(c.roleListeners(), listener{"alerting.alertmanager.cluster.listen", gossip, true}) {
		if l.addr == "" {
			continue
		}
		if host, _, err := net.SplitHostPort(l.addr); err != nil || !isLoopback(host) {
			return fmt.Errorf("%s: %s: insecureLoopback turns authentication between roles off, so it is for loopback addresses alone: listen on 127.0.0.1, or remove insecureLoopback", l.field, l.addr)
		}
	}
	return nil
}

// validateRoleURL checks where a role is reached by others.
func (c *Config) validateRoleURL(at, s, such string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return fmt.Errorf("%s: %q: want a URL such as %s", at, s, such)
	}
	switch {
	case u.Scheme == "https" && c.InsecureLoopback:
		return fmt.Errorf("%s: %q: with insecureLoopback roles talk plain HTTP: write http://, or remove insecureLoopback", at, s)
	case u.Scheme == "http" && !c.InsecureLoopback:
		return fmt.Errorf("%s: %q: roles talk TLS to each other: write https://", at, s)
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return fmt.Errorf("%s: %q: insecureLoopback is for roles on one machine: use a loopback address, or remove insecureLoopback and write https://", at, s)
	}
	return nil
}
