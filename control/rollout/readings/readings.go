// Package readings gathers what gates read: scores and alerts of sites, the values of
// PromQL expressions and of log queries, and what webhooks say. It decides nothing, writes
// nothing and keeps nothing for longer than it is fresh: what can't be had now is missing
// from an answer, and decide takes what is missing to be unknown. control/rollout asks it
// for each rollout that is under way, control/rollout/gatecheck for each GateCheck.
package readings

import (
	"context"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/decide"
)

// Question is what one rollout's gates have to read now.
type Question struct {
	Tenant string
	// Namespace and Rollout (or GateCheck) that asks: where Secrets of webhooks are, and
	// what a webhook is told.
	Namespace, Rollout string
	// Gates in force: what each kind needs is asked for, and nothing else. None: what the
	// default gates need.
	Gates []v1alpha1.RolloutGate
	// Changed are the wave's sites, and Peers those that they are compared with. Measures,
	// colours and alerts are read for both, logs and webhooks are about Changed.
	Changed, Peers []string
	// Since is when the wave began; logs are counted from then on. Zero: the last hour.
	Since time.Time
}

// Answer is what could be read. It shares nothing with later answers.
type Answer struct {
	// Sites by name; one of which nothing is known is not in it.
	Sites map[string]Site
	// Outside readings by the gate's name, for decide.Input. A gate that could not be read
	// has one too, with verdict Unknown and the reason.
	Outside map[string]decide.Outside
}

// Site is what was read of a site, as decide.Site has it.
type Site struct {
	// Measures by name: dimensions as v1alpha1.HealthDimension names them, in points, and
	// for a gate with a query the gate's name, in the query's unit.
	Measures map[string]float64
	// Red: its colour.
	Red bool
	// Alerts that fire and are not silenced, SEVERITY/NAME, sorted.
	Alerts []string
	// AlertsKnown is false while the alert index can't be asked: then that none is listed
	// means nothing.
	AlertsKnown bool
	// At is when the oldest of it was true.
	At time.Time
}

// Reader is what the controllers need of *Readings; tests have others.
type Reader interface {
	Read(ctx context.Context, q Question) Answer
	Before(ctx context.Context, tenant string, sites []string, from, to time.Time) map[string]map[string]float64
}

// Readings reads the sources. Safe for concurrent use.
type Readings struct{}

// Read asks all sources that the gates need at the same time, and returns after
// Options.Timeout at the latest with what has come. It does not fail: what is missing is
// unknown.
func (r *Readings) Read(ctx context.Context, q Question) Answer { return Answer{} }

// Before returns, by site and measure, the mean of each dimension's score between two
// moments, from the history of scores; what is not known is missing.
func (r *Readings) Before(ctx context.Context, tenant string, sites []string, from, to time.Time) map[string]map[string]float64 {
	return nil
}
