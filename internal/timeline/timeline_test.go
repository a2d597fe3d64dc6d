package timeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"muster.dev/muster/internal/wire"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func openAt(t testing.TB, file string, change ...func(*Options)) *Store {
	t.Helper()
	o := Options{File: file, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return begin.Add(24 * time.Hour) }}
	for _, f := range change {
		f(&o)
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func event(tenant, site, kind string, after time.Duration, virtual ...string) wire.TimelineEvent {
	return wire.TimelineEvent{Time: begin.Add(after), Kind: kind, Tenant: tenant, Site: site, VirtualSites: virtual, Text: fmt.Sprintf("%s of %s after %s", kind, site, after)}
}

func add(t testing.TB, s *Store, events ...wire.TimelineEvent) {
	t.Helper()
	if err := s.Add(events...); err != nil {
		t.Fatal(err)
	}
}

// ask walks all pages of a query over HTTP.
func ask(t *testing.T, s *Store, tenants, query string) []wire.TimelineEvent {
	t.Helper()
	mux := http.NewServeMux()
	s.Register(mux)
	var out []wire.TimelineEvent
	for cursor := ""; ; {
		r := httptest.NewRequest(http.MethodGet, wire.TimelinePath+"?"+query+cursor, nil)
		r.Header.Set(wire.TenantsHeader, tenants)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", query, w.Code, w.Body)
		}
		var page wire.TimelinePage
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil {
			t.Fatal(err)
		}
		out = append(out, page.Events...)
		if page.NextCursor == "" {
			return out
		}
		cursor = "&cursor=" + page.NextCursor
	}
}

func texts(events []wire.TimelineEvent) string {
	var out []string
	for _, e := range events {
		out = append(out, e.Tenant+": "+e.Text)
	}
	return strings.Join(out, "\n")
}

func TestPagesAndFilters(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "timeline.db"))
	var all []wire.TimelineEvent
	for i := range 40 {
		tenant, site := []string{"acme", "rival"}[i%2], fmt.Sprintf("site-%d", i%4/2)
		at := time.Duration(i/2) * time.Minute // both tenants at the same moments
		e := event(tenant, site, []string{wire.EventColour, wire.EventAlert, wire.EventPolicy}[i%3], at, "shared/all", fmt.Sprintf("shop/of-%d", i%4/2))
		all = append(all, e)
	}
	add(t, s, all...)
	add(t, s, all[3:9]...) // once more: nothing new
	slices.SortStableFunc(all, func(a, b wire.TimelineEvent) int {
		if c := b.Time.Compare(a.Time); c != 0 {
			return c
		}
		return strings.Compare(keyOf(&b).String()+a.Tenant, keyOf(&a).String()+b.Tenant)
	})
	cases := []struct {
		tenants, query string
		want           func(e wire.TimelineEvent) bool
	}{
		{"*", "limit=7", func(wire.TimelineEvent) bool { return true }},
		{"acme", "limit=1", func(e wire.TimelineEvent) bool { return e.Tenant == "acme" }},
		{"*", "tenant=rival", func(e wire.TimelineEvent) bool { return e.Tenant == "rival" }},
		{"acme", "site=site-1&limit=3", func(e wire.TimelineEvent) bool { return e.Tenant == "acme" && e.Site == "site-1" }},
		{"*", "virtualSite=shop/of-0&limit=3", func(e wire.TimelineEvent) bool { return e.Site == "site-0" }},
		{"*", "virtualSite=all,shop/of-0&limit=3", func(wire.TimelineEvent) bool { return true }},
		{"*", "virtualSite=all&site=site-0", func(e wire.TimelineEvent) bool { return e.Site == "site-0" }},
		{"acme", "kind=policy,alert&limit=2", func(e wire.TimelineEvent) bool { return e.Tenant == "acme" && e.Kind != wire.EventColour }},
		{"*", "from=2026-03-01T12:05:00Z&to=2026-03-01T12:10:00Z", func(e wire.TimelineEvent) bool {
			return !e.Time.Before(begin.Add(5*time.Minute)) && e.Time.Before(begin.Add(10*time.Minute))
		}},
		{"nobody", "", func(wire.TimelineEvent) bool { return false }},
	}
	for _, c := range cases {
		var want []wire.TimelineEvent
		for _, e := range all {
			if c.want(e) {
				want = append(want, e)
			}
		}
		if got := ask(t, s, c.tenants, c.query); texts(got) != texts(want) {
			t.Errorf("%s as %s:\n%s\nwant\n%s", c.query, c.tenants, texts(got), texts(want))
		}
	}
}

