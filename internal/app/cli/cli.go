// Package cli holds the verbs of `muster` that talk to a running fleet: get,
// describe, approve, token, site, kubeconfig use the Kubernetes API like any other
// client, with the user's own kubeconfig and rights; logs, alerts and silence use the
// console's HTTP API with the same credentials. Nothing here runs a role.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
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
	Tenant     string
	Output     string
	Console    string // URL of the HTTP API
}

// Commands returns the verbs. g is filled by the root command's flags.
func Commands(g *Globals) []*cobra.Command {
	return []*cobra.Command{getCmd(g), describeCmd(g), approveCmd(g), tokenCmd(g), siteCmd(g), virtualSiteCmd(g), logsCmd(g), alertsCmd(g), silenceCmd(g), kubeconfigCmd(g)}
}

// AddFlags registers the flags of fleet verbs on a command.
func (g *Globals) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&g.Kubeconfig, "kubeconfig", "", "kubeconfig to use (default: $KUBECONFIG, else DATA-DIR/admin.kubeconfig)")
	cmd.Flags().StringVarP(&g.Tenant, "tenant", "T", "", "tenant (default: the only one there is)")
}

func (g *Globals) addOutput(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&g.Output, "output", "o", "table", "table, wide, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "wide", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
}

// kubeconfigPath finds the kubeconfig, in the order that --help tells.
func (g *Globals) kubeconfigPath() string {
	if g.Kubeconfig != "" {
		return g.Kubeconfig
	}
	if env := os.Getenv("KUBECONFIG"); env != "" {
		return env
	}
	return filepath.Join(g.DataDir, "admin.kubeconfig")
}

func (g *Globals) restConfig() (*rest.Config, error) {
	path := g.kubeconfigPath()
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("no kubeconfig at %s: start a fleet with `muster up` there, or name one with --kubeconfig or --data-dir", path)
	}
	return clientcmd.BuildConfigFromFlags("", path)
}

func (g *Globals) client() (client.Client, error) {
	cfg, err := g.restConfig()
	if err != nil {
		return nil, err
	}
	cfg.Timeout = 15 * time.Second
	cfg.QPS, cfg.Burst = 50, 100
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("reach the control plane at %s: %w; is it running?", cfg.Host, err)
	}
	return c, nil
}

// tenant returns the tenant to work on: the flag, or the only one there is.
func (g *Globals) tenant(ctx context.Context, c client.Client) (string, error) {
	if g.Tenant != "" {
		return g.Tenant, fleet.ValidateTenant(g.Tenant)
	}
	var list v1alpha1.TenantList
	if err := c.List(ctx, &list); err != nil {
		return "", fmt.Errorf("list tenants: %w; name yours with --tenant", err)
	}
	switch len(list.Items) {
	case 0:
		return "", errors.New("there is no tenant yet; make one: kubectl apply a Tenant object, or list it under control.tenants in the config")
	case 1:
		return list.Items[0].Name, nil
	default:
		var names []string
		for _, t := range list.Items {
			names = append(names, t.Name)
		}
		return "", fmt.Errorf("there are %d tenants (%s); choose one with --tenant", len(names), strings.Join(names, ", "))
	}
}

// connect is the beginning of every verb: a client and the tenant's name.
func (g *Globals) connect(ctx context.Context) (client.Client, string, error) {
	c, err := g.client()
	if err != nil {
		return nil, "", err
	}
	t, err := g.tenant(ctx, c)
	return c, t, err
}

// table is what `-o table` and `-o wide` print: wide adds the last columns.
type table struct {
	header []string
	rows   [][]string
	wide   int // number of leading columns that -o table shows
}

func (g *Globals) print(w io.Writer, obj any, t table) error {
	switch g.Output {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(obj)
	case "yaml":
		b, err := yaml.Marshal(obj)
		if err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	case "table", "wide", "":
	default:
		return fmt.Errorf("--output %q: want table, wide, json or yaml", g.Output)
	}
	n := t.wide
	if g.Output == "wide" || n == 0 {
		n = len(t.header)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, strings.Join(t.header[:n], "\t"))
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
	if len(t.rows) == 0 {
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

func getSite(ctx context.Context, c client.Client, tenant, name string) (*v1alpha1.Site, error) {
	var s v1alpha1.Site
	if err := c.Get(ctx, client.ObjectKey{Namespace: fleet.SystemNamespace(tenant), Name: name}, &s); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("tenant %s has no site %q; `muster get sites` lists them", tenant, name)
		}
		return nil, err
	}
	return &s, nil
}

// completeSites completes names of sites of the tenant.
func (g *Globals) completeSites(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, tenant, err := g.connect(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var list v1alpha1.SiteList
	if err := c.List(cmd.Context(), &list, client.InNamespace(fleet.SystemNamespace(tenant))); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, s := range list.Items {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}
