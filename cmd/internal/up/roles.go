package up

import (
	"muster.dev/muster/cmd/internal/config"
)

// Roles returns the processes of a one-machine fleet, in the order in which they
// depend on each other. args are the flags that every child gets, e.g. --config.
func Roles(c config.Config, args ...string) []Process {
	var procs []Process
	instances := map[string][]string{} // by role
	for _, role := range config.Roles {
		var after []string
		for _, r := range role.After {
			after = append(after, instances[r]...)
		}
		for _, i := range role.Instances(&c) {
			instances[role.Name] = append(instances[role.Name], i.Name)
			procs = append(procs, Process{Name: i.Name, Args: append(i.Args, args...), Ready: "http://" + i.Ops + "/-/ready", After: after})
		}
	}
	return procs
}
