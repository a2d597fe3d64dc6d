package collector

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
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
	SpoolFailing         = "SpoolFailing"
	SampleTimesRefused   = "SampleTimesRefused"
	SeriesBudgetFilling  = "SeriesBudgetFilling"
	SamplesDoubtful      = "SamplesDoubtful"
)

// Thresholds of conditions.
const (
	spoolHalf      = 0.5 // of the size or the age cap
	budgetFull     = 0.9 // of its places
	failingPushes  = 3   // in a row
	rememberLosses = 10 * time.Minute
	namedTargets   = 3
)

// Status is the state of a collector.
type Status struct {
	Version     string        `json:"version"`
	PolicyHash  string        `json:"policyHash"`
	PolicyError string        `json:"policyError,omitempty"`
	Interval    time.Duration `json:"intervalNanos"`
	Series      int           `json:"series"`
	Budget      int           `json:"seriesBudget"`
	Refused     int           `json:"seriesRefused"`
	// RefusedByName are the refused series by metric, the ones that the health policy
	// reads first, at most filter.RefusedNames metrics.
	RefusedByName map[string]int     `json:"seriesRefusedByName,omitempty"`
	Bad           []filter.Bad       `json:"doubtful,omitempty"` // within the last ten minutes
	Dropped       map[string]uint64  `json:"samplesDropped"`     // by reason
	Kept          uint64             `json:"samplesKept"`
	Lost          uint64             `json:"samplesLost"` // that the spool did not take
	LostError     string             `json:"lostError,omitempty"`
	PushDelay     time.Duration      `json:"pushDelayNanos"` // age of the newest acknowledged sample
	Spool         spool.Stats        `json:"spool"`
	Push          remotewrite.Status `json:"push"`
	Targets       []TargetStatus     `json:"targets"`

	lostAt     time.Time
	lostErr    error
	duplicates int
	reserved   int // refused series of metrics with reserved places
	maxAge     time.Duration
	ahead      uint64 // samples refused because they are of the future
	late       uint64 // samples refused because their series has a newer one
}

// holds is what the conditions remember of the past.
type holds struct {
	pushFailing, half, budget bool
	times                     uint64 // samples refused for their time, at the last look
	timesAt                   time.Time
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

// Metrics are the metrics that the targets have now and the policy allows, with the number
// of series of each by job.
func (c *Collector) Metrics() map[string]map[string]int { return c.table.Names() }

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
		RefusedByName: f.RefusedByName, reserved: f.RefusedReserved, Bad: c.table.Bad(time.Now().UnixMilli()),
	}
	for _, r := range filter.Reasons() {
		st.Dropped[r.String()] = f.Dropped[r]
	}
	st.ahead, st.late = valueOf(c.refused.ahead), valueOf(c.refused.late)
	st.Dropped["future"], st.Dropped["out_of_order"] = st.ahead, st.late
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
	st.Lost, st.lostAt, st.lostErr = c.lost, c.lostAt, c.lostErr
	if c.lostErr != nil {
		st.LostError = c.lostErr.Error()
	}
	return st
}

// caughtCounters registers what it is given and remembers two of the scrape package's
// counters, which it neither exports nor counts by target. (Gathering its registry
// would wait for the scrape manager, which may wait for a scrape of ourselves.)
type caughtCounters struct {
	prometheus.Registerer
	ahead, late prometheus.Counter
}

// Register implements prometheus.Registerer.
func (c *caughtCounters) Register(col prometheus.Collector) error {
	if counter, ok := col.(prometheus.Counter); ok {
		switch desc := counter.Desc().String(); {
		case strings.Contains(desc, `"prometheus_target_scrapes_sample_out_of_bounds_total"`):
			c.ahead = counter
		case strings.Contains(desc, `"prometheus_target_scrapes_sample_out_of_order_total"`):
			c.late = counter
		}
	}
	return c.Registerer.Register(col)
}

func valueOf(c prometheus.Counter) uint64 {
	var m dto.Metric
	if c == nil || c.Write(&m) != nil {
		return 0
	}
	return uint64(m.GetCounter().GetValue())
}

// Conditions returns what a person should know about the collector, always all
// types in the same order. Their messages hold no counts that grow: a condition that
// says the same is the same, and the numbers are in Status and in the metrics.
func (c *Collector) Conditions() []Condition {
	st, now := c.Status(), time.Now()
	c.mu.Lock()
	h := &c.held
	h.pushFailing = st.Push.ConsecutiveFailures >= failingPushes ||
		h.pushFailing && (st.Push.ConsecutiveFailures > 0 || now.Sub(st.Push.LastErrorTime) < c.opts.rememberFailures)
	half := spoolHalf
	if h.half {
		half -= 0.05
	}
	h.half = st.filled() > half
	full := budgetFull
	if h.budget {
		full -= 0.02
	}
	h.budget = float64(st.Series) > full*float64(st.Budget)
	if n := st.ahead + st.late; n > h.times {
		h.times, h.timesAt = n, now
	}
	held := *h
	c.mu.Unlock()
	return []Condition{st.policyApplied(), st.budgetExceeded(), st.budgetFilling(held.budget), st.spoolFilling(held.half), st.spoolFailing(now), st.pushFailing(held.pushFailing),
		st.scrapeFailing(), st.timesRefused(held.times > 0 && now.Sub(held.timesAt) < rememberLosses), st.doubtful()}
}

