package logs

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"
)

const (
	maxCursorBytes   = 16 << 10 // of ours
	maxPositionBytes = 2 << 10  // of one regional's
)

// pageCursor continues a search in all regions.
//
// A regional's cursor is a place in the order of records, good in every region, so that normally one
// is enough. A region that was missing on a page stays where it was: when it comes back, the
// next page has what it would have shown, though that is newer than what the page
// before ended with. So nothing is lost between pages; only the order over pages is.
type pageCursor struct {
	Search string            `json:"s"`           // fingerprint of the search that it belongs to
	From   int64             `json:"f,omitempty"` // Unix nanoseconds, so that "now-1h" stays what it was on the first page
	To     int64             `json:"t,omitempty"`
	At     string            `json:"p,omitempty"` // position; empty: the start
	Behind map[string]string `json:"b,omitempty"` // regions that are elsewhere
}

var errCursor = errors.New("is not a cursor of this search: start again without one")

// position of a region.
func (c *pageCursor) position(region string) string {
	if p, ok := c.Behind[region]; ok {
		return p
	}
	return c.At
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain data: can't fail
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeText(s string, out any) error {
	if len(s) > maxCursorBytes || strings.ContainsAny(s, "\r\n") { // which the decoder skips
		return errCursor
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || json.Unmarshal(b, out) != nil {
		return errCursor
	}
	return nil
}

// decodePage returns the cursor, and puts the request's time range to what it was on
// the first page. An empty text is the first page.
func decodePage(s string, r *request) (*pageCursor, error) {
	c := &pageCursor{Search: r.fingerprint}
	if s == "" {
		if !r.from.IsZero() {
			c.From = r.from.UnixNano()
		}
		if !r.to.IsZero() {
			c.To = r.to.UnixNano()
		}
		return c, nil
	}
	var in pageCursor
	if err := decodeText(s, &in); err != nil {
		return nil, err
	}
	if in.Search != r.fingerprint || in.From < 0 || in.To < 0 || (in.From == 0) != r.from.IsZero() || (in.To == 0) != r.to.IsZero() || len(in.At) > maxPositionBytes {
		return nil, errCursor
	}
	for _, p := range in.Behind {
		if len(p) > maxPositionBytes {
			return nil, errCursor
		}
	}
	if in.From != 0 {
		r.from = time.Unix(0, in.From).UTC()
	}
	if in.To != 0 {
		r.to = time.Unix(0, in.To).UTC()
	}
	return &in, nil
}

// next is the cursor of positions, by region: the commonest is the one for all.
func (c *pageCursor) next(positions map[string]string, order []string) string {
	count := map[string]int{}
	out := pageCursor{Search: c.Search, From: c.From, To: c.To}
	for i, region := range order {
		p := positions[region]
		if count[p]++; i == 0 || count[p] > count[out.At] {
			out.At = p
		}
	}
	for _, region := range order {
		if p := positions[region]; p != out.At {
			if out.Behind == nil {
				out.Behind = map[string]string{}
			}
			out.Behind[region] = p
		}
	}
	return encode(out)
}

// tailID is where a tail stands in each region that it has heard from.
type tailID map[string]string

// decodeTail reads the Last-Event-ID of a tail. An empty text starts now.
func decodeTail(s string) (tailID, error) {
	id := tailID{}
	if s == "" {
		return id, nil
	}
	if err := decodeText(s, &id); err != nil || id == nil {
		return nil, errCursor
	}
	for _, p := range id {
		if len(p) > maxPositionBytes {
			return nil, errCursor
		}
	}
	return id, nil
}
