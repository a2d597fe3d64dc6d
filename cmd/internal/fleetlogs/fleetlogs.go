// Package fleetlogs connects what searches the logs of all regions to the regionals of the
// configuration. The console and control, for the gates of rollouts, call it.
package fleetlogs

import (
	"maps"
	"slices"
	"strings"

	"muster.dev/muster/aggregator/logs"
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/internal/peers"
)

// New returns a client that asks the regionals for logs, of those that share an
// Elasticsearch one.
func New(env *role.Env, c config.Config, known *peers.Peers) (*logs.Client, error) {
	return logs.New(logs.Options{Client: known.Client(), Regionals: regionals(c), Logger: env.Log.With("part", "logs"), Registerer: env.Reg})
}

func regionals(c config.Config) []logs.Regional {
	var out []logs.Regional
	byStore := map[string]int{}
	asked := map[string]string{} // by name of a regional, who is asked for its store
	for _, r := range c.Regionals {
		es := r.Logs.Elasticsearch
		store := strings.Join(append(slices.Sorted(slices.Values(es.URLs)), es.Prefix), " ")
		if i, shared := byStore[store]; shared && len(es.URLs) > 0 {
			out[i].Spares = append(out[i].Spares, logs.Spare{Name: r.Name, URL: c.QueryURL(r)})
			asked[r.Name] = out[i].Name
			continue
		}
		byStore[store] = len(out)
		asked[r.Name] = r.Name
		out = append(out, logs.Regional{Name: r.Name, URL: c.QueryURL(r), JoinedTo: slices.Sorted(maps.Values(es.RemoteClusters))})
	}
	for i := range out {
		var joined []string
		for _, name := range out[i].JoinedTo {
			if a := asked[name]; a != out[i].Name && !slices.Contains(joined, a) {
				joined = append(joined, a)
			}
		}
		out[i].JoinedTo = joined
	}
	return out
}
