package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/few"
)

func rolloutExplainCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain NAMESPACE/NAME", Short: "Why a rollout stands where it stands", Args: cobra.ExactArgs(1), ValidArgsFunction: g.completeRollouts(false),
		Long:    "Say why a rollout stands where it stands: what each gate read against which limit, which\nsites failed, are offline or are held, what was decided last, and what you can do.",
		Example: "  muster rollout explain shop/web-1a2b3c4d\n  muster rollout explain shop/web-1a2b3c4d -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, tenants, err := g.connect(cmd.Context())
			if err != nil {
				return err
			}
			r, err := findRollout(cmd.Context(), c, tenants, args[0])
			if err != nil {
				return err
			}
			var state v1alpha1.RolloutState
			if err := c.Get(cmd.Context(), client.ObjectKeyFromObject(r.Rollout), &state); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("sites of rollout %s: %w", r, err)
			}
			steps := siteSteps(&state.Spec)
			if done, err := g.encode(cmd.OutOrStdout(), explanation(r, steps)); done || err != nil {
				return err
			}
			explainRollout(cmd.OutOrStdout(), r, &state.Spec, steps, styleOf(cmd.OutOrStdout()), time.Now())
			return nil
		},
	}
	g.AddFlags(cmd)
	g.addOutput(cmd)
	return cmd
}

// siteSteps are names of sites by where they stand.
func siteSteps(s *v1alpha1.RolloutStateSpec) map[v1alpha1.SiteStep][]string {
	out := map[v1alpha1.SiteStep][]string{}
	for i, name := range strings.Fields(s.Sites) {
		if i < len(s.Steps) {
			step := v1alpha1.SiteStep(s.Steps[i])
			out[step] = append(out[step], name)
		}
	}
	return out
}

var stepTexts = []struct {
	step       v1alpha1.SiteStep
	name, text string
}{
	{v1alpha1.StepFailed, "failed", "failed"}, {v1alpha1.StepRolledBack, "rolledBack", "put back"}, {v1alpha1.StepUpdating, "updating", "changing"},
	{v1alpha1.StepOffline, "offline", "offline, caught up when they return"}, {v1alpha1.StepHeld, "held", "in maintenance, outside of their window, or put off by their operators"},
}

// explanation is explain's -o json.
func explanation(r owned, steps map[v1alpha1.SiteStep][]string) map[string]any {
	sites := map[string][]string{}
	for _, t := range stepTexts {
		sites[t.name] = append([]string{}, steps[t.step]...)
	}
	return map[string]any{"namespace": r.namespace, "name": r.Name, "tenant": r.tenant, "phase": phaseText(r.Rollout), "message": r.Status.Message, "wave": r.Status.Wave,
		"gates": append([]v1alpha1.GateReading{}, r.Status.Gates...), "next": r.Status.Next, "nextAt": r.Status.NextAt, "sites": sites, "decisions": append([]v1alpha1.RolloutDecision{}, r.Status.Decisions...)}
}

func explainRollout(w io.Writer, r owned, state *v1alpha1.RolloutStateSpec, steps map[v1alpha1.SiteStep][]string, s style, now time.Time) {
	drawRollout(w, r, s, now)
	if state.Policy != "" {
		fmt.Fprintf(w, "\nmade of a write%s, by the plan of RolloutPolicy %s\n", byText(state.By), state.Policy)
	}
	for _, g := range r.Status.Gates {
		if g.Limit != "" {
			fmt.Fprintf(w, "gate %s: %s read %s, the limit is %s\n", g.Name, strings.ToLower(string(g.Verdict)), orDash(g.Value), g.Limit)
		}
	}
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, t := range stepTexts {
		if names := steps[t.step]; len(names) > 0 {
			fmt.Fprintf(tw, "%s %s:\t%s\n", plural(len(names), "site"), t.text, printable(few.Of(names, 10, ", ")))
		}
	}
	_ = tw.Flush()
	for _, hint := range whatToDo(r, steps) {
		fmt.Fprintln(w, hint)
	}
}

// whatToDo are commands that could help.
func whatToDo(r owned, steps map[v1alpha1.SiteStep][]string) []string {
	var out []string
	verb := func(name, why string) { out = append(out, fmt.Sprintf("%s: muster rollout %s %s", why, name, r)) }
	switch p := r.Status.Phase; {
	case p == v1alpha1.RolloutPaused && r.Spec.Control.Paused:
		verb("resume", "go on")
	case p == v1alpha1.RolloutPaused:
		verb("resume", "go on, as if what stopped it had not been")
		verb("promote", "let the wave pass although its gates do not")
	case p.Ended():
		return nil
	}
	if len(steps[v1alpha1.StepFailed]) > 0 {
		verb("retry", "try the failed sites again")
	}
	verb("abort --yes", "put all sites back")
	return out
}
