// Package cost tells what each site and tenant takes of a regional: from counters that
// the gateway, the head of the edge engine and the log intake keep anyway, and
// from what the process itself uses.
//
// Series, samples, bytes, pushes and lines are counted. Processor time and memory of one
// process can't be: they are shares by an estimate, which Meter.Cost documents. It must
// not be asked for each push, and keeps one small struct a site. cmd/internal/regional
// mounts it; package aggregator/cost asks all regionals.
package cost

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/gateway"
)

// Logs are the lines that a site has sent, and their bytes: counters.
type Logs struct {
	Site         fleet.SiteID
	Lines, Bytes uint64
}

// Process is what the whole process uses.
type Process struct {
	CPU         time.Duration // since it started
	Memory      int64         // bytes
	MemoryLimit int64         // bytes; 0: not known
	Cores       float64       // that it may use
	// Idle is for how long the machine's cores together had nothing to do since it started;
	// negative: not known.
	Idle time.Duration
}

// Options of a Meter. Regional, Sites and Series are needed.
type Options struct {
	Regional, Region string
	// Sites are the gateway's counters, Series what the head of the edge engine holds, and
	// OtherSeries how many series are in memory that are no tenant's.
	Sites       func() []gateway.SiteUse
	Series      *gateway.HeadSeries
	OtherSeries func() int64
	Logs        func() []Logs // nil: no logs
	LineCPU     time.Duration // that a log line takes, from the intake into the store: see docs/benchmarks.md
	Disk        func() Disk   // nil: not known
	// Names finds the metrics with the most series; see engine.HeaviestNames. Nil: none.
	Names   func(ctx context.Context, n, every int, matchers ...*labels.Matcher) ([]wire.NameSeries, int64, error)
	Process func() Process   // nil: of this process
	Now     func() time.Time // nil: time.Now
}

// Window is over how long rates are means: between a half of it and all of it, less after
// a start.
const Window = 5 * time.Minute

// Meter turns counters into rates. Safe for concurrent use.
type Meter struct {
	opts Options

	mu           sync.Mutex
	older, newer *reading

	naming chan struct{} // held while names are looked for
}

// New returns a meter whose window begins now.
func New(o Options) (*Meter, error) {
	if o.Regional == "" || o.Sites == nil || o.Series == nil {
		return nil, errors.New("cost: Regional, Sites and Series must be set")
	}
	if o.OtherSeries == nil {
		o.OtherSeries = func() int64 { return 0 }
	}
	if o.Logs == nil {
		o.Logs = func() []Logs { return nil }
	}
	if o.Disk == nil {
		o.Disk = func() Disk { return Disk{} }
	}
	if o.Process == nil {
		o.Process = thisProcess
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	m := &Meter{opts: o, naming: make(chan struct{}, 1)}
	m.older = m.read()
	m.newer = m.older
	return m, nil
}

// Run moves the window until ctx ends.
func (m *Meter) Run(ctx context.Context) error {
	t := time.NewTicker(Window / 2)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
			m.turn()
		}
	}
}

func (m *Meter) turn() {
	now := m.read()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.older, m.newer = m.newer, now
}

// counters of one site.
type counters struct {
	samples, wire, raw, pushes, refused, lines, bytes uint64
	work                                              time.Duration
}

// since is what was added after old. Counters that are less began anew.
func (c counters) since(old counters) counters {
	if c.pushes < old.pushes || c.samples < old.samples || c.wire < old.wire {
		old.samples, old.wire, old.raw, old.pushes, old.refused, old.work = 0, 0, 0, 0, 0, 0
	}
	if c.lines < old.lines || c.bytes < old.bytes {
		old.lines, old.bytes = 0, 0
	}
	return counters{
		samples: c.samples - old.samples, wire: c.wire - old.wire, raw: c.raw - min(old.raw, c.raw), pushes: c.pushes - old.pushes, refused: c.refused - min(old.refused, c.refused),
		lines: c.lines - old.lines, bytes: c.bytes - old.bytes, work: c.work - min(old.work, c.work),
	}
}

// reading is all counters at one moment.
type reading struct {
	at      time.Time
	process Process
	sites   map[fleet.SiteID]counters
}

func (m *Meter) read() *reading {
	sites := m.opts.Sites()
	r := &reading{at: m.opts.Now(), process: m.opts.Process(), sites: make(map[fleet.SiteID]counters, len(sites))}
	for _, s := range sites {
		r.sites[s.Site] = counters{samples: s.Samples, wire: s.WireBytes, raw: s.RawBytes, pushes: s.Pushes, refused: s.Refused, work: s.Work}
	}
	for _, l := range m.opts.Logs() {
		c := r.sites[l.Site]
		c.lines, c.bytes = l.Lines, l.Bytes
		r.sites[l.Site] = c
	}
	return r
}

// idleMemory is what the process takes before there is a site, in bytes; it is nobody's.
const idleMemory = 64 << 20

