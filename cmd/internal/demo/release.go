package demo

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/loadtest/simsite"
)

const (
	// webImage is what the shop's web runs, without its tag.
	webImage = "registry.example/shop/web"
	// hot ends the tag of a bad release: it becomes ready, and takes all that the site has.
	hot = "-hot"
)

// hotFaults are what a bad release does to a site: it takes all CPUs, so that its
// neighbours fail their liveness probes. The faults show in what the exporters serve, and
// come to health as anything else does.
var hotFaults = []string{"cpu-saturated", "crash-loop"}

// release is what a simulated site's images do to it. The zero value does nothing. Safe for
// concurrent use.
type release struct {
	mu sync.Mutex
	// started are the faults that images brought; others are not theirs to end.
	started []string
	bad     bool
}

// runs makes the site behave as its images do.
func (r *release) runs(sim *simsite.Site, images []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bad = slices.ContainsFunc(images, func(image string) bool { return strings.HasSuffix(image, hot) })
	if !r.bad {
		for _, f := range r.started {
			_ = sim.HealFault(f) // it is one of the catalogue's
		}
		r.started = nil
		return
	}
	r.beginLocked(sim)
}

// again brings back what images do, after the site was healed of everything.
func (r *release) again(sim *simsite.Site) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started = nil
	if r.bad {
		r.beginLocked(sim)
	}
}

func (r *release) beginLocked(sim *simsite.Site) {
	var has []string
	for _, f := range sim.Faults() {
		has = append(has, f.Name)
	}
	for _, f := range hotFaults {
		if !slices.Contains(has, f) && sim.Break(f) == nil {
			r.started = append(r.started, f)
		}
	}
}

// releasePlan is one that tells its story in three minutes: real ones soak for longer. The
// first wave's soak is longer than a fault needs to be measured, scored and believed.
func releasePlan() v1alpha1.RolloutPlan {
	count, percent := int32(4), int32(50)
	return v1alpha1.RolloutPlan{
		Strategy: v1alpha1.RolloutStrategy{Type: v1alpha1.StrategyCanary, Waves: []v1alpha1.RolloutWave{
			{Name: "first four", Count: &count, Soak: &metav1.Duration{Duration: time.Minute}},
			{Name: "up to half", Percent: &percent},
		}},
		// One gate needs no statistics: in a fleet that has just begun the peers are not yet
		// steady enough to say that what falls here is no chance. And none is on alerts: those
		// of the sites that fail from the start begin to fire in the midst of it.
		Gates: []v1alpha1.RolloutGate{
			{Name: "ready", Ready: &v1alpha1.GateReady{Percent: 100}},
			{Name: "peers", Peers: &v1alpha1.GateChange{MaxDrop: 10}},
			{Name: "red", Unhealthy: &v1alpha1.GateUnhealthy{MaxPercent: 75}}, // others may be broken by hand
		},
		Soak: metav1.Duration{Duration: 20 * time.Second},
		// An update here is one restart, which the signals that look back over ten minutes let
		// pass; the others look back over 75 seconds.
		Settle:    &metav1.Duration{Duration: 90 * time.Second},
		Budget:    v1alpha1.RolloutBudget{MaxFailed: "2%", MaxFailedInWave: "10%", ReadyWithin: metav1.Duration{Duration: 5 * time.Minute}},
		OnFailure: v1alpha1.OnFailureRollBackAll,
	}
}

