package collector

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/scrape"

	"muster.dev/muster/collector/filter"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/spool"
)

// Condition is one statement about the site, in the form of Kubernetes'
// conditions. Status is "True" or "False".
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// The types of conditions. But for CollectionPolicyApplied, True is bad.
const (
	PolicyApplied        = "CollectionPolicyApplied"
	SeriesBudgetExceeded = "SeriesBudgetExceeded"
	SpoolFilling         = "SpoolFilling"
	PushFailing          = "PushFailing"
	ScrapeFailing        = "ScrapeFailing"
)

// Thresholds of conditions.
const (
	spoolHalf      = 0.5 // of the size or the age cap
	failingPushes  = 3   // in a row
	rememberLosses = 10 * time.Minute
	namedTargets   = 3
)

// Status is the state of a collector.
type Status struct {
	Version     string             `json:"version"`
	PolicyHash  string             `json:"policyHash"`
	PolicyError string             `json:"policyError,omitempty"`
	Interval    time.Duration      `json:"intervalNanos"`
	Series      int                `json:"series"`
	Budget      int                `json:"seriesBudget"`
	Refused     int                `json:"seriesRefused"`
	Dropped     map[string]uint64  `json:"samplesDropped"` // by reason
	Kept        uint64             `json:"samplesKept"`
	Lost        uint64             `json:"samplesLost"` // that the spool did not take
	LostError   string             `json:"lostError,omitempty"`
	PushDelay   time.Duration      `json:"pushDelayNanos"` // age of the newest acknowledged sample
	Spool       spool.Stats        `json:"spool"`
	Push        remotewrite.Status `json:"push"`
	Targets     []TargetStatus     `json:"targets"`

	lostAt     time.Time
	duplicates int
	maxAge     time.Duration
}

// TargetStatus is the state of one target.
type TargetStatus struct {
	Job          string        `json:"job"`
	URL          string        `json:"url"`
	Up           bool          `json:"up"`
	Error        string        `json:"error,omitempty"`
	LastScrape   time.Time     `json:"lastScrape"`
	LastDuration time.Duration `json:"lastDurationNanos"`
}

// Status returns the state now.
func (c *Collector) Status() Status {
	st := c.status()
	for job, targets := range c.scraper.TargetsActive() {
		for _, t := range targets {
			ts := TargetStatus{Job: job, URL: t.URL().String(), Up: t.Health() == scrape.HealthGood, LastScrape: t.LastScrape(), LastDuration: t.LastScrapeDuration()}
			if err := t.LastError(); err != nil {
				ts.Error = err.Error()
			}
			st.Targets = append(st.Targets, ts)
		}
	}
	slices.SortFunc(st.Targets, func(a, b TargetStatus) int {
		return strings.Compare(a.Job+" "+a.URL, b.Job+" "+b.URL)
	})
	return st
}

// status is Status without the targets.
func (c *Collector) status() Status {
	f := c.table.Stats()
	st := Status{
		Version: c.opts.Version, Series: f.Series, Budget: f.Budget, Refused: f.Refused, Kept: f.KeptSamples,
		Dropped: map[string]uint64{}, Spool: c.spool.Stats(), Push: c.sender.Status(), duplicates: f.Duplicates,
	}
	for _, r := range filter.Reasons() {
		st.Dropped[r.String()] = f.Dropped[r]
	}
	newest := c.started
	if ts := st.Push.HighestTimestamp; ts > 0 {
		newest = time.UnixMilli(ts)
	}
	st.PushDelay = max(0, time.Since(newest))
	c.mu.Lock()
	defer c.mu.Unlock()
	st.PolicyHash, st.Interval, st.maxAge = c.hash, c.policy.Interval, c.policy.SpoolMaxAge
	if c.policyErr != nil {
		st.PolicyError = c.policyErr.Error()
	}
	st.Lost, st.lostAt = c.lost, c.lostAt
	if c.lostErr != nil {
		st.LostError = c.lostErr.Error()
	}
	return st
}

// Conditions returns what a person should know about the collector, always all
// types in the same order.
func (c *Collector) Conditions() []Condition {
	st := c.Status()
	return []Condition{st.policyApplied(), st.budgetExceeded(), st.spoolFilling(time.Now()), st.pushFailing(), st.scrapeFailing()}
}

func (s Status) policyApplied() Condition {
	if s.PolicyError != "" {
		return Condition{PolicyApplied, "False", "Invalid", "the last good policy stays in effect: " + s.PolicyError}
	}
	return Condition{PolicyApplied, "True", "Applied", "policy " + s.PolicyHash[:12]}
}

func (s Status) budgetExceeded() Condition {
	if s.Refused > 0 {
		return Condition{SeriesBudgetExceeded, "True", "NewSeriesRefused",
			fmt.Sprintf("%d series are refused: all %d places are taken; raise seriesBudget or narrow the allowlist", s.Refused, s.Budget)}
	}
	return Condition{SeriesBudgetExceeded, "False", "WithinBudget", fmt.Sprintf("%d of %d series", s.Series, s.Budget)}
}

func (s Status) spoolFilling(now time.Time) Condition {
	full := 0.0
	if s.Spool.MaxBytes > 0 {
		full = float64(s.Spool.Bytes) / float64(s.Spool.MaxBytes)
	}
	switch {
	case s.Lost > 0 && now.Sub(s.lostAt) < rememberLosses:
		return Condition{SpoolFilling, "True", "WriteFailed", fmt.Sprintf("%d samples are lost: %s", s.Lost, s.LostError)}
	case full > spoolHalf:
		return Condition{SpoolFilling, "True", "Size", fmt.Sprintf("%.0f %% of %d bytes are in use; at the cap the oldest samples are dropped", 100*full, s.Spool.MaxBytes)}
	case s.maxAge > 0 && s.Spool.OldestAge > time.Duration(spoolHalf*float64(s.maxAge)):
		return Condition{SpoolFilling, "True", "Age", fmt.Sprintf("the oldest samples wait for %s; after %s they are dropped", s.Spool.OldestAge.Round(time.Second), s.maxAge)}
	}
	return Condition{SpoolFilling, "False", "Draining", fmt.Sprintf("%d batches, %d bytes", s.Spool.Pending, s.Spool.Bytes)}
}

func (s Status) pushFailing() Condition {
	if s.Push.ConsecutiveFailures >= failingPushes {
		return Condition{PushFailing, "True", "Retrying", fmt.Sprintf("%d pushes failed in a row: %s", s.Push.ConsecutiveFailures, s.Push.LastError)}
	}
	return Condition{PushFailing, "False", "Pushing", ""}
}

func (s Status) scrapeFailing() Condition {
	var names []string
	down := 0
	for _, t := range s.Targets {
		if t.Up || t.LastScrape.IsZero() {
			continue
		}
		if down++; len(names) < namedTargets {
			names = append(names, fmt.Sprintf("%s %s: %s", t.Job, t.URL, t.Error))
		}
	}
	if down > 0 {
		return Condition{ScrapeFailing, "True", "TargetsDown", fmt.Sprintf("%d of %d targets: %s", down, len(s.Targets), strings.Join(names, "; "))}
	}
	return Condition{ScrapeFailing, "False", "AllUp", fmt.Sprintf("%d targets", len(s.Targets))}
}