// Cost returns what each site and tenant takes now.
//
// Of the processor time of the process in the window, pushes get the time in which they were
// worked on, each site its own; log lines a fixed price each; and what is left (rules,
// health's queries, compaction, garbage) goes by series, for it is series that these
// read. Of the memory, all beyond an idle process's goes by series. What falls on series
// that are no tenant's is nobody's.
func (m *Meter) Cost() *wire.RegionalCost {
	m.mu.Lock()
	old := m.older
	m.mu.Unlock()
	now := m.read()
	seconds := now.at.Sub(old.at).Seconds()
	series := m.opts.Series.SiteSeries()

	use := make(map[fleet.SiteID]counters, len(now.sites))
	var all counters
	for id, c := range now.sites {
		d := c.since(old.sites[id])
		use[id] = d
		all.add(d)
	}
	total := m.opts.OtherSeries()
	for _, t := range series {
		total += int64(t.Total)
	}
	p := newPrices(now.process, now.process.CPU-old.process.CPU, all, total, m.opts.LineCPU)
	rate := func(d counters, n int) wire.Use {
		return p.use(d, n, seconds)
	}

	out := &wire.RegionalCost{Regional: m.opts.Regional, Region: m.opts.Region, AsOf: now.at.UTC().Truncate(time.Millisecond), Window: seconds, Tenants: []wire.TenantCost{}, Sites: []wire.SiteCost{}}
	tenants := map[string]counters{}
	for id, d := range use {
		t := tenants[id.Tenant]
		t.add(d)
		tenants[id.Tenant] = t
		out.Sites = append(out.Sites, wire.SiteCost{Tenant: id.Tenant, Site: id.Name, Use: rate(d, series[id.Tenant].Sites[id.Name])})
	}
	for name, t := range series {
		if _, known := tenants[name]; !known {
			tenants[name] = counters{}
		}
		for site, n := range t.Sites {
			if _, known := use[fleet.SiteID{Tenant: name, Name: site}]; !known {
				out.Sites = append(out.Sites, wire.SiteCost{Tenant: name, Site: site, Use: rate(counters{}, n)})
			}
		}
	}
	for name, d := range tenants {
		out.Tenants = append(out.Tenants, wire.TenantCost{Tenant: name, SeriesLimit: int64(m.opts.Series.Limit(name)), Use: rate(d, series[name].Total)})
	}
	out.Process = rate(all, int(total))
	out.Process.MemoryBytes = float64(now.process.Memory)
	if seconds > 0 {
		out.Process.CPUCores = (now.process.CPU - old.process.CPU).Seconds() / seconds
	}
	c := capacity{process: now.process, cpu: out.Process.CPUCores, idle: -1, disk: m.opts.Disk()}
	if seconds > 0 && now.process.Idle >= 0 && old.process.Idle >= 0 {
		c.idle = max(0, (now.process.Idle-old.process.Idle).Seconds()/seconds)
	}
	out.Headroom = headroom(c, out)
	slices.SortFunc(out.Tenants, func(a, b wire.TenantCost) int { return cmp.Compare(a.Tenant, b.Tenant) })
	slices.SortFunc(out.Sites, func(a, b wire.SiteCost) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Site, b.Site))
	})
	return out
}

func (c *counters) add(o counters) {
	c.samples += o.samples
	c.wire += o.wire
	c.raw += o.raw
	c.pushes += o.pushes
	c.refused += o.refused
	c.lines += o.lines
	c.bytes += o.bytes
	c.work += o.work
}

// prices are what things cost in this process in this window.
type prices struct {
	work   float64 // seconds of processor time for one of work
	line   float64 // seconds for a line
	series float64 // seconds for a series
	memory float64 // bytes for a series
}

func newPrices(now Process, cpu time.Duration, all counters, series int64, lineCPU time.Duration) prices {
	var p prices
	left := max(cpu.Seconds(), 0)
	if work := all.work.Seconds(); work > 0 {
		spent := min(work, left)
		p.work = spent / work
		left -= spent
	}
	if all.lines > 0 {
		spent := min(float64(all.lines)*lineCPU.Seconds(), left)
		p.line = spent / float64(all.lines)
		left -= spent
	}
	if series > 0 {
		p.series = left / float64(series)
		p.memory = float64(max(now.Memory-idleMemory, 0)) / float64(series)
	}
	return p
}

func (p prices) use(d counters, series int, seconds float64) wire.Use {
	u := wire.Use{Series: int64(max(series, 0))}
	u.MemoryBytes = p.memory * float64(u.Series)
	if seconds <= 0 {
		return u
	}
	per := func(n uint64) float64 { return float64(n) / seconds }
	u.SamplesPerSecond, u.WireBytesPerSecond, u.RawBytesPerSecond = per(d.samples), per(d.wire), per(d.raw)
	u.PushesPerSecond, u.RefusedPerSecond = per(d.pushes), per(d.refused)
	u.LogLinesPerSecond, u.LogBytesPerSecond = per(d.lines), per(d.bytes)
	u.CPUCores = (p.work*d.work.Seconds() + p.line*float64(d.lines) + p.series*float64(u.Series)) / seconds
	return u
}

// Handler serves Cost, for GET wire.CostPath. It tells of all tenants: mount it on the
// regional's own listener, where only Muster's roles come.
func (m *Meter) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(m.Cost())
	})
}
