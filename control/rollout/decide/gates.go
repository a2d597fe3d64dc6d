package decide

import (
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

// DefaultGates are the gates of a plan that names none.
func DefaultGates() []v1alpha1.RolloutGate {
	return []v1alpha1.RolloutGate{
		{Name: "ready", Ready: &v1alpha1.GateReady{Percent: 100}},
		{Name: "alerts", Alerts: &v1alpha1.GateAlerts{Severities: []string{"critical"}}},
		{Name: "peers", Peers: &v1alpha1.GateChange{MaxDrop: 10}},
	}
}

// Evaluate reads the gates once: how the sites that changed stand against what they were
// before (by site and measure, as in Site.Measures) and against their peers. The verdict
// is the worst of the gates'. Since is when they changed; soak is for how long the gates
// are to be looked at, 0: once is enough. Memory may be nil.
func Evaluate(gates []v1alpha1.RolloutGate, changed, peers []Site, before map[string]map[string]float64, memory *Memory, outside map[string]Outside, since time.Time, soak time.Duration, now time.Time) (v1alpha1.GateVerdict, []v1alpha1.GateReading) {
	return v1alpha1.GateUnknown, nil
}
