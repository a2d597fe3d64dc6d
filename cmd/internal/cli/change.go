package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/registration"
	"muster.dev/muster/internal/fleet"
)

func approveCmd(g *Globals) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "approve NAME...", Short: "Let pending sites have a certificate", ValidArgsFunction: g.completeSites,
		Long:    "Approve sites that registered and wait in phase Pending. Each gets its\ncertificate at the agent's next attempt, within seconds.",
		Example: "  muster get sites\n  muster approve paris-07 lyon-02\n  muster approve --all",
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return errors.New("name the sites to approve, or use --all for every pending one")
			}
			c, tenants, err := g.connect(cmd.Context())
			if err != nil {
				return err
			}
			var sites []v1alpha1.Site
			if all {
				for _, t := range tenants {
					var list v1alpha1.SiteList
					if err := c.List(cmd.Context(), &list, client.InNamespace(fleet.SystemNamespace(t.Name))); err != nil {
						return err
					}
					sites = append(sites, list.Items...)
				}
			}
			for _, name := range args {
				s, _, err := findSite(cmd.Context(), c, tenants, name)
				if err != nil {
					return err
				}
				sites = append(sites, *s)
			}
			for i := range sites {
				s := &sites[i]
				if s.Spec.Approved || s.Spec.Decommissioned {
					if !all {
						fmt.Fprintf(cmd.OutOrStdout(), "%s is already %s\n", s.Name, strings.ToLower(string(s.Status.Phase)))
					}
					continue
				}
				if err := patchSite(cmd.Context(), c, s, func() { s.Spec.Approved = true }); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s approved\n", s.Name)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "approve every pending site of your tenants")
	g.AddFlags(cmd)
	return cmd
}

func patchSite(ctx context.Context, c client.Client, s *v1alpha1.Site, change func()) error {
	before := s.DeepCopy()
	change()
	if err := c.Patch(ctx, s, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("site %s: %w", s.Name, err)
	}
	return nil
}

func siteCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{Use: "site", Short: "Change a site: label, maintenance, plan, reset, decommission; make one of a cluster"}
	cmd.AddCommand(siteManifestCmd(g))
	verb := func(use, short, long, example string, args cobra.PositionalArgs, flags func(*cobra.Command), run func(cmd *cobra.Command, c client.Client, s *v1alpha1.Site, args []string) (string, error)) {
		sub := &cobra.Command{Use: use, Short: short, Long: long, Example: example, Args: args, ValidArgsFunction: g.completeSites, RunE: func(cmd *cobra.Command, args []string) error {
			c, tenants, err := g.connect(cmd.Context())
			if err != nil {
				return err
			}
			s, _, err := findSite(cmd.Context(), c, tenants, args[0])
			if err != nil {
				return err
			}
			said, err := run(cmd, c, s, args[1:])
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), said)
			}
			return err
		}}
		if flags != nil {
			flags(sub)
		}
		g.AddFlags(sub)
		cmd.AddCommand(sub)
	}
	verb("label NAME KEY=VALUE... KEY-...", "Set or remove labels", "Set labels with KEY=VALUE, remove them with KEY-. Virtual sites follow within two seconds.",
		"  muster site label paris-07 region=eu model-year=2018\n  muster site label paris-07 canary-", cobra.MinimumNArgs(2), nil,
		func(cmd *cobra.Command, c client.Client, s *v1alpha1.Site, args []string) (string, error) {
			set, remove, err := parseLabelArgs(args)
			if err != nil {
				return "", err
			}
			return s.Name + " labelled", patchSite(cmd.Context(), c, s, func() {
				if s.Labels == nil {
					s.Labels = map[string]string{}
				}
				for k, v := range set {
					s.Labels[k] = v
				}
				for _, k := range remove {
					delete(s.Labels, k)
				}
			})
		})

	var reason string
	var forHow time.Duration
	var end bool
	verb("maintenance NAME", "Begin or end maintenance", "A site in maintenance keeps its own score, but is left out of the health of its\nvirtual sites and counted apart.",
		"  muster site maintenance paris-07 --reason 'new disks' --for 4h\n  muster site maintenance paris-07 --end", cobra.ExactArgs(1),
		func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&reason, "reason", "", "why; shown beside the site")
			cmd.Flags().DurationVar(&forHow, "for", 0, "ends by itself after this time, e.g. 4h (default: until --end)")
			cmd.Flags().BoolVar(&end, "end", false, "end the maintenance now")
		},
		func(cmd *cobra.Command, c client.Client, s *v1alpha1.Site, _ []string) (string, error) {
			if end {
				return s.Name + " is out of maintenance", patchSite(cmd.Context(), c, s, func() { s.Spec.Maintenance = nil })
			}
			if reason == "" {
				return "", errors.New("say why with --reason, or end the maintenance with --end")
			}
			if forHow < 0 {
				return "", fmt.Errorf("--for %s: want a positive time, such as 4h", forHow)
			}
			m := &v1alpha1.Maintenance{Reason: reason}
			if forHow > 0 {
				m.Until = &metav1.Time{Time: time.Now().Add(forHow)}
			}
			return s.Name + " is in maintenance", patchSite(cmd.Context(), c, s, func() { s.Spec.Maintenance = m })
		})

	var w window
	verb("plan NAME [WINDOW]", "List, plan or drop maintenance windows", "Plan maintenance, once or again and again. While a window is open the site is in\nmaintenance and its alerts are silenced. Without WINDOW, list what is planned.",
		"  muster site plan paris-07\n  muster site plan paris-07 disks --start 2026-01-31T22:00:00Z --for 4h --reason 'new disks'\n  muster site plan paris-07 updates --schedule '0 2 * * SUN' --time-zone Europe/Paris --for 2h --reason updates\n  muster site plan paris-07 updates --drop",
		cobra.RangeArgs(1, 2), w.flags,
		func(cmd *cobra.Command, c client.Client, s *v1alpha1.Site, args []string) (string, error) {
			return w.run(cmd.OutOrStdout(), planned{s.Name, "site", &s.Spec.MaintenanceWindows, func(change func()) error { return patchSite(cmd.Context(), c, s, change) }}, args)
		})

	var reset siteReset
	verb("reset NAME", "Have a site go back to how it was before it registered", siteResetLong,
		"  muster site reset paris-07 --yes --wait\n  muster site reset paris-07 --yes --expires 24h --approve-again\n  muster site reset paris-07 --status\n  muster site reset paris-07 --cancel", cobra.ExactArgs(1), reset.flags, reset.run)

	var yes bool
	verb("decommission NAME", "Refuse a site for good", "Close the site's stream and refuse its certificate from now on. This can't be\nundone: to use the machine again, delete the Site and register it anew.",
		"  muster site decommission paris-07 --yes", cobra.ExactArgs(1),
		func(cmd *cobra.Command) { cmd.Flags().BoolVar(&yes, "yes", false, "do it without asking") },
		func(cmd *cobra.Command, c client.Client, s *v1alpha1.Site, _ []string) (string, error) {
			if !yes {
				return "", fmt.Errorf("decommissioning %s can't be undone; add --yes if you mean it", s.Name)
			}
			return s.Name + " is decommissioned", patchSite(cmd.Context(), c, s, func() { s.Spec.Decommissioned = true })
		})
	return cmd
}

