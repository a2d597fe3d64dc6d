package mirror

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"muster.dev/muster/internal/fairshare"
	"muster.dev/muster/internal/wire"
)

func pod(name, content string) *wire.Mirrored {
	return &wire.Mirrored{Kind: "Pod", Namespace: "acme-shop", Name: name, Object: []byte(content)}
}

// content is what a Mirror holds, by key.
func content(m *Mirror) map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]string{}
	for key, o := range m.objects {
		if o.mirrored != nil {
			out[key] = string(o.mirrored.Object)
		} else {
			out[key] = o.workload.State
		}
	}
	return out
}

// Three hops with links that break in the middle of versions, hops that restart, and
// content that changes all the while: whenever nothing is left to tell, all hold the same.
func TestHopsAgree(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		site, regional, control := New(DefaultLimits, nil), New(DefaultLimits, nil), New(DefaultLimits, nil)
		site.Begin()
		// send passes what is to be told on, over a link that may break after some messages.
		send := func(from, to *Mirror, own bool, breaks bool) (whole bool) {
			for _, part := range from.Next(own) {
				if breaks && rnd.IntN(3) == 0 {
					return false
				}
				if !to.Apply(proto.Clone(part).(*wire.KubernetesStatus)) {
					from.Resync()
					return true
				}
			}
			return true
		}
		reconnect := func(from, to *Mirror, own bool) {
			to.Interrupted()
			if own { // the site is told what its regional holds
				e, s := to.Version()
				from.Held(e, s)
				return
			}
			e, s := from.Assume() // control is told, and objects
			if he, hs := to.Version(); e != "" && (he != e || hs != s) {
				from.Resync()
			}
		}
		for range 150 {
			switch rnd.IntN(9) {
			case 0, 1, 2:
				site.Put(pod(fmt.Sprint(rnd.IntN(20)), string(make([]byte, rnd.IntN(PartBytes)))+fmt.Sprint(rnd.Int())))
			case 3:
				site.PutWorkload(&wire.WorkloadStatus{Name: fmt.Sprint(rnd.IntN(5)), State: fmt.Sprint(rnd.IntN(3))})
			case 4:
				keys := slices.Collect(func(yield func(string) bool) {
					for k := range content(site) {
						if !yield(k) {
							return
						}
					}
				})
				if len(keys) > 0 {
					site.Drop(keys[rnd.IntN(len(keys))])
				}
			case 5:
				if !send(site, regional, true, true) {
					reconnect(site, regional, true)
				}
			case 6:
				if !send(regional, control, false, true) {
					reconnect(regional, control, false)
				}
			case 7:
				switch rnd.IntN(6) {
				case 0: // the agent restarts, and finds other things
					site = New(DefaultLimits, nil)
					site.Begin()
					reconnect(site, regional, true)
				case 1:
					regional = New(DefaultLimits, nil)
					reconnect(site, regional, true)
					reconnect(regional, control, false)
				case 2:
					control = New(DefaultLimits, nil)
					reconnect(regional, control, false)
				}
			}
		}
		for range 3 {
			send(site, regional, true, false)
			send(regional, control, false, false)
		}
		want := content(site)
		for what, m := range map[string]*Mirror{"the regional": regional, "control": control} {
			if got := content(m); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("seed %d: %s holds %d objects, the site %d", seed, what, len(got), len(want))
			}
			if m.Stats().Bytes != site.Stats().Bytes {
				t.Fatalf("seed %d: %s counts %d bytes, the site %d", seed, what, m.Stats().Bytes, site.Stats().Bytes)
			}
		}
		if got := regional.Next(false); got != nil {
			t.Fatalf("seed %d: there is nothing to tell, but %v", seed, got)
		}
	}
}

// What does not change is not told again, and a hop that comes back with the right version
// costs nothing.
func TestNothingIsToldTwice(t *testing.T) {
	site, regional := New(DefaultLimits, nil), New(DefaultLimits, nil)
	site.Begin()
	site.Put(pod("web", "1"))
	for _, p := range site.Next(true) {
		regional.Apply(p)
	}
	site.Put(pod("web", "1"))
	site.Held(regional.Version())
	if got := site.Next(true); got != nil {
		t.Errorf("told again: %v", got)
	}
	site.Put(pod("web", "2"))
	site.Put(pod("web", "3"))
	parts := site.Next(true)
	if len(parts) != 1 || parts[0].Snapshot || len(parts[0].Mirrored) != 1 || string(parts[0].Mirrored[0].Object) != "3" {
		t.Errorf("a change: %v", parts)
	}
}

func TestLimits(t *testing.T) {
	m := New(Limits{Objects: 2, Bytes: 1000, Object: 600}, nil)
	m.Begin()
	for i, size := range []int{700, 500, 500, 100, 1} { // too large; fits; over all; fits; one too many
		m.Put(pod(fmt.Sprint(i), string(make([]byte, size))))
	}
	if st := m.Stats(); st.Objects != 2 || st.LeftOut != 3 || st.Bytes > 1000 {
		t.Errorf("%+v", st)
	}
}