func (s Status) policyApplied() Condition {
	if s.PolicyError != "" {
		return Condition{PolicyApplied, "False", "Invalid", "the last good policy stays in effect: " + s.PolicyError}
	}
	return Condition{PolicyApplied, "True", "Applied", "policy " + s.PolicyHash[:12]}
}

func (s Status) budgetExceeded() Condition {
	if s.reserved > 0 {
		return Condition{SeriesBudgetExceeded, "True", "HealthSeriesRefused",
			fmt.Sprintf("what health reads is refused (%s): all %d places are taken; raise seriesBudget or narrow the allowlist", s.refusedNames(), s.Budget)}
	}
	if s.Refused > 0 {
		return Condition{SeriesBudgetExceeded, "True", "NewSeriesRefused",
			fmt.Sprintf("new series are refused: all %d places are taken; raise seriesBudget or narrow the allowlist", s.Budget)}
	}
	return Condition{SeriesBudgetExceeded, "False", "WithinBudget", fmt.Sprintf("the budget is %d series", s.Budget)}
}

// refusedNames are some of the refused metrics.
func (s Status) refusedNames() string {
	names := slices.Sorted(maps.Keys(s.RefusedByName))
	if len(names) > namedTargets {
		names = append(names[:namedTargets], "…")
	}
	return strings.Join(names, ", ")
}

// budgetFilling shows the end of the room while there is still some: what comes when
// something is wrong, or with a node more, needs places.
func (s Status) budgetFilling(filling bool) Condition {
	if filling {
		return Condition{SeriesBudgetFilling, "True", "NearlyFull",
			fmt.Sprintf("over nine tenths of %d places are taken; before a node or pods are added, raise seriesBudget or narrow the allowlist", s.Budget)}
	}
	return Condition{SeriesBudgetFilling, "False", "Room", fmt.Sprintf("the budget is %d series", s.Budget)}
}

// doubtful is about samples that can't be what their exporter means.
func (s Status) doubtful() Condition {
	if len(s.Bad) == 0 {
		return Condition{SamplesDoubtful, "False", "Plausible", ""}
	}
	var list []string
	for _, b := range s.Bad[:min(len(s.Bad), namedTargets)] {
		list = append(list, fmt.Sprintf("%s %s: %s: %s", b.Job, b.Instance, b.Metric, b.Problem))
	}
	if len(s.Bad) > namedTargets {
		list = append(list, "…")
	}
	return Condition{SamplesDoubtful, "True", "Garbage", "values that no exporter means: " + strings.Join(list, "; ")}
}

// filled is the part of the spool's cap, or of the room that the disk leaves it, that
// is in use.
func (s Status) filled() float64 {
	if s.Spool.MaxBytes <= 0 {
		return 0
	}
	return float64(s.Spool.Bytes) / float64(s.Spool.MaxBytes)
}

func (s Status) spoolFilling(half bool) Condition {
	switch {
	case half:
		return Condition{SpoolFilling, "True", "Size", fmt.Sprintf("more than half of %d bytes are in use; at the cap the oldest samples are dropped", s.Spool.MaxBytes)}
	case s.maxAge > 0 && s.Spool.OldestAge > time.Duration(spoolHalf*float64(s.maxAge)):
		return Condition{SpoolFilling, "True", "Age", fmt.Sprintf("the oldest samples wait for more than half of %s; after that they are dropped", s.maxAge)}
	}
	return Condition{SpoolFilling, "False", "Draining", ""}
}

// spoolFailing is about the disk below the spool.
func (s Status) spoolFailing(now time.Time) Condition {
	var errno syscall.Errno
	switch {
	case s.Spool.SyncFailing:
		return Condition{SpoolFailing, "True", "SyncFailed", "the disk does not keep what is written to it; replace it"}
	case s.Spool.DiskFull:
		return Condition{SpoolFailing, "True", "DiskFull", "the disk is full: the spool does not grow, and drops the oldest samples before their time; make room"}
	case s.Lost > 0 && now.Sub(s.lostAt) < rememberLosses:
		why := "see the log"
		if errors.As(s.lostErr, &errno) {
			why = errno.Error()
		}
		return Condition{SpoolFailing, "True", "WriteFailed", "samples were lost: the spool can't be written: " + why}
	}
	return Condition{SpoolFailing, "False", "Writing", ""}
}

func (s Status) pushFailing(failing bool) Condition {
	if failing {
		return Condition{PushFailing, "True", "Retrying", "pushes fail: " + s.Push.LastError}
	}
	return Condition{PushFailing, "False", "Pushing", ""}
}

func (s Status) timesRefused(lately bool) Condition {
	if lately {
		return Condition{SampleTimesRefused, "True", "WrongClock",
			"samples are dropped for their own timestamps: an exporter's clock is over 10 minutes ahead of this machine's, or goes back; right it, or set honor_timestamps: false for its job"}
	}
	return Condition{SampleTimesRefused, "False", "Taken", ""}
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
