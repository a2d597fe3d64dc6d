package inventory

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
)

// unknownFor is how long a policy stays as it was that names a RolloutState of which
// nothing was heard: it is written before the policy, so that one which does not come was
// removed, and holds nothing.
const unknownFor = time.Minute

// rolloutRecord is a RolloutState of policies.
type rolloutRecord struct {
	object *v1alpha1.RolloutState // nil: there is none, as was heard
	has    map[string]int         // site → content; nil: nothing is held
}

// waitingPolicy is a policy as it stands, whose rollout is not known.
type waitingPolicy struct {
	policy  *Policy
	rollout string
	since   time.Time // zero: since now
}

// of is the policy as it is for a site.
func (r *policyRecord) of(site string) *Policy {
	if len(r.variants) == 0 {
		return r.policy
	}
	if d := r.has[site]; d < len(r.variants) {
		return r.variants[d]
	}
	return r.variants[0]
}

// all are the policy's variants, or the policy.
func (r *policyRecord) all() []*Policy {
	if len(r.variants) == 0 {
		return []*Policy{r.policy}
	}
	return r.variants
}

// takePolicy has a policy count, or wait until its rollout is known.
func (st *state) takePolicy(r *policyRecord, p *Policy, rollout string) {
	if rollout != "" && st.rollouts[objectKey{r.key.namespace, rollout}] == nil {
		r.waiting = &waitingPolicy{policy: p, rollout: rollout}
		return
	}
	r.policy, r.rollout, r.waiting = p, rollout, nil
	st.vary(r)
	st.policiesChanged(r.key.namespace)
}

// vary makes the variants of a policy that a rollout holds.
func (st *state) vary(r *policyRecord) {
	r.variants, r.has = nil, nil
	held := st.rollouts[objectKey{r.key.namespace, r.rollout}]
	if r.rollout == "" || held == nil || held.has == nil {
		return
	}
	o := objectOf(held.object, r.key)
	if o == nil {
		return
	}
	for d, content := range o.Contents {
		object, err := withContent(r.kind, r.policy.Object, content.Raw)
		if err != nil { // Muster's own writing
			st.log.Error("a content of a policy under a rollout can't be read; the policy counts as it stands", "kind", r.key.kind, "namespace", r.key.namespace, "name", r.key.name, "rollout", r.rollout, "err", err)
			r.variants = nil
			return
		}
		p := st.policyOf(r.kind, object)
		p.Generation, p.Content, p.uid = r.policy.Generation, d+1, r.policy.uid
		r.variants = append(r.variants, p)
	}
	r.has = held.has
}

// withContent is a policy with another spec; the policy is not changed.
func withContent(k *PolicyKind, policy client.Object, content []byte) (client.Object, error) {
	out := k.Object()
	if err := json.Unmarshal(content, out); err != nil {
		return nil, fmt.Errorf("a content: %w", err)
	}
	out.SetNamespace(policy.GetNamespace())
	out.SetName(policy.GetName())
	out.SetUID(policy.GetUID())
	out.SetGeneration(policy.GetGeneration())
	out.SetLabels(policy.GetLabels())
	out.SetAnnotations(policy.GetAnnotations())
	return out, nil
}

// objectOf is a policy's part of a state; nil: it has none.
func objectOf(o *v1alpha1.RolloutState, key policyKey) *v1alpha1.RolloutObject {
	if o == nil || o.Namespace != key.namespace {
		return nil
	}
	for i := range o.Spec.Objects {
		if x := &o.Spec.Objects[i]; x.Kind == key.kind && x.Name == key.name && len(x.Contents) > 0 {
			return x
		}
	}
	return nil
}

// putRollout takes a RolloutState, if it is of policies.
func (st *state) putRollout(o *v1alpha1.RolloutState) {
	if !slices.ContainsFunc(o.Spec.Objects, func(x v1alpha1.RolloutObject) bool { return x.APIVersion == v1alpha1.GroupVersion.String() }) {
		return
	}
	key := objectKey{o.Namespace, o.Name}
	old, now := st.rollouts[key], &rolloutRecord{object: o, has: o.Spec.Assigned()}
	st.rollouts[key] = now
	if old == nil || old.object == nil || (old.has == nil) != (now.has == nil) || !sameContents(old.object, o) {
		st.rolloutChanged(key)
		return
	}
	named := false
	for _, r := range st.policies {
		if r.key.namespace == key.namespace && r.rollout == key.name && len(r.variants) > 0 {
			r.has, named = now.has, true
		}
	}
	if !named {
		return
	}
	// Sites stand beside the policies.
	move := func(site string) {
		if r := st.sites[objectKey{key.namespace, site}]; r != nil {
			st.dirty[r], st.loud = true, true
		}
	}
	for site, d := range old.has {
		if now.has[site] != d {
			move(site)
		}
	}
	for site, d := range now.has {
		if _, was := old.has[site]; !was && d != 0 {
			move(site)
		}
	}
}

func sameContents(a, b *v1alpha1.RolloutState) bool {
	return slices.EqualFunc(a.Spec.Objects, b.Spec.Objects, func(x, y v1alpha1.RolloutObject) bool {
		if x.Kind != y.Kind || x.Name != y.Name || len(x.Contents) != len(y.Contents) {
			return false
		}
		for i := range x.Contents {
			if string(x.Contents[i].Raw) != string(y.Contents[i].Raw) {
				return false
			}
		}
		return true
	})
}

// dropRollout says that a state is gone: what names it counts as it stands.
func (st *state) dropRollout(key objectKey) {
	if st.rollouts[key] == nil {
		return
	}
	st.noRollout(key)
}

func (st *state) noRollout(key objectKey) {
	st.rollouts[key] = &rolloutRecord{}
	st.rolloutChanged(key)
	for _, r := range st.policies {
		if r.key.namespace == key.namespace && r.rollout == key.name {
			return // which is what it is remembered for
		}
	}
	delete(st.rollouts, key)
}

func (st *state) rolloutChanged(key objectKey) {
	for _, r := range st.policies {
		switch {
		case r.key.namespace != key.namespace:
		case r.waiting != nil && r.waiting.rollout == key.name:
			st.takePolicy(r, r.waiting.policy, key.name)
		case r.rollout == key.name:
			st.vary(r)
			st.policiesChanged(key.namespace)
		}
	}
}

// settleUnknown gives up waiting for states that don't come. missing tells that a policy
// waits of which nothing is known, until when at the latest; zero: none waits at all.
func (st *state) settleUnknown(now time.Time) (missing bool, until time.Time) {
	for _, r := range st.policies {
		w := r.waiting
		if w == nil {
			continue
		}
		if w.since.IsZero() {
			w.since = now
		}
		if end := w.since.Add(unknownFor); now.Before(end) {
			missing, until = missing || r.policy == nil, sooner(until, end)
			continue
		}
		st.log.Warn("a policy names a rollout whose state is not there: it counts everywhere as it stands", "kind", r.key.kind, "namespace", r.key.namespace, "name", r.key.name, "rollout", w.rollout)
		st.noRollout(objectKey{r.key.namespace, w.rollout})
	}
	return missing, until
}
