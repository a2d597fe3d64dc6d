package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/workload"
)

// away is the share of the sites that are offline during a rollout.
const away = 0.1

// rollout takes another image over all sites in waves while some of them are offline, and
// lets these come back. Its gate is that what changed is ready, without a soak: what is
// measured is how fast decisions are made and carried out, and what they cost.
func (r *run) rollout(ctx context.Context, _ *Phase) error {
	stop := r.profileSoon(ctx, PhaseRollout, 0)
	defer stop()
	kube, err := r.virtual(ctx)
	if err != nil {
		return err
	}
	namespace := tenant + "-" + shop
	item := workload.ItemName("apps", "Deployment", namespace, "careful")
	api := kube.AppsV1().Deployments(namespace)
	web, err := api.Create(ctx, deployment("careful"), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("apply a Deployment: %w", err)
	}
	began := time.Now()
	if err := r.deployed(ctx, kube, item, nil, web.Generation, began, "before the rollout"); err != nil {
		return err
	}
	policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "careful"}, Spec: v1alpha1.RolloutPolicySpec{RolloutPlan: v1alpha1.RolloutPlan{
		Gates:  []v1alpha1.RolloutGate{{Name: "ready", Ready: &v1alpha1.GateReady{Percent: 100}}},
		Budget: v1alpha1.RolloutBudget{ReadyWithin: metav1.Duration{Duration: 10 * time.Minute}},
	}}}
	if err := r.kube.Create(ctx, policy); err != nil {
		return fmt.Errorf("make the RolloutPolicy: %w", err)
	}
	offline := r.f.Cut(int(away * float64(r.f.Sites())))
	restored := false
	defer func() {
		if !restored {
			r.f.Restore()
		}
	}()
	if err := until(ctx, "the sites that were cut to be offline", time.Second, func(ctx context.Context) (bool, string, error) {
		var list v1alpha1.SiteList
		if err := r.kube.List(ctx, &list, client.InNamespace(fleet.SystemNamespace(tenant))); err != nil {
			return false, err.Error(), nil
		}
		n := 0
		for i := range list.Items {
			if list.Items[i].Status.Phase == fleet.PhaseOffline {
				n++
			}
		}
		return n == len(offline), fmt.Sprintf("%d of %d", n, len(offline)), nil
	}); err != nil {
		return err
	}
	began = time.Now()
	if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if web, err = api.Get(ctx, "careful", metav1.GetOptions{}); err != nil {
			return err
		}
		web.Spec.Template.Spec.Containers[0].Image = "nginx:1.30"
		web, err = api.Update(ctx, web, metav1.UpdateOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("change the Deployment: %w", err)
	}
	key := client.ObjectKey{Namespace: namespace, Name: web.Annotations[v1alpha1.AnnotationRollout]}
	if key.Name == "" {
		return fmt.Errorf("the write became no rollout")
	}
	passed := func(want int) func(context.Context) (bool, string, error) {
		return func(ctx context.Context) (bool, string, error) {
			var ro v1alpha1.Rollout
			if err := r.kube.Get(ctx, key, &ro); err != nil {
				return false, err.Error(), nil
			}
			st := ro.Status
			text := fmt.Sprintf("%s, wave %s, %+v: %s", st.Phase, st.Progress, st.Sites, st.Message)
			if st.Phase.Ended() && int(st.Sites.Passed) != want {
				return false, text, fmt.Errorf("it ended: %s", text)
			}
			return int(st.Sites.Passed) == want, text, nil
		}
	}
	if err := until(ctx, "all sites that are online to have passed", 250*time.Millisecond, passed(r.f.Sites()-len(offline))); err != nil {
		return err
	}
	r.row(fmt.Sprintf("rollout: four waves over the sites that are online, %d offline, s", len(offline)), time.Since(began).Seconds(), "%.1f")
	began = time.Now()
	r.f.Restore()
	restored = true
	if err := until(ctx, "the sites that came back to have passed", 250*time.Millisecond, passed(r.f.Sites())); err != nil {
		return err
	}
	r.row("rollout: those that came back caught up, s", time.Since(began).Seconds(), "%.1f")
	var state v1alpha1.RolloutState
	if err := r.kube.Get(ctx, key, &state); err != nil {
		return fmt.Errorf("read the rollout's state: %w", err)
	}
	b, err := json.Marshal(state)
	if err != nil {
		return err
	}
	r.row("rollout: size of its state, kB", float64(len(b))/1000, "%.1f")
	return nil
}
