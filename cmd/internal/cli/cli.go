// Package cli holds the verbs of `muster` that talk to a running fleet: get,
// describe, approve, token, site, kubeconfig use the Kubernetes API like any other
// client, with the user's own kubeconfig and rights; logs, alerts and silence use the
// console's HTTP API with the same credentials. Nothing here runs a role.
package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	authnv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// Globals are the flags that every verb shares. DataDir is where a one-machine
// fleet keeps admin.kubeconfig.
type Globals struct {
	DataDir    string
	Kubeconfig string
	Context    string // of the kubeconfig; empty: its current one
	Tenant     string
	AllTenants bool
	Output     string
	NoHeaders  bool
	SortBy     string // of lists
	Console    string // URL of the HTTP API
}

// Commands returns the verbs. g is filled by the root command's flags.
func Commands(g *Globals) []*cobra.Command {
	cmds := []*cobra.Command{getCmd(g), describeCmd(g), approveCmd(g), tokenCmd(g), siteCmd(g), virtualSiteCmd(g), logsCmd(g), alertsCmd(g), silenceCmd(g), timelineCmd(g), healthCmd(g), costCmd(g), vk8sCmd(g), rolloutCmd(g), softwareCmd(g), gateCmd(g), rulesCmd(), kubeconfigCmd(g), contextCmd(g), loginCmd(g), logoutCmd(), credentialCmd()}
	for _, cmd := range cmds {
		g.explain(cmd)
		g.completeFlags(cmd)
	}
	return cmds
}

// completeFlags completes the flags that name a site or a virtual site, whichever verb has
// them.
func (g *Globals) completeFlags(cmd *cobra.Command) {
	for flag, names := range map[string]cobra.CompletionFunc{"site": g.completeSites, "virtual-site": g.completeVirtualSites, "peers": g.completeVirtualSites, "blue": g.completeVirtualSites} {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
				before := typed[:strings.LastIndexByte(typed, ',')+1] // where several are named
				found, directive := names(cmd, nil, typed[len(before):])
				found = slices.DeleteFunc(found, func(name string) bool { return slices.Contains(strings.Split(before, ","), name) })
				return starting(before, "", found), directive
			})
		}
	}
	for _, sub := range cmd.Commands() {
		g.completeFlags(sub)
	}
}

// explain adds to every verb's errors what the user can do about them.
func (g *Globals) explain(cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error { return g.wayOut(run(cmd, args)) }
	}
	for _, sub := range cmd.Commands() {
		g.explain(sub)
	}
}

func (g *Globals) wayOut(err error) error {
	var op *net.OpError
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the control plane does not accept the credentials in %s: log in again, or name another file with --kubeconfig", g.kubeconfigPath())
	case apierrors.HasStatusCause(err, v1alpha1.CauseQuotaExceeded): // says what to do
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), `User "`) && strings.Contains(err.Error(), `" cannot `): // admission says itself what to do
		return fmt.Errorf("%w; an administrator of the tenant can add you to a group that may: %s, or as little of it as will do, %s or %s", err,
			fleet.TenantGroup("TENANT", fleet.TenantAdmin), fleet.TenantGroup("TENANT", fleet.TenantEditor), fleet.TenantGroup("TENANT", fleet.TenantViewer))
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("reach the control plane: %w; is it running? name another with --kubeconfig or --data-dir", err)
	}
	return err
}

// RefuseUnknown makes each command that only groups others, which cobra answers with
// its help and success whatever is typed, refuse a word that it does not know.
func RefuseUnknown(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		RefuseUnknown(sub)
	}
	if cmd.Runnable() || !cmd.HasSubCommands() || !cmd.HasParent() {
		return
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.FParseErrWhitelist.UnknownFlags = true // the word is what is wrong
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		var known []string
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				known = append(known, sub.Name())
			}
		}
		for _, verb := range cmd.Root().Commands() {
			if verb.Name() == strings.TrimSuffix(args[0], "s") || verb.Name() == args[0] { // kubectl's habit, such as get rollouts
				return fmt.Errorf("%s does not know %q; see `%s --help`", cmd.CommandPath(), args[0], verb.CommandPath())
			}
		}
		return fmt.Errorf("%s does not know %q: want %s", cmd.CommandPath(), args[0], strings.Join(known, ", "))
	}
}