// Release starts a rollout of the shop's web over Europe, of a version that is good or bad,
// and prints its name to w. What has to be there first, in a demo that has just begun, it
// waits for, and says so on progress.
func Release(ctx context.Context, c config.Config, kind string, w, progress io.Writer) error {
	if kind != "good" && kind != "bad" {
		return fmt.Errorf("release %q: want good or bad", kind)
	}
	namespace := Tenant + "-" + shop
	var kube client.Client
	var web appsv1.Deployment
	var here arrivals
	err := await(ctx, progress, time.Second, func(ctx context.Context) (err error) {
		if kube == nil {
			if kube, err = kubeClient(c); err != nil {
				return fmt.Errorf("the demo (`muster demo` starts it): %w", err)
			}
		}
		if err := kube.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "web"}, &web); err != nil {
			return fmt.Errorf("the demo's shop (`muster demo` starts it): %w", err)
		}
		if err := here.europe(ctx, kube); err != nil {
			return err
		}
		return scored(ctx, c)
	})
	if err != nil {
		return err
	}
	image := nextImage(web.Spec.Template.Spec.Containers[0].Image, kind == "bad")
	r := &v1alpha1.Rollout{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "web-" + kind + "-"},
		Spec: v1alpha1.RolloutSpec{
			Changes:      []v1alpha1.RolloutChange{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", Images: map[string]string{"web": image}}},
			VirtualSites: []string{"shared/europe"}, RolloutPlan: releasePlan(),
		},
	}
	if err := kube.Create(ctx, r); err != nil {
		return fmt.Errorf("start the rollout: %w", err)
	}
	what := "it ends Completed"
	if kind == "bad" {
		what = "it takes its sites' CPUs, and the checkout beside it crashes for want of them: they get them back within its first wave, and it ends RolledBack"
	}
	_, err = fmt.Fprintf(w, "%s/%s\n\n  %s; %s, in about three minutes:\n\n    http://%s/rollouts/%[1]s/%[2]s?tenant=%[6]s\n    muster rollout status %[1]s/%[2]s -w\n", shop, r.Name, image, what, c.Console.Listen, Tenant)
	return err
}

// awaitFor is how long a command waits for a demo that has just begun.
const awaitFor = 10 * time.Minute

// await waits until nothing is missing, and says what is whenever that changes.
func await(ctx context.Context, progress io.Writer, every time.Duration, missing func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, awaitFor)
	defer cancel()
	last := ""
	for {
		err := missing(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && err.Error() != last {
			last = err.Error()
			fmt.Fprintf(progress, "waiting for %s\n", last)
		}
		select {
		case <-ctx.Done():
			if last == "" {
				last = err.Error()
			}
			return fmt.Errorf("waited in vain for %s", last)
		case <-time.After(every):
		}
	}
}

// arrivals are sites that come one after the other.
type arrivals struct {
	known int
	since time.Time // that there are as many
}

// steady is for how long no further site has come when all are there.
const steady = 5 * time.Second

// europe says how many of Europe's sites are online, until all are known and most of them
// are: a rollout over the first that came would be over before the others are there.
func (a *arrivals) europe(ctx context.Context, kube client.Client) error {
	selector, err := labels.Parse(europe)
	if err != nil {
		return err
	}
	var list v1alpha1.SiteList
	if err := kube.List(ctx, &list, client.InNamespace(fleet.SystemNamespace(Tenant)), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return fmt.Errorf("Europe's sites: %w", err)
	}
	return a.missing(list.Items, time.Now())
}

func (a *arrivals) missing(sites []v1alpha1.Site, now time.Time) error {
	online := 0
	for i := range sites {
		if sites[i].Status.Phase == fleet.PhaseOnline {
			online++
		}
	}
	if len(sites) != a.known || a.since.IsZero() {
		a.known, a.since = len(sites), now
	}
	if online == 0 || 2*online < len(sites) || now.Sub(a.since) < steady {
		return fmt.Errorf("Europe's sites: %d of %d that have come are online", online, len(sites))
	}
	return nil
}

// scored says how many sites have a score, until most have: a gate that compares with what
// was before holds a rollout for good that began before anything was known.
func scored(ctx context.Context, c config.Config) error {
	counts, err := colours(ctx, c)
	if err != nil {
		return fmt.Errorf("the scores of sites: %w", err)
	}
	known := counts["green"] + counts["orange"] + counts["red"]
	if all := known + counts["grey"]; 4*known < 3*all || known == 0 {
		return fmt.Errorf("the scores of sites: %d of %d have one", known, all)
	}
	return nil
}

// nextImage is the version after one, which may be bad.
func nextImage(image string, bad bool) string {
	version := []int{2, 4, 1}
	if _, tag, ok := strings.Cut(image, webImage+":"); ok {
		for i, part := range strings.SplitN(strings.TrimSuffix(tag, hot), ".", len(version)) {
			if n, err := strconv.Atoi(part); err == nil {
				version[i] = n
			}
		}
	}
	out := fmt.Sprintf("%s:%d.%d.%d", webImage, version[0], version[1], version[2]+1)
	if bad {
		out += hot
	}
	return out
}
