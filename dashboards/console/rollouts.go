package console

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/wire"
)

// What users do with rollouts, in the rollout's namespace.
var (
	listRollouts   = right{verb: "list", resource: "rollouts"}
	readRollout    = right{verb: "get", resource: "rollouts"}
	patchRollout   = right{verb: "patch", resource: "rollouts"}
	removeRollout  = right{verb: "delete", resource: "rollouts"}
	approveRollout = right{verb: "approve", resource: "rollouts"}
	skipGates      = right{verb: "skip-gates", resource: "rollouts"}
	rolloutRules   = []right{patchRollout, removeRollout, approveRollout, skipGates}
)

// rolloutRef names a rollout, in a namespace as users type it.
type rolloutRef struct {
	virtualRef // whose name is the rollout's
}

func (k *kube) getRollout(ctx context.Context, ref rolloutRef) (*v1alpha1.Rollout, error) {
	out := &v1alpha1.Rollout{}
	err := k.user.Get().Namespace(ref.kubeNamespace()).Resource("rollouts").Name(ref.name).Do(ctx).Into(out)
	return out, err
}

// getRolloutState returns an empty one while the controllers have not made it.
func (k *kube) getRolloutState(ctx context.Context, ref rolloutRef) (*v1alpha1.RolloutStateSpec, error) {
	out := &v1alpha1.RolloutState{}
	err := k.user.Get().Namespace(ref.kubeNamespace()).Resource("rolloutstates").Name(ref.name).Do(ctx).Into(out)
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return &out.Spec, err
}

// rolloutScope is where a user may read rollouts.
type rolloutScope struct {
	all    bool                  // everywhere, in one request
	owners map[string]virtualRef // by the namespace on the control plane
}

// payers are as those of readable.
func (s rolloutScope) payers() []string {
	if s.all || len(s.owners) == 0 {
		return []string{""}
	}
	var out []string
	for _, ref := range s.owners {
		if !slices.Contains(out, ref.tenant) {
			out = append(out, ref.tenant)
		}
	}
	return out
}

// rolloutScope returns the namespaces, of one tenant and of one name or of all ("").
func (c *Console) rolloutScope(ctx context.Context, id identity, tenant, namespace string, need right) (rolloutScope, error) {
	owners, err := c.access.namespaceOwners(ctx)
	if err != nil {
		return rolloutScope{}, err
	}
	out := rolloutScope{owners: map[string]virtualRef{}}
	var names []string
	for name, ref := range owners {
		if (tenant == "" || ref.tenant == tenant) && (namespace == "" || ref.namespace == namespace) {
			names = append(names, name)
		}
	}
	if out.all, err = c.access.may(ctx, id, need, everyNamespace); err != nil {
		return out, err
	}
	allowed := make([]bool, len(names))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelReviews)
	for i, name := range names {
		if allowed[i] = out.all; out.all {
			continue
		}
		g.Go(func() (err error) {
			allowed[i], err = c.access.may(gctx, id, need, name)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return out, err
	}
	for i, name := range names {
		if allowed[i] {
			out.owners[name] = owners[name]
		}
	}
	// One request for a namespace beats one for all.
	out.all = out.all && len(out.owners) > 1
	if len(out.owners) == 0 {
		where := "no namespace"
		if namespace != "" {
			where = fmt.Sprintf("no namespace %q", namespace)
		}
		if tenant != "" {
			where += fmt.Sprintf(" of tenant %q", tenant)
		}
		return out, forbidden("there is %s where you may `%s`; an administrator of the tenant can let you", where, need)
	}
	return out, nil
}

// ownedRollout is a rollout with where it is.
type ownedRollout struct {
	ref rolloutRef
	*v1alpha1.Rollout
}

// parallelLists of one request.
const parallelLists = 4

// rollouts reads them all in the user's name, and calls with one after the other.
func (c *Console) rollouts(ctx context.Context, in rolloutScope, each func(ownedRollout)) error {
	namespaces := []string{""}
	if !in.all {
		namespaces = namespaces[:0]
		for name := range in.owners {
			namespaces = append(namespaces, name)
		}
	}
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelLists)
	for _, name := range namespaces {
		g.Go(func() error {
			return listPages(gctx, c.kube, c.kube.user, "rollouts", name, func(list *v1alpha1.RolloutList) {
				mu.Lock()
				defer mu.Unlock()
				for i := range list.Items {
					r := &list.Items[i]
					if ref, ok := in.owners[r.Namespace]; ok {
						ref.name = r.Name
						each(ownedRollout{rolloutRef{ref}, r})
					}
				}
			})
		})
	}
	return g.Wait()
}

// rolloutAt is a place in the list, newest first. A cursor is the last one that was
// returned. It carries no rights: those are checked again for each page.
type rolloutAt struct {
	CreatedAt int64  `json:"c"` // Unix seconds
	Tenant    string `json:"t"`
	Namespace string `json:"s"`
	Name      string `json:"n"`
}

