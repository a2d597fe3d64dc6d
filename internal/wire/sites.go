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
