package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/testkit"
)

func TestAGoodRolloutCompletes(t *testing.T) {
	w := newWorld(t, "ro-good")
	w.deployment("web", "web:1")
	w.control()
	w.rollout("release", "web", "web:2")
	r := w.becomes("release", v1alpha1.RolloutCompleted)
	if s := r.Status.Sites; s.Total != sitesOfAWorld || s.Passed != sitesOfAWorld || len(r.Status.Waves) != 2 {
		t.Errorf("%+v in %d waves", s, len(r.Status.Waves))
	}
	w.ended("release", false)
	if got := w.image("web"); got != "web:2" {
		t.Errorf("the object has %s", got)
	}
	// What is read in the last wave is of those that passed, too: nobody else is left to compare with.
	if q := w.asked.Load(); q == nil || len(q.Changed) != sitesOfAWorld-1 || len(q.Peers) != 1 {
		t.Errorf("the last wave is compared with %+v", q)
	}
	if q := w.badly.Load(); q != nil {
		t.Errorf("asked for %+v", q)
	}
	if got := w.sitesThatHad("web:2"); len(got) != sitesOfAWorld {
		t.Errorf("it went to %v", got)
	}
	testkit.EventuallyTrue(t, "events on the Rollout, on what it moves and on a site", func() bool {
		return w.told("Rollout release", "WaveStarted") && w.told("Unstructured web", "WaveStarted", "rollout release: ") && w.told("Site s3", "RolloutUpdating", "rollout shop/release")
	})
}

// ended: the state says that nothing moves by it any more, and whether it still holds.
func (w *world) ended(name string, held bool) {
	w.t.Helper()
	st, err := w.state(name)
	if err != nil {
		w.t.Fatal(err)
	}
	if st.Spec.Held != held || st.Annotations["muster.dev/rollout-ended"] == "" {
		w.t.Errorf("the state of %s: held %v, %v", name, st.Spec.Held, st.Annotations)
	}
}

func TestABadRolloutIsPutBack(t *testing.T) {
	w := newWorld(t, "ro-back")
	w.deployment("web", "web:1")
	w.control()
	w.rollout("release", "web", "web:bad")
	w.becomes("release", v1alpha1.RolloutRolledBack)
	w.ended("release", false)
	if got := w.image("web"); got != "web:1" {
		t.Errorf("the object has %s", got)
	}
	if got := w.sitesThatHad("web:bad"); len(got) != 1 {
		t.Errorf("outside of the first wave: %v had it", got)
	}
	// The next one begins from what was put back.
	w.rollout("fixed", "web", "web:2")
	w.becomes("fixed", v1alpha1.RolloutCompleted)
	if got := w.image("web"); got != "web:2" {
		t.Errorf("the object has %s", got)
	}
}

func TestANewerRolloutTakesOver(t *testing.T) {
	w := newWorld(t, "ro-newer")
	w.deployment("web", "web:1")
	w.control()
	w.rollout("one", "web", "web:2", func(r *v1alpha1.Rollout) { r.Spec.Soak.Duration = time.Hour })
	testkit.EventuallyTrue(t, "the first wave has it", func() bool { return len(w.sitesThatHad("web:2")) == 1 })
	w.rollout("two", "web", "web:3")
	w.becomes("two", v1alpha1.RolloutCompleted)
	w.becomes("one", v1alpha1.RolloutSuperseded, "two")
	w.ended("two", false)
	if n := len(w.sitesThatHad("web:2")); w.image("web") != "web:3" || n != 1 {
		t.Errorf("%s; %d sites had the one before", w.image("web"), n)
	}
}

func TestADeletedRolloutIsPutBackFirst(t *testing.T) {
	w := newWorld(t, "ro-gone")
	w.deployment("web", "web:1")
	w.control()
	w.rollout("release", "web", "web:2", func(r *v1alpha1.Rollout) { r.Spec.Soak.Duration = time.Hour })
	testkit.EventuallyTrue(t, "the first wave has it", func() bool { return len(w.sitesThatHad("web:2")) == 1 })
	r, err := w.get("release")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.client.Delete(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it is gone", func() error {
		r, err := w.get("release")
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%+v, %v", r.Status, err)
	})
	w.ended("release", false)
	if got := w.image("web"); got != "web:1" {
		t.Errorf("the object has %s", got)
	}
	// Its name can be taken again.
	w.rollout("release", "web", "web:3")
	w.becomes("release", v1alpha1.RolloutCompleted)
}

