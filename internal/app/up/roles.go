package up

import (
	"muster.dev/muster/internal/app/config"
)

// Roles returns the processes of a one-machine fleet, in the order in which they
// depend on each other. args are the flags that every child gets, e.g. --config.
func Roles(c config.Config, args ...string) []Process {
	ready := func(addr string) string { return "http://" + addr + "/-/ready" }
	role := func(name string, verb []string, ops string, after ...string) Process {
		return Process{Name: name, Args: append(verb, args...), Ready: ready(ops), After: after}
	}
	procs := []Process{
		role("control", []string{"control"}, c.Control.OpsListen),
		role("aggregator", []string{"aggregator"}, c.Aggregator.OpsListen),
	}
	// Regionals need control's CA for their first certificate, alerting, health and
	// console its kubeconfig; none needs the aggregator to start.
	var regionals []string
	for _, r := range c.Regionals {
		name := "regional-" + r.Name
		regionals = append(regionals, name)
		procs = append(procs, role(name, []string{"regional", "--name", r.Name}, r.QueryListen, "control"))
	}
	return append(procs,
		role("alerting", []string{"alerting"}, c.Alerting.OpsListen, "control"),
		role("health", []string{"health"}, c.Health.OpsListen, append([]string{"control"}, regionals...)...),
		role("console", []string{"console"}, c.Console.OpsListen, "control"))
}
