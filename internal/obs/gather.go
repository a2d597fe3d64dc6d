package obs

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// WithoutProcess is a gatherer less the figures of the process (go_*, process_*):
// libraries that keep a registry of their own describe the process there too, and
// a role's own registry does it already.
func WithoutProcess(g prometheus.Gatherer) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all, err := g.Gather()
		kept := all[:0]
		for _, f := range all {
			if n := f.GetName(); !strings.HasPrefix(n, "go_") && !strings.HasPrefix(n, "process_") {
				kept = append(kept, f)
			}
		}
		return kept, err
	})
}
