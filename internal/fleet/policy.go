package fleet

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// CollectionPolicy is the effective policy of one site: what control renders into
// a blob, and what the collector applies. It is applied in the order of its
// fields: allow, drop labels, aggregate, budget.
type CollectionPolicy struct {
	// AllowNames are exact metric names, AllowPatterns RE2 anchored at both ends.
	// Nothing else leaves the site.
	AllowNames    []string `json:"allowNames,omitempty"`
	AllowPatterns []string `json:"allowPatterns,omitempty"`
	// DropSeries are series of allowed metrics that stay on the site all the same.
	DropSeries []SeriesDrop `json:"dropSeries,omitempty"`
	// Reserve names the metrics that the site's HealthPolicy reads: while the budget is
	// used up their series take the places of others, the youngest first.
	Reserve []string `json:"reserve,omitempty"`
	// Reads says for what they are read, so that a site can tell what its health lacks.
	Reads []HealthRead `json:"reads,omitempty"`
	// DropLabels are taken off every series.
	DropLabels []string `json:"dropLabels,omitempty"`
	// Aggregations: metric name → sum, max, min or count.
	Aggregations map[string]string `json:"aggregations,omitempty"`
	// SeriesBudget is the largest number of series that leave the site.
	SeriesBudget int `json:"seriesBudget"`
	// Interval between scrapes.
	Interval time.Duration `json:"intervalNanos"`
	// SpoolMaxBytes and SpoolMaxAge bound the buffer on the site's disk.
	SpoolMaxBytes int64         `json:"spoolMaxBytes"`
	SpoolMaxAge   time.Duration `json:"spoolMaxAgeNanos"`
}

// HealthRead are the metrics that one dimension of a site's health reads.
type HealthRead struct {
	Dimension Dimension `json:"dimension"`
	// Pack, if set, is what a site need not have: the metrics count where one of those that
	// show it is found.
	Pack    string   `json:"pack,omitempty"`
	Metrics []string `json:"metrics"`
}

// SeriesDrop selects series by a label. All three are RE2 or names as their comments say.
type SeriesDrop struct {
	Metric string `json:"metric"` // RE2, anchored at both ends
	Label  string `json:"label"`  // name of a label
	Values string `json:"values"` // RE2, anchored at both ends
}

// Defaults of a CollectionPolicy that sets nothing.
const (
	DefaultSeriesBudget  = 2000
	DefaultInterval      = 15 * time.Second
	DefaultSpoolMaxBytes = 512 << 20
	DefaultSpoolMaxAge   = 48 * time.Hour
)

// KindCollectionPolicy is the wire.Item kind of a CollectionPolicy blob.
const KindCollectionPolicy = "CollectionPolicy"

// Encode returns the policy's one canonical form: equal policies are equal bytes,
// so that the digest of the blob is the policy's hash.
func (p CollectionPolicy) Encode() []byte {
	p.DropSeries = slices.Compact(slices.SortedFunc(slices.Values(p.DropSeries), func(a, b SeriesDrop) int {
		return cmp.Or(strings.Compare(a.Metric, b.Metric), strings.Compare(a.Label, b.Label), strings.Compare(a.Values, b.Values))
	}))
	for _, l := range []*[]string{&p.AllowNames, &p.AllowPatterns, &p.DropLabels, &p.Reserve} {
		*l = slices.Compact(slices.Sorted(slices.Values(*l)))
	}
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings, numbers and a map of strings always marshal
	}
	return b
}

// DecodeCollectionPolicy parses and validates what Encode wrote. Unknown fields
// are ignored: a newer control may know more than this site.
func DecodeCollectionPolicy(b []byte) (CollectionPolicy, error) {
	var p CollectionPolicy
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&p); err != nil {
		return p, fmt.Errorf("collection policy: %w", err)
	}
	return p, p.Validate()
}

// Validate names the first field that can't be applied.
func (p CollectionPolicy) Validate() error {
	for _, pat := range p.AllowPatterns {
		if _, err := regexp.Compile("^(?:" + pat + ")$"); err != nil {
			return fmt.Errorf("allow.patterns: %q: %w", pat, err)
		}
	}
	for _, d := range p.DropSeries {
		for _, re := range []string{d.Metric, d.Values} {
			if _, err := regexp.Compile("^(?:" + re + ")$"); err != nil {
				return fmt.Errorf("dropSeries: %q: %w", re, err)
			}
		}
		if d.Label == "" {
			return fmt.Errorf("dropSeries: %s: label: name one", d.Metric)
		}
	}
	for _, l := range p.DropLabels {
		if l == "__name__" || slices.Contains(StampedLabels, l) {
			return fmt.Errorf("dropLabels: %q identifies a series and can't be dropped; remove it from the list", l)
		}
	}
	for m, op := range p.Aggregations {
		if !slices.Contains([]string{"sum", "max", "min", "count"}, op) {
			return fmt.Errorf("aggregations: %s: op %q: want sum, max, min or count", m, op)
		}
	}
	if p.SeriesBudget < 1 {
		return fmt.Errorf("seriesBudget: %d: want at least 1", p.SeriesBudget)
	}
	if p.Interval < time.Second || p.Interval > 10*time.Minute {
		return fmt.Errorf("interval: %s: want 1s to 10m", p.Interval)
	}
	if p.SpoolMaxBytes < 1<<20 {
		return fmt.Errorf("spool.maxBytes: %d: want at least 1 MiB", p.SpoolMaxBytes)
	}
	if p.SpoolMaxAge < time.Minute {
		return fmt.Errorf("spool.maxAge: %s: want at least 1m", p.SpoolMaxAge)
	}
	return nil
}
