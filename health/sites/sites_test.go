package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/health"
	"muster.dev/muster/health/engine"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/sitequery"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

type source struct{ atomic.Pointer[engine.View] }

func (s *source) View() *engine.View { return s.Load() }

// entry describes one site: its score, or -1 for unknown.
type entry struct {
	id     string
	score  float64
	change func(*inventory.Site)
}

func view(entries ...entry) *engine.View {
	states := map[fleet.SiteID]*health.State{}
	var sites []*inventory.Site
	for _, e := range entries {
		tenant, name, _ := strings.Cut(e.id, "/")
		s := &inventory.Site{ID: fleet.SiteID{Tenant: tenant, Name: name}, Region: "eu", Phase: fleet.PhaseOnline, Labels: map[string]string{"region": "eu", "kind": "store"},
			Versions: map[string]string{"agent": "1.4", "os": "24.04"}, CreatedAt: now.Add(-time.Hour)}
		if e.change != nil {
			e.change(s)
		}
		sites = append(sites, s)
		st := &health.State{Score: e.score, Known: e.score >= 0, Colour: fleet.Grey}
		if st.Known {
			st.Colour = fleet.ColourOf(e.score)
		}
		if st.Colour == fleet.Red {
			st.Reasons = []health.Reason{{Dimension: fleet.Performance, Signal: "disk-used", Text: "Disk /var is 97 % full"}}
		}
		if s.Counts() {
			states[s.ID] = st
		}
	}
	v := &engine.View{Version: 1, AsOf: now, Snapshot: inventory.NewSnapshot(1, sites, nil, nil)}
	for _, s := range v.Snapshot.Sites {
		v.Sites = append(v.Sites, &engine.Site{Site: s, State: states[s.ID], Phase: s.Phase, LastSeen: now.Add(-10 * time.Second), Maintenance: s.MaintenanceAt(now)})
	}
	return v
}

func fixture() *engine.View {
	return view(
		entry{"a/berlin", 90, nil},
		entry{"a/oslo", 60.04, func(s *inventory.Site) {
			s.Labels = map[string]string{"kind": "factory", "note": "=1+1"}
			s.Region = "nordics"
		}},
		entry{"a/paris", 12, func(s *inventory.Site) { s.ByHand = &v1alpha1.Maintenance{Reason: "new roof"} }},
		entry{"a/rome", -1, nil},
		entry{"a/old", 50, func(s *inventory.Site) { s.Phase = fleet.PhaseDecommissioned }},
		entry{"a/waiting", 50, func(s *inventory.Site) { s.Phase = fleet.PhasePending }},
		entry{"b/paris", 55, nil},
		entry{"c/lima", 75, nil},
	)
}

func serve(t testing.TB, v *engine.View, firing func(context.Context, string) (*wire.FiringAlerts, error)) *httptest.Server {
	t.Helper()
	src := &source{}
	src.Store(v)
	s, err := New(Options{Source: src, Logger: slog.New(slog.DiscardHandler), Firing: firing})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	s.Register(mux)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv
}

