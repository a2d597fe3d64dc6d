package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// Where a regional serves its RegionalCost, and the RegionalNames of a tenant or one of its
// sites, which are the parameters tenant and site: on its query listener. The console has
// a CostPage and a NamesPage there.
const (
	CostPath      = "/api/v1/cost"
	CostNamesPath = "/api/v1/cost/names"
)

// Use is what a site takes of the regionals that it talks to, or all sites of a virtual
// site or a tenant together. Rates are means over the regional's window.
type Use struct {
	// Series in the heads of the regionals; of a tenant, those that its rules make too.
	Series           int64   `json:"series"`
	SamplesPerSecond float64 `json:"samplesPerSecond"` // taken
	// WireBytesPerSecond are the bodies of pushes as they come, RawBytesPerSecond the same
	// uncompressed; without the headers of HTTP and TLS.
	WireBytesPerSecond float64 `json:"wireBytesPerSecond"`
	RawBytesPerSecond  float64 `json:"rawBytesPerSecond"`
	PushesPerSecond    float64 `json:"pushesPerSecond"`
	RefusedPerSecond   float64 `json:"refusedPerSecond"` // of the pushes, those that got 429
	LogLinesPerSecond  float64 `json:"logLinesPerSecond"`
	LogBytesPerSecond  float64 `json:"logBytesPerSecond"` // uncompressed
	// CPUCores and MemoryBytes are shares of the regionals' processes, by an estimate: see
	// package regional/cost.
	CPUCores    float64 `json:"cpuCores"`
	MemoryBytes float64 `json:"memoryBytes"`
}

// Add adds what another takes.
func (u *Use) Add(o Use) {
	u.Series += o.Series
	u.SamplesPerSecond += o.SamplesPerSecond
	u.WireBytesPerSecond += o.WireBytesPerSecond
	u.RawBytesPerSecond += o.RawBytesPerSecond
	u.PushesPerSecond += o.PushesPerSecond
	u.RefusedPerSecond += o.RefusedPerSecond
	u.LogLinesPerSecond += o.LogLinesPerSecond
	u.LogBytesPerSecond += o.LogBytesPerSecond
	u.CPUCores += o.CPUCores
	u.MemoryBytes += o.MemoryBytes
}

func (u *Use) valid() bool {
	for _, v := range []float64{float64(u.Series), u.SamplesPerSecond, u.WireBytesPerSecond, u.RawBytesPerSecond, u.PushesPerSecond, u.RefusedPerSecond, u.LogLinesPerSecond, u.LogBytesPerSecond, u.CPUCores, u.MemoryBytes} {
		if !(v >= 0 && v < maxFigure) { // nor NaN
			return false
		}
	}
	return true
}

// maxFigure is beyond what a regional can have of anything, and far below what overflows
// when many are added.
const maxFigure = 1 << 44

// RegionalCost is what a regional's sites and tenants take of it: the JSON of GET CostPath.
type RegionalCost struct {
	Regional string       `json:"regional"`
	Region   string       `json:"region"`
	AsOf     time.Time    `json:"asOf"`
	Window   float64      `json:"windowSeconds"` // that the rates are means over
	Process  Use          `json:"process"`       // all of it, of the platform's own too
	Headroom Headroom     `json:"headroom"`
	Tenants  []TenantCost `json:"tenants"`
	Sites    []SiteCost   `json:"sites"`
}

// Names of a regional's resources.
const (
	ResourceMemory = "memory" // bytes that Go holds
	ResourceCPU    = "cpu"    // cores
	ResourceDisk   = "disk"   // bytes, of the edge engine's samples when their retention is full
	ResourceSeries = "series" // of all tenants that have sites, and their limits together
)

// Resource is one that sites use up.
type Resource struct {
	Name    string  `json:"name"`
	Used    float64 `json:"used"`
	Limit   float64 `json:"limit"`   // 0: none, or not known
	PerSite float64 `json:"perSite"` // what a site takes on average; 0: not known
	// Others is what other processes of the machine take of what this one may use; Limit is
	// without it. Of processors alone.
	Others float64 `json:"others,omitempty"`
	// MoreSites is for how many more it is enough; null: not known.
	MoreSites *int64 `json:"moreSites"`
}