// parseLabelArgs reads kubectl's form: KEY=VALUE sets, KEY- removes.
func parseLabelArgs(args []string) (set map[string]string, remove []string, err error) {
	set = map[string]string{}
	for _, a := range args {
		if k, ok := strings.CutSuffix(a, "-"); ok && !strings.Contains(a, "=") {
			remove = append(remove, k)
			continue
		}
		k, v, ok := strings.Cut(a, "=")
		if !ok || k == "" {
			return nil, nil, fmt.Errorf("label %q: want KEY=VALUE to set or KEY- to remove", a)
		}
		set[k] = v
	}
	return set, remove, nil
}

func tokenCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Create and revoke registration tokens"}
	cmd.AddCommand(tokenCreateCmd(g), tokenRevokeCmd(g))
	return cmd
}

func tokenCreateCmd(g *Globals) *cobra.Command {
	var (
		o         TokenOptions
		server    string
		labelArgs []string
		only      bool
		name      string
	)
	cmd := &cobra.Command{
		Use: "create", Short: "Make a token and print the command that joins a machine", Args: cobra.NoArgs,
		Long: "Make a registration token. Its secret is printed once and stored nowhere. The\nprinted command joins a machine; with --auto-approve it needs no further hand.",
		Example: `  muster token create
  muster token create --auto-approve --max-uses 50 --expires 24h --label region=eu --label model-year=2018
  muster token create --token-only > token`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, tenant, err := g.connectOne(cmd.Context())
			if err != nil {
				return err
			}
			if o.SiteLabels, _, err = parseLabelArgs(labelArgs); err != nil {
				return err
			}
			token, err := CreateToken(cmd.Context(), c, tenant, name, o)
			if err != nil {
				return err
			}
			if only {
				fmt.Fprintln(cmd.OutOrStdout(), token)
				return nil
			}
			return printJoin(cmd.OutOrStdout(), g.DataDir, server, token, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "name of the token object (default: token- and six random letters)")
	f.BoolVar(&o.AutoApprove, "auto-approve", false, "approve sites that come with it")
	f.Int32Var(&o.MaxUses, "max-uses", 1, "how many sites may register with it; 0: any number")
	f.DurationVar(&o.Expires, "expires", 24*time.Hour, "how long it works; 0: for ever")
	f.StringArrayVar(&labelArgs, "label", nil, "KEY=VALUE stamped on each site; repeatable")
	f.StringVar(&o.SiteNamePattern, "site-pattern", "", "regular expression that site names must match, anchored")
	f.StringVar(&server, "server", "", "gateway address for the printed command (default: the first regional of this data directory)")
	f.BoolVar(&only, "token-only", false, "print the token alone")
	g.AddFlags(cmd)
	return cmd
}

// TokenOptions say what a new registration token allows.
type TokenOptions struct {
	AutoApprove     bool
	MaxUses         int32         // 0: any number
	Expires         time.Duration // from now; 0: never
	SiteLabels      map[string]string
	SiteNamePattern string
}

// CreateToken makes a RegistrationToken object and returns the token to hand out:
// muster1.<tenant>.<name>.<secret>. An empty name is chosen at random.
func CreateToken(ctx context.Context, c client.Client, tenant, name string, o TokenOptions) (string, error) {
	if name == "" {
		name = "token-" + strings.ToLower(rand.Text()[:6])
	}
	token, err := registration.NewToken(tenant, name)
	if err != nil {
		return "", err
	}
	for k, v := range o.SiteLabels {
		if _, err := labels.ValidatedSelectorFromSet(labels.Set{k: v}); err != nil {
			return "", fmt.Errorf("label %s=%s: %w", k, v, err)
		}
	}
	t := &v1alpha1.RegistrationToken{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: fleet.SystemNamespace(tenant)},
		Spec: v1alpha1.RegistrationTokenSpec{
			SecretHash: token.SecretHash(), AutoApprove: o.AutoApprove, MaxUses: o.MaxUses, SiteLabels: o.SiteLabels, SiteNamePattern: o.SiteNamePattern,
		},
	}
	if o.Expires > 0 {
		t.Spec.Expires = &metav1.Time{Time: time.Now().Add(o.Expires)}
	}
	if err := c.Create(ctx, t); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return "", fmt.Errorf("tenant %s already has a token named %s; choose another --name or revoke that one", tenant, name)
		}
		return "", fmt.Errorf("create token: %w", err)
	}
	return token.String(), nil
}

