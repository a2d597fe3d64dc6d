package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/hold"
	"muster.dev/muster/internal/fleet"
)

const rolloutsPluginName = "MusterRollouts"

// rollouts turns ordinary writes into rollouts: before a write of what a RolloutPolicy
// selects is stored, the state is there that keeps sites at what they have, and the object
// names it. It comes after all that changes objects, so that it sees what is stored.
//
// Who writes sees no difference, but for a warning that names the rollout. A state whose
// write is refused later, or was another's meanwhile, is left for the controller to remove.
type rollouts struct {
	stock  *offered.Set
	client atomic.Pointer[client.Client] // nil: the API server is starting
}

var _ admission.MutationInterface = &rollouts{}

func newRollouts() *rollouts { return &rollouts{stock: offered.NewSet()} }

func (r *rollouts) register(p *admission.Plugins) {
	p.Register(rolloutsPluginName, func(io.Reader) (admission.Interface, error) { return r, nil })
}

// use gives it the API server to ask, and to write states to.
func (r *rollouts) use(cfg *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1                                     // as fast as objects are written
	cfg.ContentType, cfg.AcceptContentTypes = "", "" // Muster's kinds have no protobuf
	// Named kinds alone are asked for: no discovery while the server starts.
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind, scope := range map[string]meta.RESTScope{"RolloutState": meta.RESTScopeNamespace, "RolloutPolicy": meta.RESTScopeNamespace} {
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind), scope)
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	// All others are looked up when a Rollout names one.
	h, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return err
	}
	others, err := apiutil.NewDynamicRESTMapper(cfg, h)
	if err != nil {
		return err
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme, HTTPClient: h, Mapper: meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{mapper, others}}})
	if err != nil {
		return err
	}
	r.client.Store(&c)
	return nil
}

// Handles implements admission.Interface.
func (*rollouts) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// ownWriter tells whether the user is control itself: its rollouts mark objects, and what
// the API server does by itself follows no policy. Administrators are people.
func ownWriter(u user.Info) bool {
	return u.GetName() == user.APIServerUser || u.GetName() == controlUser && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}

// controlUser is the user with which control's own parts write.
const controlUser = "muster:control"

// Admit implements admission.MutationInterface.
func (r *rollouts) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetNamespace() == "" || a.GetSubresource() != "" || r.client.Load() == nil || ownWriter(a.GetUserInfo()) {
		return nil
	}
	kind, ok := r.kindOf(a)
	if !ok {
		return nil
	}
	now, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil
	}
	if a.GetOperation() == admission.Create {
		name(now, "") // what is new is new on all its sites
		return nil
	}
	before, err := meta.Accessor(a.GetOldObject())
	if err != nil {
		return nil
	}
	was := before.GetAnnotations()[v1alpha1.AnnotationRollout]
	name(now, was)
	if now.GetDeletionTimestamp() != nil {
		return nil
	}
	w := write{kind: kind, old: before, user: a.GetUserInfo().GetName(), namespace: a.GetNamespace()}
	var has bool
	if w.from, has, err = contentAs(a.GetOldObject(), kind); err != nil || !has {
		return err
	}
	if w.to, has, err = contentAs(a.GetObject(), kind); err != nil || !has || hold.Same(w.from, w.to) {
		return err
	}
	there, err := r.policies(ctx, w.namespace)
	if err != nil {
		return err
	}
	// By the labels that it had first: who takes one away in the same write must not go round
	// the policy.
	w.policy = there.of(kind.Kind, before.GetLabels(), now.GetLabels())
	state, err := r.begin(ctx, &w, was, a.IsDryRun())
	if err != nil {
		return cantMove(a, err)
	}
	name(now, state)
	if state != "" {
		warning.AddWarning(ctx, "", fmt.Sprintf("sites get this wave by wave, by rollout %s (`muster rollout status %s`)", state, state))
	}
	return nil
}

// cantMove is what a user is told of a write that can't become a rollout.
func cantMove(a admission.Attributes, err error) error {
	if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		return err
	}
	return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), err)
}

// name has an object name a state; "": none.
func name(o metav1.Object, state string) { annotate(o, v1alpha1.AnnotationRollout, state) }

// annotate sets an annotation that only admission may set; "": it has none.
func annotate(o metav1.Object, key, value string) {
	annotations := o.GetAnnotations()
	if annotations[key] == value {
		return
	}
	// The map may be shared with the object that was sent.
	next := maps.Clone(annotations)
	if next == nil {
		next = map[string]string{}
	}
	if next[key] = value; value == "" {
		delete(next, key)
	}
	o.SetAnnotations(next)
}

func (r *rollouts) kindOf(a admission.Attributes) (offered.Kind, bool) {
	gk := a.GetKind().GroupKind()
	kind, ok := hold.KindOf(r.stock, gk)
	if _, custom := a.GetObject().(*unstructured.Unstructured); !ok && custom && gk.Group != v1alpha1.GroupVersion.Group {
		kind, ok = offered.Kind{Group: gk.Group, Version: a.GetKind().Version, Kind: gk.Kind, Resource: a.GetResource().Resource, Spec: true, Custom: true}, true
	}
	return kind, ok
}

