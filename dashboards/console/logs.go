package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"muster.dev/muster/internal/wire"
)

// logQuery returns what is asked, and the one tenant that it is about.
func (c *Console) logQuery(cl *call) (wire.LogQuery, readable, error) {
	set, err := c.access.scopeOf(cl.Context(), cl.id, readLogs, cl.q.Get("tenant"))
	if err != nil {
		return wire.LogQuery{}, set, err
	}
	if len(set.names) != 1 {
		return wire.LogQuery{}, set, manyTenants("logs are searched in one tenant", set)
	}
	if c.opt.Logs == nil {
		return wire.LogQuery{}, set, unavailable(nil, "this console has no log search configured")
	}
	q := cl.q
	patience, _ := parseStep(cl.q.Get("patience")) // checked; absent: none
	return wire.LogQuery{
		Text: q.Get("query"), From: q.Get("from"), To: q.Get("to"), VirtualSite: q.Get("virtualSite"),
		Sites: q["site"], Namespaces: q["namespace"], Severities: q["severity"], Limit: limitOf(q), Cursor: q.Get("cursor"), Patience: patience,
	}, set, nil
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
	q, set, err := c.logQuery(cl)
	if err != nil {
		return err
	}
	page, p := c.opt.Logs.Search(cl.Context(), set.names[0], q)
	if p != nil {
		return &problem{Problem: *p}
	}
	return writeJSON(w, http.StatusOK, page)
}

// tailLogs follows logs for as long as the user keeps the right to read them, as
// server-sent events.
func (c *Console) tailLogs(w http.ResponseWriter, cl *call) error {
	q, set, err := c.logQuery(cl)
	if err != nil {
		return err
	}
	after := cl.Header.Get("Last-Event-ID")
	if len(after) > maxLogCursor {
		after = ""
	}
	return c.streaming(w, cl, set.payers(), c.sameTenants(cl, readLogs, set), 0, func(w http.ResponseWriter, ctx context.Context, _ *atomic.Bool) {
		out := &logEvents{w: w, ctl: http.NewResponseController(w)}
		if p := c.opt.Logs.Tail(ctx, set.names[0], q, after, out.send); p != nil {
			p.Write(w)
		}
	})
}

// logEvents writes a tail.
type logEvents struct {
	w     http.ResponseWriter
	ctl   *http.ResponseController
	begun bool
}

func (e *logEvents) send(id string, ev wire.LogEvent) error {
	if !e.begun {
		e.begun = true
		e.w.Header().Set("Content-Type", "text/event-stream")
		if _, err := io.WriteString(e.w, "retry: 2000\n\n"); err != nil {
			return err
		}
	}
	var name string
	var data any
	switch {
	case ev.Hits != nil:
		name, data = "hits", map[string]any{"hits": ev.Hits}
	case ev.MissingRegions != nil:
		name, data = "missing", map[string]any{"missingRegions": ev.MissingRegions}
	default:
		// An id without data moves the reader's position and shows it nothing.
		if _, err := fmt.Fprintf(e.w, ": alive\nid: %s\n\n", id); err != nil {
			return err
		}
		return e.ctl.Flush()
	}
	b, err := json.Marshal(data)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(e.w, "event: %s\nid: %s\ndata: %s\n\n", name, id, b); err != nil {
		return err
	}
	return e.ctl.Flush()
}
