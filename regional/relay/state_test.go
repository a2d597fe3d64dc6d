package relay

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

// Sites that hold the same share it, are told before anything is on disk, and get it from
// the disk after a restart; who is gone takes nothing away from the others.
func TestDesiredStateIsShared(t *testing.T) {
	dir, c := t.TempDir(), newControl()
	addr, stopControl := c.serve(t, "")
	stopControl()
	r := newRelay(t, Options{Dir: dir, Control: client(t, addr)})
	const sites = 3000
	ids := make([]*wire.SiteName, sites)
	sessions := make([]*session, sites)
	for i := range ids {
		ids[i], sessions[i] = &wire.SiteName{Tenant: "acme", Site: fmt.Sprintf("s-%04d", i)}, newSession()
		r.SiteUp(fleet.SiteID{Tenant: "acme", Name: ids[i].Site}, &wire.Hello{}, sessions[i])
	}
	one, other := desiredOf([]byte("one")), desiredOf([]byte("other"))
	onDesired(r, proto.CloneOf(other), ids[0])
	onDesired(r, proto.CloneOf(one), ids[1:]...)
	for i, s := range sessions {
		want := one
		if i == 0 {
			want = other
		}
		if d := <-s.desired; d.Revision != want.Revision {
			t.Fatal(i, d)
		}
	}
	onDesired(r, proto.CloneOf(one), ids[0])
	if d := <-sessions[0].desired; d != r.desired.get(fleet.SiteID{Tenant: "acme", Name: "s-0001"}) || len(r.desired.sets) != 1 {
		t.Errorf("%d sets are kept, want one for all", len(r.desired.sets))
	}
	r.desired.remove(fleet.SiteID{Tenant: "acme", Name: "s-0000"})
	r.desired.remove(fleet.SiteID{Tenant: "acme", Name: "s-0000"})
	stop := run(t, r)
	stop() // which saves

	again := newRelay(t, Options{Dir: dir, Control: client(t, addr)})
	if again.desired.len() != sites-1 || len(again.desired.sets) != 1 {
		t.Errorf("%d sites, %d sets after a restart", again.desired.len(), len(again.desired.sets))
	}
	for _, id := range ids {
		again.desired.remove(fleet.SiteID{Tenant: "acme", Name: id.Site})
	}
	if again.desired.len() != 0 || len(again.desired.sets) != 0 {
		t.Errorf("%d sites and %d sets are left", again.desired.len(), len(again.desired.sets))
	}
}

// What control tells as a change is followed where the state before it is held, and asked for
// anew where not; a regional says what it holds as it announces a site.
func TestChangesAreFollowed(t *testing.T) {
	c := newControl()
	one, two, three := desiredOf([]byte("a"), []byte("b"), []byte("c")), desiredOf([]byte("a"), []byte("x"), []byte("c")), desiredOf([]byte("a"), []byte("x"))
	c.desired[paris] = one
	addr, _ := c.serve(t, "")
	r := newRelay(t, Options{Control: client(t, addr)})
	run(t, r)
	s := newSession()
	r.SiteUp(paris, &wire.Hello{}, s)
	next := func(what string, want *wire.DesiredState) {
		t.Helper()
		if d := <-s.desired; d.Revision != want.Revision {
			t.Fatalf("%s: %v", what, d)
		}
	}
	next("the whole", one)
	change := func(from, to *wire.DesiredState) *wire.RelayDown {
		return &wire.RelayDown{Msg: &wire.RelayDown_SitesChange{SitesChange: &wire.SitesChange{Change: wire.ChangeBetween(from, to),
			Sites: []*wire.SiteName{{Tenant: paris.Tenant, Site: paris.Name}}}}}
	}
	c.down <- change(one, two)
	next("a change", two)
	c.mu.Lock()
	c.desired[paris] = three
	c.mu.Unlock()
	c.down <- change(one, two)
	next("a change that does not follow", three)
	again := newSession()
	r.SiteUp(paris, &wire.Hello{}, again)
	testkit.EventuallyTrue(t, "it says what it holds", func() bool {
		return strings.HasSuffix(strings.Join(c.holds(), " "), two.Revision+" "+three.Revision)
	})
}

func FuzzDecodeSaved(f *testing.F) {
	good, _ := proto.Marshal(&wire.SavedDesired{Sets: []*wire.SitesDesired{{Desired: desiredOf([]byte("x")), Sites: []*wire.SiteName{{Tenant: "acme", Site: "paris"}}}}})
	f.Add(good)
	f.Add([]byte("\x0a\x00"))
	f.Add([]byte("\x0a\x02\x12\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		saved, err := decodeSaved(b)
		if err != nil {
			return
		}
		d := &desiredStore{sites: map[fleet.SiteID]*wire.DesiredState{}, sets: map[string]*sharedSet{}, wake: make(chan struct{}, 1)}
		for _, set := range saved.Sets {
			for _, s := range set.Sites {
				id := fleet.SiteID{Tenant: s.Tenant, Name: s.Site}
				if got := d.setLocked(id, set.Desired); id.Validate() != nil || got.Revision != wire.RevisionOf(got.Items) {
					t.Fatal(id, got)
				}
			}
		}
	})
}
