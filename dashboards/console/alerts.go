package console

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"muster.dev/muster/internal/silence"
	"muster.dev/muster/internal/wire"
)

// toAlerting passes a call on to the alerting role, for the tenants of the set.
func (c *Console) toAlerting(w http.ResponseWriter, cl *call, out outgoing, set readable) error {
	if c.alerts == nil {
		return unavailable(nil, "this console has no alerting role configured")
	}
	out.tenants, out.user = set.header(), cl.id.name
	if out.query == nil {
		out.query = cl.q
	}
	c.alerts.proxy.ServeHTTP(w, cl.WithContext(context.WithValue(cl.Context(), scopeKey{}, out)))
	return nil
}

func (c *Console) readAlerts(w http.ResponseWriter, cl *call) error {
	set, err := c.access.scopeOf(cl.Context(), cl.id, readAlerts, cl.q.Get("tenant"))
	if err != nil {
		return err
	}
	return c.toAlerting(w, cl, outgoing{}, set)
}

func (c *Console) listSilences(w http.ResponseWriter, cl *call) error {
	set, err := c.access.scopeOf(cl.Context(), cl.id, readSilences, cl.q.Get("tenant"))
	if err != nil {
		return err
	}
	// Who may read all tenants is told what silences of no tenant say, also where those of one are asked for, as the query does.
	if set.all, err = c.access.may(cl.Context(), cl.id, readSilences, everyNamespace); err != nil {
		return err
	}
	return c.toAlerting(w, cl, outgoing{}, set)
}

func (c *Console) postSilence(w http.ResponseWriter, cl *call) error {
	var in wire.SilenceRequest
	if err := readJSON(cl.Request, &in, false); err != nil {
		return err
	}
	if _, _, errs := silence.Check(&in, c.now()); len(errs) > 0 { // here, so that a page gets an error for each field
		return invalidFields(errs)
	}
	set, err := c.access.scopeOf(cl.Context(), cl.id, createSilences, cl.q.Get("tenant"))
	if err != nil {
		return err
	}
	if len(set.names) != 1 {
		return manyTenants("a silence belongs to one tenant", set)
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	one := readable{names: set.names} // also for a user who may do so in all
	return c.toAlerting(w, cl, outgoing{method: http.MethodPost, body: body, query: url.Values{"tenant": set.names}}, one)
}

func (c *Console) deleteSilence(w http.ResponseWriter, cl *call) error {
	set, err := c.access.scopeOf(cl.Context(), cl.id, deleteSilences, cl.q.Get("tenant"))
	if err != nil {
		return err
	}
	return c.toAlerting(w, cl, outgoing{method: http.MethodDelete}, set)
}
