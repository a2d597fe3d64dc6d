package desired

import (
	"context"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/hold"
)

// askEvery is how often the API server is asked for the states of rollouts that objects
// name and that no watch has told of: a state is written before what names it, so that
// one which is still not there then was removed.
const askEvery = 2 * time.Second

// rolloutEvents hands over the states of rollouts as they come.
func (f *feed) rolloutEvents() toolscache.ResourceEventHandler {
	set := on(f.setRollout)
	return toolscache.ResourceEventHandlerFuncs{AddFunc: set, UpdateFunc: func(_, o any) { set(o) },
		DeleteFunc: on(func(o *v1alpha1.RolloutState) { f.store.DeleteRollout(o.Namespace, o.Name) })}
}

func (f *feed) setRollout(o *v1alpha1.RolloutState) {
	version, _ := strconv.ParseUint(o.ResourceVersion, 10, 64)
	f.store.SetRollout(o.Namespace, o.Name, version, &o.Spec, hold.Ended(o))
}

// rollouts tells of all states of a namespace.
func (f *feed) rollouts(ctx context.Context, namespace string) error {
	var list v1alpha1.RolloutStateList
	if err := f.cache.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return err
	}
	for i := range list.Items {
		f.setRollout(&list.Items[i])
	}
	return nil
}

// askRollouts asks the API server for states that objects wait for.
func (f *feed) askRollouts(ctx context.Context) error {
	for ns, names := range f.store.UnknownRollouts() {
		for _, name := range names {
			u, err := f.client.Resource(v1alpha1.GroupVersion.WithResource("rolloutstates")).Namespace(ns).Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				f.log.Warn("an object names a rollout whose state was removed: it is on all its sites as it stands", "namespace", ns, "rollout", name)
				f.store.NoRollout(ns, name)
				continue
			}
			if err != nil {
				return fmt.Errorf("state of rollout %s in namespace %s: %w", name, ns, err)
			}
			o := &v1alpha1.RolloutState{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o); err != nil {
				return fmt.Errorf("state of rollout %s in namespace %s: %w", name, ns, err)
			}
			f.setRollout(o)
		}
	}
	return nil
}

// awaitRollouts returns once no object waits for a state: it would be missing on sites
// that have it.
func (f *feed) awaitRollouts(ctx context.Context) error {
	for {
		err := f.askRollouts(ctx)
		if err == nil && len(f.store.UnknownRollouts()) == 0 {
			return nil
		}
		if err != nil {
			f.log.Warn("sites get no desired state until the states of rollouts are known", "err", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the states of rollouts: %w", context.Cause(ctx))
		case <-time.After(time.Second):
		}
	}
}