// What was left out is asked for, once, when there is room for all of it, and is not counted
// any more when it is gone.
func TestWhatWasLeftOutComesIn(t *testing.T) {
	site, regional := New(DefaultLimits, nil), New(Limits{Objects: 10, Bytes: 1000, Object: 600}, nil)
	site.Begin()
	send := func() (ok bool) {
		ok = true
		for _, p := range site.Next(true) {
			ok = regional.Apply(p) && ok
		}
		return ok
	}
	for _, name := range []string{"a", "b"} {
		site.Put(pod(name, strings.Repeat(name, 400)))
	}
	if !send() {
		t.Fatal("not taken")
	}
	site.Put(pod("c", strings.Repeat("c", 400)))
	site.Put(pod("d", strings.Repeat("d", 700)))
	if !send() || regional.LeftOut() != 2 || len(content(regional)) != 2 {
		t.Fatalf("%+v", regional.Stats())
	}
	site.Drop("Pod/acme-shop/d") // which would never fit
	if !send() || regional.LeftOut() != 1 {
		t.Errorf("what is gone is still counted: %+v", regional.Stats())
	}
	site.Drop("Pod/acme-shop/a")
	if send() {
		t.Error("there is room again, and nobody asks for what was left out")
	}
	site.Put(pod("e", "e")) // meanwhile
	if !send() {
		t.Error("it is asked for twice")
	}
	site.Resync()
	if !send() || regional.LeftOut() != 0 || fmt.Sprint(content(regional)) != fmt.Sprint(content(site)) {
		t.Errorf("%+v", regional.Stats())
	}
	// What grows too large, and is what it was again, is not left out any more.
	grown := pod("e", strings.Repeat("e", 700))
	site.Put(grown)
	if !send() || regional.LeftOut() != 1 {
		t.Errorf("too large: %+v", regional.Stats())
	}
	site.Put(pod("e", "e"))
	if !send() || regional.LeftOut() != 0 {
		t.Errorf("as it was: %+v", regional.Stats())
	}
	// Keys take little, however long a site makes them.
	site.Put(pod(strings.Repeat("n", 5000), "n"))
	if !send() || len(regional.left.Known) != 0 || regional.LeftOut() != 1 {
		t.Errorf("a long name: %+v", regional.Stats())
	}
	// Where the content is made it has to be put again.
	own := New(Limits{Objects: 1, Bytes: 1000, Object: 600}, nil)
	own.Put(pod("a", "a"))
	own.Put(pod("b", "b"))
	if own.Again() || own.LeftOut() != 1 {
		t.Errorf("%+v", own.Stats())
	}
	own.Drop("Pod/acme-shop/a")
	if !own.Again() {
		t.Error("there is room again, and nobody says so")
	}
	own.Put(pod("b", "b"))
	if own.Again() || own.LeftOut() != 0 {
		t.Errorf("%+v", own.Stats())
	}
}

// Whatever comes, nothing panics, and what is counted is what is held.
func FuzzApply(f *testing.F) {
	a := New(DefaultLimits, nil)
	a.Begin()
	a.Put(pod("web", "1"))
	for _, p := range a.Next(true) {
		b, _ := proto.Marshal(p)
		f.Add(b, b)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		m := New(Limits{Objects: 10, Bytes: 4096, Object: 1024}, nil)
		for _, b := range [][]byte{first, second, first} {
			st := &wire.KubernetesStatus{}
			if proto.Unmarshal(b, st) != nil {
				return
			}
			m.Apply(st)
		}
		sum := 0
		for _, o := range m.objects {
			sum += o.size()
		}
		if st := m.Stats(); st.Bytes != sum || st.Objects > 10 || st.Bytes > 4096 {
			t.Errorf("%+v, there are %d bytes", st, sum)
		}
		m.Next(false)
	})
}

// Mirrors of one tenant's sites, however many, take as much of the room as they leave free;
// what goes comes back, and what had no room is counted.
func TestRoomOfATenant(t *testing.T) {
	room := fairshare.NewShares(100_000)
	site := func(tenant string) *Mirror {
		l := DefaultLimits
		l.Room, l.Tenant = room, tenant
		return New(l, nil)
	}
	one, two, neighbour := site("greedy"), site("greedy"), site("neighbour")
	fill := func(m *Mirror) {
		for i := range 100 {
			m.Put(pod(fmt.Sprint("p-", i), strings.Repeat("x", 1000)))
		}
	}
	sum := func() int { return one.Stats().Bytes + two.Stats().Bytes }
	fill(one)
	fill(two)
	if n := sum(); n > 51_500 || n < 45_000 || room.Held("greedy") != n || one.Stats().LeftOut+two.Stats().LeftOut == 0 {
		t.Errorf("%d bytes, %d held: %+v %+v", n, room.Held("greedy"), one.Stats(), two.Stats())
	}
	fill(neighbour)
	if n := neighbour.Stats().Bytes; n < 20_000 {
		t.Errorf("the neighbour has %d bytes", n)
	}
	one.Put(pod("p-0", "small now"))
	one.Drop(wire.KeyOf(pod("p-1", "")))
	if n := sum(); room.Held("greedy") != n || n > 49_000 {
		t.Errorf("%d bytes, %d held", n, room.Held("greedy"))
	}
	one.Close()
	fill(one)
	if n := two.Stats().Bytes; room.Held("greedy") != n {
		t.Errorf("%d bytes, %d held of a site that is gone", n, room.Held("greedy"))
	}
}
