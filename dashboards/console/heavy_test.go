package console

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"muster.dev/muster/control/api/v1alpha1"
)

// A tenant's rollouts may have a megabyte each, and it may have hundreds: the console holds a
// page of them at a time. Small ones are read many at a time.
func TestLongListsAreReadInPages(t *testing.T) {
	h := newHarness(t)
	r := h.api.rollouts
	put := func(name string, content int) {
		o := fakeRollout("acme-shop", name, time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC))
		o.Spec.Changes = []v1alpha1.RolloutChange{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web",
			Content: &kruntime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"image":"` + strings.Repeat("x", content) + `"}]}}`)}}}
		r.put("rollouts", o)
	}
	for i := range 40 {
		put(fmt.Sprintf("large-%02d", i), 400_000)
	}
	for i := range 1000 {
		put(fmt.Sprintf("small-%04d", i), 100)
	}
	var out rolloutListView
	h.want(200, "alice", "GET", "/api/v1/rollouts?namespace=shop&limit=1000&q=large", "").json(t, &out)
	if out.Total != 40 || len(out.Rollouts[0].Changes[0].Text) > maxChangeText+10 {
		t.Errorf("%d, the first says %d bytes", out.Total, len(out.Rollouts[0].Changes[0].Text))
	}
	h.want(200, "alice", "GET", "/api/v1/rollouts/small-0999", "")
	all := 0
	for _, n := range r.listed {
		if all += n; n > 2*pageBytes {
			t.Errorf("a page of %d bytes", n)
		}
	}
	if len(r.listed) > 60 {
		t.Errorf("%d pages for %d bytes", len(r.listed), all)
	}
}

// Requests that take much memory have turns: a tenant's people have half of them, and who
// comes from elsewhere does not wait.
func TestHeavyRequestsHaveTurns(t *testing.T) {
	h := newHarness(t)
	var within atomic.Int32
	release := make(chan struct{})
	h.api.rollouts.before = func(as string) {
		if as == "alice" {
			within.Add(1)
			<-release
		}
	}
	var wg sync.WaitGroup
	for range heavyAtOnce {
		wg.Go(func() { h.want(200, "alice", "GET", "/api/v1/rollouts?namespace=shop", "") })
	}
	for within.Load() < heavyAtOnce/2 {
		runtime.Gosched()
	}
	h.want(200, "bob", "GET", "/api/v1/rollouts", "")
	h.want(201, "bob", "POST", "/api/v1/rollouts", `{"namespace":"shop","name":"x","spec":{"changes":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web"}]}}`)
	h.want(200, "root", "GET", "/api/v1/rollouts", "")
	if n := within.Load(); n != heavyAtOnce/2 {
		t.Errorf("%d of one tenant at a time", n)
	}
	close(release)
	wg.Wait()
}

// Of a text with too many documents no more are read than may be.
func TestManyDocuments(t *testing.T) {
	for name, text := range map[string]string{
		"documents": strings.Repeat("a: 1\n---\n", maxApplyBytes/9),
		"nothing":   strings.Repeat("{}\n---\n", maxApplyBytes/7),
		"aliases":   "a: &a " + strings.Repeat("x", 20_000) + "\nb: [" + strings.Repeat("*a, ", 20_000) + "]",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := documents(text)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "yaml") {
			t.Errorf("%s: %v", name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
			t.Errorf("%s: %d MiB were taken to find that out", name, n>>20)
		}
	}
	items, err := json.Marshal(map[string]any{"kind": "List", "items": make([]struct{}, maxApplyObjects+1)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := documents(string(items)); err == nil {
		t.Error("a list of too many")
	}
}

// What takes long to ask for, whoever made it so large, is not asked for all the time, and of
// large objects no more is kept than pages show.
func TestDearAnswersAreKept(t *testing.T) {
	c := &clock{t: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)}
	asked := 0
	cache := newReviewCache(1, c.now, time.Minute, func(l taken[int]) (time.Duration, bool) { return l.goodFor(2 * time.Second), true })
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {19 * time.Second, 1}, {2 * time.Second, 2}} {
		c.advance(step.after)
		if _, err := cache.get(t.Context(), "x", func(context.Context) (taken[int], error) {
			asked++
			return taken[int]{7, time.Second}, nil
		}); err != nil || asked != step.want {
			t.Errorf("%s later: asked %d times, want %d: %v", step.after, asked, step.want, err)
		}
	}
	m := metav1.ObjectMeta{Namespace: "n", Name: "x", Annotations: map[string]string{"a": "b"}, Labels: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{}}}
	if got := bare(m); got.Name != "x" || got.Namespace != "n" || got.Annotations != nil || got.Labels != nil || got.ManagedFields != nil {
		t.Errorf("%+v", got)
	}
}