// contentAs is what of an object a rollout moves, in the version in which it is carried.
func contentAs(obj runtime.Object, kind offered.Kind) (runtime.RawExtension, bool, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return hold.Content(kind, u.Object)
	}
	b, err := runtime.Encode(legacyscheme.Codecs.LegacyCodec(kind.GroupVersionKind().GroupVersion()), obj)
	if err != nil {
		return runtime.RawExtension{}, false, apierrors.NewInternalError(fmt.Errorf("encode %s: %w", kind.Kind, err))
	}
	out := map[string]any{}
	if err := utiljson.Unmarshal(b, &out); err != nil {
		return runtime.RawExtension{}, false, apierrors.NewInternalError(fmt.Errorf("read %s: %w", kind.Kind, err))
	}
	return hold.Content(kind, out)
}

// write is an ordinary one that changes what a rollout moves.
type write struct {
	kind            offered.Kind
	old             metav1.Object
	namespace, user string
	from, to        runtime.RawExtension
	policy          *v1alpha1.RolloutPolicy // nil: none selects the object
}

// policies are those of a namespace of a tenant.
type policies struct {
	list   []v1alpha1.RolloutPolicy
	system bool // the namespace is the tenant's system namespace
}

// of is the one that selects an object by the first of these labels that any does; nil: none.
func (p policies) of(kind string, labels ...map[string]string) *v1alpha1.RolloutPolicy {
	for _, l := range labels {
		if out := hold.Select(p.list, kind, p.system, l); out != nil {
			return out
		}
	}
	return nil
}

func (r *rollouts) policies(ctx context.Context, namespace string) (policies, error) {
	var list v1alpha1.RolloutPolicyList
	if err := (*r.client.Load()).List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return policies{}, apierrors.NewInternalError(fmt.Errorf("list the namespace's RolloutPolicies: %w", err))
	}
	if len(list.Items) == 0 {
		return policies{}, nil
	}
	var ns corev1.Namespace
	if err := (*r.client.Load()).Get(ctx, client.ObjectKey{Name: namespace}, &ns); err != nil {
		return policies{}, apierrors.NewInternalError(fmt.Errorf("look up namespace %s: %w", namespace, err))
	}
	tenant := ns.Labels[fleet.LabelTenant]
	if tenant == "" || !strings.HasPrefix(namespace, tenant+"-") {
		return policies{}, nil
	}
	return policies{list.Items, namespace == fleet.SystemNamespace(tenant)}, nil
}

// labelsOf are those of what a Rollout changes; one that is not there yet has none.
func (r *rollouts) labelsOf(ctx context.Context, namespace string, c v1alpha1.RolloutChange) (map[string]string, error) {
	o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: c.APIVersion, Kind: c.Kind}}
	err := (*r.client.Load()).Get(ctx, client.ObjectKey{Namespace: namespace, Name: c.Name}, o)
	if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return nil, apierrors.NewInternalError(fmt.Errorf("look up %s %s: %w", c.Kind, c.Name, err))
	}
	return o.Labels, nil
}

// state reads one; nil: there is none.
func (r *rollouts) state(ctx context.Context, namespace, name string) (*v1alpha1.RolloutState, error) {
	if name == "" {
		return nil, nil
	}
	st := &v1alpha1.RolloutState{}
	err := (*r.client.Load()).Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, st)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("look up the state of rollout %s: %w", name, err))
	}
	return st, nil
}

// tries is how often a state is made anew while the one that it takes over from goes on.
const tries = 3

// begin writes the state of a write, unless it is a dry run, and returns its name; "": the
// write goes to all sites at once. was is what the object named so far.
func (r *rollouts) begin(ctx context.Context, w *write, was string, dryRun bool) (string, error) {
	name := hold.Name(w.old.GetName(), string(w.old.GetUID()), w.old.GetResourceVersion(), w.to)
	for try := 1; ; try++ {
		old, err := r.state(ctx, w.namespace, was)
		if err != nil {
			return "", err
		}
		if old != nil && (!old.Spec.Held || hold.Find(&old.Spec, w.kind, w.old.GetName()) == nil) {
			old = nil
		}
		policy := ""
		switch {
		case w.policy != nil:
			policy = w.policy.Name
		case old == nil || hold.Ended(old):
			return "", nil
		}
		object := hold.Object{Kind: w.kind, Name: w.old.GetName(), From: w.from, To: w.to}
		next, err := hold.NewState(old, w.namespace, name, object, policy, w.user)
		if err != nil || dryRun {
			return name, err
		}
		if err := r.put(ctx, next); err != nil {
			return "", err
		}
		if old == nil || try == tries {
			return name, nil
		}
		// The old rollout may have gone a step while this was made; it would be taken back.
		again, err := r.state(ctx, w.namespace, was)
		if err != nil {
			return "", err
		}
		if again != nil && again.ResourceVersion == old.ResourceVersion {
			return name, nil
		}
	}
}

// put writes a state, over one of an earlier try of the same write.
func (r *rollouts) put(ctx context.Context, st *v1alpha1.RolloutState) error {
	err := (*r.client.Load()).Create(ctx, st)
	if apierrors.IsAlreadyExists(err) {
		there, err := r.state(ctx, st.Namespace, st.Name)
		if err != nil {
			return err
		}
		if there == nil || there.Spec.Decided != nil {
			return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("rolloutstates").GroupResource(), st.Name, errors.New("the object is being written by somebody else; try again"))
		}
		there.Spec, there.Labels = st.Spec, st.Labels
		if err := (*r.client.Load()).Update(ctx, there); err != nil {
			return apierrors.NewInternalError(fmt.Errorf("write the state of rollout %s: %w", st.Name, err))
		}
		return nil
	}
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("write the state of rollout %s: %w", st.Name, err))
	}
	return nil
}
