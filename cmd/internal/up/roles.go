package up

import (
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/role"
)

// Roles returns the processes of a one-machine fleet, in the order in which they
// depend on each other. args are the flags that every child gets, e.g. --config.
func Roles(c config.Config, args ...string) []Process {
	var procs []Process
	instances := map[string][]string{} // by role
	for _, r := range config.Roles {
		var after []string
		for _, before := range r.After {
			after = append(after, instances[before]...)
		}
		all := r.Instances(&c)
		for _, i := range all {
			instances[r.Name] = append(instances[r.Name], i.Name)
			procs = append(procs, Process{Name: i.Name, Args: append(i.Args, args...), Env: role.MemoryShare(float64(r.Memory) / float64(len(all))), Ready: c.OpsURL(i) + "/-/ready", After: after})
		}
	}
	return procs
}
