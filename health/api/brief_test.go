package api

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"muster.dev/muster/health/engine"
	"muster.dev/muster/internal/wire"
)

func TestBriefStream(t *testing.T) {
	f := &fake{}
	v := fixture(t)
	f.view.Store(v)
	srv := serve(t, f)
	brief, whole := events(t, srv, "stream?brief=true", "*"), events(t, srv, "stream", "*")
	want := func(c <-chan [2]string, name, data string) {
		t.Helper()
		if e := next(t, c); e[0] != name || e[1] != data {
			t.Errorf("event %s: %s, want %s: %s", e[0], e[1], name, data)
		}
	}
	// The one that turned says what it is now, the other one only that it changed.
	f.Publish(&engine.Update{View: v, Sites: []*engine.Site{v.Find("a", "oslo"), v.Find("b", "paris"), v.Find("a", "old")}, Turned: []bool{true, false, true}})
	want(brief, "removed", `{"asOf":"2026-05-01T12:00:00Z","sites":[{"tenant":"a","name":"old"}]}`)
	want(brief, "sites", `{"asOf":"2026-05-01T12:00:00Z","sites":[{"tenant":"a","name":"oslo","colour":"orange","phase":"Online","text":"80% of the CPU is in use"},{"tenant":"b","name":"paris"}]}`)
	next(t, whole)
	if e := next(t, whole); !strings.Contains(e[1], `"dimensions"`) {
		t.Errorf("the whole stream: %v", e)
	}
	// Where nobody knows what it was before it says all.
	f.Publish(&engine.Update{View: v, Sites: []*engine.Site{v.Find("a", "rome")}})
	want(brief, "sites", `{"asOf":"2026-05-01T12:00:00Z","sites":[{"tenant":"a","name":"rome","colour":"grey","phase":"Online","text":"the site has never connected"}]}`)
}

// BenchmarkStreamBytes: what 300 sites that changed, three of which turned, are on the wire of
// a stream: bytes a site, as they are and compressed.
func BenchmarkStreamBytes(b *testing.B) {
	var entries []entry
	for i := range 300 {
		entries = append(entries, entry{id: fmt.Sprintf("acme/load-%05d", i), score: 50 + float64(i%50), virtual: []string{"shared/all-eu"}})
	}
	v := view(b, 1, entries...)
	u := &engine.Update{View: v, Sites: v.Sites, Tick: true}
	for i := range v.Sites {
		u.Turned = append(u.Turned, i%100 == 0)
	}
	s, err := New(Options{Source: &fake{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	for _, brief := range []bool{false, true} {
		b.Run(fmt.Sprintf("brief=%t", brief), func(b *testing.B) {
			var plain, packed bytes.Buffer
			for b.Loop() {
				s.encoded = nil
				e, err := s.encode(u, brief)
				if err != nil {
					b.Fatal(err)
				}
				plain.Reset()
				e.events(&plain, &wire.Scope{All: true})
			}
			z := gzip.NewWriter(&packed)
			_, _ = z.Write(plain.Bytes())
			_ = z.Flush()
			b.ReportMetric(float64(plain.Len())/float64(len(v.Sites)), "B/site")
			b.ReportMetric(float64(packed.Len())/float64(len(v.Sites)), "gzip-B/site")
		})
	}
}
