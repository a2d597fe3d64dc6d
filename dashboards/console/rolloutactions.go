package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/wire"
)

const (
	// maxRolloutBytes of a Rollout: sixteen pods' templates.
	maxRolloutBytes = 1 << 20
	// maxRetries are sites that one rollout can have tried again.
	maxRetries = 1000
)

var (
	createRollout = right{verb: "create", resource: "rollouts"}
	createCheck   = right{verb: "create", resource: "gatechecks"}
	readCheck     = right{verb: "get", resource: "gatechecks"}
)

// namespaceOf is the namespace, as users type it, in which somebody wants to make
// something, where need is the right to. field names it in the body.
func (c *Console) namespaceOf(cl *call, field, namespace string, need right) (virtualRef, error) {
	if namespace == "" {
		return virtualRef{}, invalid(field, "is missing: want the namespace as you type it, such as shop")
	}
	if err := namespaceName(namespace); err != nil {
		return virtualRef{}, invalid(field, "%s", err)
	}
	if tenant := cl.q.Get("tenant"); tenant != "" {
		return virtualRef{tenant: tenant, namespace: namespace}, nil
	}
	scope, err := c.rolloutScope(cl.Context(), cl.id, "", namespace, need)
	if err != nil {
		return virtualRef{}, err
	}
	var tenants []string
	var ref virtualRef
	for _, o := range scope.owners {
		ref, tenants = o, append(tenants, o.tenant)
	}
	if len(tenants) == 1 {
		return ref, nil
	}
	slices.Sort(tenants)
	p := newProblem(http.StatusConflict, wire.ProblemAmbiguousSite, "several tenants have a namespace %q: name one with the parameter tenant", namespace)
	p.Tenants = tenants
	return virtualRef{}, p
}

// makeObject creates a muster.dev object as the user, refusing fields that it does not know.
func (k *kube) makeObject(ctx context.Context, resource, kind, namespace, name, prefix string, spec any, dryRun bool, out any) error {
	meta := map[string]any{"name": name}
	if name == "" {
		meta = map[string]any{"generateName": prefix}
	}
	doc, err := json.Marshal(map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind, "metadata": meta, "spec": spec})
	if err != nil {
		return fmt.Errorf("encode the %s: %w", kind, err)
	}
	o := &metav1.CreateOptions{FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict}
	if dryRun {
		o.DryRun = []string{metav1.DryRunAll}
	}
	raw, err := body(ctx, k.user.Post().Namespace(namespace).Resource(resource).VersionedParams(o, k.params).Body(doc))
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, out)
}

type rolloutRequest struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Spec      json.RawMessage `json:"spec"`
	DryRun    bool            `json:"dryRun"`
}

// postRollout makes a Rollout as the user; what is wrong with its spec the API server says.
func (c *Console) postRollout(w http.ResponseWriter, cl *call) error {
	scope, err := c.rolloutScope(cl.Context(), cl.id, cl.q.Get("tenant"), "", createRollout)
	if err != nil {
		return err
	}
	end, err := c.turn(w, cl, scope.payers())
	if err != nil {
		return err
	}
	defer end()
	var in rolloutRequest
	if err := readJSON(cl.Request, &in, false); err != nil {
		return err
	}
	var spec v1alpha1.RolloutSpec
	if err := json.Unmarshal(in.Spec, &spec); err != nil {
		return invalid("spec", "%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if len(spec.Changes) == 0 {
		return invalid("spec.changes", "want at least one object and what becomes of it")
	}
	ref, err := c.namespaceOf(cl, "namespace", in.Namespace, createRollout)
	if err != nil {
		return err
	}
	out := &v1alpha1.Rollout{}
	// The object's name may be one that no prefix can be; the API server shortens the rest.
	prefix := strings.ReplaceAll(spec.Changes[0].Name, ":", "-") + "-"
	if err := c.kube.makeObject(cl.Context(), "rollouts", "Rollout", ref.kubeNamespace(), in.Name, prefix, in.Spec, in.DryRun, out); err != nil {
		return err
	}
	ref.name = out.Name
	code := http.StatusCreated
	if in.DryRun {
		code = http.StatusOK
	}
	return c.writeRollout(w, cl, code, ownedRollout{rolloutRef{ref}, out})
}

// deleteRollout removes one that has ended, or never began.
func (c *Console) deleteRollout(w http.ResponseWriter, cl *call) error {
	r, err := c.rolloutOf(w, cl)
	if err != nil {
		return err
	}
	if p := r.Status.Phase; p != "" && !p.Ended() {
		return newProblem(http.StatusConflict, wire.ProblemConflict, "rollout %s is under way (%s): abort it, which puts all sites back, and delete it then", r.Name, p)
	}
	err = c.kube.user.Delete().Namespace(r.ref.kubeNamespace()).Resource("rollouts").Name(r.Name).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.UID}}).Do(cl.Context()).Error()
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// control returns the handler of an action on a rollout: it changes spec.control as the
// user, so that kubectl, the CLI and pages do the same, and the API server asks RBAC.
// change reads what it needs of the body once; it may be called again for a newer rollout.
func (c *Console) control(read func(*call) (func(*v1alpha1.Rollout) (map[string]any, error), error)) func(http.ResponseWriter, *call) error {
	return func(w http.ResponseWriter, cl *call) error {
		change, err := read(cl)
		if err != nil {
			return err
		}
		var written ownedRollout
		// The status may move on meanwhile.
		err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
			r, err := c.rolloutOf(w, cl)
			if err != nil {
				return err
			}
			if r.Status.Phase.Ended() {
				return newProblem(http.StatusConflict, wire.ProblemConflict, "rollout %s has ended (%s): there is nothing left to control", r.Name, r.Status.Phase)
			}
			fields, err := change(r.Rollout)
			if err != nil {
				return err
			}
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": r.ResourceVersion}, "spec": map[string]any{"control": fields}})
			if err != nil {
				return fmt.Errorf("encode the patch: %w", err)
			}
			written = ownedRollout{r.ref, &v1alpha1.Rollout{}}
			return c.kube.user.Patch(types.MergePatchType).Namespace(r.ref.kubeNamespace()).Resource("rollouts").Name(r.Name).
				VersionedParams(&metav1.PatchOptions{FieldManager: fieldManager}, c.kube.params).Body(patch).Do(cl.Context()).Into(written.Rollout)
		})
		if err != nil {
			return err
		}
		return c.writeRollout(w, cl, http.StatusOK, written)
	}
}

