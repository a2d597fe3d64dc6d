package regional

import (
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"muster.dev/muster/control/api/region"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/regional/gateway"
	"muster.dev/muster/regional/logs/intake"
)

// The head takes no more series of a tenant than this regional's share of the quota,
// those that recording rules make included, and follows a quota that changes.
func TestQuotaOfSeriesReachesTheHead(t *testing.T) {
	inv := newInventory("one")
	series := gateway.NewHeadSeries(inv.tenantSeries(1000))
	series.Enforce()
	next := 0
	fill := func(tenant string) (taken int) {
		for range 2000 {
			next++
			l := labels.FromStrings(labels.MetricName, fmt.Sprintf("recorded:%d", next), fleet.SeriesTenant, tenant)
			if series.PreCreation(l) != nil {
				return taken
			}
			series.PostCreation(l)
			taken++
		}
		return taken
	}
	if got := fill("acme"); got != 1000 {
		t.Errorf("without a quota %d, the configuration allows 1000", got)
	}
	sites := []region.Site{{Name: "a", Regional: "one"}, {Name: "b", Regional: "one"}, {Name: "c", Regional: "one"}, {Name: "d", Regional: "two"}}
	inv.set([]region.Inventory{{Tenant: "globex", Series: 400, LogBytesPerDay: 4000, Regionals: []string{"one", "two"}, Sites: sites}})
	if got := fill("globex"); got != 320 {
		t.Errorf("%d series, the share of three sites of four is 300 and a twentieth", got)
	}
	if got := inv.tenantLogBytes("globex"); got != 3200 {
		t.Errorf("%d bytes of logs", got)
	}
	inv.set([]region.Inventory{{Tenant: "globex", Series: 800, Regionals: []string{"one", "two"}, Sites: sites}})
	if got := fill("globex"); got != 320 {
		t.Errorf("%d more after the quota was doubled", got)
	}
	if got := use(inv, series.TenantSeries(), func(string) intake.Usage { return intake.Usage{Day: "2026-11-22", Bytes: 9} })["globex"]; got.GetSeries() != 640 || got.GetLogBytes() != 9 {
		t.Errorf("%v", got)
	}
}

// A tenant is gone when control has told of the others, and not before.
func TestGoneTenants(t *testing.T) {
	inv := newInventory("one")
	if inv.gone("acme") {
		t.Error("gone before control has told of anybody")
	}
	inv.set([]region.Inventory{{Tenant: "globex"}})
	if !inv.gone("acme") || inv.gone("globex") || inv.gone(fleet.PlatformTenant) {
		t.Errorf("gone: acme %v, globex %v, the platform %v", inv.gone("acme"), inv.gone("globex"), inv.gone(fleet.PlatformTenant))
	}
}
