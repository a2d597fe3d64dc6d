package console

import (
	"net/http"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/wire"
)

// resetView is how far the last factory reset of a site is.
type resetView struct {
	Phase   v1alpha1.ResetPhase `json:"phase"`
	Since   *time.Time          `json:"since"`
	Expires *time.Time          `json:"expires"` // of a request that may still be taken back
	Message string              `json:"message"`
	Overdue bool                `json:"overdue"`
}

// viewReset is nil for a site that nobody has asked.
func viewReset(s *v1alpha1.Site, now time.Time) *resetView {
	asked, st := s.Spec.Reset, s.Status.Reset
	switch {
	case asked == nil && st == nil:
		return nil
	case asked != nil && (st == nil || st.ID != asked.ID): // control has not seen it yet
		return &resetView{Phase: v1alpha1.ResetAsked, Expires: timeView(&asked.Expires)}
	}
	v := &resetView{Phase: st.Phase, Since: timeView(&st.Since), Message: st.Message, Overdue: st.Overdue(now)}
	if asked != nil && (st.Phase == v1alpha1.ResetAsked || st.Phase == v1alpha1.ResetConfirmed) {
		v.Expires = timeView(&asked.Expires)
	}
	return v
}

type resetRequest struct {
	Wait         string `json:"wait"`
	DiscardSpool bool   `json:"discardSpool"`
	ApproveAgain bool   `json:"approveAgain"`
}

// askReset answers 200 with the site. A request from before is replaced, as kubectl would.
func (c *Console) askReset(w http.ResponseWriter, cl *call) error {
	var in resetRequest
	if err := readJSON(cl.Request, &in, false); err != nil {
		return err
	}
	wait, err := time.ParseDuration(in.Wait)
	if err != nil || wait < v1alpha1.MinResetWait || wait > v1alpha1.MaxResetWait {
		return invalid("wait", "%q: want how long the request waits for the site, 1m to 720h, such as 1h", printable(in.Wait))
	}
	id, err := c.siteOf(cl)
	if err != nil {
		return err
	}
	asked := v1alpha1.AskReset(c.now(), wait, in.DiscardSpool, in.ApproveAgain)
	s, _, err := c.editSite(cl.Context(), id, func(s *v1alpha1.Site) (map[string]any, error) {
		switch {
		case s.Spec.Decommissioned:
			return nil, newProblem(http.StatusConflict, wire.ProblemConflict, "site %s is rejected or decommissioned, for good", id)
		case !s.Spec.Approved:
			return nil, newProblem(http.StatusConflict, wire.ProblemConflict, "site %s is not approved yet: there is nothing to take off it", id)
		}
		return map[string]any{"spec": map[string]any{"reset": asked}}, nil
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, viewSite(id.Tenant, s, c.now()))
}

// cancelReset takes the request back; a site that has begun goes on.
func (c *Console) cancelReset(w http.ResponseWriter, cl *call) error {
	id, err := c.siteOf(cl)
	if err != nil {
		return err
	}
	_, _, err = c.editSite(cl.Context(), id, func(s *v1alpha1.Site) (map[string]any, error) {
		if s.Spec.Reset == nil {
			return nil, newProblem(http.StatusConflict, wire.ProblemConflict, "nobody asks for a reset of %s", id)
		}
		return map[string]any{"spec": map[string]any{"reset": nil}}, nil
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
