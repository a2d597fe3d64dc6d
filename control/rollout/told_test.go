package rollout_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
)

// What was decided is told once, as events and in figures, whoever else writes the Rollout
// while its status is written.
func TestDecisionsAreToldOnce(t *testing.T) {
	for image, phase := range map[string]v1alpha1.RolloutPhase{"web:2": v1alpha1.RolloutCompleted, "web:bad": v1alpha1.RolloutRolledBack} {
		t.Run(string(phase), func(t *testing.T) {
			w := newWorld(t, "ro-told-"+strings.ToLower(string(phase)))
			var writes atomic.Int64
			w.disturb = func() {
				n := writes.Add(1)
				if n%2 == 0 {
					return
				}
				var r v1alpha1.Rollout
				r.Namespace, r.Name = w.in(), "one"
				note := fmt.Appendf(nil, `{"metadata":{"annotations":{"note":"%d"}}}`, n)
				if err := w.client.Patch(context.Background(), &r, client.RawPatch(types.MergePatchType, note)); err != nil {
					t.Error(err)
				}
			}
			w.deployment("web", "web:1")
			stop := w.control()
			w.rollout("one", "web", image)
			r := w.becomes("one", phase)
			stop()
			if writes.Load() < 4 {
				t.Errorf("its status was written %d times", writes.Load())
			}
			total := 0.0
			families, err := w.metrics.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				for _, m := range f.Metric {
					if f.GetName() == "muster_rollout_decisions_total" {
						total += m.GetCounter().GetValue()
					}
				}
			}
			var told []string
			for _, e := range w.events {
				if strings.HasPrefix(e, "*v1alpha1.Rollout one ") {
					told = append(told, strings.TrimPrefix(e, "*v1alpha1.Rollout one "))
				}
			}
			var decided []string
			for _, d := range r.Status.Decisions {
				decided = append(decided, d.What+" "+d.Text)
			}
			if !slices.Equal(told, decided) || int(total) != len(decided) {
				t.Errorf("told\n%s\ncounted %v, decided\n%s", strings.Join(told, "\n"), total, strings.Join(decided, "\n"))
			}
		})
	}
}
