package timeline

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"muster.dev/muster/internal/wire"
)

// parts are stores behind HTTP, each with kinds of its own.
func parts(t *testing.T) ([]*Store, *Merger) {
	t.Helper()
	m := &Merger{Client: http.DefaultClient, Logger: slog.New(slog.DiscardHandler)}
	var stores []*Store
	for i, kinds := range [][]string{{wire.EventColour}, {wire.EventAlert, wire.EventSilence}, {wire.EventPolicy}} {
		s := openAt(t, filepath.Join(t.TempDir(), "timeline.db"))
		mux := http.NewServeMux()
		s.Register(mux)
		srv := httptest.NewServer(mux)
		t.Cleanup(srv.Close)
		stores = append(stores, s)
		m.Parts = append(m.Parts, Part{Role: fmt.Sprintf("role-%d", i), URL: srv.URL, Kinds: kinds})
	}
	return stores, m
}

// Pages of the parts together are what one store with all events would give.
func TestMergedPagesAreOneList(t *testing.T) {
	stores, m := parts(t)
	one := openAt(t, filepath.Join(t.TempDir(), "timeline.db"))
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		part := rnd.IntN(3)
		e := event([]string{"acme", "rival"}[rnd.IntN(2)], fmt.Sprintf("s-%d", i), m.Parts[part].Kinds[0], time.Duration(rnd.IntN(60))*time.Second)
		add(t, stores[part], e)
		add(t, one, e)
	}
	for _, query := range []url.Values{{"limit": {"7"}}, {"limit": {"300"}}, {"tenant": {"acme"}, "limit": {"10"}}, {"kind": {"colour,policy"}, "limit": {"11"}}} {
		var got []wire.TimelineEvent
		for {
			page, p := m.Page(t.Context(), "*", query)
			if p != nil || len(page.Missing) > 0 {
				t.Fatalf("%v, %+v", p, page)
			}
			got = append(got, page.Events...)
			if page.NextCursor == "" {
				break
			}
			query.Set("cursor", page.NextCursor)
		}
		query.Del("cursor")
		if want := ask(t, one, "*", query.Encode()); texts(got) != texts(want) || len(want) == 0 {
			t.Errorf("%v: %d events, want %d:\n%s", query, len(got), len(want), texts(got))
		}
	}
}

func TestPartsThatDontAnswer(t *testing.T) {
	stores, m := parts(t)
	m.Patience = 300 * time.Millisecond
	add(t, stores[0], event("acme", "paris", wire.EventColour, 0))
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer hangs.Close()
	m.Parts[1].URL = hangs.URL
	page, p := m.Page(t.Context(), "acme", nil)
	if p != nil || len(page.Events) != 1 || len(page.Missing) != 1 || page.Missing[0].Role != "role-1" || page.Missing[0].Kinds[0] != wire.EventAlert {
		t.Errorf("%+v, %v", page, p)
	}
	// Whoever asks for other kinds does not wait, and misses nothing.
	if page, p := m.Page(t.Context(), "acme", url.Values{"kind": {"colour"}}); p != nil || len(page.Missing) != 0 || len(page.Events) != 1 {
		t.Errorf("%+v, %v", page, p)
	}
	if _, p := m.Page(t.Context(), "acme", url.Values{"kind": {"mood"}}); p == nil || p.Status != http.StatusBadRequest {
		t.Errorf("a wrong question: %+v", p)
	}
	for i := range m.Parts {
		m.Parts[i].URL = "http://127.0.0.1:1"
	}
	if _, p := m.Page(t.Context(), "acme", nil); p == nil || p.Status != http.StatusServiceUnavailable {
		t.Errorf("nobody answers: %+v", p)
	}
}
