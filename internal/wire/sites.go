package wire

import "time"

// Where the health role and the console have the inventory as a table: a SitePage, and
// the SiteFields that it can be asked by.
const (
	SitesPath      = "/api/v1/sites"
	SiteFieldsPath = "/api/v1/site-fields"
)

// Bounds of what GET SitesPath is asked for. A limit of 0 asks for counts alone.
const (
	DefaultSites   = 100
	MaxSites       = 10_000
	MaxSiteColumns = 50
)

// SitePage is a page of the inventory.
type SitePage struct {
	AsOf    time.Time `json:"asOf"`
	Columns []string  `json:"columns"`
	// Readable are all sites that the user may read, Total those that the query means, of
	// all pages; Counts are theirs.
	Readable int            `json:"readable"`
	Total    int            `json:"total"`
	Counts   map[string]int `json:"counts"` // by colour
	// Groups are in it when it was asked for, of all pages.
	Groups     []SiteGroup `json:"groups,omitempty"`
	Sites      []SiteRow   `json:"sites"`
	NextCursor string      `json:"nextCursor,omitempty"`
	// Notes say what is missing in the answer, and why.
	Notes []string `json:"notes"`
}

// SiteRow is one site: tenant, name, and its value in each column, by the column's name.
type SiteRow map[string]any

// SiteGroup are the sites that have the same value.
type SiteGroup struct {
	Value  string         `json:"value"` // "": they have none
	Query  string         `json:"query"` // that means them
	Sites  int            `json:"sites"`
	Counts map[string]int `json:"counts"`
	Mean   *float64       `json:"mean"` // of the scores that are known; null: none is
	Worst  *float64       `json:"worst"`
}

// SiteFields are what sites can be asked for by, shown and sorted.
type SiteFields struct {
	Fields []SiteField `json:"fields"`
	// Labels and Versions are the keys that the user's sites have.
	Labels   []SiteKey `json:"labels"`
	Versions []SiteKey `json:"versions"`
	// Measured are the signals of the user's health policies: the keys of measured.
	Measured []string `json:"measured"`
}

// SiteField is one field of the query language.
type SiteField struct {
	Name    string   `json:"name"`
	Aliases []string `json:"aliases"`
	Kind    string   `json:"kind"`   // text, choice, list, number, time, version or flag
	Values  []string `json:"values"` // of a choice
	Keyed   bool     `json:"keyed"`  // it has a key behind a dot
	Grouped bool     `json:"grouped"`
	Doc     string   `json:"doc"`
	Example string   `json:"example"`
}

// SiteKey is a key, and the values that most sites have, the commonest first.
type SiteKey struct {
	Key    string   `json:"key"`
	Values []string `json:"values"`
	More   int      `json:"more"` // values that are not listed
}

// Where the health role and the console have what a map draws of the sites that a query
// means (a SiteMap), and how a number spreads over them (SiteDistributions).
const (
	SiteMapPath           = "/api/v1/site-map"
	SiteDistributionsPath = "/api/v1/site-distributions"
)

// Bounds of what these are asked for.
const (
	MaxMapCategories    = 12
	MaxSiteDistribution = 10 // columns of one answer
)

// SiteMap has the sites of a query that have a place, one after the other in each list, so
// that ten thousand take some hundred kilobytes. The lists are as long as Names.
type SiteMap struct {
	AsOf time.Time `json:"asOf"`
	// Readable are all sites that the user may read, Total those that the query means, with
	// a place or without; Counts are theirs, Unplaced those without.
	Readable    int            `json:"readable"`
	Total       int            `json:"total"`
	Unplaced    int            `json:"unplaced"`
	Maintenance int            `json:"maintenance"` // of Total
	Counts      map[string]int `json:"counts"`      // by colour
	Tenants     []string       `json:"tenants"`
	// Tenant is a position in Tenants. Colour has one letter a site: g, o, r, or x for grey.
	// Latitude and Longitude are degrees with four digits, which is ten metres.
	Names     []string  `json:"names"`
	Tenant    []int     `json:"tenant"`
	Latitude  []float64 `json:"latitude"`
	Longitude []float64 `json:"longitude"`
	Colour    string    `json:"colour"`
	Score     []*int    `json:"score"` // null: not known
	// InMaintenance are positions in Names.
	InMaintenance []int `json:"inMaintenance"`
	// By is the column that was asked for, "" if none was. Of a number Values has what the
	// sites have, null where it is not known; of anything else Category is the position in
	// Categories, the commonest first, or -1 for what is not among these.
	By         string     `json:"by"`
	Kind       string     `json:"kind"` // as in SiteField
	Values     []*float64 `json:"values,omitempty"`
	Categories []string   `json:"categories,omitempty"` // "": they have none
	Category   []int      `json:"category,omitempty"`
	Notes      []string   `json:"notes"`
}

// SiteDistributions tell how numbers spread over the sites that a query means.
type SiteDistributions struct {
	AsOf          time.Time          `json:"asOf"`
	Readable      int                `json:"readable"`
	Total         int                `json:"total"`
	Distributions []SiteDistribution `json:"distributions"`
	Notes         []string           `json:"notes"`
}

// SiteDistribution is that of one column, in the column's unit. Its figures are those of
// the sites where it is known; null where it is known of none. Quantiles are values that a
// site has (nearest rank).
type SiteDistribution struct {
	Column  string   `json:"column"`
	Known   int      `json:"known"`
	Unknown int      `json:"unknown"`
	Mean    *float64 `json:"mean"`
	Least   *float64 `json:"least"`
	P10     *float64 `json:"p10"`
	Median  *float64 `json:"median"`
	P90     *float64 `json:"p90"`
	Most    *float64 `json:"most"`
	Bins    []Bin    `json:"bins"`
}

// Bin are the sites from a value, up to but without another; of the last one with it.
type Bin struct {
	From  float64 `json:"from"`
	To    float64 `json:"to"`
	Sites int     `json:"sites"`
	Query string  `json:"query"` // that means them, to be added to the one that was asked for
}
