package fleetapi

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired/render"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// With 10,000 objects on each of 40 sites one that changes is told to a regional in a few kB
// for all of them; what it holds already, as it says when it connects, in none.
func TestAChangeOfOneObjectIsShort(t *testing.T) {
	const sites, objects = 40, 10000
	w := newWorld(t)
	w.know(&v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-shared", Name: "all"}})
	w.store.ConfigureWorkloads("acme", "acme-shop", render.Settings{DefaultVirtualSite: "shared/all"})
	kind, ok := offered.NewSet().Of(schema.GroupKind{Kind: "ConfigMap"})
	if !ok {
		t.Fatal("ConfigMaps are not offered")
	}
	put := func(i int, version uint64, data string) {
		t.Helper()
		if err := w.store.SetWorkload(kind, "acme-shop", version, map[string]any{"metadata": map[string]any{"name": fmt.Sprintf("config-%05d", i)}, "data": map[string]any{"key": data}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range objects {
		put(i, 1, "one")
	}
	var ids []fleet.SiteID
	for i := range sites {
		ids = append(ids, w.site(fmt.Sprintf("s-%03d", i)))
	}
	w.started()
	go func() { _ = w.store.Run(t.Context()) }()
	all := func(r *regional) func() bool {
		return func() bool {
			for _, id := range ids {
				want := w.store.State(id)
				if got := r.desiredOf(id); len(want.Items) < objects || got.GetRevision() != want.Revision {
					return false
				}
			}
			return true
		}
	}
	bytes := func(r *regional) int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.desiredBytes
	}
	r := w.regionalThat("eu-1", wire.Capability)
	for _, id := range ids {
		r.up(id, nil)
	}
	w.eventually("all objects reach all sites", all(r))
	whole, before := bytes(r), w.store.State(ids[0])
	put(4711, 2, "two")
	w.eventually("the change reaches all sites", func() bool { return w.store.State(ids[0]).Revision != before.Revision && all(r)() })
	if n := bytes(r) - whole; n > 8<<10 {
		t.Errorf("a change of one object for %d sites was %d bytes, want at most 8 KiB; all of it was %d", sites, n, whole)
	} else {
		t.Logf("all of it: %d bytes, a change of one object: %d, for %d sites", whole, n, sites)
	}

	// Another stream of the regional, which has it all on its disk.
	w.server.mu.Lock()
	former := w.server.sessions["eu-1"]
	w.server.mu.Unlock()
	r.cancel()
	again := w.regionalThat("eu-1", wire.Capability)
	again.mu.Lock()
	for _, id := range ids {
		again.desired[id] = w.store.State(id)
	}
	again.mu.Unlock()
	for _, id := range ids {
		again.send(&wire.RelayUp{Msg: &wire.RelayUp_Up{Up: &wire.SiteUp{Tenant: id.Tenant, Site: id.Name, Hello: &wire.Hello{}, Holds: w.store.State(id).Revision}}})
	}
	w.eventually("control has heard what the regional holds", func() bool {
		w.server.mu.Lock()
		x := w.server.sessions["eu-1"]
		w.server.mu.Unlock()
		if x == nil || x == former {
			return false
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		return len(x.sent) == sites
	})
	before = w.store.State(ids[0])
	put(815, 2, "two")
	w.eventually("the next change reaches all sites", func() bool { return w.store.State(ids[0]).Revision != before.Revision && all(again)() })
	if n := bytes(again); n > 8<<10 {
		t.Errorf("a regional that came back with all of it was sent %d bytes", n)
	}
}
