package wire

import "time"

// LinksPath is where the health role and the console have the links between sites and
// regionals: a LinkPage.
const LinksPath = "/api/v1/links"

// Bounds of a LinkPage.
const (
	DefaultLinks  = 50
	MaxLinks      = 1000
	MaxLinkGroups = 12 // of one regional
)

// LinkPage are links, the worst first unless another order was asked for.
type LinkPage struct {
	AsOf time.Time `json:"asOf"`
	// Readable are all sites that the user may read, Total those that the query means, of
	// all pages; Counts are theirs, by the colour of their connectivity.
	Readable int            `json:"readable"`
	Total    int            `json:"total"`
	Counts   map[string]int `json:"counts"`
	// By is the column that groups are of.
	By         string         `json:"by"`
	Regionals  []LinkRegional `json:"regionals"`
	Links      []Link         `json:"links"`
	NextCursor string         `json:"nextCursor,omitempty"`
	// Notes say what is missing in the answer, and why.
	Notes []string `json:"notes"`
}

// Link is one between a site and the regional that it is or was last connected to. Figures
// are null where they are not known.
type Link struct {
	Tenant   string    `json:"tenant"`
	Site     string    `json:"site"`
	Regional string    `json:"regional"` // "": it never was
	Region   string    `json:"region"`
	Phase    string    `json:"phase"`
	LastSeen time.Time `json:"lastSeen,omitzero"`
	// Colour and Connectivity are those of the dimension; Reason is the first in it.
	Colour       string   `json:"colour"`
	Connectivity *float64 `json:"connectivity"`
	Reason       string   `json:"reason"`
	// Window is what rates are over, in seconds: four scrapes of the site, 2 minutes at least.
	Window     int      `json:"window"`
	RoundTrip  *float64 `json:"roundTrip"`  // ms
	Loss       *float64 `json:"loss"`       // percent of the segments that were sent, over the window and 5 min at least
	Sent       *float64 `json:"sent"`       // bytes a second
	Received   *float64 `json:"received"`   // bytes a second
	Handshake  *float64 `json:"handshake"`  // ms
	Reconnects *float64 `json:"reconnects"` // in an hour
	Requests   *float64 `json:"requests"`   // a minute
	Errors     *float64 `json:"errors"`     // percent of the requests, over the same
}

// LinkRegional are the links of one regional.
type LinkRegional struct {
	Name string `json:"name"` // "": sites that never were connected
	LinkSummary
	// Groups are those with the worst links, and then the largest; More is what is not
	// among them, null when all are.
	Groups []LinkGroup  `json:"groups"`
	More   *LinkSummary `json:"more"`
}

// LinkGroup are a regional's sites with the same value.
type LinkGroup struct {
	Value string `json:"value"` // "": they have none
	LinkSummary
}

// LinkSummary is of several links. Medians and sums are of what is known, null where
// nothing is.
type LinkSummary struct {
	Query  string         `json:"query"` // that means their sites, to be added to the one that was asked for; "": there is none
	Sites  int            `json:"sites"`
	Counts map[string]int `json:"counts"` // by the colour of their connectivity
	// Worst is the lowest connectivity.
	Worst     *float64 `json:"worst"`
	RoundTrip *float64 `json:"roundTrip"` // median, ms
	Loss      *float64 `json:"loss"`      // median, percent
	Sent      *float64 `json:"sent"`      // together, bytes a second
	Received  *float64 `json:"received"`  // together, bytes a second
	// Reconnects in an hour, together.
	Reconnects *float64 `json:"reconnects"`
}
