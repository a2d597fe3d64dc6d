package console

import (
	"net/http"
	"time"

	"muster.dev/muster/internal/wire"
)

// getTimeline asks the roles that keep the timeline, for the tenants whose sites the user may
// read.
func (c *Console) getTimeline(w http.ResponseWriter, cl *call) error {
	set, err := c.access.scopeOf(cl.Context(), cl.id, readAlerts, cl.q.Get("tenant"))
	if err != nil {
		return err
	}
	if c.opt.Timeline == nil {
		return unavailable(nil, "this console has no timeline configured")
	}
	for _, name := range []string{"from", "to"} {
		if s := cl.q.Get(name); s != "" {
			t, _ := parseTime(s) // checked
			cl.q.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	page, p := c.opt.Timeline.Page(cl.Context(), set.header(), cl.q)
	if p != nil {
		return &problem{Problem: *p}
	}
	return writeJSON(w, http.StatusOK, page)
}

var timelineList = []param{
	tenantParam, {"site", siteName}, {"virtualSite", text(320)}, {"kind", oneOf(wire.TimelineKinds...)}, {"from", timestamp}, {"to", timestamp}, limitParam, cursorParam,
}
