package api

import (
	"cmp"
	"errors"
	"math"

	"muster.dev/muster/internal/wire"
)

// position is where a page ended: the sort key of its last element. The next page
// begins behind it, wherever scores have moved meanwhile, so a cursor never goes
// stale; in the order by score an element that moved over it may be seen twice or
// not at all, in the order by name never.
type position struct {
	Sort    string  `json:"s"`
	Unknown bool    `json:"u,omitempty"` // after all that have a score
	Score   float64 `json:"v,omitempty"`
	Name    string  `json:"n"`
	Tenant  string  `json:"t"`
	Space   string  `json:"ns,omitempty"` // a virtual site's namespace
}

func (a *position) compare(b *position) int {
	if a.Unknown != b.Unknown {
		if a.Unknown {
			return 1
		}
		return -1
	}
	return cmp.Or(cmp.Compare(a.Score, b.Score), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Space, b.Space))
}

var errCursor = errors.New("cursor: it is none of this list; begin without one")

func (a *position) encode() string { return wire.EncodeCursor(a) }

func decodeCursor(s, sort string) (*position, error) {
	if s == "" {
		return nil, nil
	}
	var p position
	if wire.DecodeCursor(s, &p) != nil || p.Sort != sort || math.IsNaN(p.Score) || math.IsInf(p.Score, 0) || p.Name == "" {
		return nil, errCursor
	}
	return &p, nil
}