// Headroom is how many more sites a regional carries that are like the mean of those that
// are there.
type Headroom struct {
	Sites     int        `json:"sites"`     // that it is the mean of: those with series
	MoreSites *int64     `json:"moreSites"` // null: not known, such as before the first site
	First     string     `json:"first"`     // the resource that ends first; "": not known
	Resources []Resource `json:"resources"`
}

// MoreSites is how many more sites a limit of series is enough for, when so many take what is
// used; nil: not known.
func MoreSites(limit, used int64, sites int) *int64 {
	if limit <= 0 || used <= 0 || sites <= 0 {
		return nil
	}
	n := max(0, limit-used) * int64(sites) / used
	return &n
}

func (h *Headroom) valid() bool {
	ok := h.Sites >= 0 && (h.MoreSites == nil || *h.MoreSites >= 0)
	for _, r := range h.Resources {
		for _, v := range []float64{r.Used, r.Limit, r.PerSite} {
			ok = ok && v >= 0 && v < maxFigure
		}
		ok = ok && (r.MoreSites == nil || *r.MoreSites >= 0)
	}
	return ok
}

// TenantCost is one tenant in a RegionalCost: its sites, and what its rules compute.
type TenantCost struct {
	Tenant string `json:"tenant"`
	// SeriesLimit is how many series it may have here; 0: any number.
	SeriesLimit int64 `json:"seriesLimit"`
	Use         `json:"use"`
}

// SiteCost is one site in a RegionalCost.
type SiteCost struct {
	Tenant string `json:"tenant"`
	Site   string `json:"site"`
	Use    `json:"use"`
}

// DecodeRegionalCost reads what the regional of this name says that its sites take.
func DecodeRegionalCost(b []byte, regional string) (*RegionalCost, error) {
	c := &RegionalCost{}
	if err := json.Unmarshal(b, c); err != nil {
		return nil, fmt.Errorf("not the cost of a regional: %w", err)
	}
	switch {
	case c.Regional != regional:
		return nil, fmt.Errorf("the cost is of regional %.80q, not %q; check regionals[].queryURL", c.Regional, regional)
	case !(c.Window >= 0 && c.Window < math.MaxInt32), !c.Process.valid(), !c.Headroom.valid():
		return nil, errors.New("figures of the process that can't be")
	}
	for i := range c.Tenants {
		if t := &c.Tenants[i]; t.Tenant == "" || t.SeriesLimit < 0 || t.SeriesLimit >= maxFigure || !t.valid() {
			return nil, fmt.Errorf("tenants[%d]: figures that can't be", i)
		}
	}
	for i := range c.Sites {
		if s := &c.Sites[i]; s.Tenant == "" || s.Site == "" || !s.valid() {
			return nil, fmt.Errorf("sites[%d]: figures that can't be", i)
		}
	}
	return c, nil
}

// What a CostPage may be about.
const (
	CostByTenant      = "tenant"
	CostByVirtualSite = "virtualsite"
	CostBySite        = "site"
)

// CostColumns are what a CostPage may be sorted by, beside CostByName: the columns of Use.
var CostColumns = []string{"series", "samples", "bytes", "pushes", "refused", "lines", "logBytes", "cpu", "memory"}

// CostByName sorts a CostPage by tenant and name, from A to Z. By a column the largest comes first.
const CostByName = "name"

// Column returns the figure of one of CostColumns.
func (u *Use) Column(name string) float64 {
	switch name {
	case "series":
		return float64(u.Series)
	case "samples":
		return u.SamplesPerSecond
	case "bytes":
		return u.WireBytesPerSecond
	case "pushes":
		return u.PushesPerSecond
	case "refused":
		return u.RefusedPerSecond
	case "lines":
		return u.LogLinesPerSecond
	case "logBytes":
		return u.LogBytesPerSecond
	case "cpu":
		return u.CPUCores
	case "memory":
		return u.MemoryBytes
	}
	return 0
}

