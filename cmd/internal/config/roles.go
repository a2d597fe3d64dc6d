package config

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
	// Instances of it that a configuration has.
	Instances func(*Config) []Instance
}

// Instance is one process.
type Instance struct {
	Name string   // unique
	Args []string // of muster
	Ops  string   // HOST:PORT of /metrics and /-/ready
}

func single(name string, ops func(*Config) string) func(*Config) []Instance {
	return func(c *Config) []Instance { return []Instance{{name, []string{name}, ops(c)}} }
}

// Roles in the order in which they are started and listed.
var Roles = []Role{
	{Name: "control", Short: "Kubernetes API, registration, desired state", Memory: 15, Instances: single("control", func(c *Config) string { return c.Control.OpsListen })},
	{Name: "aggregator", Short: "The metric store, Cortex", Memory: 25, Instances: single("aggregator", func(c *Config) string { return c.Aggregator.OpsListen })},
	// It needs control's CA for its first certificate; nobody needs the aggregator to start.
	{Name: "regional", Short: "Gateway of the sites and the two Prometheus engines", Memory: 40, After: []string{"control"}, Instances: func(c *Config) []Instance {
		var out []Instance
		for _, r := range c.Regionals {
			out = append(out, Instance{"regional-" + r.Name, []string{"regional", "--name", r.Name}, r.QueryListen})
		}
		return out
	}},
	{Name: "alerting", Short: "Alertmanager with the tenants' routes, silent sites, maintenance", Client: true, Memory: 6, After: []string{"control"}, Instances: single("alerting", func(c *Config) string { return c.Alerting.OpsListen })},
	{Name: "health", Short: "Scores of sites and virtual sites", Client: true, Memory: 8, After: []string{"control", "regional"}, Instances: single("health", func(c *Config) string { return c.Health.OpsListen })},
	{Name: "console", Short: "Web console and HTTP API", Client: true, Memory: 6, After: []string{"control"}, Instances: single("console", func(c *Config) string { return c.Console.OpsListen })},
}
