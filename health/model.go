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
	"errors"
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/api/resource"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// DefaultEvaluations is how many evaluations in a row must disagree with a
// site's colour before it changes.
const DefaultEvaluations = 2

// SignalUplink is the name of the one signal that every model has: whether the
// site holds a stream to a regional. Its value is 1 or 0 and comes from the
// gateways' live view; its query is asked only about sites whose regional can't be
// reached. A policy may set its weight and texts by naming a signal so.
const SignalUplink = "uplink"

// UplinkQuery is the query of the uplink signal of a policy that has none. A value
// older than a minute is no answer: the gateway writes one every 15 s.
const UplinkQuery = `max by (tenant, site) (muster_site_connected and (time() - timestamp(muster_site_connected) < 60))`

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
	// Critical caps dimension and site while the score is 0.
	Critical bool
	Unit     string
	Text     string
	Source   string

	dim int
}

// Score is the signal's score in [0, 1] for a finite value.
func (s *Signal) Score(value float64) float64 {
	// Halved first, so that the difference of two huge numbers stays finite.
	x := (value/2 - s.Bad/2) / (s.Good/2 - s.Bad/2)
	return min(1, max(0, x))
}

// Model is how the health of some sites is computed. It does not change once
// made; a Model may be used by any number of goroutines.
type Model struct {
	Signals     []Signal
	Evaluations int
	// Weights of the dimensions, in the order of fleet.Dimensions.
	Weights [4]float64

	uplink int        // index of the uplink signal
	total  [4]float64 // weight of all signals of a dimension
	used   float64    // weight of all dimensions that have signals with a weight
	index  map[string]int
}

func dimensionIndex(d fleet.Dimension) int {
	for i, x := range fleet.Dimensions {
		if x == d {
			return i
		}
	}
	return -1
}

// NewModel checks the parts of a model and adds the uplink signal if it is
// missing. evaluations 0 means DefaultEvaluations.
func NewModel(weights [4]float64, evaluations int, signals []Signal) (*Model, error) {
	m := &Model{Evaluations: evaluations, Weights: weights, uplink: -1, index: make(map[string]int, len(signals)+1)}
	if m.Evaluations == 0 {
		m.Evaluations = DefaultEvaluations
	}
	if m.Evaluations < 1 {
		return nil, fmt.Errorf("evaluations: %d: want at least 1", m.Evaluations)
	}
	for i, w := range weights {
		if !finite(w) || w < 0 {
			return nil, fmt.Errorf("weights.%s: %v: want 0 or more", fleet.Dimensions[i], w)
		}
	}
	m.Signals = append(make([]Signal, 0, len(signals)+1), signals...)
	for i := range m.Signals {
		if m.Signals[i].Name == SignalUplink {
			m.uplink = i
		}
	}
	if m.uplink < 0 {
		m.uplink = len(m.Signals)
		m.Signals = append(m.Signals, Signal{
			Name: SignalUplink, Dimension: fleet.Connectivity, Query: UplinkQuery, Good: 1, Bad: 0, Weight: 1, Critical: true,
			Text: "offline: no connection to a regional", Source: "regional gateway",
		})
	}
	for i := range m.Signals {
		if err := m.add(i); err != nil {
			return nil, err
		}
	}
	for d, w := range m.Weights {
		if m.total[d] > 0 {
			m.used += w
		}
	}
	if m.used == 0 {
		return nil, errors.New("weights: all dimensions that have signals weigh 0; give one of them a weight")
	}
	return m, nil
}

func (m *Model) add(i int) error {
	s := &m.Signals[i]
	s.dim = dimensionIndex(s.Dimension)
	switch {
	case s.Name == "":
		return fmt.Errorf("signals[%d].name: must not be empty", i)
	case s.dim < 0:
		return fmt.Errorf("signal %s: dimension %q: want connectivity, reliability, security or performance", s.Name, s.Dimension)
	case !finite(s.Good) || !finite(s.Bad) || s.Good == s.Bad:
		return fmt.Errorf("signal %s: good %v and bad %v: want two different numbers", s.Name, s.Good, s.Bad)
	case !finite(s.Weight) || s.Weight < 0 || s.Weight > 1e6:
		return fmt.Errorf("signal %s: weight %v: want 0 to 1000000", s.Name, s.Weight)
	case i == m.uplink && (s.Dimension != fleet.Connectivity || s.Good != 1 || s.Bad != 0):
		return fmt.Errorf("signal %s: it belongs to connectivity, with good 1 and bad 0; give another signal another name", s.Name)
	}
	if _, dup := m.index[s.Name]; dup {
		return fmt.Errorf("signal %s: named twice", s.Name)
	}
	m.index[s.Name] = i
	m.total[s.dim] += s.Weight
	return nil
}

// Uplink is the index of the uplink signal in Signals.
func (m *Model) Uplink() int { return m.uplink }

// Index returns where the named signal is in Signals.
func (m *Model) Index(name string) (int, bool) {
	i, ok := m.index[name]
	return i, ok
}

// FromPolicy makes the model that a HealthPolicy describes.
func FromPolicy(spec *v1alpha1.HealthPolicySpec) (*Model, error) {
	weights := [4]float64{1, 1, 1, 1}
	w := &spec.Weights
	for i, q := range [4]*resource.Quantity{w.Connectivity, w.Reliability, w.Security, w.Performance} {
		if q != nil {
			weights[i] = q.AsApproximateFloat64()
		}
	}
	signals := make([]Signal, len(spec.Signals))
	for i := range spec.Signals {
		in := &spec.Signals[i]
		signals[i] = Signal{
			Name: in.Name, Dimension: in.Dimension, Query: in.Query, Good: in.Good.AsApproximateFloat64(), Bad: in.Bad.AsApproximateFloat64(),
			Weight: 1, Critical: in.Critical, Unit: in.Unit, Text: in.Text, Source: in.Source,
		}
		if in.Weight != nil {
			signals[i].Weight = in.Weight.AsApproximateFloat64()
		}
	}
	return NewModel(weights, int(spec.Evaluations), signals)
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
