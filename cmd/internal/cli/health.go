package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/health"
	healthapi "muster.dev/muster/health/api"
	"muster.dev/muster/health/defaults"
	"muster.dev/muster/health/policytest"
	"muster.dev/muster/internal/wire"
)

func healthCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{Use: "health", Short: "Explain a site's score; test and try health policies"}
	var all, shadow bool
	explain := &cobra.Command{
		Use: "explain SITE", Short: "The arithmetic of a site's score, from readings to colour", Args: cobra.ExactArgs(1),
		Example: "  muster health explain paris-07\n  muster health explain paris-07 --all\n  muster health explain paris-07 --shadow\n  muster health explain paris-07 -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := g.api()
			if err != nil {
				return err
			}
			return g.explainSite(cmd.Context(), cmd.OutOrStdout(), a, args[0], all, shadow)
		},
	}
	explain.Flags().BoolVar(&all, "all", false, "also the signals that are well, and those that do not apply")
	explain.Flags().BoolVar(&shadow, "shadow", false, "the score that the policy in shadow (spec.mode: Shadow) gives, which counts for nothing")
	g.AddFlags(explain)
	g.addConsole(explain)
	g.addOutput(explain)

	var files []string
	var policy string
	test := &cobra.Command{
		Use: "test -f CASES...", Short: "Run unit tests of a health policy", Args: cobra.NoArgs,
		Long: `Run unit tests of a health policy: readings over time, and what a site must look like
at some moments. A file names its policy; without one, the shipped policy is tested.
It needs no fleet.`,
		Example: "  muster health test -f cases.yaml\n  muster health test -f cases.yaml --policy policy.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return errors.New("no cases: name files of them with -f")
			}
			return testPolicies(cmd.OutOrStdout(), files, policy)
		},
	}
	test.Flags().StringSliceVarP(&files, "file", "f", nil, "files of cases")
	test.Flags().StringVar(&policy, "policy", "", "HealthPolicy to test instead of those that the files name")
	cmd.AddCommand(explain, test, g.tryCmd())
	return cmd
}

func (g *Globals) tryCmd() *cobra.Command {
	var file string
	var since time.Duration
	cmd := &cobra.Command{
		Use: "try -f POLICY", Short: "Say which sites would change colour under a health policy, before you apply it", Args: cobra.NoArgs,
		Long: `Say which sites of the tenant would change colour or score under a HealthPolicy, and
why, without applying it. The policies in force and the tried one look at the same
readings of this moment, in the long run: what waits for more evaluations is waited for.
After 2 s stderr says which regions are late and what the others say so far.

A policy in force of the same name is what the tried one would replace; one of another
name stands beside it, and the higher priority wins. Whoever may see the sites may try.

It fails when a site would change colour, or when a query fails, so that a script or a
pipeline can hold a change back.

With --since it asks how the policy would have done: the sites' history from the metric
store is evaluated as it would have been then, windows and patience included, and each
change of colour stands beside those that really were. Readings are at most 1,440 a
signal: 24 hours come in steps of one minute.`,
		Example: "  muster health try -f policy.yaml\n  muster health try -f policy.yaml --since 24h\n  kubectl get healthpolicy default -n acme-system -o yaml | sed s/95/90/ | muster health try -f -\n  muster health try -f policy.yaml -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return errors.New("no policy: name its file with -f, or - for standard input")
			}
			policy, err := readPolicy(cmd.InOrStdin(), file)
			if err != nil {
				return err
			}
			a, err := g.api()
			if err != nil {
				return err
			}
			if since != 0 {
				return g.replayPolicy(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), a, policy, since)
			}
			return g.tryPolicy(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), a, policy)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file of the HealthPolicy; -: standard input")
	cmd.Flags().DurationVar(&since, "since", 0, "look back this far, 10m to 168h, in place of now")
	g.AddFlags(cmd)
	g.addConsole(cmd)
	g.addOutput(cmd)
	return cmd
}

// tryPolicy tells progress which regionals are late, and what the others make of it, before it waits for
// them: w has the whole, and so has the error, which is what a pipeline goes by.
func (g *Globals) tryPolicy(ctx context.Context, w, progress io.Writer, a *api, policy *v1alpha1.HealthPolicy) error {
	try := func(q url.Values, x *healthapi.Trial) error {
		return a.send(ctx, http.MethodPost, "/api/v1/health/try", q, policy, x)
	}
	x, err := askAll(g.query(), try, func(x *healthapi.Trial) []wire.MissingRegion { return x.MissingRegions }, func(x *healthapi.Trial, late string) {
		fmt.Fprintf(progress, "%d of %d sites would change colour so far; no answer yet from %s, for %d more sites: waiting\n", x.Changed, x.Sites, late, x.Waiting)
	})
	if err != nil {
		return err
	}
	done, err := g.encode(w, x)
	if err == nil && !done {
		err = x.WriteText(plain{w}, g.Output == "wide")
	}
	if err != nil {
		return err
	}
	if n := failing(x.Signals); n > 0 {
		return fmt.Errorf("%d of the policy's queries fail", n)
	} else if x.Changed > 0 {
		return fmt.Errorf("%d of %d sites would change colour", x.Changed, x.Sites)
	}
	return nil
}