// AddFlags registers the flags of fleet verbs on a command.
func (g *Globals) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&g.Kubeconfig, "kubeconfig", "", "kubeconfig to use (default: $KUBECONFIG, else DATA-DIR/admin.kubeconfig, else that of muster login)")
	cmd.Flags().StringVar(&g.Context, "context", "", "context of the kubeconfig, which says who you are, where, and in which tenant (default: $MUSTER_CONTEXT, else the current one; see muster context)")
	cmd.Flags().StringVarP(&g.Tenant, "tenant", "T", "", "tenant (default: $MUSTER_TENANT, else that of the context, else all that are yours)")
	cmd.Flags().BoolVarP(&g.AllTenants, "all-tenants", "A", false, "all tenants that are yours, whatever $MUSTER_TENANT and the context say")
	cmd.MarkFlagsMutuallyExclusive("tenant", "all-tenants")
	_ = cmd.RegisterFlagCompletionFunc("tenant", g.completeTenants)
	_ = cmd.RegisterFlagCompletionFunc("context", g.completeContexts)
}

func (g *Globals) addOutput(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&g.Output, "output", "o", "table", "table, wide, name, json or yaml")
	cmd.Flags().BoolVar(&g.NoHeaders, "no-headers", false, "tables without the line of headings")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "wide", "name", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
}

// kubeconfigPath finds the kubeconfig, in the order that --help tells.
func (g *Globals) kubeconfigPath() string {
	if g.Kubeconfig != "" {
		return g.Kubeconfig
	}
	if env := os.Getenv("KUBECONFIG"); env != "" {
		return env
	}
	admin := filepath.Join(g.DataDir, "admin.kubeconfig")
	if _, err := os.Stat(admin); err != nil {
		if own := loginKubeconfig(); own != "" {
			return own
		}
	}
	return admin
}

func (g *Globals) client() (client.Client, error) { return g.clientFor(15 * time.Second) }

// clientFor is a client whose requests take so long at most; 0: watches have no end.
func (g *Globals) clientFor(timeout time.Duration) (client.WithWatch, error) {
	cfg, err := g.restConfig()
	if err != nil {
		return nil, err
	}
	cfg.Timeout = timeout
	cfg.QPS, cfg.Burst = 50, 100
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), authnv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("reach the control plane at %s: %w; is it running?", cfg.Host, err)
	}
	return c, nil
}

// table is what `-o table` and `-o wide` print: wide adds the last columns.
type table struct {
	header []string
	rows   [][]string
	wide   int // number of leading columns that -o table shows
}

// encode writes obj if --output wants JSON or YAML; done is false for a table.
func (g *Globals) encode(w io.Writer, obj any) (done bool, err error) {
	switch g.Output {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return true, enc.Encode(obj)
	case "yaml":
		b, err := yaml.Marshal(obj)
		if err != nil {
			return true, err
		}
		_, err = w.Write(b)
		return true, err
	case "table", "wide", "":
		return false, nil
	case "name":
		return false, errors.New("--output name: there are no names here; want table, wide, json or yaml")
	}
	return false, fmt.Errorf("--output %q: want table, wide, json or yaml", g.Output)
}

func (g *Globals) print(w io.Writer, obj any, t table) error {
	obj, t, err := g.sorted(obj, t)
	if err != nil {
		return err
	}
	if i := slices.Index(t.header, "NAME"); g.Output == "name" && i >= 0 {
		for _, row := range t.rows {
			fmt.Fprintln(w, printable(row[i]))
		}
		return nil
	}
	if done, err := g.encode(w, obj); done || err != nil {
		return err
	}
	n := t.wide
	if g.Output == "wide" || n == 0 {
		n = len(t.header)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	if !g.NoHeaders {
		fmt.Fprintln(tw, strings.Join(t.header[:n], "\t"))
	}
	for _, row := range t.rows {
		for i, cell := range row[:n] {
			if i > 0 {
				fmt.Fprint(tw, "\t")
			}
			fmt.Fprint(tw, strings.ReplaceAll(printable(cell), "\t", " "))
		}
		fmt.Fprintln(tw)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if len(t.rows) == 0 && !g.NoHeaders {
		fmt.Fprintln(w, "(none)")
	}
	return nil
}

func age(t *metav1.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(time.Since(t.Time))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
