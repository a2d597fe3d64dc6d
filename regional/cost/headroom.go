package cost

import (
	"math"

	"muster.dev/muster/internal/wire"
)

// Parts of a resource that are kept free: below them the garbage collector, queries or
// compactions suffer.
const (
	keepMemory = 0.1
	keepCPU    = 0.2
	keepDisk   = 0.1
)

// maxMore is the most that is told: beyond it other things end first.
const maxMore = 1_000_000

// sampleBytes is what a sample takes on the disk while there is no block to measure.
const sampleBytes = 2

// Disk is what the edge engine has on the disk, and what is left there.
type Disk struct {
	Free int64 // 0: not known
	// Blocks are bytes that hold BlockSamples; Log is that of the head.
	Blocks, BlockSamples, Log int64
	Retention                 float64 // of blocks, in seconds
}

// capacity is what headroom is told of from.
type capacity struct {
	process Process
	cpu     float64 // cores used
	idle    float64 // cores of the machine that nobody used; negative: not known
	disk    Disk
}

// headroom is how many more sites like the mean of those that are here it carries.
func headroom(c capacity, cost *wire.RegionalCost) wire.Headroom {
	h := wire.Headroom{Resources: []wire.Resource{}}
	for i := range cost.Sites {
		if cost.Sites[i].Series > 0 {
			h.Sites++
		}
	}
	var all wire.Use
	for i := range cost.Tenants {
		all.Add(cost.Tenants[i].Use)
	}
	mean := func(v float64) float64 {
		if h.Sites == 0 {
			return 0
		}
		return v / float64(h.Sites)
	}
	h.Resources = append(h.Resources, room(wire.Resource{Name: wire.ResourceMemory, Used: float64(c.process.Memory), Limit: float64(c.process.MemoryLimit), PerSite: mean(all.MemoryBytes)}, keepMemory))

	cores := wire.Resource{Name: wire.ResourceCPU, Used: c.cpu, Limit: c.process.Cores, PerSite: mean(all.CPUCores)}
	if c.idle >= 0 && c.cpu+c.idle < cores.Limit {
		cores.Others = cores.Limit - c.cpu - c.idle
		cores.Limit = c.cpu + c.idle
	}
	h.Resources = append(h.Resources, room(cores, keepCPU))

	// What is there grows until its retention is full.
	each := float64(sampleBytes)
	if c.disk.BlockSamples > 0 {
		each = float64(c.disk.Blocks) / float64(c.disk.BlockSamples)
	}
	full := all.SamplesPerSecond * c.disk.Retention * each
	disk := wire.Resource{Name: wire.ResourceDisk, PerSite: mean(full)}
	if c.disk.Free > 0 {
		now := float64(c.disk.Blocks + c.disk.Log)
		disk.Limit = now + float64(c.disk.Free)
		disk.Used = max(now, full+float64(c.disk.Log))
	}
	h.Resources = append(h.Resources, room(disk, keepDisk))
	h.Resources = append(h.Resources, seriesRoom(cost, mean(float64(all.Series))))

	for i := range h.Resources {
		if n := h.Resources[i].MoreSites; n != nil && (h.MoreSites == nil || *n < *h.MoreSites) {
			h.MoreSites, h.First = n, h.Resources[i].Name
		}
	}
	return h
}

// room fills in for how many more sites a resource is enough.
func room(r wire.Resource, keep float64) wire.Resource {
	if r.Limit > 0 && r.PerSite > 0 {
		n := int64(math.Floor(min(maxMore, max(0, r.Limit*(1-keep)-r.Used)/r.PerSite)))
		r.MoreSites = &n
	}
	return r
}

// seriesRoom adds up what each tenant may have more of sites like its own. It is known only
// if all tenants that have sites have a limit.
func seriesRoom(cost *wire.RegionalCost, mean float64) wire.Resource {
	out := wire.Resource{Name: wire.ResourceSeries, PerSite: mean}
	sites := map[string]int{}
	for i := range cost.Sites {
		if cost.Sites[i].Series > 0 {
			sites[cost.Sites[i].Tenant]++
		}
	}
	total := int64(0)
	for i := range cost.Tenants {
		t := &cost.Tenants[i]
		n := wire.MoreSites(t.SeriesLimit, t.Series, sites[t.Tenant])
		if sites[t.Tenant] == 0 {
			continue
		}
		if n == nil {
			return wire.Resource{Name: wire.ResourceSeries, PerSite: mean}
		}
		out.Used += float64(t.Series)
		out.Limit += float64(t.SeriesLimit)
		total = min(total+*n, maxMore)
	}
	if out.Limit > 0 {
		out.MoreSites = &total
	}
	return out
}