// An edit of a policy is one event, and stands in the timeline of each site that the policy selects:
// of no other, and of no other tenant's.
func TestEditsOfWhatIsRelated(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "timeline.db"))
	edit := func(tenant, namespace, object string, after time.Duration) wire.TimelineEvent {
		e := event(tenant, "", wire.EventPolicy, after)
		e.Namespace, e.Object, e.Text = namespace, object, object+" was edited"
		return e
	}
	paris, strict, loose := event("acme", "paris", wire.EventColour, 2*time.Minute), edit("acme", "", "HealthPolicy/strict", time.Minute), edit("acme", "", "HealthPolicy/loose", 3*time.Minute)
	theirs, app, rome := edit("rival", "", "HealthPolicy/strict", 4*time.Minute), edit("acme", "shop", "HealthPolicy/strict", 5*time.Minute), event("acme", "rome", wire.EventColour, 6*time.Minute)
	add(t, s, paris, strict, loose, theirs, app, rome)
	same := func(query string, want ...wire.TimelineEvent) {
		t.Helper()
		for _, limit := range []string{"1", "100"} {
			if got := ask(t, s, "*", query+"&limit="+limit); texts(got) != texts(want) {
				t.Errorf("%s:\n%s\nwant\n%s", query, texts(got), texts(want))
			}
		}
	}
	same("site=paris", paris)
	s.Relate(func(tenant, site string) []string {
		return map[string][]string{"acme/paris": {"HealthPolicy/strict"}, "acme/rome": {"HealthPolicy/strict", "HealthPolicy/loose"}}[tenant+"/"+site]
	})
	same("site=paris", paris, strict)
	same("site=rome", rome, loose, strict)
	same("site=paris,rome", rome, loose, paris, strict)
	same("site=paris&kind=policy", strict)
	same("site=oslo")
	same("site=paris&virtualSite=shared/eu")
	same("", rome, app, theirs, loose, paris, strict)
}

// Edits of a time when they were not found by their objects go, and are counted, as they came.
func TestEditsThatAreNotIndexedGoAsTheyCame(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "timeline.db"))
	left := event("acme", "paris", wire.EventColour, 23*time.Hour)
	add(t, s, left)
	want := s.uses["acme"]
	old := event("acme", "", wire.EventPolicy, -80*24*time.Hour)
	old.Object = "HealthPolicy/strict"
	add(t, s, old)
	if err := s.db.Update(func(tx *bolt.Tx) error {
		b, k := tx.Bucket(bucketTenants).Bucket([]byte("acme")), keyOf(&old)
		u := useOf(b)
		u.bytes -= prefixBytes + keyBytes
		return errors.Join(b.Bucket(bucketIndex).Delete(append(indexKey('o', old.Object), k[:]...)), b.Put(keyUse, u.encode()))
	}); err != nil {
		t.Fatal(err)
	}
	s.opts.Age = 30 * 24 * time.Hour
	if err := s.Prune(); err != nil {
		t.Fatal(err)
	}
	if got := s.uses["acme"]; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestWrongQueries(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "timeline.db"))
	mux := http.NewServeMux()
	s.Register(mux)
	for query, want := range map[string]string{
		"kind=mood": "kind: \"mood\": want one of", "from=yesterday": "from: \"yesterday\": want RFC 3339", "limit=0": "limit: \"0\": want", "cursor=x": "cursor: it is none of this list", "color=red": "no such parameter", "tenant=rival": "you may not read",
	} {
		r := httptest.NewRequest(http.MethodGet, wire.TimelinePath+"?"+query, nil)
		r.Header.Set(wire.TenantsHeader, "acme")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		var p wire.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code < 400 || w.Code > 403 || !strings.Contains(p.Detail, want) {
			t.Errorf("%s: %d %s, want %q", query, w.Code, w.Body, want)
		}
	}
}