// CostRow is a site, a virtual site or a tenant, and what it takes. A site has its Name, a
// virtual site its Namespace too, a tenant neither.
type CostRow struct {
	Tenant    string `json:"tenant"`
	Namespace string `json:"namespace,omitempty"` // as users type it
	Name      string `json:"name,omitempty"`
	// Sites that the row is about, and Regionals that know of them.
	Sites     int      `json:"sites"`
	Regionals []string `json:"regionals"`
	// SeriesLimit is what a tenant may have at all regionals that know it, 0: any number, and
	// MoreSites for how many more sites like its own that is enough; null: not known.
	SeriesLimit int64  `json:"seriesLimit,omitempty"`
	MoreSites   *int64 `json:"moreSites,omitempty"`
	Use         `json:"use"`
}

// CostPage is what sites, virtual sites or tenants take: one page of them.
type CostPage struct {
	AsOf   time.Time `json:"asOf"`
	By     string    `json:"by"`
	Window float64   `json:"windowSeconds"` // the shortest of the regionals'
	// Total counts the rows of all pages. Sum is what they take together, a site that is in
	// several virtual sites once.
	Total int       `json:"total"`
	Sum   Use       `json:"sum"`
	Rows  []CostRow `json:"rows"`
	// Regionals tells of each regional as a whole, to those who may see all tenants and ask
	// for all; else it is absent.
	Regionals []RegionalRoom `json:"regionals,omitempty"`
	// MissingRegions are the regionals without which all of it is: they did not answer.
	MissingRegions []MissingRegion `json:"missingRegions"`
	NextCursor     string          `json:"nextCursor,omitempty"`
}

// RegionalRoom is a regional in a CostPage.
type RegionalRoom struct {
	Name     string   `json:"name"`
	Region   string   `json:"region"`
	Headroom Headroom `json:"headroom"`
	Process  Use      `json:"process"`
}

// NameSeries is a metric and how many series have its name.
type NameSeries struct {
	Name   string `json:"name"`
	Series int64  `json:"series"`
}

// RegionalNames are the metrics with the most series of a tenant, or of one of its sites, in
// the head of a regional: the JSON of GET CostNamesPath.
type RegionalNames struct {
	Regional string       `json:"regional"`
	Tenant   string       `json:"tenant"`
	Site     string       `json:"site"`    // "": all of the tenant
	Series   int64        `json:"series"`  // of all names
	Sampled  bool         `json:"sampled"` // the counts are estimates: not every series was looked at
	Names    []NameSeries `json:"names"`   // the largest first
}

// DecodeRegionalNames reads what a regional says of a tenant and a site.
func DecodeRegionalNames(b []byte, regional, tenant, site string) (*RegionalNames, error) {
	n := &RegionalNames{}
	if err := json.Unmarshal(b, n); err != nil {
		return nil, fmt.Errorf("not the names of a regional: %w", err)
	}
	if n.Regional != regional || n.Tenant != tenant || n.Site != site {
		return nil, fmt.Errorf("the names are of regional %.80q, tenant %.80q and site %.80q", n.Regional, n.Tenant, n.Site)
	}
	if n.Series < 0 || n.Series >= maxFigure {
		return nil, errors.New("a number of series that can't be")
	}
	for i, x := range n.Names {
		if x.Series < 0 || x.Series >= maxFigure {
			return nil, fmt.Errorf("names[%d]: a number of series that can't be", i)
		}
	}
	return n, nil
}

// NamesPage are the metrics with the most series of a tenant or a site, over all regionals.
type NamesPage struct {
	AsOf    time.Time   `json:"asOf"`
	Tenant  string      `json:"tenant"`
	Site    string      `json:"site,omitempty"`
	Series  int64       `json:"series"`
	Sampled bool        `json:"sampled"`
	Names   []HeavyName `json:"names"`
	// MissingRegions did not answer.
	MissingRegions []MissingRegion `json:"missingRegions"`
}

// HeavyName is one of them. KeptBy are the fields of collection policies that let it leave the
// site, all that select the site or any of the tenant's: it is dropped by taking it out of
// each. None: it comes another way, as of a Prometheus that pushes by itself, or a rule.
type HeavyName struct {
	NameSeries
	KeptBy []PolicyField `json:"keptBy"`
}

// PolicyField is a field of a CollectionPolicy of the tenant.
type PolicyField struct {
	Policy string `json:"policy"`
	Field  string `json:"field"`           // such as spec.allow.patterns[2]
	Value  string `json:"value,omitempty"` // the pattern
}
