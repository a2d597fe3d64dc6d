package logs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"muster.dev/muster/internal/wire"
)

var errTooLarge = errors.New("the answer is too large")

// decodeAnswer reads and checks an answer of at most max bytes. What passes is safe to
// merge: of the right tenant, in order, within the limit.
func decodeAnswer(r io.Reader, max int64, tenant string, limit int) (*wire.RegionLogs, error) {
	b, err := io.ReadAll(io.LimitReader(r, max+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > max {
		return nil, errTooLarge
	}
	var a wire.RegionLogs
	if err := json.Unmarshal(b, &a); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	switch {
	case a.Hits == nil:
		return nil, errors.New("it has no hits field")
	case len(a.Hits) > limit:
		return nil, fmt.Errorf("%d hits, asked for %d", len(a.Hits), limit)
	case a.Total < 0 || a.Total > 1<<53:
		return nil, errors.New("the total makes no sense")
	case a.Next != "" && len(a.Hits) == 0:
		return nil, errors.New("a next page after an empty one")
	case len(a.MissingRegions) > 1000:
		return nil, errors.New("too many missing regions")
	}
	for i := range a.Hits {
		h := &a.Hits[i]
		if err := checkHit(h, tenant); err != nil {
			return nil, fmt.Errorf("hits[%d]: %w", i, err)
		}
		if h.Cursor == "" || len(h.Cursor) > maxPositionBytes {
			return nil, fmt.Errorf("hits[%d]: no usable cursor", i)
		}
		if i > 0 && h.Compare(&a.Hits[i-1]) >= 0 {
			return nil, fmt.Errorf("hits[%d]: out of order", i)
		}
	}
	if h := a.Histogram; h != nil {
		if h.StepSeconds < 1 || h.StepSeconds > 1e9 || len(h.Counts) > 2000 || badTime(h.Start) {
			return nil, errors.New("the histogram makes no sense")
		}
		for _, n := range h.Counts {
			if n < 0 || n > 1<<50 {
				return nil, errors.New("the histogram makes no sense")
			}
		}
	}
	for i, m := range a.MissingRegions {
		a.MissingRegions[i] = wire.MissingRegion{Region: clean(m.Region), Reason: clean(m.Reason)}
	}
	return &a, nil
}

func badTime(t time.Time) bool { y := t.UTC().Year(); return y < 1970 || y > 2261 }

func checkHit(h *wire.LogHit, tenant string) error {
	switch {
	case h.Tenant != tenant:
		return errors.New("of another tenant")
	case h.ID == "":
		return errors.New("without an id")
	case badTime(h.Timestamp):
		return errors.New("without a usable timestamp")
	}
	h.Timestamp = h.Timestamp.UTC()
	return nil
}

// decodeHits reads the hits of an event of a tail.
func decodeHits(data []byte, tenant string) ([]wire.LogHit, error) {
	var in wire.LogEvent
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	for i := range in.Hits {
		in.Hits[i].Cursor = "" // a search's
		if err := checkHit(&in.Hits[i], tenant); err != nil {
			return nil, fmt.Errorf("hits[%d]: %w", i, err)
		}
	}
	return in.Hits, nil
}