// A tenant that writes all day has as many events as it may, and takes nobody's.
func TestBoundedForEachTenant(t *testing.T) {
	for name, bound := range map[string]func(*Options){"by number": func(o *Options) { o.Events = 50 }, "by bytes": func(o *Options) { o.Bytes = 10_000 }} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "timeline.db")
			s := openAt(t, file, bound)
			add(t, s, event("acme", "paris", wire.EventColour, 0, "shared/all"))
			for i := range 20 {
				var flood []wire.TimelineEvent
				for j := range 50 {
					flood = append(flood, event("rival", fmt.Sprintf("s-%d-%d", i, j), wire.EventColour, time.Duration(i*50+j)*time.Second, "shared/all"))
				}
				add(t, s, flood...)
			}
			if got := ask(t, s, "acme", ""); len(got) != 1 {
				t.Errorf("acme has %d events, want its 1", len(got))
			}
			got := ask(t, s, "rival", "")
			if len(got) < 30 || len(got) > 80 || got[0].Site != "s-19-49" {
				t.Errorf("rival has %d events, of which the newest is %+v", len(got), got[0])
			}
			if viaIndex := ask(t, s, "rival", "virtualSite=all"); texts(viaIndex) != texts(got) {
				t.Errorf("the index has %d events, the tenant %d", len(viaIndex), len(got))
			}
			// What is counted is what is there, also after a restart.
			was := s.uses["rival"]
			if was.events != int64(len(got)) || was.bytes <= 0 || was.bytes > s.opts.Bytes {
				t.Errorf("counted: %+v", was)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if s = openAt(t, file, bound); s.uses["rival"] != was {
				t.Errorf("after a restart %+v, before %+v", s.uses["rival"], was)
			}
		})
	}
}

func TestOldEventsGo(t *testing.T) {
	now := begin
	s := openAt(t, filepath.Join(t.TempDir(), "timeline.db"), func(o *Options) { o.Age, o.Now = time.Hour, func() time.Time { return now } })
	add(t, s, event("acme", "paris", wire.EventColour, 0, "shared/all"), event("acme", "rome", wire.EventColour, 30*time.Minute), event("rival", "rome", wire.EventColour, 0))
	now = begin.Add(80 * time.Minute)
	if err := s.Prune(); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, s, "*", ""); len(got) != 1 || got[0].Site != "rome" || got[0].Tenant != "acme" {
		t.Errorf("kept: %s", texts(got))
	}
	if got := ask(t, s, "*", "virtualSite=all"); len(got) != 0 {
		t.Errorf("the index kept: %s", texts(got))
	}
	if len(s.uses) != 1 {
		t.Errorf("uses: %+v", s.uses)
	}
}

// One site that flaps leaves the others their place, and says how much it left out.
func TestASiteThatFlaps(t *testing.T) {
	now := begin
	s := openAt(t, filepath.Join(t.TempDir(), "timeline.db"), func(o *Options) { o.SiteBurst, o.Now = 10, func() time.Time { return now } })
	for i := range 200 {
		add(t, s, event("acme", "flaps", wire.EventConnection, time.Duration(i)*time.Second))
	}
	add(t, s, event("acme", "calm", wire.EventConnection, 0))
	if got := ask(t, s, "acme", "site=flaps"); len(got) != 10 {
		t.Errorf("%d events of the site that flaps, want 10", len(got))
	}
	if got := ask(t, s, "acme", "site=calm"); len(got) != 1 {
		t.Errorf("%d events of the other, want 1", len(got))
	}
	now = now.Add(time.Hour)
	add(t, s, event("acme", "flaps", wire.EventConnection, time.Hour))
	if got := ask(t, s, "acme", "site=flaps&limit=1000"); !strings.Contains(got[0].Text, "190 events") {
		t.Errorf("the next one says %q", got[0].Text)
	}
}