// always is a change that needs nothing of the body or of the rollout.
func always(fields map[string]any) func(*call) (func(*v1alpha1.Rollout) (map[string]any, error), error) {
	return func(cl *call) (func(*v1alpha1.Rollout) (map[string]any, error), error) {
		return func(*v1alpha1.Rollout) (map[string]any, error) { return fields, nil }, readJSON(cl.Request, &struct{}{}, true)
	}
}

// goOn ends a pause, whether people began it or the rollout itself did.
func goOn(cl *call) (func(*v1alpha1.Rollout) (map[string]any, error), error) {
	return func(r *v1alpha1.Rollout) (map[string]any, error) {
		next := r.Spec.Control
		next.GoOn()
		return map[string]any{"paused": next.Paused, "resume": next.Resume}, nil
	}, readJSON(cl.Request, &struct{}{}, true)
}

// readPromote takes the number of a wave; without one it is the wave that waits.
func readPromote(cl *call) (func(*v1alpha1.Rollout) (map[string]any, error), error) {
	var in struct {
		Wave *int32 `json:"wave"`
	}
	if err := readJSON(cl.Request, &in, true); err != nil {
		return nil, err
	}
	return func(r *v1alpha1.Rollout) (map[string]any, error) {
		wave := max(r.Status.Wave, 1)
		if in.Wave != nil {
			wave = *in.Wave
		}
		waves := r.Status.WaveCount
		if wave < 1 || waves > 0 && wave > waves {
			return nil, invalid("wave", "%d: want the number of a wave, from 1 to %d", wave, max(waves, 1))
		}
		if wave <= r.Spec.Control.Promote {
			return nil, newProblem(http.StatusConflict, wire.ProblemConflict, "rollout %s is promoted up to wave %d already", r.Name, r.Spec.Control.Promote)
		}
		return map[string]any{"promote": wave}, nil
	}, nil
}

// readRetry takes names of sites; of none, all that failed are meant.
func (c *Console) readRetry(cl *call) (func(*v1alpha1.Rollout) (map[string]any, error), error) {
	var in struct {
		Sites []string `json:"sites"`
	}
	if err := readJSON(cl.Request, &in, true); err != nil {
		return nil, err
	}
	if len(in.Sites) > maxRetries {
		return nil, invalid("sites", "%d sites, want at most %d", len(in.Sites), maxRetries)
	}
	for i, name := range in.Sites {
		if err := siteName(name); err != nil {
			return nil, invalid(fmt.Sprintf("sites[%d]", i), "%s", err)
		}
	}
	return func(r *v1alpha1.Rollout) (map[string]any, error) {
		owners, err := c.access.namespaceOwners(cl.Context())
		if err != nil {
			return nil, err
		}
		ref, ok := owners[r.Namespace]
		if !ok {
			return nil, errors.New("the rollout's namespace belongs to no tenant")
		}
		ref.name = r.Name
		state, err := c.kube.getRolloutState(cl.Context(), rolloutRef{ref})
		if err != nil {
			return nil, err
		}
		failed := map[string]bool{}
		var sites []string
		for _, s := range viewSteps(nil, state) {
			if s.Step == steps[v1alpha1.StepFailed] {
				failed[s.Site], sites = true, append(sites, s.Site)
			}
		}
		if len(in.Sites) > 0 {
			sites = in.Sites
		}
		sites = sites[:min(len(sites), maxRetries)]
		counts := map[string]any{}
		for i, name := range sites {
			if !failed[name] {
				return nil, invalid(fmt.Sprintf("sites[%d]", i), "site %s has not failed in this rollout; GET …/sites?step=failed lists those that have", name)
			}
			counts[name] = r.Spec.Control.Retry[name] + 1
		}
		if len(counts) == 0 {
			return nil, newProblem(http.StatusConflict, wire.ProblemConflict, "no site of rollout %s has failed: there is nothing to try again", r.Name)
		}
		return map[string]any{"retry": counts}, nil
	}, nil
}