// What `muster control` leaves in the data directory: for `token create` where sites
// connect and the hash of the CA that they will find there.
const (
	JoinServerFile = "join-server"
	JoinHashFile   = "join-ca-hash"
	// ConsoleFile holds the URL of the console.
	ConsoleFile = "console-url"
)

func printJoin(w io.Writer, dataDir, server, token string, o TokenOptions) error {
	hash, err := os.ReadFile(filepath.Join(dataDir, JoinHashFile))
	if err != nil {
		return fmt.Errorf("the token was made (%s), but the CA's hash is not in %s: %w; run this where `muster control` keeps its data, or use --token-only", token, dataDir, err)
	}
	if server == "" {
		b, err := os.ReadFile(filepath.Join(dataDir, JoinServerFile))
		if err != nil {
			return fmt.Errorf("the token was made (%s), but no regional is known in %s; add --server HOST:PORT of a gateway", token, dataDir)
		}
		server = strings.TrimSpace(string(b))
	}
	fmt.Fprintf(w, "On the machine that shall become a site, run:\n\n  muster-edge join --server %s \\\n    --ca-hash %s \\\n    --token %s\n\n", server, strings.TrimSpace(string(hash)), token)
	fmt.Fprintf(w, "To make a Kubernetes cluster a site, run where kubectl reaches it:\n\n  muster site manifest --server %s \\\n    --ca-hash %s \\\n    --token %s | kubectl apply -f -\n\n", server, strings.TrimSpace(string(hash)), token)
	switch {
	case o.AutoApprove:
		fmt.Fprintln(w, "It is approved by itself.")
	default:
		fmt.Fprintln(w, "Then approve it: muster approve NAME, or on the console's page of registrations.")
	}
	fmt.Fprintln(w, "The token is shown only now.")
	return nil
}

func tokenRevokeCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use: "revoke NAME", Short: "Stop a token now; sites that used it stay", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, tenants, err := g.connect(cmd.Context())
			if err != nil {
				return err
			}
			t, _, err := find(cmd.Context(), c, tenants, "token", "tokens", args[0], func() *v1alpha1.RegistrationToken { return &v1alpha1.RegistrationToken{} },
				func(tenant string) client.ObjectKey {
					return client.ObjectKey{Namespace: fleet.SystemNamespace(tenant), Name: args[0]}
				})
			if err != nil {
				return err
			}
			before := t.DeepCopy()
			t.Spec.Revoked = true
			if err := c.Patch(cmd.Context(), t, client.MergeFrom(before)); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s revoked\n", t.Name)
			return nil
		},
	}
	g.AddFlags(cmd)
	return cmd
}

func kubeconfigCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use: "kubeconfig", Short: "Print the kubeconfig of the control plane", Args: cobra.NoArgs,
		Example: "  muster kubeconfig > ~/.kube/muster\n  export KUBECONFIG=$PWD/.muster/admin.kubeconfig",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := g.restConfig(); err != nil {
				return err
			}
			b, err := os.ReadFile(g.kubeconfigPath())
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(b)
			return err
		},
	}
	g.AddFlags(cmd)
	return cmd
}
