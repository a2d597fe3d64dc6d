package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// CostPath is where a regional serves its RegionalCost, on its query listener.
const CostPath = "/api/v1/cost"

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
	Tenants  []TenantCost `json:"tenants"`
	Sites    []SiteCost   `json:"sites"`
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
	case !(c.Window >= 0 && c.Window < math.MaxInt32), !c.Process.valid():
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
	Use       `json:"use"`
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
	// MissingRegions are the regionals without which all of it is: they did not answer.
	MissingRegions []MissingRegion `json:"missingRegions"`
	NextCursor     string          `json:"nextCursor,omitempty"`
}
