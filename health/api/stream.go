package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"muster.dev/muster/health/engine"
	"muster.dev/muster/internal/wire"
)

// encodedUpdate is an update's JSON, made once for all streams.
type encodedUpdate struct {
	update  *engine.Update
	brief   bool // sites are SiteChanges
	asOf    []byte
	sites   []encodedPart
	virtual []encodedPart
	removed []encodedPart
}

type encodedPart struct {
	tenant string
	json   []byte
}

// encode returns the update's JSON, from the last few if it is there.
func (s *Server) encode(u *engine.Update, brief bool) (*encodedUpdate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.encoded {
		if e.update == u && e.brief == brief {
			return e, nil
		}
	}
	e := &encodedUpdate{update: u, brief: brief}
	var err error
	marshal := func(v any) []byte {
		b, bad := json.Marshal(v)
		if bad != nil {
			err = bad
		}
		return b
	}
	e.asOf = marshal(asOf(u.View))
	for i, x := range u.Sites {
		var site any
		switch {
		case !x.Listed(): // it may have been listed before
			e.removed = append(e.removed, encodedPart{x.ID.Tenant, marshal(SiteRef{x.ID.Tenant, x.ID.Name})})
			continue
		case brief:
			site = siteChangeOf(x, u.Turned == nil || u.Turned[i])
		default:
			site = SiteOf(x, u.View.AsOf)
		}
		e.sites = append(e.sites, encodedPart{x.ID.Tenant, marshal(site)})
	}
	for _, x := range u.VirtualSites {
		e.virtual = append(e.virtual, encodedPart{x.Tenant, marshal(VirtualSiteOf(x))})
	}
	for _, id := range u.Removed {
		e.removed = append(e.removed, encodedPart{id.Tenant, marshal(SiteRef{id.Tenant, id.Name})})
	}
	if err != nil {
		return nil, err
	}
	const keep = 8 // of both forms together
	if len(s.encoded) == keep {
		s.encoded = append(s.encoded[:0], s.encoded[1:]...)
	}
	s.encoded = append(s.encoded, e)
	return e, nil
}

// event appends one server-sent event with the parts that the scope may see, or
// nothing if there are none.
func (e *encodedUpdate) event(b *bytes.Buffer, name, field string, parts []encodedPart, sc *wire.Scope) {
	n := 0
	for _, p := range parts {
		if !sc.Has(p.tenant) {
			continue
		}
		if n == 0 {
			fmt.Fprintf(b, "id: %d\nevent: %s\ndata: {\"asOf\":%s,\"%s\":[", e.update.View.Tick, name, e.asOf, field)
		} else {
			b.WriteByte(',')
		}
		b.Write(p.json) // JSON has no line breaks
		n++
	}
	if n > 0 {
		b.WriteString("]}\n\n")
	}
}

func (e *encodedUpdate) events(b *bytes.Buffer, sc *wire.Scope) {
	e.event(b, "removed", "sites", e.removed, sc)
	e.event(b, "sites", "sites", e.sites, sc)
	e.event(b, "virtualsites", "virtualSites", e.virtual, sc)
	if e.update.Tick {
		fmt.Fprintf(b, "id: %d\nevent: tick\ndata: {\"asOf\":%s}\n\n", e.update.View.Tick, e.asOf)
	}
}

// writeTimeout is how long a client may take for one write.
const writeTimeout = 10 * time.Second

// stream sends changes as server-sent events. A client opens it first and gets the
// lists then, so that it misses nothing. One that falls behind is disconnected; it
// comes back and gets the lists anew.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	sc, p := wire.ScopeOf(r, r.URL.Query()["tenant"])
	if p != nil {
		p.Write(w)
		return
	}
	payers := sc.Allowed
	if sc.All {
		payers = []string{""} // no tenant's
	}
	payer, ok := s.open.TakeAny(payers)
	if !ok {
		wire.Failure(http.StatusServiceUnavailable, "as many streams are open as may be: of %d a tenant has what it leaves free for others", s.opts.MaxStreams).Write(w)
		return
	}
	s.streams.Inc()
	defer func() {
		s.streams.Dec()
		s.open.Give(payer)
	}()
	brief := r.URL.Query().Get("brief") == "true"
	sub := s.opts.Source.Subscribe(s.opts.StreamQueue)
	defer sub.Close()

	ctl := http.NewResponseController(w)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	var buf bytes.Buffer
	send := func() bool {
		// Where the deadline can't be set, the server's own must do.
		_ = ctl.SetWriteDeadline(time.Now().Add(writeTimeout))
		_, err := w.Write(buf.Bytes())
		buf.Reset()
		return err == nil && ctl.Flush() == nil
	}
	buf.WriteString("retry: 2000\n: changes follow; get the lists now\n\n")
	if !send() {
		return
	}
	alive := time.NewTicker(s.opts.KeepAlive)
	defer alive.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-alive.C:
			buf.WriteString(": alive\n\n")
		case u, ok := <-sub.C:
			if !ok { // the engine stops, or the client was too slow
				return
			}
			e, err := s.encode(u, brief)
			if err != nil {
				s.log.Error("health api: an update can't be encoded", "err", err)
				return
			}
			e.events(&buf, sc)
		}
		if buf.Len() > 0 && !send() {
			return
		}
	}
}
