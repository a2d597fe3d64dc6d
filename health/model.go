// Package health is the health model: it turns readings of a site's signals into
// scores, colours and ranked reasons, and scores of sites into those of virtual
// sites.
//
// It is pure: no I/O, no goroutines, no clock; equal inputs give equal outputs.
// health/engine feeds it and health/api serves what it says. The formulas are
// those of DESIGN section 7; where that leaves a case open, the rule is written
// at the function that decides it.
package health

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// What a model has unless its policy says otherwise.
const (
	// DefaultEvaluations is how many evaluations in a row must disagree with a site's
	// colour before it gets worse, DefaultRecovery before it gets better.
	DefaultEvaluations = 2
	DefaultRecovery    = 4
	// DefaultWorstShare is the part of a site's score that follows its worst dimension
	// alone.
	DefaultWorstShare = 0.5
)

const (
	// holdFor is how long a signal keeps its value when an answer lacks the site: an
	// exporter that restarts, or a scrape that failed, is no loss of sight.
	holdFor = 2 * time.Minute
	// forgetAfter is how long after it was found last a pack is still missed.
	forgetAfter = 24 * time.Hour
	// unknownCap is the most that a site can have of which something is unknown that it
	// should have: orange.
	unknownCap = 75.0
	// absurd is a size that no reading has.
	absurd = 1e30
	// causeBelow is the score below which a signal counts as the cause of others.
	causeBelow = 0.75
)

// Signals that a model knows by name.
const (
	// SignalUplink is the one signal that every model has: whether the site holds a stream
	// to a regional or has its pushes acknowledged. Its value is 1 or 0 and comes from the
	// gateways' live view; its query is asked only about sites whose regional can't be
	// reached. A policy may set its weight and texts by naming a signal so.
	SignalUplink = "uplink"
	// SignalFlapping counts the connections that the site lost in ten minutes. Its value
	// comes from the live view as well; a policy must name it to have it.
	SignalFlapping = "uplink-flapping"
	// SignalBudget is how many series that the policy reads the site's collector refused.
	// While it is above 0, good values of sparse signals are no proof.
	SignalBudget = "health-series-refused"
)

// UplinkQuery is the query of the uplink signal of a policy that has none. A value
// older than a minute is no answer: the gateway writes one every 15 s.
const UplinkQuery = `max by (tenant, site) (muster_site_connected and (time() - timestamp(muster_site_connected) < 60))`

// NoCap is the Cap of a signal that loses points and no more.
const NoCap = 100.0

// Signal is one signal of a model.
type Signal struct {
	Name      string
	Dimension fleet.Dimension
	Query     string
	// Good and Bad bound the scale: 1 at or better than Good, 0 at or worse than
	// Bad, linear between. Good may lie above or below Bad.
	Good, Bad float64
	// Weight within the dimension. 0: shown, but without a part in the average.
	Weight float64
	// Cap is the most that dimension and site can have while the score is 0, NoCap for
	// none. A signal with a cap of at most fleet.CriticalCap is critical.
	Cap float64
	// Pack that it belongs to, a name of Options.Packs; "": none.
	Pack string
	// Causes are the signals that fall as a consequence.
	Causes []string
	// Objects is the query for what is to blame; "": none.
	Objects string
	// Min and Max bound what the value can be; nil: any.
	Min, Max *float64
	// Sparse: its series exist only while something is wrong.
	Sparse bool
	Unit   string
	Text   string
	Source string

	dim  int
	pack int // index in Packs, -1 if none

	lowest, highest float64 // see Well
}

// Pack is a set of signals that apply where its query finds something.
type Pack struct{ Name, Query string }

// Critical says whether the signal alone makes a site red.
func (s *Signal) Critical() bool { return s.Cap <= fleet.CriticalCap }

// Score is the signal's score in [0, 1] for a finite value.
func (s *Signal) Score(value float64) float64 {
	// Halved first, so that the difference of two huge numbers stays finite.
	x := (value/2 - s.Bad/2) / (s.Good/2 - s.Bad/2)
	return min(1, max(0, x))
}

// Well says that a value scores 1 and is one that the signal can have. It is cheaper than
// Score, and of most readings it is true.
func (s *Signal) Well(value float64) bool { return value >= s.lowest && value <= s.highest }

// bound finds the values that are well.
func (s *Signal) bound() {
	s.lowest, s.highest = -absurd, absurd
	if s.Good > s.Bad {
		s.lowest = s.Good
	} else {
		s.highest = s.Good
	}
	if s.Min != nil {
		s.lowest = max(s.lowest, *s.Min)
	}
	if s.Max != nil {
		s.highest = min(s.highest, *s.Max)
	}
}

