package regional

import (
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/cost"
	"muster.dev/muster/regional/engine"
	"muster.dev/muster/regional/gateway"
	"muster.dev/muster/regional/logs/intake"
)

// startCost tells what sites and tenants take of this regional.
func startCost(env *role.Env, r config.Regional, gw *gateway.Gateway, series *gateway.HeadSeries, local *engine.Engine, logs *intake.Intake) error {
	m, err := cost.New(cost.Options{
		Regional: r.Name, Sites: gw.Use, Series: series,
		OtherSeries: func() int64 { return local.Size().HeadSeries },
		Logs: func() []cost.Logs {
			var out []cost.Logs
			for _, s := range logs.Status().Sites {
				out = append(out, cost.Logs{Site: s.Site, Lines: s.Lines, Bytes: s.Bytes})
			}
			return out
		},
	})
	if err != nil {
		return err
	}
	env.Go("cost", m.Run)
	env.Ops.Mux().Handle("GET "+wire.CostPath, m.Handler())
	return nil
}
