package regional

import (
	"path/filepath"
	"time"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/cost"
	"muster.dev/muster/regional/engine"
	"muster.dev/muster/regional/gateway"
	"muster.dev/muster/regional/logs/intake"
)

// What a log line takes of the processor, into the embedded store and on to Elasticsearch:
// docs/benchmarks.md, "Logs".
const (
	lineEmbedded = 62 * time.Microsecond
	lineElastic  = 13 * time.Microsecond
)

// startCost tells what sites and tenants take of this regional, whose files are in dir.
func startCost(env *role.Env, dir string, r config.Regional, gw *gateway.Gateway, series *gateway.HeadSeries, edge, local *engine.Engine, logs *intake.Intake) error {
	line := lineEmbedded
	if len(r.Logs.Elasticsearch.URLs) > 0 {
		line = lineElastic
	}
	m, err := cost.New(cost.Options{
		Regional: r.Name, Sites: gw.Use, Series: series, LineCPU: line,
		OtherSeries: func() int64 { return local.Size().HeadSeries }, Names: edge.HeaviestNames,
		Disk: func() cost.Disk {
			size := edge.Size()
			free, _, _ := disk.OS{}.Space(filepath.Join(dir, "edge")) // an error is a disk that is not known
			return cost.Disk{Free: free, Blocks: size.BlockBytes, BlockSamples: size.BlockSamples, Log: size.LogBytes, Retention: r.Retention.D().Seconds()}
		},
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
	env.Reg.MustRegister(m)
	env.Go("cost", m.Run)
	env.Ops.Mux().Handle("GET "+wire.CostPath, m.Handler())
	env.Ops.Mux().Handle("GET "+wire.CostNamesPath, m.NamesHandler())
	return nil
}
