package scenarios

import (
	"fmt"
	"testing"
	"time"

	"muster.dev/muster/health"
	"muster.dev/muster/health/defaults"
	"muster.dev/muster/loadtest/simsite"
)

// seriesNeeded are sites of usual sizes, and how many places of the shipped policy's series
// budget they may take: what is measured, and some room for what comes with an exporter's next
// version.
var seriesNeeded = []struct {
	site Shape
	most int
}{
	{Shape{Nodes: 1, Exporters: []string{"node-exporter"}}, 150},
	{Shape{Nodes: 1, Pods: 30}, 1000},
	{Shape{Nodes: 3, Pods: 40}, 1550},
	{Shape{Nodes: 5, Pods: 46}, 2000},
}

// TestSeriesOfASite measures what sites need of their series budget with the shipped policies, and
// that none of them is refused a series.
func TestSeriesOfASite(t *testing.T) {
	var list []*Scenario
	for _, n := range seriesNeeded {
		name := fmt.Sprintf("nodes-%d-pods-%d", n.site.Nodes, n.site.Pods)
		if n.site.Exporters != nil {
			name = "bare-host"
		}
		list = append(list, &Scenario{Name: name, Normal: true, For: Duration(3 * time.Minute), Story: "a quiet day", Site: n.site})
	}
	tmpl := simsite.NewTemplates()
	for _, sc := range list {
		if err := sc.complete(tmpl); err != nil {
			t.Fatal(err)
		}
	}
	r := rigOf(t, map[string]*health.Model{shipped: defaults.Model()}, list)
	for i, s := range r.sites {
		st, n := s.end, seriesNeeded[i]
		t.Logf("figure: %s: %d of %d places for series, %.0f %% left", s.sc.Name, st.Series, st.Budget, 100*float64(st.Budget-st.Series)/float64(st.Budget))
		if st.Refused > 0 || st.Series > n.most || st.Series == 0 {
			t.Errorf("%s: takes %d places and is refused %d, want at most %d and none", s.sc.Name, st.Series, st.Refused, n.most)
		}
	}
}
