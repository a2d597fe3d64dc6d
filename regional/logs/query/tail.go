package query

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/logs/store"
)

// Events of a tail. Each has an id, the cursor from which the tail goes on when it is
// opened again with the parameter after, or with the header Last-Event-ID.
const (
	eventHits     = "hits"     // {"hits":[…]} in the order in which they came in
	eventPosition = "position" // {}: the first event, and a sign of life on a quiet tail
	eventTrouble  = "trouble"  // {"detail":…} ends the stream: come back later
)

const (
	tailEventBytes = 1 << 20 // of one event, more for a single record that is larger
)

type tailStream struct {
	w   http.ResponseWriter
	ctl *http.ResponseController
	buf bytes.Buffer
	max time.Duration
}

// send writes one event; false when the reader is gone or too slow.
func (s *tailStream) send(event string, id store.Cursor, data []byte) bool {
	s.buf.Reset()
	fmt.Fprintf(&s.buf, "event: %s\nid: %s\ndata: ", event, id)
	s.buf.Write(data) // JSON has no line breaks
	s.buf.WriteString("\n\n")
	// In place of the server's own, which bounds the whole answer.
	_ = s.ctl.SetWriteDeadline(time.Now().Add(s.max))
	_, err := s.w.Write(s.buf.Bytes())
	return err == nil && s.ctl.Flush() == nil
}

// tail looks at the store again and again, for as long as the reader stays.
func (a *API) tail(w http.ResponseWriter, r *http.Request, req *request) *wire.Problem {
	req.q.Limit = firstSlice
	page, p := a.poll(r.Context(), req, req.after)
	if p != nil {
		return p
	}
	a.open.Inc()
	defer a.open.Dec()
	w.Header().Set("Content-Type", "text/event-stream")
	s := &tailStream{w: w, ctl: http.NewResponseController(w), max: a.opts.WriteWait}
	at := req.after
	if at == "" {
		at = page.Next
	}
	if !s.send(eventPosition, at, []byte("{}")) {
		return nil
	}
	poll, alive := time.NewTicker(a.opts.Poll), time.NewTicker(a.opts.KeepAlive)
	defer poll.Stop()
	defer alive.Stop()
	for {
		if !a.sendHits(s, page) {
			return nil
		}
		at = page.Next
		switch size := sizeOf(page.Hits); {
		case size > 4<<20:
			req.q.Limit = max(req.q.Limit/4, 10)
		case page.More && size < 1<<20:
			req.q.Limit = min(req.q.Limit*2, mostSlice)
		}
		select {
		case <-a.stop: // also while there is always more
			return nil
		default:
		}
		if !page.More && !a.pause(r.Context(), s, at, poll, alive) {
			return nil
		}
		if page, p = a.poll(r.Context(), req, at); p != nil {
			if r.Context().Err() == nil {
				detail, _ := json.Marshal(map[string]string{"detail": p.Detail})
				s.send(eventTrouble, at, detail)
			}
			return nil
		}
	}
}

// pause waits for the next look, with signs of life; false to end.
func (a *API) pause(ctx context.Context, s *tailStream, at store.Cursor, poll, alive *time.Ticker) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-a.stop:
			return false
		case <-alive.C:
			if !s.send(eventPosition, at, []byte("{}")) {
				return false
			}
		case <-poll.C:
			return true
		}
	}
}

// poll asks the store once.
func (a *API) poll(ctx context.Context, req *request, after store.Cursor) (store.TailPage, *wire.Problem) {
	q, p := a.query(req)
	if p != nil {
		return store.TailPage{}, p
	}
	ctx, cancel := context.WithTimeout(ctx, a.opts.Timeout)
	defer cancel()
	page, err := a.opts.Store.Tail(ctx, q, after)
	if err != nil {
		return page, a.storeProblem(err)
	}
	return page, nil
}

// sendHits sends a page in events of bounded size.
func (a *API) sendHits(s *tailStream, page store.TailPage) bool {
	var data bytes.Buffer
	start := 0
	flush := func(end int, next store.Cursor) bool {
		if end == start {
			return true
		}
		data.WriteString("]}")
		a.sent.Add(float64(end - start))
		start = end
		return s.send(eventHits, next, data.Bytes())
	}
	for i, rec := range page.Hits {
		b, err := json.Marshal(hitOf(&rec))
		if err != nil {
			a.log.Error("log query: a record can't be encoded", "id", rec.ID, "err", err)
			return false
		}
		if i > start && data.Len()+len(b) > tailEventBytes {
			last := page.Hits[i-1]
			if !flush(i, store.TailCursor(store.Position{Ingested: last.Ingested.UnixNano(), Nanos: last.Timestamp.UnixNano(), ID: last.ID})) {
				return false
			}
		}
		if i == start {
			data.Reset()
			data.WriteString(`{"hits":[`)
		} else {
			data.WriteByte(',')
		}
		data.Write(b)
	}
	return flush(len(page.Hits), page.Next)
}
