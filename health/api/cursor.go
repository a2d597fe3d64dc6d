package api

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math"
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

const maxCursor = 1024

var errCursor = errors.New("cursor: it is none of this list; begin without one")

func (a *position) encode() string {
	b, err := json.Marshal(a)
	if err != nil {
		panic(err) // strings and finite numbers always marshal
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeCursor(s, sort string) (*position, error) {
	if s == "" {
		return nil, nil
	}
	if len(s) > maxCursor {
		return nil, errCursor
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return nil, errCursor
	}
	var p position
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return nil, errCursor
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errCursor
	}
	if p.Sort != sort || math.IsNaN(p.Score) || math.IsInf(p.Score, 0) || p.Name == "" {
		return nil, errCursor
	}
	return &p, nil
}