// CapAt is the most that dimension and site can have at a score of the signal: none at
// half, all of Cap at 0, linear between.
func (s *Signal) CapAt(score float64) float64 {
	if score >= 0.5 {
		return NoCap
	}
	return s.Cap + (NoCap-s.Cap)*2*score
}

// Options of a Model.
type Options struct {
	// Weights of the dimensions, in the order of fleet.Dimensions.
	Weights [4]float64
	// WorstShare of the site's score follows the worst dimension; 0 to 1.
	WorstShare float64
	// Evaluations and Recovery: 0 means the default.
	Evaluations, Recovery int
	Packs                 []Pack
	Signals               []Signal
}

// Model is how the health of some sites is computed. It does not change once
// made; a Model may be used by any number of goroutines.
type Model struct {
	Options

	uplink, flapping, budget int // indexes of signals, -1 if there is none
	lanes                    []lane
	index                    map[string]int
	causes                   [][]int // of each signal, the signals that cause it
}

// lane is what of a signal is needed while it is well: little, so that all of a model stay in
// the processor's cache.
type lane struct {
	lowest, highest float64 // see Signal.Well
	weight          float64
	dim, pack       int16
	link            bool // its value is no reading
}

// Well says of the signal at a position in Signals what Signal.Well does.
func (m *Model) Well(signal int, value float64) bool {
	l := &m.lanes[signal]
	return value >= l.lowest && value <= l.highest
}

func dimensionIndex(d fleet.Dimension) int {
	for i, x := range fleet.Dimensions {
		if x == d {
			return i
		}
	}
	return -1
}

// NewModel checks the parts of a model and adds the uplink signal if it is missing.
func NewModel(o Options) (*Model, error) {
	m := &Model{Options: o, uplink: -1, flapping: -1, budget: -1, index: make(map[string]int, len(o.Signals)+1)}
	m.Evaluations, m.Recovery = cmp.Or(o.Evaluations, DefaultEvaluations), cmp.Or(o.Recovery, DefaultRecovery)
	switch {
	case m.Evaluations < 1:
		return nil, fmt.Errorf("evaluations: %d: want at least 1", m.Evaluations)
	case m.Recovery < 1:
		return nil, fmt.Errorf("recoveryEvaluations: %d: want at least 1", m.Recovery)
	case !finite(o.WorstShare) || o.WorstShare < 0 || o.WorstShare > 1:
		return nil, fmt.Errorf("worstShare: %v: want 0 to 1", o.WorstShare)
	}
	for i, w := range o.Weights {
		if !finite(w) || w < 0 {
			return nil, fmt.Errorf("weights.%s: %v: want 0 or more", fleet.Dimensions[i], w)
		}
	}
	m.Signals = append(make([]Signal, 0, len(o.Signals)+1), o.Signals...)
	if !slices.ContainsFunc(m.Signals, func(s Signal) bool { return s.Name == SignalUplink }) {
		m.Signals = append(m.Signals, Signal{
			Name: SignalUplink, Dimension: fleet.Connectivity, Query: UplinkQuery, Good: 1, Bad: 0, Weight: 1, Cap: fleet.CriticalCap,
			Text: "offline: no connection to a regional", Source: "regional gateway",
		})
	}
	weighed := [4]float64{}
	for i := range m.Signals {
		if err := m.add(i); err != nil {
			return nil, err
		}
		weighed[m.Signals[i].dim] += m.Signals[i].Weight
	}
	if err := m.linkCauses(); err != nil {
		return nil, err
	}
	m.lanes = make([]lane, len(m.Signals))
	for i := range m.Signals {
		s := &m.Signals[i]
		m.lanes[i] = lane{s.lowest, s.highest, s.Weight, int16(s.dim), int16(s.pack), i == m.uplink || i == m.flapping}
	}
	used := 0.0
	for d, w := range m.Weights {
		if weighed[d] > 0 {
			used += w
		}
	}
	if used == 0 {
		return nil, errors.New("weights: all dimensions that have signals weigh 0; give one of them a weight")
	}
	return m, nil
}

