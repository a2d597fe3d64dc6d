package cost

import (
	"fmt"
	"testing"
	"time"

	"muster.dev/muster/internal/wire"
)

// costOf is a regional with n equal sites of one tenant with this limit of series.
func costOf(n int, each wire.Use, limit int64) *wire.RegionalCost {
	c := &wire.RegionalCost{Tenants: []wire.TenantCost{{Tenant: "acme", SeriesLimit: limit}}}
	for i := range n {
		c.Sites = append(c.Sites, wire.SiteCost{Tenant: "acme", Site: fmt.Sprint(i), Use: each})
		c.Tenants[0].Add(each)
	}
	return c
}

func TestHeadroom(t *testing.T) {
	each := wire.Use{Series: 1000, SamplesPerSecond: 100, CPUCores: 0.01, MemoryBytes: 1 << 20}
	// Of all there is plenty; each case takes something away.
	roomy := func() capacity {
		return capacity{process: Process{Memory: 1 << 30, MemoryLimit: 1 << 40, Cores: 64}, cpu: 0.5, idle: 60,
			disk: Disk{Free: 1 << 44, Blocks: 200, BlockSamples: 100, Retention: (24 * time.Hour).Seconds()}}
	}
	for _, c := range []struct {
		name   string
		n      int
		limit  int64
		change func(*capacity)
		more   int64 // negative: not known
		first  string
	}{
		{"no sites yet", 0, 100_000, nil, -1, ""},
		{"one site", 1, 100_000, nil, 99, "series"},
		{"already over its series", 200, 100_000, nil, 0, "series"},
		{"memory ends first", 10, 0, func(c *capacity) { c.process.MemoryLimit = 2 << 30 }, 819, "memory"}, // 0.9·2 GiB − 1 GiB by 1 MiB
		{"memory is used up", 10, 0, func(c *capacity) { c.process.MemoryLimit = 1 << 30 }, 0, "memory"},
		{"processor ends first", 10, 0, func(c *capacity) { c.process.Cores = 2 }, 110, "cpu"}, // 0.8·2 − 0.5 by 0.01
		{"others use the processor", 10, 0, func(c *capacity) { c.idle = 0.5 }, 30, "cpu"},     // 0.8·1 − 0.5
		{"a machine that tells nothing", 10, 0, func(c *capacity) { *c = capacity{idle: -1} }, -1, ""},
		{"disk ends first", 10, 0, func(c *capacity) { c.disk.Free = 1 << 30 }, 45, "disk"}, // (0.9·1 GiB − 10 sites) by 100·86400·2
		{"the disk will be full when the retention is", 100, 0, func(c *capacity) { c.disk.Free = 1 << 30 }, 0, "disk"},
		{"no block yet", 10, 0, func(c *capacity) { c.disk = Disk{Free: 1 << 30, Retention: c.disk.Retention} }, 45, "disk"},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := roomy()
			if c.change != nil {
				c.change(&at)
			}
			h := headroom(at, costOf(c.n, each, c.limit))
			more := int64(-1)
			if h.MoreSites != nil {
				more = *h.MoreSites
			}
			if more != c.more || h.First != c.first || h.Sites != c.n {
				t.Errorf("%d more, %q first, want %d, %q: %+v", more, h.First, c.more, c.first, h.Resources)
			}
			if o := h.Resources[1].Others; c.name == "others use the processor" && o != 63 || c.name == "processor ends first" && o != 0 {
				t.Errorf("others take %g cores", o)
			}
			if len(h.Resources) != 4 {
				t.Errorf("%+v", h.Resources)
			}
		})
	}
}

// Tenants that can't have more don't lend to others, and one without a limit makes it unknown.
func TestSeriesOfSeveralTenants(t *testing.T) {
	c := costOf(10, wire.Use{Series: 1000}, 10_000) // full
	c.Sites = append(c.Sites, wire.SiteCost{Tenant: "umbrella", Site: "x", Use: wire.Use{Series: 100}})
	c.Tenants = append(c.Tenants, wire.TenantCost{Tenant: "umbrella", SeriesLimit: 1000, Use: wire.Use{Series: 100}}, wire.TenantCost{Tenant: "empty"})
	if r := seriesRoom(c, 1); r.MoreSites == nil || *r.MoreSites != 9 || r.Limit != 11_000 || r.Used != 10_100 {
		t.Errorf("%+v", r)
	}
	c.Tenants[1].SeriesLimit = 0
	if r := seriesRoom(c, 1); r.MoreSites != nil {
		t.Errorf("%+v", r)
	}
}

// What is read of this process is there, whatever the machine.
func TestThisProcess(t *testing.T) {
	if p := thisProcess(); p.CPU <= 0 || p.Memory <= 0 || p.Cores < 1 || p.MemoryLimit < 0 {
		t.Errorf("%+v", p)
	}
}
