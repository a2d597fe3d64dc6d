//go:build slicelabels

package gateway

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/remotewrite"
)

// TestSitesShareStrings: series of different sites have their names and values in common,
// also when the head was read from its log, and they don't change when the buffer of the
// push is used again.
func TestSitesShareStrings(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	check := func(r *rig) {
		t.Helper()
		app := r.edge.Storage().Appender(t.Context())
		defer app.Rollback()
		where := map[string]*byte{}
		for _, site := range []string{"paris", "berlin"} {
			want := labels.FromStrings("__name__", "up", "job", "node", "note", "the same everywhere", "tenant", "acme", "site", site, "region", "eu-west")
			ref, have := app.(storage.GetRef).GetRef(want, want.Hash())
			if ref == 0 || !labels.Equal(have, want) {
				t.Fatalf("%s: %d, %s", site, ref, have)
			}
			have.Range(func(l labels.Label) {
				for _, s := range []string{l.Name, l.Value} {
					if at := unsafe.StringData(s); where[s] == nil {
						where[s] = at
					} else if where[s] != at {
						t.Errorf("%q is there twice", s)
					}
				}
			})
		}
	}
	r, err := newRig(dir, unlimited, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		for _, id := range []fleet.SiteID{paris, berlin} {
			at := now.Add(time.Duration(i) * time.Second)
			series := []remotewrite.Series{
				sample(at, 1, "__name__", "up", "job", "node", "note", "the same everywhere"),
				sample(at, 1, "__name__", fmt.Sprint("other_", i), "job", "xxxx", "note", "something else here"),
			}
			if w := r.push(id, remotewrite.EncodeV2(series)); w.Code != 204 {
				t.Fatal(w.Code, w.Body)
			}
		}
	}
	check(r)
	r.close()
	if r, err = newRig(dir, unlimited, nil); err != nil {
		t.Fatal(err)
	}
	defer r.close()
	check(r)
}

// TestSharedStringsAreBounded: nobody fills memory with strings that come once.
func TestSharedStringsAreBounded(t *testing.T) {
	l := labelStrings{most: 1 << 20}
	one := func(s string) string {
		ls := labels.FromStrings("a", s)
		l.share(&ls)
		return ls.Get("a")
	}
	kept := one("kept")
	for i := range 3 * l.most / (64 + 16) {
		one(fmt.Sprintf("%016d", i))
		if i%1000 == 0 && unsafe.StringData(one("kept")) != unsafe.StringData(kept) {
			t.Fatalf("a string in use is forgotten after %d others", i)
		}
	}
	if n := len(l.young) + len(l.old); n > 2*(l.most/(64+16)+2) {
		t.Errorf("%d strings are held", n)
	}
	l.age()
	l.age()
	if n := len(l.young) + len(l.old); n != 0 {
		t.Errorf("%d strings are held that nobody asked for", n)
	}
}