// One that has taken over from another and is deleted before it moved a site leaves nothing
// behind: the object is what it was before both, and so is what its sites have.
func TestADeletedRolloutThatTookOver(t *testing.T) {
	w := newWorld(t, "ro-tookover")
	w.deployment("web", "web:1")
	stop := w.control()
	w.rollout("one", "web", "web:2", func(r *v1alpha1.Rollout) { r.Spec.Soak.Duration = time.Hour })
	testkit.EventuallyTrue(t, "the first wave has it", func() bool { return len(w.sitesThatHad("web:2")) == 1 })
	stop()
	w.rollout("two", "web", "web:3")
	testkit.Eventually(t, "the second has written the object, and decided nothing", func() error {
		stop, died := w.controlThat(1, true)
		<-died
		stop()
		if got := w.image("web"); got != "web:3" {
			return errors.New(got)
		}
		return nil
	})
	if st, err := w.state("two"); err != nil || st.Spec.Decided != nil || st.Spec.Supersedes != "one" {
		t.Fatalf("%+v, %v", st.Spec, err)
	}
	r, err := w.get("two")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.client.Delete(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	w.control()
	testkit.Eventually(t, "it is gone", func() error {
		r, err := w.get("two")
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%+v, %v", r.Status, err)
	})
	w.ended("two", false)
	w.becomes("one", v1alpha1.RolloutSuperseded, "two")
	if got, had := w.image("web"), w.sitesThatHad("web:3"); got != "web:1" || len(had) != 0 {
		t.Errorf("the object has %s; %v had what was deleted", got, had)
	}
	w.rollout("two", "web", "web:4") // the name is free
	w.becomes("two", v1alpha1.RolloutCompleted)
}

func TestARolloutEndsWithItsObject(t *testing.T) {
	w := newWorld(t, "ro-object")
	w.deployment("web", "web:1")
	w.control()
	w.rollout("release", "web", "web:2", func(r *v1alpha1.Rollout) { r.Spec.Soak.Duration = time.Hour })
	testkit.EventuallyTrue(t, "the first wave has it", func() bool { return len(w.sitesThatHad("web:2")) == 1 })
	if err := w.client.Delete(context.Background(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ro-object-shop"}}); err != nil {
		t.Fatal(err)
	}
	w.becomes("release", v1alpha1.RolloutSuperseded, "Deployment web was deleted")
}

func TestRolloutsOfTheSameSitesQueue(t *testing.T) {
	w := newWorld(t, "ro-queue")
	w.deployment("web", "web:1")
	w.deployment("api", "api:1")
	w.control()
	w.rollout("one", "web", "web:2", func(r *v1alpha1.Rollout) { r.Spec.Soak.Duration = time.Hour })
	testkit.EventuallyTrue(t, "the first wave has it", func() bool { return len(w.sitesThatHad("web:2")) == 1 })
	w.rollout("two", "api", "api:2")
	w.becomes("two", v1alpha1.RolloutQueued, "behind rollout one", "site s")
	if got := w.image("api"); got != "api:1" {
		t.Errorf("what waits has written %s", got)
	}
	w.abort("one")
	w.becomes("one", v1alpha1.RolloutRolledBack)
	w.becomes("two", v1alpha1.RolloutCompleted)
}

// Two that have begun do not change one site at a time: it is held, and caught up.
func TestTwoDoNotChangeOneSite(t *testing.T) {
	w := newWorld(t, "ro-both")
	w.deployment("web", "web:1")
	w.deployment("api", "api:1")
	w.everySite()
	w.control()
	w.rollout("one", "web", "web:2", func(r *v1alpha1.Rollout) { r.Spec.Strategy.Waves[0].Approval = true })
	testkit.EventuallyTrue(t, "the first wave waits for approval", func() bool {
		r, err := w.get("one")
		return err == nil && strings.Contains(r.Status.Message, "approval")
	})
	first := w.sitesThatHad("web:2")
	other := "s7"
	if slices.Contains(first, other) {
		other = "s6"
	}
	w.rollout("two", "api", "api:2", func(r *v1alpha1.Rollout) {
		r.Spec.VirtualSites, r.Spec.Soak.Duration = []string{"shared/n" + other[1:]}, time.Hour
	})
	testkit.EventuallyTrue(t, "the second changes its site", func() bool { return slices.Contains(w.sitesThatHad("api:2"), other) })
	if err := w.client.Patch(t.Context(), &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: w.in(), Name: "one"}}, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"control":{"promote":1}}}`))); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "all others have the first", func() error {
		r, err := w.get("one")
		if err == nil && r.Status.Sites.Passed != sitesOfAWorld-1 {
			err = fmt.Errorf("%+v %s", r.Status.Sites, r.Status.Message)
		}
		return err
	})
	if had := w.sitesThatHad("web:2"); slices.Contains(had, other) {
		t.Errorf("both change %s: %v", other, had)
	}
	w.abort("two")
	w.becomes("one", v1alpha1.RolloutCompleted)
	if had := w.sitesThatHad("web:2"); !slices.Contains(had, other) {
		t.Errorf("%s was not caught up: %v", other, had)
	}
}

// A control that has just started knows which sites a rollout is changing before it has looked
// at it.
func TestTheLineOutlivesAControl(t *testing.T) {
	w := newWorld(t, "ro-line-new")
	w.deployment("web", "web:1")
	w.deployment("api", "api:1")
	stop := w.control()
	w.rollout("one", "web", "web:2", func(r *v1alpha1.Rollout) { r.Spec.Soak.Duration = time.Hour })
	testkit.EventuallyTrue(t, "the first wave has it", func() bool { return len(w.sitesThatHad("web:2")) == 1 })
	testkit.EventuallyTrue(t, "and says so", func() bool { r, err := w.get("one"); return err == nil && r.Status.Wave == 1 })
	stop()
	w.unknown.Store(&[]string{"web"}) // nobody can say yet what sites have of it
	w.rollout("two", "api", "api:2")
	w.control()
	w.becomes("two", v1alpha1.RolloutQueued, "behind rollout one", "is changing site s")
	w.unknown.Store(nil)
	w.abort("one")
	w.becomes("two", v1alpha1.RolloutCompleted)
}

// everySite makes a virtual site and a workload for each site.
func (w *world) everySite() {
	w.t.Helper()
	for i := range sitesOfAWorld {
		n := fmt.Sprint(i)
		w.create(&v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Name: "n" + n, Namespace: w.tenant + "-shared"}, Spec: v1alpha1.VirtualSiteSpec{SiteSelector: metav1.LabelSelector{MatchLabels: map[string]string{"n": n}}}})
		w.deployment("d"+n, "d"+n+":1")
	}
}

// atSite makes a rollout of the workload of one site that soaks for an hour.
func (w *world) atSite(i int) {
	w.t.Helper()
	n := fmt.Sprint(i)
	w.rollout("r"+n, "d"+n, "d"+n+":2", func(r *v1alpha1.Rollout) {
		r.Spec.VirtualSites, r.Spec.Soak.Duration = []string{"shared/n" + n}, time.Hour
	})
}

// A tenant whose gates take for ever to read has its own rollouts stand, and nobody else's.
func TestSlowGatesHoldUpTheirTenantAlone(t *testing.T) {
	greedy, w := newWorld(t, "ro-greedy"), newWorld(t, "ro-beside")
	w.beside, w.hang = greedy, make(chan struct{})
	greedy.everySite()
	w.deployment("web", "web:1")
	w.control()
	for i := range sitesOfAWorld {
		greedy.atSite(i)
	}
	testkit.EventuallyTrue(t, "some gates are read for ever", func() bool { return w.hanging.Load() >= 4 })
	w.rollout("one", "web", "web:2")
	w.becomes("one", v1alpha1.RolloutCompleted)
	close(w.hang)
}

// Of a tenant's rollouts so many are in line; more wait until one has ended.
func TestTheLineIsBounded(t *testing.T) {
	w := newWorld(t, "ro-line")
	w.most = 2
	w.everySite()
	w.control()
	for i := range 2 {
		w.atSite(i)
		w.becomes(fmt.Sprint("r", i), v1alpha1.RolloutProgressing)
	}
	w.atSite(2)
	w.becomes("r2", v1alpha1.RolloutQueued, "2 rollouts of the tenant are under way")
	w.abort("r0")
	w.becomes("r0", v1alpha1.RolloutRolledBack)
	w.becomes("r2", v1alpha1.RolloutProgressing)
}

func (w *world) abort(name string) {
	w.t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"control":{"abort":true}}}`))
	if err := w.client.Patch(context.Background(), &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: w.tenant + "-shop", Name: name}}, patch); err != nil {
		w.t.Fatal(err)
	}
}

