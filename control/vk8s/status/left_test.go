package status

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

// TestWhatIsLeftOutHeals: what could not be taken is not held against a site any more when it
// is gone or taken, without a snapshot; and one is asked for, once, when there is room for what
// was left out.
func TestWhatIsLeftOutHeals(t *testing.T) {
	s := New(Options{Limits: Limits{Objects: 3, ObjectBytes: 4 << 10, Decoded: 1 << 20, Events: 1, Workloads: 1, StatusBytes: 10}})
	paris := demo("paris")
	named := func(i int) *corev1.Pod { return pod(fmt.Sprintf("web-6f-ddd%02d", i), "n", corev1.PodRunning) }
	gone := func(i int) string { return wire.KeyOf(mirrorOf(t, named(i))) }
	delta := func(gone []string, m ...*wire.Mirrored) bool {
		epoch, seq := s.Version(paris)
		return s.Apply(paris, &wire.KubernetesStatus{Epoch: epoch, Seq: seq + 1, After: seq, Gone: gone, Mirrored: m})
	}
	huge := named(0)
	huge.Annotations = map[string]string{"a": strings.Repeat("x", 5000)}
	say(t, s, paris, true, nil, huge)
	if p := s.Problem(paris); p != "1 dropped: larger than 4096 bytes" {
		t.Fatal(p)
	}
	if say(t, s, paris, false, nil, named(0)); s.Problem(paris) != "" {
		t.Errorf("it is taken by now: %s", s.Problem(paris))
	}
	say(t, s, paris, false, nil, huge)
	if say(t, s, paris, false, []string{gone(0)}); s.Problem(paris) != "" {
		t.Errorf("it is gone by now: %s", s.Problem(paris))
	}

	for i := range 5 {
		say(t, s, paris, false, nil, named(i))
		say(t, s, paris, false, nil, named(i)) // which counts once
	}
	if p := s.Problem(paris); p != "2 dropped: too many objects" {
		t.Errorf("%q", p)
	}
	if !delta([]string{gone(0)}) {
		t.Error("there is no room for both, and yet they are asked for")
	}
	if delta([]string{gone(4)}) {
		t.Error("there is room for what was left out, and nobody asks for it")
	}
	if !delta(nil) {
		t.Error("it is asked for twice")
	}
	say(t, s, paris, true, nil, named(1), named(2), named(3))
	if p, n := s.Problem(paris), s.Stats().Pods; p != "" || n != 3 {
		t.Errorf("%q, %d pods", p, n)
	}
}

// TestNamesOutliveARestart: of two pods whose drawn names are the same, each is shown as it was,
// whichever is read first and whether or not the other one is still there.
func TestNamesOutliveARestart(t *testing.T) {
	dir := t.TempDir()
	s := New(Options{Dir: dir})
	if err := s.Load(); err != nil {
		t.Fatal(err)
	}
	shown := func(s *Store) string {
		s.mu.RLock()
		defer s.mu.RUnlock()
		var out []string
		s.tables[pods].byName.Ascend(func(it *item) bool {
			out = append(out, it.name+"="+it.site.id.Name)
			return true
		})
		return strings.Join(out, " ")
	}
	// What comes later is read first.
	say(t, s, demo("zurich"), true, nil, pod("web-6f-7nkfh", "n", corev1.PodRunning), pod("web-6f-aaaaa", "n", corev1.PodRunning))
	say(t, s, demo("athens"), true, nil, pod("web-6f-7nkfh", "n", corev1.PodRunning), pod("web-6f-aaaaa", "n", corev1.PodRunning))
	say(t, s, demo("zurich"), false, []string{"Pod/" + shop + "/web-6f-aaaaa"})
	want := "web-6f-7nkfh=zurich web-6f-7nkfh-athens=athens web-6f-aaaaa-athens=athens"
	if got := shown(s); got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	for range 2 {
		if err := s.Save(); err != nil {
			t.Fatal(err)
		}
		s = New(Options{Dir: dir})
		if err := s.Load(); err != nil {
			t.Fatal(err)
		}
		if got := shown(s); got != want {
			t.Errorf("after a restart: %s, want %s", got, want)
		}
		s.mu.Lock()
		for _, st := range s.sites {
			st.dirty = true
		}
		s.mu.Unlock()
	}
	// A site has no say in it.
	m := mirrorOf(t, pod("web-6f-bbbbb", "n", corev1.PodRunning))
	m.Shown = "web-6f-ccccc"
	epoch, seq := s.Version(demo("athens"))
	s.Apply(demo("athens"), &wire.KubernetesStatus{Epoch: epoch, Seq: seq + 1, After: seq, Mirrored: []*wire.Mirrored{m}})
	if got := shown(s); got != want+" web-6f-bbbbb=athens" {
		t.Errorf("%s", got)
	}
}

// TestACollisionIsKeptAtOnce: that two pods have one name is on the disk as soon as it is known,
// since a kill can come before the next copy.
func TestACollisionIsKeptAtOnce(t *testing.T) {
	dir := t.TempDir()
	s := New(Options{Dir: dir})
	if err := s.Load(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	defer func() { cancel(); <-done }()
	say(t, s, demo("zurich"), true, nil, pod("web-6f-7nkfh", "n", corev1.PodRunning))
	say(t, s, demo("athens"), true, nil, pod("web-6f-7nkfh", "n", corev1.PodRunning))
	testkit.EventuallyTrue(t, "it is kept", func() bool {
		other := New(Options{Dir: dir})
		return other.Load() == nil && other.Stats().Pods == 1 && other.tables[pods].get(shop, "web-6f-7nkfh-athens") != nil
	})
}
