package console

import (
	"net/http"
	"slices"

	"muster.dev/muster/internal/fleet"
)

var patchSites = right{verb: "patch", resource: "sites"}

// offered are the rights that pages want to know before they offer what needs them.
var offered = []right{patchSites, createSilences, deleteSilences, readMetrics, createRules}

// rightsView says in which tenants a user has each of the rights.
type rightsView struct {
	Rights []heldRight `json:"rights"`
}

type heldRight struct {
	Right   string   `json:"right"`   // verb and resource, such as "patch sites.muster.dev"
	All     bool     `json:"all"`     // in every tenant, also those to come
	Tenants []string `json:"tenants"` // sorted
}

// getRights tells what the user may do where. It decides nothing: the API server does when it is done.
func (c *Console) getRights(w http.ResponseWriter, cl *call) error {
	out := rightsView{Rights: []heldRight{}}
	for _, need := range offered {
		set, err := c.access.allOf(cl.Context(), cl.id, need)
		if err != nil {
			return err
		}
		if need.platform && !set.all {
			if ok, err := c.access.may(cl.Context(), cl.id, need, fleet.SystemNamespace(fleet.PlatformTenant)); err != nil {
				return err
			} else if ok {
				set.names = append(slices.Clone(set.names), fleet.PlatformTenant)
				slices.Sort(set.names)
			}
		}
		out.Rights = append(out.Rights, heldRight{Right: need.String(), All: set.all, Tenants: set.names})
	}
	return writeJSON(w, http.StatusOK, out)
}
