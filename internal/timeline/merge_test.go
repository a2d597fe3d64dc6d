package timeline

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
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
	if p != nil || len(page.Events) != 1 || len(page.Missing) != 1 || page.Missing[0].Role != "role-1" || !page.Missing[0].Late || page.Missing[0].Kinds[0] != wire.EventAlert {
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

// replicas are parts of one role, which have seen the same alerts, and a part of another role.
func replicas(t *testing.T, n int) ([]*Store, *Merger) {
	t.Helper()
	m := &Merger{Client: http.DefaultClient, Logger: slog.New(slog.DiscardHandler)}
	var stores []*Store
	for i := range n + 1 {
		s := openAt(t, filepath.Join(t.TempDir(), "timeline.db"), func(o *Options) { o.SiteBurst, o.TenantBurst = 1e6, 1e6 })
		mux := http.NewServeMux()
		s.Register(mux)
		srv := httptest.NewServer(mux)
		t.Cleanup(srv.Close)
		stores = append(stores, s)
		p := Part{Role: "alerting", URL: srv.URL, Kinds: []string{wire.EventAlert, wire.EventNotification, wire.EventSilence}, Shared: []string{wire.EventAlert}}
		if i == n {
			p = Part{Role: "health", URL: srv.URL, Kinds: []string{wire.EventColour}}
		}
		m.Parts = append(m.Parts, p)
	}
	return stores, m
}

// alertOf is an alert at a site that began or ended.
func alertOf(site, after, text string, at time.Duration) wire.TimelineEvent {
	e := event("acme", site, wire.EventAlert, at, "shared/"+site[:1])
	e.Object, e.Link, e.After, e.Text = "Alert/DiskFull", "/alerts/"+site, after, text
	return e
}

// What several parts of a role saw is there once, as the first saw it, and what one alone has is there, whatever the
// pages are.
func TestReplicasAreOneList(t *testing.T) {
	for n := 2; n <= 3; n++ {
		stores, m := replicas(t, n)
		rnd := rand.New(rand.NewPCG(uint64(n), 7))
		var want []wire.TimelineEvent
		told := make([][]wire.TimelineEvent, n+1)
		// saw has an event told by some parts, each a while after it happened.
		saw := func(e wire.TimelineEvent, by []int, lag func() time.Duration) {
			first := wire.TimelineEvent{}
			for _, part := range by {
				one := e
				if one.Time = e.Time.Add(lag()); part%2 == 1 && e.After != wire.AlertResolved {
					one.Text += " (silenced)"
				}
				told[part] = append(told[part], one)
				if one.ID = keyOf(&one).String(); first.ID == "" || one.ID < first.ID {
					first = one
				}
			}
			want = append(want, first)
		}
		at := time.Duration(0)
		for i := range 240 {
			if i < 60 || i >= 200 { // else many at once, more than a round has
				at += time.Duration(rnd.IntN(90)) * time.Second
			}
			if i == 50 || i == 220 {
				at += time.Hour
			}
			by := rnd.Perm(n)
			if rnd.IntN(5) == 0 {
				by = by[:1] // the others were away
			}
			site := fmt.Sprintf("%c-%d", 'a'+rune(i%3), i)
			saw(alertOf(site, "critical", "fires", at), by, func() time.Duration { return 0 })
			looks := func() time.Duration { return time.Duration(rnd.IntN(15_000)) * time.Millisecond }
			saw(alertOf(site, wire.AlertResolved, "ended", at+10*time.Minute), by, looks)
			if i%7 == 0 { // and once more, soon
				saw(alertOf(site, "critical", "fires", at+10*time.Minute+30*time.Second), by, func() time.Duration { return 0 })
				saw(alertOf(site, wire.AlertResolved, "ended again", at+10*time.Minute+40*time.Second), by, looks)
			}
			notice := event("acme", site, wire.EventNotification, at+time.Second, "shared/"+site[:1])
			saw(notice, by[:1], func() time.Duration { return 0 })
			saw(event("acme", site, wire.EventColour, at, "shared/"+site[:1]), []int{n}, func() time.Duration { return 0 })
		}
		for i, s := range stores {
			add(t, s, told[i]...)
		}
		slices.SortFunc(want, newestFirst)
		for _, query := range []url.Values{{"limit": {"1000"}}, {"limit": {"100"}}, {"limit": {"40"}}, {"kind": {"notification"}, "limit": {"30"}}, {"kind": {"alert"}, "limit": {"30"}}, {"virtualSite": {"a"}, "limit": {"50"}}} {
			var got []wire.TimelineEvent
			for pages := 0; ; pages++ {
				page, p := m.Page(t.Context(), "*", query)
				if p != nil || len(page.Missing) > 0 || len(page.Events) == 0 || pages > 1000 {
					t.Fatalf("%v, %+v", p, page)
				}
				got = append(got, page.Events...)
				if page.NextCursor == "" {
					break
				}
				query.Set("cursor", page.NextCursor)
			}
			query.Del("cursor")
			var of []wire.TimelineEvent
			for _, e := range want {
				if k := query.Get("kind"); (k == "" || e.Kind == k) && (query.Get("virtualSite") == "" || e.VirtualSites[0] == "shared/a") {
					of = append(of, e)
				}
			}
			if texts(got) != texts(of) || len(of) < 50 {
				t.Errorf("%d parts, %v: %d events, want %d", n, query, len(got), len(of))
			}
			for i := range min(len(got), len(of)) {
				if got[i].ID != of[i].ID {
					t.Fatalf("%d parts, %v, at %d: %+v, want %+v", n, query, i, got[i], of[i])
				}
			}
		}
	}
}

// One of two that hangs is late by its address, and costs the page its patience once: the other tells all that it has.
func TestAReplicaThatHangs(t *testing.T) {
	stores, m := replicas(t, 2)
	m.Patience = 300 * time.Millisecond
	var many []wire.TimelineEvent
	for i := range 700 {
		many = append(many, alertOf(fmt.Sprintf("a-%d", i), "critical", "fires", time.Duration(i)*time.Millisecond))
	}
	add(t, stores[0], many...)
	add(t, stores[1], event("acme", "paris", wire.EventNotification, 0))
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer hangs.Close()
	well := m.Parts[1].URL
	m.Parts[1].URL = hangs.URL
	began := time.Now()
	page, p := m.Page(t.Context(), "acme", url.Values{"limit": {"300"}})
	if took := time.Since(began); took < m.Patience || took > 3*m.Patience {
		t.Errorf("it took %s", took)
	}
	if p != nil || len(page.Events) != 300 || page.NextCursor == "" || len(page.Missing) != 1 {
		t.Fatalf("%d events, %+v, %v", len(page.Events), page.Missing, p)
	}
	if x := page.Missing[0]; x.Name() != "alerting at "+strings.TrimPrefix(hangs.URL, "http://") || !x.Late || !slices.Contains(x.Kinds, wire.EventNotification) {
		t.Errorf("%+v", x)
	}
	m.Parts[1].URL = "http://127.0.0.1:1"
	if page, p := m.Page(t.Context(), "acme", nil); p != nil || len(page.Missing) != 1 || page.Missing[0].Late {
		t.Errorf("one that is not there: %+v, %v", page, p)
	}
	// One that is back has its part in the pages that follow.
	m.Parts[1].URL = well
	if page, p := m.Page(t.Context(), "acme", url.Values{"kind": {"notification"}}); p != nil || len(page.Missing) != 0 || len(page.Events) != 1 {
		t.Errorf("%+v, %v", page, p)
	}
	for _, wrong := range []string{"0", "1001", "many"} {
		if _, p := m.Page(t.Context(), "acme", url.Values{"limit": {wrong}}); p == nil || p.Status != http.StatusBadRequest {
			t.Errorf("limit %s: %+v", wrong, p)
		}
	}
}
