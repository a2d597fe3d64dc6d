package decide

import (
	"fmt"
	"strings"
	"testing"

	"muster.dev/muster/control/api/v1alpha1"
)

// Of 20 changed sites and 80 peers, which alerts count, and of whom.
func TestWhichAlertsCount(t *testing.T) {
	disk := []string{"critical/DiskFull"}
	for name, c := range map[string]struct {
		spoil         func(s *subject, i int)
		verdict       v1alpha1.GateVerdict
		value, text   string
		sites, online int32
	}{
		"none":                {verdict: v1alpha1.GatePass, value: "0", text: "No new alert of severity critical fires at 20 sites.", sites: 20, online: 20},
		"new ones":            {spoil: func(s *subject, _ int) { s.s.Alerts = disk }, verdict: v1alpha1.GateWait, value: "5", text: "New alerts of severity critical, most of them DiskFull, fire at 5 of 20 changed sites, and at 0 of 80", sites: 20, online: 20},
		"of another severity": {spoil: func(s *subject, _ int) { s.s.Alerts = []string{"warning/DiskFull"} }, verdict: v1alpha1.GatePass, value: "0", text: "No new alert", sites: 20, online: 20},
		"that fired before":   {spoil: func(s *subject, _ int) { s.s.Alerts, s.alerts = disk, disk }, verdict: v1alpha1.GatePass, value: "0", text: "No new alert", sites: 20, online: 20},
		"at sites that are offline": {spoil: func(s *subject, _ int) { s.s.Alerts, s.s.Online = disk, false }, verdict: v1alpha1.GatePass, value: "0", text: "No new alert of severity critical fires at 15 sites.",
			sites: 15, online: 15},
		"at sites that failed": {spoil: func(s *subject, _ int) { s.s.Alerts, s.failed = disk, true }, verdict: v1alpha1.GatePass, value: "0", text: "No new alert of severity critical fires at 15 sites.",
			sites: 15, online: 15},
		"not known of some": {spoil: func(s *subject, _ int) { s.s.AlertsKnown = false }, verdict: v1alpha1.GateUnknown, text: "Whether alerts fire is known of 15 of 20 sites.", sites: 15, online: 20},
		"not known of one":  {spoil: func(s *subject, i int) { s.s.AlertsKnown = i > 0 }, verdict: v1alpha1.GatePass, value: "0", text: "fires at 19 sites.", sites: 19, online: 20},
	} {
		t.Run(name, func(t *testing.T) {
			j := judge{mem: newMemory(), now: monday, since: monday}
			for i := range 100 {
				s := subject{s: &Site{Name: fmt.Sprint("s", i), Online: true, AlertsKnown: true}}
				if i < 5 && c.spoil != nil {
					c.spoil(&s, i)
				}
				if i < 20 {
					j.changed = append(j.changed, s)
				} else {
					j.peers = append(j.peers, s)
				}
			}
			g := j.alerts("alerts", &v1alpha1.GateAlerts{Severities: []string{"critical"}})
			if g.Verdict != c.verdict || g.Value != c.value || !strings.Contains(g.Text, c.text) || g.Sites != c.sites || g.OfSites != c.online {
				t.Errorf("%s, %q of %d of %d sites: %s", g.Verdict, g.Value, g.Sites, g.OfSites, g.Text)
			}
		})
	}
}

// What a query gives is kept in fiftieths of the rise that its gate allows, and points in whole.
func TestHowFinelyMeasuresAreKept(t *testing.T) {
	rise, more := quantity("100m"), quantity("5")
	r := &run{gates: []v1alpha1.RolloutGate{
		{Name: "errors", Before: &v1alpha1.GateChange{Query: "x", MaxRise: &more}},
		{Name: "latency", Peers: &v1alpha1.GateChange{Query: "y", MaxRise: &rise}},
		{Name: "Reliability", Peers: &v1alpha1.GateChange{MaxDrop: 10}},
	}}
	for measure, want := range map[string]float64{"errors": 0.1, "latency": 0.002, "Reliability": 1, "Site": 1} {
		if got := r.stepOf(measure); got != want {
			t.Errorf("%s is kept in steps of %v, want %v", measure, got, want)
		}
	}
}
