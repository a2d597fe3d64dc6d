package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
)

func rolloutCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{Use: "rollout", Short: "Take a change over the fleet, wave by wave, as fast as its health allows",
		Long: `Take a change over the fleet, wave by wave, as fast as its health allows.

A rollout is an object of the kind Rollout: kubectl reads and changes it too. An ordinary
kubectl apply or helm upgrade becomes one by itself where a RolloutPolicy selects the
object.`,
		Example: `  muster rollout start shop deployment/web --image web=shop/web:2 --dry-run
  muster rollout start shop deployment/web --image web=shop/web:2 --watch
  muster rollout status shop/web-1a2b3c4d --watch
  muster rollout abort shop/web-1a2b3c4d --yes`}
	cmd.AddCommand(rolloutStartCmd(g), rolloutListCmd(g), rolloutStatusCmd(g), rolloutExplainCmd(g), rolloutHistoryCmd(g))
	cmd.AddCommand(rolloutActions(g)...)
	return cmd
}

// owned is a rollout with where it is, as its users type it.
type owned struct {
	tenant, namespace string
	*v1alpha1.Rollout
}

func (o owned) String() string { return o.namespace + "/" + o.Name }

// listRollouts reads those of the tenants that the user may, newest first; of one
// namespace, unless it is "".
func listRollouts(ctx context.Context, c client.Client, tenants []v1alpha1.Tenant, namespace string) ([]owned, error) {
	var out []owned
	var refused error
	asked, known := 0, false
	for _, t := range tenants {
		for _, ns := range namespacesOf(t) {
			short := strings.TrimPrefix(ns, t.Name+"-")
			if namespace != "" && short != namespace {
				continue
			}
			known = true
			var list v1alpha1.RolloutList
			err := c.List(ctx, &list, client.InNamespace(ns))
			if apierrors.IsForbidden(err) {
				refused = err
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("rollouts in %s: %w", ns, err)
			}
			asked++
			for i := range list.Items {
				out = append(out, owned{t.Name, short, &list.Items[i]})
			}
		}
	}
	switch {
	case !known:
		return nil, fmt.Errorf("%s: no namespace %q; `muster describe tenant` lists them", strings.Join(tenantNames(tenants), ", "), namespace)
	case asked == 0:
		return nil, refused
	}
	slices.SortFunc(out, func(a, b owned) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.String(), b.String()))
	})
	return out, nil
}

// findRollout takes NAMESPACE/NAME, or NAME where that is unique.
func findRollout(ctx context.Context, c client.Client, tenants []v1alpha1.Tenant, typed string) (owned, error) {
	namespace, name, ok := strings.Cut(typed, "/")
	if !ok {
		namespace, name = "", typed
	}
	list, err := listRollouts(ctx, c, tenants, namespace)
	if err != nil {
		return owned{}, fmt.Errorf("rollout %s: %w", typed, err)
	}
	list = slices.DeleteFunc(list, func(o owned) bool { return o.Name != name })
	switch len(list) {
	case 0:
		return owned{}, fmt.Errorf("there is no rollout %q; `muster rollout list` shows those that there are", typed)
	case 1:
		return list[0], nil
	}
	var where []string
	for _, o := range list {
		where = append(where, o.tenant+": "+o.String())
	}
	return owned{}, fmt.Errorf("there are %d rollouts %q: %s; choose one with NAMESPACE/NAME and --tenant", len(list), typed, strings.Join(where, ", "))
}

