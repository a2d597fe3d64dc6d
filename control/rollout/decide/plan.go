package decide

import (
	"errors"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

// Wave is a wave as planned.
type Wave struct {
	Name string
	// Sites by name, in the order in which they change.
	Sites    []string
	Soak     time.Duration
	Approval bool
}

// Plan says which sites are in which wave: of what Decide starts with, and for a dry run.
// The sites are sorted by name; inScope and member are as in Input. The choice depends on
// the rollout's name and the sites alone: the same again gives the same again. The error
// names the field of the spec that is wrong and what to do.
func Plan(name string, spec *v1alpha1.RolloutSpec, sites []Site, inScope func(*Site) bool, member func(virtualSite string, s *Site) bool) ([]Wave, error) {
	return nil, errors.New("not planned yet")
}
