package console

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
)

// logCall returns the request as the log stores may see it, and the one tenant that it
// is about.
func (c *Console) logCall(cl *call) (*http.Request, readable, error) {
	set, err := c.access.scopeOf(cl.Context(), cl.id, readLogs, cl.q.Get("tenant"))
	if err != nil {
		return nil, set, err
	}
	if len(set.names) != 1 {
		return nil, set, manyTenants("logs are searched in one tenant", set)
	}
	if c.opt.Logs == nil {
		return nil, set, unavailable(nil, "this console has no log search configured")
	}
	q := url.Values{}
	for name, v := range cl.q {
		if name != "tenant" {
			q[name] = v
		}
	}
	r := cl.Clone(cl.Context())
	r.Header = http.Header{"Accept": {"application/json, text/event-stream"}, "User-Agent": {fieldManager}}
	if last := cl.Header.Get("Last-Event-ID"); last != "" && len(last) <= maxLogCursor {
		r.Header.Set("Last-Event-ID", last)
	}
	r.URL = &url.URL{Path: cl.URL.Path, RawQuery: q.Encode()}
	r.RequestURI, r.Host, r.Form, r.PostForm = "", "", nil, nil
	r.Body, r.ContentLength = http.NoBody, 0
	return r, set, nil
}

// manyTenants asks for one of the tenants that the user may choose from.
func manyTenants(why string, set readable) *problem {
	const show = 20
	names := set.names
	more := ""
	if len(names) > show {
		names, more = names[:show], ", …"
	}
	return invalid("tenant", "is missing: %s, and you may choose from %d: %s%s", why, len(set.names), strings.Join(names, ", "), more)
}

func (c *Console) searchLogs(w http.ResponseWriter, cl *call) error {
	r, set, err := c.logCall(cl)
	if err != nil {
		return err
	}
	c.opt.Logs.ServeSearch(w, r, set.names[0])
	return nil
}

// tailLogs follows logs for as long as the user keeps the right to read them.
func (c *Console) tailLogs(w http.ResponseWriter, cl *call) error {
	r, set, err := c.logCall(cl)
	if err != nil {
		return err
	}
	return c.streaming(w, cl, readLogs, set, func(w http.ResponseWriter, ctx context.Context, _ *atomic.Bool) {
		c.opt.Logs.ServeTail(w, r.WithContext(ctx), set.names[0])
	})
}