// completeRollouts completes NAMESPACE/NAME.
func (g *Globals) completeRollouts(active bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, tenants, err := g.connect(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		list, err := listRollouts(cmd.Context(), c, tenants, "")
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for _, o := range list {
			if !active || !o.Status.Phase.Ended() {
				names = append(names, cobra.CompletionWithDesc(o.String(), string(o.Status.Phase)))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

var rolloutHeader = []string{"NAME", "PHASE", "WAVE", "UPDATED", "FAILED", "OFFLINE", "AGE", "BY", "CHANGES", "MESSAGE", "TENANT"}

func rolloutListCmd(g *Globals) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "list [NAMESPACE]", Aliases: []string{"ls"}, Short: "List rollouts, newest first", Args: cobra.MaximumNArgs(1), ValidArgsFunction: g.completeNamespaces,
		Long:    "List rollouts that are under way, newest first, and with --all those that have ended too.",
		Example: "  muster rollout list\n  muster rollout list shop --all -o wide",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, tenants, err := g.connect(cmd.Context())
			if err != nil {
				return err
			}
			list, err := listRollouts(cmd.Context(), c, tenants, strings.Join(args, ""))
			if err != nil {
				return err
			}
			t := table{header: rolloutHeader, wide: 9}
			items := &v1alpha1.RolloutList{Items: []v1alpha1.Rollout{}}
			ended := 0
			for _, o := range list {
				if !all && o.Status.Phase.Ended() {
					ended++
					continue
				}
				s := o.Status.Sites
				t.rows = append(t.rows, []string{o.String(), phaseText(o.Rollout), orDash(o.Status.Progress), fmt.Sprintf("%d/%d", s.Updated, s.Total), strconv.Itoa(int(s.Failed)), strconv.Itoa(int(s.Offline)),
					age(&o.CreationTimestamp), orDash(o.Annotations[v1alpha1.AnnotationStartedBy]), changesText(o.Spec.Changes), orDash(o.Status.Message), o.tenant})
				items.Items = append(items.Items, *o.Rollout)
			}
			if err := g.print(cmd.OutOrStdout(), items, t); err != nil {
				return err
			}
			if ended > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "%d that ended are left out; --all shows them\n", ended)
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also those that have ended")
	g.AddFlags(cmd)
	g.addOutput(cmd)
	g.addSort(cmd, rolloutHeader)
	return cmd
}

// completeNamespaces completes a tenant's namespaces as its users type them.
func (g *Globals) completeNamespaces(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	_, tenants, err := g.connect(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, t := range tenants {
		for _, ns := range namespacesOf(t) {
			names = append(names, strings.TrimPrefix(ns, t.Name+"-"))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}

func phaseText(r *v1alpha1.Rollout) string {
	return string(cmp.Or(r.Status.Phase, v1alpha1.RolloutQueued))
}

// changesText says what becomes of the objects, such as Deployment/web web=shop/web:2.
func changesText(changes []v1alpha1.RolloutChange) string {
	var out []string
	for _, ch := range changes {
		s := ch.Kind + "/" + ch.Name
		var images []string
		for c, image := range ch.Images {
			images = append(images, c+"="+image)
		}
		slices.Sort(images)
		switch {
		case len(images) > 0:
			s += " " + strings.Join(images, " ")
		case ch.Revision != nil:
			s += fmt.Sprintf(" to revision %d", *ch.Revision)
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

func rolloutHistoryCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use: "history NAMESPACE/NAME | NAMESPACE KIND/NAME", Short: "What was decided, or the rollouts of an object", Args: cobra.RangeArgs(1, 2), ValidArgsFunction: g.completeRollouts(false),
		Long:    "Show what was decided in a rollout, and by whom; or, of an object, the rollouts that\nmoved it, newest first.",
		Example: "  muster rollout history shop/web-1a2b3c4d\n  muster rollout history shop deployment/web",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, tenants, err := g.connect(cmd.Context())
			if err != nil {
				return err
			}
			if len(args) == 2 {
				return g.objectHistory(cmd.Context(), cmd.OutOrStdout(), c, tenants, args[0], args[1])
			}
			r, err := findRollout(cmd.Context(), c, tenants, args[0])
			if err != nil {
				return err
			}
			t := table{header: []string{"AT", "WHAT", "BY", "TEXT"}}
			for _, d := range r.Status.Decisions {
				t.rows = append(t.rows, []string{d.At.UTC().Format(time.RFC3339), d.What, orDash(d.By), d.Text})
			}
			return g.print(cmd.OutOrStdout(), append([]v1alpha1.RolloutDecision{}, r.Status.Decisions...), t)
		},
	}
	g.AddFlags(cmd)
	g.addOutput(cmd)
	return cmd
}

func (g *Globals) objectHistory(ctx context.Context, w io.Writer, c client.Client, tenants []v1alpha1.Tenant, namespace, object string) error {
	kind, name, err := objectKind(c, object)
	if err != nil {
		return err
	}
	list, err := listRollouts(ctx, c, tenants, namespace)
	if err != nil {
		return err
	}
	t := table{header: []string{"NAME", "PHASE", "STARTED", "ENDED", "CHANGES", "MESSAGE"}}
	items := &v1alpha1.RolloutList{Items: []v1alpha1.Rollout{}}
	for _, o := range list {
		if slices.ContainsFunc(o.Spec.Changes, func(ch v1alpha1.RolloutChange) bool {
			return ch.Kind == kind.Kind && ch.Name == name && strings.HasPrefix(ch.APIVersion, kind.Group)
		}) {
			t.rows = append(t.rows, []string{o.String(), phaseText(o.Rollout), age(o.Status.StartedAt), age(o.Status.EndedAt), changesText(o.Spec.Changes), orDash(o.Status.Message)})
			items.Items = append(items.Items, *o.Rollout)
		}
	}
	return g.print(w, items, t)
}

// rolloutActions are the verbs that change spec.control.
// action is a verb that changes spec.control of a rollout that has not ended; run says what came of it.
type action struct {
	use, short, long, example string
	flags                     func(*cobra.Command) // nil: it has none of its own
	run                       func(context.Context, client.Client, owned) (said string, err error)
}

func (g *Globals) actionCmd(a action) *cobra.Command {
	cmd := &cobra.Command{Use: a.use, Short: a.short, Long: a.long, Example: a.example, Args: cobra.ExactArgs(1), ValidArgsFunction: g.completeRollouts(true),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, tenants, err := g.connect(cmd.Context())
			if err != nil {
				return err
			}
			return a.do(cmd.Context(), cmd.OutOrStdout(), c, tenants, args[0])
		}}
	if a.flags != nil {
		a.flags(cmd)
	}
	g.AddFlags(cmd)
	return cmd
}

// do changes the rollout. The controllers write the status meanwhile: it is tried again with what they left.
func (a action) do(ctx context.Context, w io.Writer, c client.Client, tenants []v1alpha1.Tenant, name string) error {
	for try := 0; ; try++ {
		r, err := findRollout(ctx, c, tenants, name)
		if err != nil {
			return err
		}
		if r.Status.Phase.Ended() {
			return fmt.Errorf("rollout %s has ended (%s): there is nothing left to control; `muster rollout start` starts another", r, r.Status.Phase)
		}
		before := r.DeepCopy()
		said, err := a.run(ctx, c, r)
		if err != nil {
			return err
		}
		err = c.Patch(ctx, r.Rollout, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsConflict(err) && try < 5 {
			continue
		}
		if err != nil {
			return fmt.Errorf("rollout %s: %w", r, err)
		}
		fmt.Fprintf(w, "%s %s\n", r, said)
		return nil
	}
}

func rolloutActions(g *Globals) []*cobra.Command {
	var out []*cobra.Command
	add := func(use, short, long, example string, flags func(*cobra.Command), run func(context.Context, client.Client, owned) (string, error)) {
		out = append(out, g.actionCmd(action{use, short, long, example, flags, run}))
	}
	add("pause NAMESPACE/NAME", "Let no further site change", "Let no further site change. Those that are changing go on, and all keep what they have.",
		"  muster rollout pause shop/web-1a2b3c4d", nil, func(_ context.Context, _ client.Client, r owned) (string, error) {
			r.Spec.Control.Paused = true
			return "is paused; `muster rollout resume` goes on", nil
		})
	add("resume NAMESPACE/NAME", "Go on after a pause", `Go on after a pause, whether people began it or the rollout itself did. What made it pause by
itself no longer counts: sites that failed until now stay failed, and a wave that was put
back begins anew.`,
		"  muster rollout resume shop/web-1a2b3c4d", nil, func(_ context.Context, _ client.Client, r owned) (string, error) {
			r.Spec.Control.GoOn()
			return "goes on", nil
		})
	var wave int32
	add("promote NAMESPACE/NAME", "Let a wave pass: approve it, or skip its gates",
		`Let the current wave pass. Where only a person's approval is missing this takes the verb
approve on rollouts; where gates do not hold it takes skip-gates, which a tenant's editors
don't have.`,
		"  muster rollout promote shop/web-1a2b3c4d\n  muster rollout promote shop/web-1a2b3c4d --wave 3",
		func(cmd *cobra.Command) {
			cmd.Flags().Int32Var(&wave, "wave", 0, "up to this one, from 1 (default: the current one)")
		}, func(_ context.Context, _ client.Client, r owned) (string, error) {
			return promote(r, wave)
		})
	var yes bool
	add("abort NAMESPACE/NAME", "Put all sites back", "Put all sites back to what they had. It can't be taken back: the change takes a new\nrollout then.",
		"  muster rollout abort shop/web-1a2b3c4d --yes", func(cmd *cobra.Command) { cmd.Flags().BoolVar(&yes, "yes", false, "do it without asking") },
		func(_ context.Context, _ client.Client, r owned) (string, error) {
			if !yes {
				return "", fmt.Errorf("aborting %s puts %d sites back and can't be undone; add --yes if you mean it, or pause it", r, r.Status.Sites.Updating+r.Status.Sites.Updated+r.Status.Sites.Failed)
			}
			r.Spec.Control.Abort = true
			return "is put back on all sites", nil
		})
	var retry []string
	add("retry NAMESPACE/NAME", "Try failed sites again", "Try sites that failed again: those that --site names, or all of them.",
		"  muster rollout retry shop/web-1a2b3c4d\n  muster rollout retry shop/web-1a2b3c4d --site paris-07,lyon-02",
		func(cmd *cobra.Command) {
			cmd.Flags().StringSliceVar(&retry, "site", nil, "names of sites (default: all that failed)")
		}, func(ctx context.Context, c client.Client, r owned) (string, error) {
			names, err := retried(ctx, c, r, retry)
			if err != nil {
				return "", err
			}
			if r.Spec.Control.Retry == nil {
				r.Spec.Control.Retry = map[string]int32{}
			}
			for _, name := range names {
				r.Spec.Control.Retry[name]++
			}
			return fmt.Sprintf("tries %s again", plural(len(names), "site")), nil
		})
	return out
}

// promote lets waves up to one pass; 0: the current one.
func promote(r owned, wave int32) (string, error) {
	to, waves := max(r.Status.Wave, 1), r.Status.WaveCount
	if wave != 0 {
		to = wave
	}
	switch {
	case waves == 0 && to > 1: // a slip of the pen would let all of them pass
		return "", fmt.Errorf("--wave %d: rollout %s has not begun, so nobody knows its waves yet; look again with `muster rollout status %s`", to, r, r)
	case to < 1 || waves > 0 && to > waves:
		return "", fmt.Errorf("--wave %d: want the number of a wave, from 1 to %d", to, max(waves, 1))
	case to <= r.Spec.Control.Promote:
		return "", fmt.Errorf("rollout %s is promoted up to wave %d already; `muster rollout explain %s` says what it waits for", r, r.Spec.Control.Promote, r)
	}
	r.Spec.Control.Promote = to
	return fmt.Sprintf("lets waves up to %d pass", to), nil
}

// retried are the sites of a rollout that are tried again: those that were named, or all that
// failed.
func retried(ctx context.Context, c client.Client, r owned, named []string) ([]string, error) {
	var state v1alpha1.RolloutState
	if err := c.Get(ctx, client.ObjectKeyFromObject(r.Rollout), &state); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("which sites of rollout %s failed: %w", r, err)
	}
	sites := strings.Fields(state.Spec.Sites)
	if len(named) > 0 {
		for _, name := range named {
			if len(sites) > 0 && !slices.Contains(sites, name) {
				return nil, fmt.Errorf("--site %s: rollout %s has no such site; `muster rollout explain %s` names those that failed", name, r, r)
			}
		}
		return named, nil
	}
	var out []string
	for i, name := range sites {
		if i < len(state.Spec.Steps) && v1alpha1.SiteStep(state.Spec.Steps[i]) == v1alpha1.StepFailed {
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no site has failed: there is nothing to try again")
	}
	return out, nil
}