// TestKilledAnywhere ends control at its first, second or third write, before the API
// server gets it or before control hears that it did, and starts another, until a rollout
// has ended: the end is the same, and nobody got what they should not have.
func TestKilledAnywhere(t *testing.T) { killedAnywhere(t, "ro-kill", 1) }

// TestOneOfTwoControlsIsKilled is the same where two run at a time: what one left half done
// the other goes on with at once.
func TestOneOfTwoControlsIsKilled(t *testing.T) { killedAnywhere(t, "ro-kill-two", 2) }

func killedAnywhere(t *testing.T, tenant string, controls int) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t, tenant)
	w.deployment("web", "web:1")
	kills := 0
	until := func(name string, phase v1alpha1.RolloutPhase) {
		testkit.Eventually(t, fmt.Sprintf("rollout %s is %s", name, phase), func() error {
			idle, cancel := context.WithTimeout(t.Context(), 3*time.Second) // by then there is nothing more to write
			defer cancel()
			var deaths []<-chan struct{}
			for range controls {
				stop, died := w.controlThat(1+rng.IntN(3), rng.IntN(2) == 0)
				defer stop()
				deaths = append(deaths, died)
			}
			for _, died := range deaths {
				select {
				case <-died:
					kills++
				case <-idle.Done():
				}
			}
			if st, err := w.state(name); err == nil && st.Annotations["muster.dev/rollout-ended"] != "" && st.Spec.Held {
				t.Errorf("after %d kills: %s has ended and holds sites", kills, name)
			}
			r, err := w.get(name)
			if err == nil && r.Status.Phase != phase {
				err = fmt.Errorf("%s: %s", r.Status.Phase, r.Status.Message)
			}
			return err
		})
	}
	slowly := func(r *v1alpha1.Rollout) {
		r.Spec.Strategy = v1alpha1.RolloutStrategy{Type: v1alpha1.StrategyRolling, Group: "1"}
		r.Spec.Soak.Duration = 0 // a soak begins anew with each control
	}
	w.rollout("good", "web", "web:2", slowly)
	until("good", v1alpha1.RolloutCompleted)
	w.rollout("bad", "web", "web:bad", slowly)
	until("bad", v1alpha1.RolloutRolledBack)
	if t.Logf("%d kills", kills); kills < 10 {
		t.Errorf("%d kills", kills)
	}
	w.ended("good", false)
	w.ended("bad", false)
	if got, had := w.image("web"), w.sitesThatHad("web:bad"); got != "web:2" || len(had) != 1 {
		t.Errorf("the object has %s; %v had the bad one", got, had)
	}
	w.decidedOnce("good")
	w.decidedOnce("bad")
}

