package config

import (
	"slices"

	"muster.dev/muster/internal/peers"
	"muster.dev/muster/internal/wire"
)

// Role is one row of the table of roles: what `muster ROLE` runs, what `muster up`
// starts in which order, whom control gives an identity, and what the first regional
// scrapes. cmd/muster/run.go has the function that runs each.
type Role struct {
	Name, Short string
	// Client: it has a user of the API server, muster:NAME, with a kubeconfig.
	Client bool
	// Memory is its share, in percent, of what one machine gives to all roles; its
	// instances divide it.
	Memory int
	// After are the roles without which it can't start.
	After []string
	// Callers are who may call what on its ops listener, beside what every role has there
	// (see everyRole), and but for the operator, who may call all of it. What is not here
	// nobody may call, and a role with such a route does not start.
	Callers []peers.Rule
	// Instances of it that a configuration has.
	Instances func(*Config) []Instance
}

// Instance is one process.
type Instance struct {
	Name     string   // unique; that of its identity too
	Args     []string // of muster
	Ops      string   // HOST:PORT of /metrics and /-/ready
	Regional string   // its name, of a regional
	// Reached are URLs and HOST:PORT of it; their hosts, and ExtraSANs, are in its certificate.
	Reached, ExtraSANs []string
}

// single is the one instance of a role; the first of what reaches it is its ops listener.
func single(name string, reached func(*Config) []string) func(*Config) []Instance {
	return func(c *Config) []Instance {
		at := reached(c)
		return []Instance{{Name: name, Args: []string{name}, Ops: at[0], Reached: at}}
	}
}

// BackupPath is where control gives its operator a backup.
const BackupPath = "/backup"

// Roles in the order in which they are started and listed.
var Roles = []Role{
	{Name: "control", Short: "Kubernetes API, registration, desired state", Memory: 15, Callers: slices.Concat(only("regional", "/software/"), only("console", wire.TimelinePath), only(Operator, BackupPath)), Instances: func(c *Config) []Instance {
		return []Instance{{Name: "control", Args: []string{"control"}, Ops: c.Control.OpsListen,
			Reached: []string{c.Control.Listen, c.Control.FleetListen, c.Control.FleetAddress, c.Control.OpsListen}, ExtraSANs: c.Control.ExtraSANs}}
	}},
	{Name: "aggregator", Short: "The metric store, Cortex", Memory: 25, After: []string{"control"}, Instances: single("aggregator", func(c *Config) []string { return []string{c.Aggregator.OpsListen, c.Aggregator.Cortex.Listen} })},
	{Name: "regional", Short: "Gateway of the sites and the two Prometheus engines", Memory: 40, After: []string{"control"}, Callers: slices.Concat(
		queries("/edge", "health", Reader), queries("/local", Reader),
		only("health", "/edge/api/v1/write", wire.LivePath, wire.CostPath, wire.CostNamesPath), only("alerting", wire.LivePath), only("console", "/api/v1/logs/", "/api/v1/logs/search"), only("control", "/api/v1/logs/search"),
		only(Operator, "/edge/", "/local/"),
	), Instances: func(c *Config) []Instance {
		var out []Instance
		for _, r := range c.Regionals {
			out = append(out, Instance{Name: "regional-" + r.Name, Args: []string{"regional", "--name", r.Name}, Ops: r.QueryListen, Regional: r.Name,
				Reached: []string{r.Listen, r.Address, r.QueryListen, r.QueryURL}, ExtraSANs: r.ExtraSANs})
		}
		return out
	}},
	{Name: "alerting", Short: "Alertmanager with the tenants' routes, silent sites, maintenance", Client: true, Memory: 6, After: []string{"control"}, Callers: slices.Concat(only("console", "/api/v1/alerts", "/api/v1/alerts/", "/api/v1/silences", "/api/v1/silences/", wire.TimelinePath), only("control", wire.FiringPath, wire.TimelinePath), only("health", wire.FiringPath)),
		Instances: single("alerting", func(c *Config) []string {
			am := c.Alerting.Alertmanager
			return append([]string{c.Alerting.OpsListen, am.Listen, am.ExternalURL, am.Cluster.Listen, am.Cluster.Advertise}, c.Alerting.OpsURLs...)
		})},
	{Name: "health", Short: "Scores of sites and virtual sites", Client: true, Memory: 8, After: []string{"control", "regional"}, Callers: slices.Concat(only("console", "/api/v1/health/", wire.SitesPath, wire.SiteFieldsPath, wire.SiteMapPath, wire.SiteDistributionsPath, wire.LinksPath, wire.CostPath, wire.CostNamesPath, wire.TimelinePath), only("control", wire.ScoresPath)),
		Instances: single("health", func(c *Config) []string { return []string{c.Health.OpsListen} })},
	{Name: "console", Short: "Web console and HTTP API", Client: true, Memory: 6, After: []string{"control"}, Instances: single("console", func(c *Config) []string { return []string{c.Console.OpsListen} })},
}

// only is one caller of some routes.
func only(caller string, patterns ...string) []peers.Rule {
	var out []peers.Rule
	for _, p := range patterns {
		out = append(out, peers.Rule{Pattern: p, Callers: []string{caller}})
	}
	return out
}

// queries are the routes of a Prometheus API that read series, and what Grafana asks to
// know what it talks to.
func queries(prefix string, callers ...string) []peers.Rule {
	var out []peers.Rule
	for _, path := range []string{"query", "query_range", "query_exemplars", "format_query", "parse_query", "series", "labels", "label/", "metadata", "status/buildinfo", "rules"} {
		out = append(out, peers.Rule{Pattern: prefix + "/api/v1/" + path, Callers: callers})
	}
	return out
}

// merge is one rule for each pattern, with all its callers and the operator.
func merge(rules []peers.Rule) []peers.Rule {
	var out []peers.Rule
	for _, r := range rules {
		i := slices.IndexFunc(out, func(o peers.Rule) bool { return o.Pattern == r.Pattern })
		if i < 0 {
			out = append(out, peers.Rule{Pattern: r.Pattern})
			if i = len(out) - 1; r.Callers[0] != peers.Anyone {
				out[i].Callers = []string{Operator}
			}
		}
		for _, c := range r.Callers {
			if !slices.Contains(out[i].Callers, c) {
				out[i].Callers = append(out[i].Callers, c)
			}
		}
	}
	return out
}