func (m *Model) add(i int) error {
	s := &m.Signals[i]
	s.dim = dimensionIndex(s.Dimension)
	s.bound()
	s.pack = slices.IndexFunc(m.Packs, func(p Pack) bool { return p.Name == s.Pack })
	switch s.Name {
	case SignalUplink:
		m.uplink = i
		s.Cap = min(s.Cap, fleet.CriticalCap) // whatever the policy says
	case SignalFlapping:
		m.flapping = i
	case SignalBudget:
		m.budget = i
	}
	switch {
	case s.Name == "":
		return fmt.Errorf("signals[%d].name: must not be empty", i)
	case s.dim < 0:
		return fmt.Errorf("signal %s: dimension %q: want connectivity, reliability, security or performance", s.Name, s.Dimension)
	case !finite(s.Good) || !finite(s.Bad) || s.Good == s.Bad:
		return fmt.Errorf("signal %s: good %v and bad %v: want two different numbers", s.Name, s.Good, s.Bad)
	case !finite(s.Weight) || s.Weight < 0 || s.Weight > 1e6:
		return fmt.Errorf("signal %s: weight %v: want 0 to 1000000", s.Name, s.Weight)
	case !finite(s.Cap) || s.Cap < 0 || s.Cap > NoCap:
		return fmt.Errorf("signal %s: cap %v: want 0 to 100", s.Name, s.Cap)
	case s.Pack != "" && s.pack < 0:
		return fmt.Errorf("signal %s: pack %q is not among spec.packs", s.Name, s.Pack)
	case i == m.uplink && (s.Dimension != fleet.Connectivity || s.Good != 1 || s.Bad != 0):
		return fmt.Errorf("signal %s: it belongs to connectivity, with good 1 and bad 0; give another signal another name", s.Name)
	}
	if _, dup := m.index[s.Name]; dup {
		return fmt.Errorf("signal %s: named twice", s.Name)
	}
	m.index[s.Name] = i
	return nil
}

// linkCauses turns the names of consequences into the causes of each signal.
func (m *Model) linkCauses() error {
	m.causes = make([][]int, len(m.Signals))
	for i := range m.Signals {
		for _, name := range m.Signals[i].Causes {
			j, ok := m.index[name]
			if !ok || j == i {
				return fmt.Errorf("signal %s: causes: %q: want the name of another signal", m.Signals[i].Name, name)
			}
			m.causes[j] = append(m.causes[j], i)
		}
	}
	return nil
}

// Uplink is the index of the uplink signal in Signals.
func (m *Model) Uplink() int { return m.uplink }

// Index returns where the named signal is in Signals.
func (m *Model) Index(name string) (int, bool) {
	i, ok := m.index[name]
	return i, ok
}

// FromPolicy makes the model that a HealthPolicy describes, without its overrides.
func FromPolicy(spec *v1alpha1.HealthPolicySpec) (*Model, error) {
	o := Options{Weights: [4]float64{1, 1, 1, 1}, WorstShare: number64(spec.WorstShare, DefaultWorstShare), Evaluations: int(spec.Evaluations), Recovery: int(spec.RecoveryEvaluations)}
	w := &spec.Weights
	for i, q := range [4]*resource.Quantity{w.Connectivity, w.Reliability, w.Security, w.Performance} {
		o.Weights[i] = number64(q, 1)
	}
	for _, p := range spec.Packs {
		o.Packs = append(o.Packs, Pack{Name: p.Name, Query: p.When})
	}
	o.Signals = make([]Signal, len(spec.Signals))
	for i := range spec.Signals {
		in := &spec.Signals[i]
		o.Signals[i] = Signal{
			Name: in.Name, Dimension: in.Dimension, Query: in.Query, Good: in.Good.AsApproximateFloat64(), Bad: in.Bad.AsApproximateFloat64(),
			Weight: number64(in.Weight, 1), Cap: NoCap, Unit: in.Unit, Text: in.Text, Source: in.Source,
			Pack: in.Pack, Causes: in.Causes, Objects: in.Objects, Sparse: in.Sparse, Min: bound(in.Min), Max: bound(in.Max),
		}
		if in.Critical {
			o.Signals[i].Cap = fleet.CriticalCap
		}
		if in.Cap != nil {
			o.Signals[i].Cap = float64(*in.Cap)
		}
	}
	return NewModel(o)
}

func number64(q *resource.Quantity, unset float64) float64 {
	if q == nil {
		return unset
	}
	return q.AsApproximateFloat64()
}

func bound(q *resource.Quantity) *float64 {
	if q == nil {
		return nil
	}
	v := q.AsApproximateFloat64()
	return &v
}

// Change is what an override sets of one signal.
type Change struct {
	Good, Bad *float64
	Ignore    bool
}

// With returns the model with some signals changed, by name. The queries stay the same,
// so the answers to the one serve the other. An ignored signal has weight 0, no cap and no
// reasons.
func (m *Model) With(changes map[string]Change) (*Model, error) {
	o := m.Options
	o.Signals = slices.Clone(m.Signals)
	for name, c := range changes {
		i, ok := m.index[name]
		switch {
		case !ok:
			return nil, fmt.Errorf("overrides: there is no signal %q", name)
		case i == m.uplink && c.Ignore:
			return nil, fmt.Errorf("overrides: signal %s can't be ignored; put the site into maintenance", name)
		}
		s := &o.Signals[i]
		if c.Good != nil {
			s.Good = *c.Good
		}
		if c.Bad != nil {
			s.Bad = *c.Bad
		}
		if c.Ignore {
			s.Weight, s.Cap = 0, NoCap
		}
	}
	return NewModel(o)
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