func get(t testing.TB, srv *httptest.Server, path, tenants string, params ...string) (int, string) {
	t.Helper()
	q := url.Values{}
	for i := 0; i < len(params); i += 2 {
		q.Set(params[i], params[i+1])
	}
	req, err := http.NewRequest(http.MethodGet, srv.URL+path+"?"+q.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if tenants != "" {
		req.Header.Set(wire.TenantsHeader, tenants)
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func page(t testing.TB, srv *httptest.Server, tenants string, params ...string) *wire.SitePage {
	t.Helper()
	code, body := get(t, srv, wire.SitesPath, tenants, params...)
	out := &wire.SitePage{}
	if err := json.Unmarshal([]byte(body), out); code != http.StatusOK || err != nil {
		t.Fatalf("%v: %d %s %v", params, code, body, err)
	}
	return out
}

func names(p *wire.SitePage) string {
	var out []string
	for _, s := range p.Sites {
		out = append(out, fmt.Sprint(s["tenant"], "/", s["name"]))
	}
	return strings.Join(out, " ")
}

func TestList(t *testing.T) {
	srv := serve(t, fixture(), nil)
	for _, x := range []struct{ tenants, q, sort, want string }{
		{"a", "", "", "a/berlin a/oslo a/paris a/rome a/waiting"},
		{"a", "", "score", "a/paris a/oslo a/berlin a/rome a/waiting"},
		{"a", "", "-score", "a/berlin a/oslo a/paris a/rome a/waiting"},
		{"*", "", "name", "a/berlin c/lima a/oslo a/paris b/paris a/rome a/waiting"},
		{"b,c", "", "", "c/lima b/paris"},
		{"a", "phase=decommissioned", "", "a/old"},
		{"a", `kind=store score<60 "disk"`, "", "a/paris"},
		{"*", "score=60", "", "a/oslo"}, // as it is shown
		{"*", "maintenance=true", "", "a/paris"},
		{"*", "tenant=b", "", "b/paris"},
		{"nobody", "", "", ""},
	} {
		if got := page(t, srv, x.tenants, "q", x.q, "sort", x.sort); names(got) != x.want || got.Total != len(got.Sites) {
			t.Errorf("as %s: %s by %q: %s of %d, want %s", x.tenants, x.q, x.sort, names(got), got.Total, x.want)
		}
	}
	got := page(t, srv, "*", "tenant", "a", "q", "score!=unknown", "columns", "score,label.kind,version.os,maintenance,lastSeen,color,virtualSite")
	if got.Total != 3 || got.Readable != 5 || fmt.Sprint(got.Counts) != "map[green:1 grey:0 orange:1 red:1]" || !got.AsOf.Equal(now) {
		t.Errorf("%+v", got)
	}
	if want := []string{"score", "label.kind", "version.os", "maintenance", "lastSeen", "colour", "virtualSite"}; !slices.Equal(got.Columns, want) {
		t.Errorf("columns %v", got.Columns)
	}
	if want := "map[colour:orange label.kind:factory lastSeen:2026-05-01T11:59:50Z maintenance:false name:oslo score:60 tenant:a version.os:24.04 virtualSite:[]]"; fmt.Sprint(got.Sites[1]) != want {
		t.Errorf("%v", got.Sites[1])
	}
}

func TestPages(t *testing.T) {
	srv := serve(t, fixture(), nil)
	for _, sort := range []string{"", "-name", "score", "-lastSeen,kind", "-note,tenant"} {
		all := names(page(t, srv, "*", "sort", sort))
		var pieces []string
		after := ""
		for {
			p := page(t, srv, "*", "sort", sort, "limit", "2", "cursor", after)
			if p.Total != 7 {
				t.Errorf("%s: %d", sort, p.Total)
			}
			pieces = append(pieces, names(p))
			if after = p.NextCursor; after == "" {
				break
			}
		}
		if got := strings.Join(pieces, " "); got != all || len(pieces) != 4 {
			t.Errorf("by %q: %v, want %s", sort, pieces, all)
		}
	}
	p := page(t, srv, "*", "limit", "0")
	if p.Total != 7 || len(p.Sites) != 0 || p.NextCursor != "" {
		t.Errorf("counts alone: %+v", p)
	}
	after := page(t, srv, "*", "sort", "score", "limit", "2").NextCursor
	if code, body := get(t, srv, wire.SitesPath, "*", "sort", "name", "cursor", after); code != http.StatusBadRequest || !strings.Contains(body, "cursor: it is none of this list") {
		t.Errorf("a cursor of another order: %d %s", code, body)
	}
}

// TestPagesByLastSeen: while somebody turns pages, everybody who is there is heard of again.
func TestPagesByLastSeen(t *testing.T) {
	for _, sort := range []string{"lastSeen", "-lastSeen", "-lastSeen,name"} {
		var entries []entry
		for i := range 40 {
			entries = append(entries, entry{fmt.Sprintf("a/s%03d", (i*7)%40), 90, nil})
		}
		src := &source{}
		at := now
		tick := func() {
			v := view(entries...)
			at = at.Add(3 * time.Second)
			v.AsOf = at
			for i, s := range v.Sites {
				s.LastSeen = at.Add(-time.Duration((i*13+at.Second())%40) * 100 * time.Millisecond)
				if i%10 == 0 {
					s.LastSeen = now.Add(-time.Duration(i+10) * time.Hour) // away
				}
			}
			src.Store(v)
		}
		tick()
		s, err := New(Options{Source: src, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		mux := http.NewServeMux()
		s.Register(mux)
		srv := httptest.NewServer(mux)
		t.Cleanup(srv.Close)
		seen := map[string]int{}
		for after, pages := "", 0; pages == 0 || after != "" && pages < 20; pages++ {
			p := page(t, srv, "a", "sort", sort, "limit", "7", "cursor", after)
			for _, x := range p.Sites {
				seen[fmt.Sprint(x["name"])]++
			}
			after = p.NextCursor
			tick()
		}
		for name, n := range seen {
			if n != 1 {
				t.Errorf("by %s: %s came %d times", sort, name, n)
			}
		}
		if len(seen) != 40 {
			t.Errorf("by %s: %d of 40 sites came", sort, len(seen))
		}
	}
}

func TestGroups(t *testing.T) {
	srv := serve(t, fixture(), nil)
	p := page(t, srv, "a", "group", "kind", "q", "phase=Online", "limit", "0")
	if len(p.Groups) != 2 {
		t.Fatalf("%+v", p.Groups)
	}
	g := p.Groups[0]
	if g.Value != "store" || g.Query != "label.kind=store" || g.Sites != 3 || g.Counts["red"] != 1 || g.Counts["grey"] != 1 || *g.Mean != 51 || *g.Worst != 12 {
		t.Errorf("%+v", g)
	}
	for _, column := range []string{"kind", "note", "colour", "version.os", "virtualSite", "region", "maintenance"} {
		for _, g := range page(t, srv, "*", "group", column, "limit", "0").Groups {
			if got := page(t, srv, "*", "q", g.Query); got.Total != g.Sites {
				t.Errorf("%s finds %d, the group has %d", g.Query, got.Total, g.Sites)
			}
		}
	}
}

func TestAlertsOfSites(t *testing.T) {
	asked := map[string]int{}
	broken := false
	srv := serve(t, fixture(), func(_ context.Context, tenant string) (*wire.FiringAlerts, error) {
		asked[tenant]++
		if tenant == "b" || broken {
			return nil, errors.New("away")
		}
		return &wire.FiringAlerts{AsOf: now, Tenant: tenant, Sites: map[string][]string{"paris": {"critical/DiskFull", "warning/Slow"}}}, nil
	})
	p := page(t, srv, "a", "q", "alerts.critical>0", "columns", "alerts,alert")
	if names(p) != "a/paris" || fmt.Sprint(p.Sites[0]["alerts"], p.Sites[0]["alert"]) != "2 [DiskFull Slow]" || len(p.Notes) != 0 {
		t.Errorf("%+v", p)
	}
	p = page(t, srv, "*", "q", "alerts=unknown", "sort", "-alerts", "columns", "alerts")
	if names(p) != "b/paris" || p.Sites[0]["alerts"] != nil || len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "alerting role") {
		t.Errorf("%+v", p)
	}
	for range 3 {
		page(t, srv, "*", "sort", "-alerts")
		page(t, srv, "*", "columns", "name", "q", "score>1")
	}
	if fmt.Sprint(asked) != "map[a:1 b:1 c:1]" { // neither again at once after an answer nor after a failure
		t.Errorf("asked %v", asked)
	}
}

// TestFreeTextMeansTheSameSites, also those that only an alert names, whatever is shown of them.
func TestFreeTextMeansTheSameSites(t *testing.T) {
	v := fixture()
	for _, s := range v.Sites {
		s.Place = &inventory.Place{Latitude: 1, Longitude: 1}
	}
	srv := serve(t, v, func(_ context.Context, tenant string) (*wire.FiringAlerts, error) {
		if tenant == "b" {
			return nil, errors.New("away")
		}
		return &wire.FiringAlerts{AsOf: now, Tenant: tenant, Sites: map[string][]string{"berlin": {"warning/DiskFull"}}}, nil
	})
	asked := func(path string, params ...string) (int, string) { return get(t, srv, path, "a", params...) }
	for q, want := range map[string]string{`"disk"`: "a/berlin a/paris", `score>1 "disk"`: "a/berlin a/paris", `"disk" OR score<0`: "a/berlin a/paris", `NOT "disk"`: "a/oslo a/rome a/waiting", "diskfull": "a/berlin"} {
		for _, columns := range []string{"name", "alerts", ""} {
			if p := page(t, srv, "a", "q", q, "columns", columns); names(p) != want || p.Total != len(p.Sites) || len(p.Notes) > 0 {
				t.Errorf("%s with columns %q: %s, %d by their number, %v; want %s", q, columns, names(p), p.Total, p.Notes, want)
			}
		}
		n := len(strings.Fields(want))
		if _, csv := asked(wire.SitesPath, "q", q, "columns", "name", "format", "csv"); strings.Count(csv, "\n") != n+1 {
			t.Errorf("%s as CSV: %s", q, csv)
		}
		if m := ask[wire.SiteMap](t, asked, wire.SiteMapPath, "q", q); len(m.Names) != n {
			t.Errorf("%s on the map: %v, want %s", q, m.Names, want)
		}
		for _, d := range ask[wire.SiteDistributions](t, asked, wire.SiteDistributionsPath, "q", q, "of", "score").Distributions {
			if d.Known+d.Unknown != n {
				t.Errorf("%s: figures of %d sites, want %s", q, d.Known+d.Unknown, want)
			}
		}
	}
	if p := page(t, srv, "b", "q", `"disk"`, "columns", "name"); len(p.Notes) != 1 {
		t.Errorf("alerts that nobody can be asked for: %v", p.Notes)
	}
}

func TestCSV(t *testing.T) {
	srv := serve(t, fixture(), nil)
	_, got := get(t, srv, wire.SitesPath, "a", "format", "csv", "columns", "name,score,note,virtualSite,since", "q", "score!=unknown")
	if want := "name,score,label.note,virtualSite,since\nberlin,90,,,\noslo,60,'=1+1,,\nparis,12,,,\n"; got != want {
		t.Errorf("%s", got)
	}
	cold := usage(t, 1)
	cold.Sites[0].State.Signals = []health.SignalState{{}, {Value: -70, Known: true}, {}}
	if _, got := get(t, serve(t, cold, nil), wire.SitesPath, "a", "format", "csv", "columns", "measured.cpu-used"); got != "measured.cpu-used\n-70\n" {
		t.Errorf("a number: %s", got)
	}
	if _, got := get(t, srv, wire.SitesPath, "a", "format", "csv", "columns", "name", "limit", "1"); got != "name\nberlin\n" {
		t.Errorf("%s", got)
	}
}

func TestFields(t *testing.T) {
	srv := serve(t, fixture(), nil)
	_, body := get(t, srv, wire.SiteFieldsPath, "a")
	var f wire.SiteFields
	if err := json.Unmarshal([]byte(body), &f); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(f.Labels, f.Versions); got != "[{kind [store factory] 0} {note [=1+1] 0} {region [eu] 0}] [{agent [1.4] 0} {os [24.04] 0}]" {
		t.Errorf("%s", got)
	}
	if f.Measured == nil || len(f.Measured) > 0 {
		t.Errorf("signals of no policy: %q", f.Measured)
	}
	_, body = get(t, serve(t, usage(t, 4), nil), wire.SiteFieldsPath, "a")
	if err := json.Unmarshal([]byte(body), &f); err != nil || fmt.Sprint(f.Measured) != "[cpu-used memory-available uplink]" {
		t.Errorf("signals: %q, %v", f.Measured, err)
	}
	if _, body := get(t, srv, wire.SiteFieldsPath, "c"); strings.Contains(body, "factory") {
		t.Errorf("another tenant's labels: %s", body)
	}
}

func TestBadQuestions(t *testing.T) {
	srv := serve(t, fixture(), nil)
	for _, x := range []struct{ name, value, want string }{
		{"q", "score<x", "q: at character 7: score is a number"},
		{"sort", "é", "sort: "},
		{"columns", "name,label", "columns: label needs a key"},
		{"columns", strings.Repeat("a,", 51), "columns: 51 columns, want at most 50"},
		{"group", "score", "group: sites can't be grouped by score"},
		{"limit", "10001", "want a number from 0 to 10000"},
		{"cursor", "x", "cursor: it is none of this list"},
	} {
		if code, body := get(t, srv, wire.SitesPath, "a", x.name, x.value); code != http.StatusBadRequest || !strings.Contains(body, x.want) {
			t.Errorf("%s=%.20s: %d %s", x.name, x.value, code, body)
		}
	}
	p := page(t, srv, "a", "q", "kidn=store", "columns", "name")
	if p.Total != 0 || len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "kidn") {
		t.Errorf("%+v", p)
	}
	for _, params := range [][]string{{"columns", "name", "sort", "-nope"}, {"columns", "name", "group", "nope"}} {
		if p := page(t, srv, "a", params...); len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "label nope") {
			t.Errorf("%q: %+v", params, p.Notes)
		}
	}
	if code, _ := get(t, srv, wire.SitesPath, ""); code != http.StatusForbidden {
		t.Errorf("who may read nothing: %d", code)
	}
	if code, _ := get(t, srv, wire.SitesPath, "a", "tenant", "b"); code != http.StatusForbidden {
		t.Errorf("another tenant's: %d", code)
	}
	if code, _ := get(t, serve(t, nil, nil), wire.SitesPath, "a"); code != http.StatusServiceUnavailable {
		t.Errorf("before the first evaluation: %d", code)
	}
}

// The sites of a page are written byte for byte as json.Marshal would.
func TestRowsAreWrittenAsJSON(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"a", "Paris 7", `"`, `\`, "<", "é", "\u2028", "\xff", "\n", "\x7f", "&"}
	text := func() (s string) {
		for range r.IntN(4) {
			s += pieces[r.IntN(len(pieces))]
		}
		return s
	}
	number := func() sitequery.Number {
		return sitequery.Number{Value: []float64{0, 97.25, -3, 1e22, 1e-9, 123456789}[r.IntN(6)], Known: r.IntN(4) > 0}
	}
	columns := func(names ...string) (out []sitequery.Column) {
		for _, name := range names {
			c, err := sitequery.ParseColumn(name)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, c)
		}
		return out
	}
	for _, asked := range [][]sitequery.Column{columns(), columns("tenant", "score", "name"), columns("version", "label.a/b", "lastSeen", "virtualSite", "maintenance", "reason", "colour", "measured.x", "since", "address")} {
		rows, want := newRowWriter(asked), wire.SitePage{Notes: []string{text()}, Sites: []wire.SiteRow{}, Columns: []string{"x"}, NextCursor: "c"}
		for range 300 {
			row := &sitequery.Row{Tenant: text(), Name: text(), Address: text(), Score: number(), Labels: map[string]string{"a/b": text()}, Versions: map[string]string{"agent": text()}}
			row.VirtualSites = []string{text(), text()}[:r.IntN(3)]
			if r.IntN(2) == 0 {
				n := number()
				row.Reading = func(string) sitequery.Number { return n }
				row.LastSeen = now.Add(time.Duration(r.Int64N(1e15)))
				row.Reasons = []sitequery.Reason{{Text: text()}}
			}
			rows.add(row)
			site := wire.SiteRow{"name": row.Name, "tenant": row.Tenant}
			for _, c := range asked {
				site[c.Name()] = c.Value(row)
			}
			want.Sites = append(want.Sites, site)
		}
		sites, err := json.Marshal(want.Sites)
		if err != nil {
			t.Fatal(err)
		}
		if got := "[" + string(rows.out) + "]"; got != string(sites) {
			t.Fatalf("%s\nwant %s", got, sites)
		}
		page := want
		page.Sites = nil
		body, err := rows.page(&page)
		if err != nil {
			t.Fatal(err)
		}
		var got, whole any
		plain, _ := json.Marshal(want)
		if json.Unmarshal(body, &got) != nil || json.Unmarshal(plain, &whole) != nil || !reflect.DeepEqual(got, whole) {
			t.Errorf("%.300s\nwant %.300s", body, plain)
		}
	}
}

// What free text is looked for in is kept for as long as a site stays what it was, and no longer.
func TestFreeTextFollowsTheSites(t *testing.T) {
	src := &source{}
	s, err := New(Options{Source: src, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	s.Register(mux)
	srv := httptest.NewServer(mux)
	defer srv.Close()
	tagged := func(tag string) func(*inventory.Site) {
		return func(s *inventory.Site) { s.Labels = map[string]string{"tag": tag} }
	}
	first := view(entry{"a/berlin", 90, tagged("Old")}, entry{"a/oslo", 90, tagged("Fixed")}, entry{"a/rome", 90, nil})
	joined := view(entry{"a/aachen", 90, nil}, entry{"a/berlin", 90, tagged("New")})
	joined.Sites = append(joined.Sites, first.Sites[1:]...) // the same objects, at other places
	sites := append(slices.Clone(joined.Snapshot.Sites), first.Snapshot.Sites[1:]...)
	joined.Snapshot = inventory.NewSnapshot(2, sites, nil, nil)
	for _, step := range []struct {
		view *engine.View
		want string // sites that old, new, fixed and aachen find
	}{{first, "a/berlin, , a/oslo, "}, {joined, ", a/berlin, a/oslo, a/aachen"}, {first, "a/berlin, , a/oslo, "}} {
		src.Store(step.view)
		var got []string
		for _, text := range []string{"old", "new", "fixed", "aachen"} {
			got = append(got, names(page(t, srv, "a", "q", text, "columns", "name")))
		}
		if strings.Join(got, ", ") != step.want {
			t.Errorf("%q, want %q", strings.Join(got, ", "), step.want)
		}
	}
}

// Who looks through ten thousand sites for a hundred leaves hardly any garbage.
func TestAPageLeavesLittleBehind(t *testing.T) {
	var entries []entry
	for i := range 10_000 {
		entries = append(entries, entry{fmt.Sprintf("acme/site-%05d", i), float64(i * 7919 % 101), nil})
	}
	srv := serve(t, view(entries...), nil)
	for _, params := range [][]string{nil, {"sort", "score"}, {"limit", "0", "group", "phase"}} {
		get(t, srv, wire.SitesPath, "*", params...) // makes the rows
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if code, body := get(t, srv, wire.SitesPath, "*", params...); code != http.StatusOK {
			t.Fatal(body)
		}
		runtime.ReadMemStats(&after)
		if n := (after.TotalAlloc - before.TotalAlloc) >> 10; n > 2048 {
			t.Errorf("%q: %d KiB, want at most 2048", params, n)
		}
	}
}

// BenchmarkPage is one page of 10,000 sites over HTTP, with the slowest of a hundred.
func BenchmarkPage(b *testing.B) {
	var entries []entry
	for i := range 10_000 {
		score := float64(40 + i*7%61)
		if i%50 == 0 {
			score = 20
		}
		entries = append(entries, entry{fmt.Sprintf("acme/site-%05d", i), score, func(s *inventory.Site) {
			s.Labels = map[string]string{"region": fmt.Sprintf("r%d", i%12), "kind": []string{"store", "factory", "charger"}[i%3], "tier": fmt.Sprint(i % 5), "muster.dev/system-arch": "amd64", "model-year": fmt.Sprint(2015 + i%9)}
			s.Versions = map[string]string{"agent": fmt.Sprintf("1.%d.%d", i%4, i%7), "os": "24.04", "kubernetes": "v1.33.4"}
			s.Place = &inventory.Place{Latitude: float64(i*7919%12000)/100 - 50, Longitude: float64(i*104729%34000)/100 - 170}
			s.VirtualSites = []string{"shared/all", fmt.Sprintf("shared/v%d", i%20)}
		}})
	}
	firing := func(context.Context, string) (*wire.FiringAlerts, error) {
		out := &wire.FiringAlerts{AsOf: now, Tenant: "acme", Sites: map[string][]string{}}
		for i := 0; i < 10_000; i += 20 {
			out.Sites[fmt.Sprintf("site-%05d", i)] = []string{"critical/DiskFull", "warning/Slow"}
		}
		return out, nil
	}
	srv := serve(b, view(entries...), firing)
	for _, x := range []struct {
		name, path string
		params     []string
	}{
		{"first", wire.SitesPath, nil},
		{"worst", wire.SitesPath, []string{"sort", "score"}},
		{"query", wire.SitesPath, []string{"q", `kind=store version!=1.4 score<60 "disk"`, "sort", "-alerts,score"}},
		{"all-text", wire.SitesPath, []string{"q", `"97 %" OR name~/9$/ OR "factory"`, "sort", "-version,region,-name", "limit", "500"}},
		{"groups", wire.SitesPath, []string{"group", "label.region", "limit", "0"}},
		{"thousand", wire.SitesPath, []string{"limit", "1000", "sort", "-lastSeen"}},
		{"map", wire.SiteMapPath, []string{"by", "version"}},
		{"distributions", wire.SiteDistributionsPath, []string{"of", "score,performance,alerts"}},
	} {
		b.Run(x.name, func(b *testing.B) {
			var took []time.Duration
			before := testkit.CPUTime(b)
			for b.Loop() {
				from := time.Now()
				if code, body := get(b, srv, x.path, "*", x.params...); code != http.StatusOK {
					b.Fatal(body)
				}
				took = append(took, time.Since(from))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms/p99")
			// On a busy machine this is the page's, and the rest is waiting for a processor.
			b.ReportMetric((testkit.CPUTime(b)-before).Seconds()*1000/float64(len(took)), "cpu-ms/op")
		})
	}
}

// A query whose regular expressions repeat and repeat is refused, and one that takes too long
// over the sites that there are ends: who asks takes no processor from health for minutes.
func TestDearQueriesEnd(t *testing.T) {
	var entries []entry
	for i := range 2000 {
		entries = append(entries, entry{fmt.Sprintf("a/s%d", i), 12, func(s *inventory.Site) {
			s.Labels = map[string]string{"note": "x" + strings.Repeat("ab", 31)}
		}})
	}
	src := &source{}
	src.Store(view(entries...))
	s, err := New(Options{Source: src, Logger: slog.New(slog.DiscardHandler), Patience: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	s.Register(mux)
	srv := httptest.NewServer(mux)
	defer srv.Close()
	ask := func(q string) (int, string) {
		return get(t, srv, wire.SitesPath, "a", "q", q, "limit", "0")
	}
	if code, body := ask(`note~/((.{0,30}){0,30}x){0,1}/`); code != http.StatusUnprocessableEntity && code != http.StatusBadRequest || !strings.Contains(body, "repeat less") {
		t.Errorf("a bomb: %d %s", code, body)
	}
	dear := strings.Repeat(`note~/(.{0,6}){0,9}x$/ or `, 4) + `name=nobody`
	if code, body := ask(dear); code != http.StatusServiceUnavailable || !strings.Contains(body, "takes longer than") {
		t.Errorf("a dear one: %d %s", code, body)
	}
}