func (a rolloutAt) compare(b rolloutAt) int {
	return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func (r ownedRollout) at() rolloutAt {
	return rolloutAt{r.CreationTimestamp.Unix(), r.ref.tenant, r.ref.namespace, r.ref.name}
}

// wants tells whether a rollout is one that the list's parameters ask for.
func (r ownedRollout) wants(q map[string][]string) bool {
	get := func(name string) string { return strings.Join(q[name], ",") }
	ended := r.Status.Phase.Ended()
	if s := get("state"); s == "active" && ended || s == "ended" && !ended {
		return false
	}
	if len(q["phase"]) > 0 && !slices.Contains(q["phase"], string(rolloutPhase(r.Rollout))) {
		return false
	}
	if object := get("object"); object != "" && !slices.ContainsFunc(r.Spec.Changes, func(ch v1alpha1.RolloutChange) bool { return isObject(object, ch) }) {
		return false
	}
	text := strings.ToLower(get("q"))
	return text == "" || strings.Contains(strings.ToLower(r.Name), text) ||
		slices.ContainsFunc(r.Spec.Changes, func(ch v1alpha1.RolloutChange) bool {
			return strings.Contains(strings.ToLower(ch.Kind+"/"+ch.Name), text)
		})
}

// isObject tells whether KIND/NAME or KIND.GROUP/NAME is the object of a change.
func isObject(object string, ch v1alpha1.RolloutChange) bool {
	kind, name, _ := strings.Cut(object, "/")
	kind, group, hasGroup := strings.Cut(kind, ".")
	have, _, isGroup := strings.Cut(ch.APIVersion, "/")
	if !isGroup {
		have = ""
	}
	return name == ch.Name && strings.EqualFold(kind, ch.Kind) && (!hasGroup || group == have)
}

func (c *Console) getRollouts(w http.ResponseWriter, cl *call) error {
	var after *rolloutAt
	if s := cl.q.Get("cursor"); s != "" {
		after = &rolloutAt{}
		if wire.DecodeCursor(s, after) != nil {
			return invalid("cursor", "take it unchanged from nextCursor of the page before")
		}
	}
	scope, err := c.rolloutScope(cl.Context(), cl.id, cl.q.Get("tenant"), cl.q.Get("namespace"), listRollouts)
	if err != nil {
		return err
	}
	end, err := c.turn(w, cl, scope.payers())
	if err != nil {
		return err
	}
	defer end()
	type row struct {
		at   rolloutAt
		view rolloutView
	}
	var list []row
	err = c.rollouts(cl.Context(), scope, func(r ownedRollout) {
		if r.wants(cl.q) {
			list = append(list, row{r.at(), viewRollout(r.ref, r.Rollout)})
		}
	})
	if err != nil {
		return err
	}
	slices.SortFunc(list, func(a, b row) int { return a.at.compare(b.at) })
	out := rolloutListView{Total: len(list), Rollouts: []rolloutView{}}
	limit := limitOf(cl.q)
	for i, r := range list {
		if after != nil && r.at.compare(*after) <= 0 {
			continue
		}
		if len(out.Rollouts) == limit {
			out.NextCursor = wire.EncodeCursor(list[i-1].at)
			break
		}
		out.Rollouts = append(out.Rollouts, r.view)
	}
	return writeJSON(w, http.StatusOK, out)
}

// rolloutOf is the rollout that the path and the parameter tenant name, as the user may
// read it.
func (c *Console) rolloutOf(w http.ResponseWriter, cl *call) (ownedRollout, error) {
	tenant, namespace, name := cl.q.Get("tenant"), cl.PathValue("namespace"), cl.PathValue("rollout")
	if tenant != "" && namespace != "" {
		ref := rolloutRef{virtualRef{tenant, namespace, name}}
		r, err := c.kube.getRollout(cl.Context(), ref)
		return ownedRollout{ref, r}, err
	}
	// By its name alone it has to be looked for, which takes the right to list.
	need := listRollouts
	if namespace != "" {
		need = readRollout
	}
	scope, err := c.rolloutScope(cl.Context(), cl.id, tenant, namespace, need)
	if err != nil {
		return ownedRollout{}, err
	}
	var found []ownedRollout
	if namespace == "" {
		end, err := c.turn(w, cl, scope.payers())
		if err != nil {
			return ownedRollout{}, err
		}
		defer end()
		err = c.rollouts(cl.Context(), scope, func(r ownedRollout) {
			if r.Name == name {
				found = append(found, ownedRollout{r.ref, r.DeepCopy()}) // of its page nothing stays
			}
		})
		if err != nil {
			return ownedRollout{}, err
		}
	} else {
		for _, ref := range scope.owners {
			ref.name = name
			r, err := c.kube.getRollout(cl.Context(), rolloutRef{ref})
			if err != nil && !apierrors.IsNotFound(err) {
				return ownedRollout{}, err
			}
			if err == nil {
				found = append(found, ownedRollout{rolloutRef{ref}, r})
			}
		}
	}
	switch len(found) {
	case 0:
		return ownedRollout{}, notFound("there is no rollout %q that you may read; GET /api/v1/rollouts lists them", strings.TrimPrefix(namespace+"/"+name, "/"))
	case 1:
		return found[0], nil
	}
	var tenants, where []string
	for _, r := range found {
		tenants, where = append(tenants, r.ref.tenant), append(where, r.ref.tenant+": "+r.ref.namespace+"/"+name)
	}
	slices.Sort(tenants)
	slices.Sort(where)
	p := newProblem(http.StatusConflict, wire.ProblemAmbiguousSite, "there are several rollouts %q: %s; name the namespace, and the tenant with the parameter tenant", name, strings.Join(where, ", "))
	p.Tenants = slices.Compact(tenants)
	return ownedRollout{}, p
}

func (c *Console) getRollout(w http.ResponseWriter, cl *call) error {
	r, err := c.rolloutOf(w, cl)
	if err != nil {
		return err
	}
	return c.writeRollout(w, cl, http.StatusOK, r)
}

// writeRollout answers with a rollout in full.
func (c *Console) writeRollout(w http.ResponseWriter, cl *call, code int, r ownedRollout) error {
	out, err := c.rolloutDetail(cl.Context(), cl.id, r)
	if err != nil {
		return err
	}
	return writeJSON(w, code, out)
}

func (c *Console) rolloutDetail(ctx context.Context, id identity, r ownedRollout) (*rolloutDetailView, error) {
	may := make([]bool, len(rolloutRules))
	var state *v1alpha1.RolloutStateSpec
	g, gctx := errgroup.WithContext(ctx)
	for i, need := range rolloutRules {
		g.Go(func() (err error) {
			may[i], err = c.access.may(gctx, id, need, r.ref.kubeNamespace())
			return err
		})
	}
	g.Go(func() (err error) {
		state, err = c.kube.getRolloutState(gctx, r.ref)
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out := &rolloutDetailView{rolloutView: viewRollout(r.ref, r.Rollout), By: state.By, Policy: state.Policy, Supersedes: state.Supersedes,
		Spec: r.Spec, Gates: viewGates(r.Status.Gates), Decisions: viewDecisions(r.Status.Decisions), Contents: viewContents(state),
		Rights: rolloutRights{Control: may[0], Delete: may[1], Approve: may[2], SkipGates: may[3]}}
	return out, nil
}

// rolloutGatesView is why a rollout stands where it stands.
type rolloutGatesView struct {
	Tenant    string         `json:"tenant"`
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	Phase     string         `json:"phase"`
	Message   string         `json:"message"`
	Wave      int32          `json:"wave"`
	WaveName  string         `json:"waveName"`
	Verdict   string         `json:"verdict"`
	Gates     []gateView     `json:"gates"`
	Next      string         `json:"next"`
	NextAt    *time.Time     `json:"nextAt"`
	Decisions []decisionView `json:"decisions"`
}

func (c *Console) getRolloutGates(w http.ResponseWriter, cl *call) error {
	r, err := c.rolloutOf(w, cl)
	if err != nil {
		return err
	}
	st := &r.Status
	out := rolloutGatesView{Tenant: r.ref.tenant, Namespace: r.ref.namespace, Name: r.Name, Phase: string(rolloutPhase(r.Rollout)), Message: st.Message,
		Wave: st.Wave, Verdict: string(worstVerdict(st.Gates)), Gates: viewGates(st.Gates), Next: st.Next, NextAt: timeView(st.NextAt), Decisions: viewDecisions(st.Decisions)}
	if w := st.WaveAt(st.Wave); w != nil {
		out.WaveName = w.Name
	}
	return writeJSON(w, http.StatusOK, out)
}

// verdicts from good to bad.
var verdicts = []v1alpha1.GateVerdict{v1alpha1.GatePass, v1alpha1.GateWait, v1alpha1.GateUnknown, v1alpha1.GateFail}

// worstVerdict of gates is what they say together; of none, Unknown.
func worstVerdict(gates []v1alpha1.GateReading) v1alpha1.GateVerdict {
	worst := -1
	for _, g := range gates {
		worst = max(worst, slices.Index(verdicts, g.Verdict))
	}
	if worst < 0 {
		return v1alpha1.GateUnknown
	}
	return verdicts[worst]
}

// images of a pods' template, or what else names a content.
func contentText(raw []byte) string {
	var t struct {
		Version string `json:"version"`
		Spec    struct {
			Version    string `json:"version"`
			Containers []struct {
				Image string `json:"image"`
			} `json:"containers"`
		} `json:"spec"`
	}
	if json.Unmarshal(raw, &t) != nil {
		return ""
	}
	var images []string
	for _, c := range t.Spec.Containers {
		images = append(images, c.Image)
	}
	return cmp.Or(strings.Join(images, ", "), t.Spec.Version, t.Version)
}
