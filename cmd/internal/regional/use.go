package regional

import (
	"context"
	"maps"
	"time"

	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/gateway"
	"muster.dev/muster/regional/logs/intake"
	"muster.dev/muster/regional/relay"
)

// useEvery is how often control is told what tenants use, if it has changed much.
const useEvery = time.Minute

// reportUse reports to control what tenants use of their quotas here, until ctx ends. A figure
// counts as changed when it moved by a fiftieth of this regional's share; control has
// its own, coarser steps.
func reportUse(ctx context.Context, up *relay.Relay, inv *inventory, series *gateway.HeadSeries, logs *intake.Intake) error {
	told := map[string]*wire.TenantUse{}
	tick := time.NewTicker(useEvery)
	defer tick.Stop()
	for {
		if now := use(inv, series.TenantSeries(), logs.TenantLogUsage); changed(inv, told, now) {
			told = now
			var list []*wire.TenantUse
			for _, name := range inv.names() {
				list = append(list, now[name])
			}
			up.TenantsUse(list)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func use(inv *inventory, series map[string]int, logs func(tenant string) intake.Usage) map[string]*wire.TenantUse {
	out := map[string]*wire.TenantUse{}
	for _, name := range inv.names() {
		day := logs(name)
		out[name] = &wire.TenantUse{Tenant: name, Series: int64(series[name]), LogBytes: day.Bytes, Day: day.Day}
	}
	return out
}

func changed(inv *inventory, a, b map[string]*wire.TenantUse) bool {
	moved := func(x, y, share int64) bool {
		step := share / 50
		if share == 0 {
			step = max(x, y) / 10
		}
		return x != y && max(x, y)-min(x, y) >= step
	}
	return len(a) != len(b) || !maps.EqualFunc(a, b, func(x, y *wire.TenantUse) bool {
		s, l := inv.share(x.GetTenant())
		return x.GetDay() == y.GetDay() && !moved(x.GetSeries(), y.GetSeries(), s) && !moved(x.GetLogBytes(), y.GetLogBytes(), l)
	})
}