// decidedOnce: no wave was started or passed twice.
func (w *world) decidedOnce(name string) {
	w.t.Helper()
	r, err := w.get(name)
	if err != nil {
		w.t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, d := range r.Status.Decisions {
		if seen[d.What+d.Text] {
			w.t.Errorf("%s: %s was decided twice: %s", name, d.What, d.Text)
		}
		seen[d.What+d.Text] = true
	}
}

func TestTwoControlsAreOne(t *testing.T) {
	w := newWorld(t, "ro-two")
	w.deployment("web", "web:1")
	w.deployment("api", "api:1")
	first := w.control()
	w.control()
	w.rollout("good", "web", "web:2")
	w.becomes("good", v1alpha1.RolloutCompleted)
	w.rollout("bad", "api", "api:bad")
	testkit.EventuallyTrue(t, "the first wave has it", func() bool { return len(w.sitesThatHad("api:bad")) == 1 })
	first()
	w.becomes("bad", v1alpha1.RolloutRolledBack)
	w.decidedOnce("good")
	w.decidedOnce("bad")
	if got := append(w.sitesThatHad("api:bad"), w.image("web"), w.image("api")); !slices.Equal(got[1:], []string{"web:2", "api:1"}) {
		t.Errorf("%s", strings.Join(got, " "))
	}
}