func failing(signals []healthapi.TriedSignal) (n int) {
	for _, s := range signals {
		if s.Error != "" {
			n++
		}
	}
	return n
}

// replayPolicy asks for the history of all sites, some at a time, and tells progress how
// far it is.
func (g *Globals) replayPolicy(ctx context.Context, w, progress io.Writer, a *api, policy *v1alpha1.HealthPolicy, since time.Duration) error {
	var all healthapi.Replay
	q := g.query()
	q.Set("since", since.String())
	for {
		var x healthapi.Replay
		if err := a.send(ctx, http.MethodPost, "/api/v1/health/replay", q, policy, &x); err != nil {
			return err
		}
		if all.From.IsZero() {
			all = x
		} else {
			all.Sites, all.Done, all.Total = append(all.Sites, x.Sites...), x.Done, x.Total
			for i, s := range x.Signals {
				if i >= len(all.Signals) {
					break
				}
				all.Signals[i].SitesKnown += s.SitesKnown
				all.Signals[i].Error = cmp.Or(all.Signals[i].Error, s.Error)
			}
		}
		fmt.Fprintf(progress, "%d of %d sites\n", x.Done, x.Total)
		if x.NextCursor == "" || x.NextCursor == q.Get("cursor") {
			break
		}
		q.Set("cursor", x.NextCursor)
	}
	all.NextCursor = ""
	done, err := g.encode(w, all)
	if err == nil && !done {
		err = all.WriteText(plain{w})
	}
	if err != nil {
		return err
	}
	differ := 0
	for _, s := range all.Sites {
		if s.Differs {
			differ++
		}
	}
	if n := failing(all.Signals); n > 0 {
		return fmt.Errorf("%d of the policy's queries fail", n)
	} else if differ > 0 {
		return fmt.Errorf("%d of %d sites would have had other colours", differ, all.Total)
	}
	return nil
}

func (g *Globals) explainSite(ctx context.Context, w io.Writer, a *api, site string, all, shadow bool) error {
	var x healthapi.Explanation
	q := g.query()
	if shadow {
		q.Set("shadow", "true")
	}
	if err := a.get(ctx, "/api/v1/health/sites/"+url.PathEscape(site)+"/explain", q, &x); err != nil {
		return err
	}
	if done, err := g.encode(w, x); done || err != nil {
		return err
	}
	policy := x.Policy
	if policy == "" {
		policy = "(shipped)"
	}
	if x.Shadow {
		policy += ", in shadow, which counts for nothing"
	}
	fmt.Fprintf(w, "%s, policy %s: ", printable(x.Site), printable(policy))
	for _, o := range x.Overrides {
		fmt.Fprintf(w, "override until %s: %s; ", o.Until.Local().Format("2006-01-02 15:04 MST"), printable(o.Reason))
	}
	return x.WriteText(plain{w}, all || g.Output == "wide")
}

// testPolicies runs files of cases and prints a line for each case.
func testPolicies(w io.Writer, files []string, policy string) error {
	failed, ran := 0, 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		cases, err := policytest.Parse(data)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		path := policy
		if path == "" && cases.Policy != "" {
			path = filepath.Join(filepath.Dir(file), cases.Policy)
		}
		m, err := policyModel(path)
		if err != nil {
			return err
		}
		for i := range cases.Cases {
			c := &cases.Cases[i]
			wrong, err := policytest.Run(m, cases.Tick.Duration, c)
			if err != nil {
				return fmt.Errorf("%s: case %q: %w", file, c.Name, err)
			}
			ran++
			if len(wrong) == 0 {
				fmt.Fprintf(w, "ok    %s\n", c.Name)
				continue
			}
			failed++
			fmt.Fprintf(w, "FAIL  %s\n", c.Name)
			for _, line := range wrong {
				fmt.Fprintf(w, "      %s\n", line)
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d cases failed", failed, ran)
	}
	fmt.Fprintf(w, "%d cases passed\n", ran)
	return nil
}

// policyModel reads a HealthPolicy; "" is the shipped one.
func policyModel(path string) (*health.Model, error) {
	if path == "" {
		return defaults.Model(), nil
	}
	p, err := readPolicy(nil, path)
	if err != nil {
		return nil, err
	}
	m, err := health.FromPolicy(&p.Spec)
	if err != nil {
		return nil, fmt.Errorf("%s: spec.%w", path, err)
	}
	return m, nil
}

// readPolicy reads a HealthPolicy; "-" is in.
func readPolicy(in io.Reader, path string) (*v1alpha1.HealthPolicy, error) {
	var data []byte
	var err error
	if path == "-" {
		path = "standard input"
		data, err = io.ReadAll(io.LimitReader(in, healthapi.MaxPolicyBytes+1))
	} else {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, err
	}
	var p v1alpha1.HealthPolicy
	if err := yaml.UnmarshalStrict(data, &p); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if p.Kind != "HealthPolicy" {
		return nil, fmt.Errorf("%s: kind %q: want HealthPolicy", path, p.Kind)
	}
	return &p, nil
}
