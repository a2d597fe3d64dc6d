package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/muster/control/api/v1alpha1"
)

// A tenant chooses how many rollouts it makes and how they are called; how many series come
// of them in a time it doesn't.
func TestSeriesOfATenantsRollouts(t *testing.T) {
	m := newMetrics()
	reg := prometheus.NewRegistry()
	reg.MustRegister(m)
	now := time.Now()
	see := func(tenant, name string, phase v1alpha1.RolloutPhase) {
		key := types.NamespacedName{Namespace: tenant + "-shop", Name: name}
		m.see(&job{key: key, tenant: tenant, r: &v1alpha1.Rollout{Status: v1alpha1.RolloutStatus{Phase: phase}}}, now)
	}
	names := func(tenant string) map[string]bool {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]bool{}
		for _, f := range families {
			for _, x := range f.Metric {
				labels := map[string]string{}
				for _, l := range x.Label {
					labels[l.GetName()] = l.GetValue()
				}
				if labels["tenant"] == tenant {
					out[labels["rollout"]] = true
				}
			}
		}
		return out
	}
	ever := map[string]bool{}
	for minute := range 60 {
		for i := range 500 { // makes them, and deletes them again
			see("greedy", fmt.Sprintf("r%d-%d", minute, i), v1alpha1.RolloutProgressing)
		}
		for name := range names("greedy") {
			ever[name] = true
		}
		for i := range 500 {
			m.forget(types.NamespacedName{Namespace: "greedy-shop", Name: fmt.Sprintf("r%d-%d", minute, i)})
		}
		now = now.Add(time.Minute)
	}
	if most := shownAtOnce + int(time.Hour/shownEvery); len(ever) > most || len(ever) < shownAtOnce {
		t.Errorf("%d names in an hour, want at most %d", len(ever), most)
	}
	see("acme", "shop", v1alpha1.RolloutProgressing)
	if got := names("acme"); !got["shop"] {
		t.Error("a neighbour's is not there")
	}
	// One that had to wait comes later.
	for i := range 2 * shownAtOnce {
		see("later", fmt.Sprint("r", i), v1alpha1.RolloutProgressing)
	}
	now = now.Add(shownEvery)
	see("later", "r399", v1alpha1.RolloutProgressing)
	if got := names("later"); len(got) != shownAtOnce+1 || !got["r399"] || strings.Contains(fmt.Sprint(got), "r398") {
		t.Errorf("%d are there", len(got))
	}
}