func TestLongTextsAreCut(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "timeline.db"))
	e := event("acme", "paris", wire.EventPolicy, 0)
	e.Text, e.By = strings.Repeat("ü\n", 5000), strings.Repeat("x", 5000)
	for i := range 500 {
		e.VirtualSites = append(e.VirtualSites, fmt.Sprintf("shared/v-%d", i))
	}
	add(t, s, e)
	got := ask(t, s, "acme", "")[0]
	if len(got.Text) > maxText || strings.Contains(got.Text, "\n") || !strings.HasSuffix(got.Text, "…") || len(got.By) > maxName || len(got.VirtualSites) != maxVirtualSites {
		t.Errorf("%d bytes of text, %d of by, %d virtual sites", len(got.Text), len(got.By), len(got.VirtualSites))
	}
	if err := s.Add(wire.TimelineEvent{Kind: "mood", Time: begin, Text: "x"}); err == nil {
		t.Error("an event of no kind was taken")
	}
}

// The file as it is between two transactions is what kill -9 leaves: whoever starts from it
// and looks again tells what was not told, and nothing twice.
func TestTrackedAcrossKill(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "timeline.db")
	s := openAt(t, file)
	colours := []string{"green", "orange", "red", "green", "red"}
	look := func(s *Store, colour string, at time.Duration) {
		t.Helper()
		tr, err := s.Track("colours")
		if err != nil {
			t.Fatal(err)
		}
		before := tr.Get("paris")
		if before == colour {
			return
		}
		c := Change{Key: "paris", Value: colour}
		if !tr.Fresh() {
			e := event("acme", "paris", wire.EventColour, at)
			e.Before, e.After = before, colour
			c.Events = []wire.TimelineEvent{e}
		}
		if err := tr.Commit([]Change{c}); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range colours {
		look(s, c, time.Duration(i)*time.Minute)
		look(s, c, time.Duration(i)*time.Minute+time.Second) // the same again is no news
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		file = filepath.Join(dir, fmt.Sprintf("killed-%d.db", i))
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s = openAt(t, file)
		look(s, c, time.Duration(i)*time.Minute+2*time.Second)
	}
	var got []string
	for _, e := range ask(t, s, "acme", "") {
		got = append(got, e.Before+">"+e.After)
	}
	if want := "green>red red>green orange>red green>orange"; strings.Join(got, " ") != want {
		t.Errorf("told: %v, want %s", got, want)
	}
}

func FuzzParseQuery(f *testing.F) {
	f.Add("acme", "site=a&virtualSite=x/y&kind=alert&from=2026-03-01T12:05:00Z&limit=5&cursor=e30")
	f.Fuzz(func(t *testing.T, tenants, query string) {
		r := httptest.NewRequest(http.MethodGet, wire.TimelinePath, nil)
		r.URL.RawQuery = query
		r.Header.Set(wire.TenantsHeader, tenants)
		q, p := ParseQuery(r)
		if (q == nil) == (p == nil) {
			t.Fatal("want a query or a problem")
		}
		if q != nil && (q.Limit < 1 || q.Limit > maxLimit) {
			t.Fatalf("limit %d", q.Limit)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(make([]byte, keyBytes), []byte(`{"t":"x"}`))
	f.Fuzz(func(t *testing.T, k, v []byte) {
		if len(k) != keyBytes {
			return
		}
		e, err := decode(key(k), v)
		if err == nil && e.Kind == "" {
			t.Fatal("no kind")
		}
	})
}
