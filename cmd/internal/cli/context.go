package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	kubeconfig "k8s.io/client-go/tools/clientcmd/api"

	"muster.dev/muster/internal/fleet"
)

// extension is what of a kubeconfig's context is Muster's: kubectl leaves it alone.
const extension = "muster.dev"

// contextExtra is what a context says besides the cluster and the user. It stands in the
// kubeconfig, so that one file says who one is, where, and in which tenant.
type contextExtra struct {
	Console string `json:"console,omitempty"` // URL of the HTTP API
	Tenant  string `json:"tenant,omitempty"`
}

// extraOf is what a context says; nothing, if it can't be read.
func extraOf(c *kubeconfig.Context) (x contextExtra) {
	if c == nil {
		return x
	}
	if raw, ok := c.Extensions[extension].(*runtime.Unknown); ok && json.Unmarshal(raw.Raw, &x) != nil {
		return contextExtra{}
	}
	return x
}

func setExtra(c *kubeconfig.Context, x contextExtra) error {
	if x == (contextExtra{}) {
		delete(c.Extensions, extension)
		return nil
	}
	b, err := json.Marshal(x)
	if err != nil {
		return err
	}
	if c.Extensions == nil {
		c.Extensions = map[string]runtime.Object{}
	}
	c.Extensions[extension] = &runtime.Unknown{Raw: b, ContentType: runtime.ContentTypeJSON}
	return nil
}

// kubeconfig is the one in use, merged of all files that $KUBECONFIG lists; its current
// context is the one that was asked for.
func (g *Globals) kubeconfig() (*kubeconfig.Config, error) {
	path := g.kubeconfigPath()
	files := filepath.SplitList(path)
	if !slices.ContainsFunc(files, func(f string) bool { _, err := os.Stat(f); return err == nil }) {
		return nil, fmt.Errorf("no kubeconfig at %s: log in with `muster login`, start a fleet with `muster up` there, or name one with --kubeconfig or --data-dir", path)
	}
	config, err := (&clientcmd.ClientConfigLoadingRules{Precedence: files}).Load()
	if err != nil {
		return nil, err
	}
	config.CurrentContext = cmp.Or(g.Context, os.Getenv("MUSTER_CONTEXT"), config.CurrentContext)
	if config.Contexts[config.CurrentContext] == nil && config.CurrentContext != "" {
		return nil, fmt.Errorf("%s has no context %q: want one of %s", path, config.CurrentContext, strings.Join(slices.Sorted(maps.Keys(config.Contexts)), ", "))
	}
	return config, nil
}

func (g *Globals) restConfig() (*rest.Config, error) {
	config, err := g.kubeconfig()
	if err != nil {
		return nil, err
	}
	return clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
}

// contextExtra is that of the context in use.
func (g *Globals) contextExtra() contextExtra {
	config, err := g.kubeconfig()
	if err != nil {
		return contextExtra{}
	}
	return extraOf(config.Contexts[config.CurrentContext])
}

// addContext makes a context the current one of a kubeconfig, whatever else is in it.
func addContext(path, name string, x contextExtra, cluster *kubeconfig.Cluster, user *kubeconfig.ExecConfig) error {
	config, err := clientcmd.LoadFromFile(path)
	if errors.Is(err, os.ErrNotExist) {
		config = kubeconfig.NewConfig()
	} else if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	info, ctx := kubeconfig.NewAuthInfo(), kubeconfig.NewContext()
	info.Exec = user
	ctx.Cluster, ctx.AuthInfo = name, name
	if err := setExtra(ctx, x); err != nil {
		return err
	}
	config.Clusters[name], config.AuthInfos[name], config.Contexts[name], config.CurrentContext = cluster, info, ctx, name
	return writeKubeconfig(path, config)
}

func writeKubeconfig(path string, config *kubeconfig.Config) error {
	b, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return writePrivate(path, b)
}

func contextCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use: "context", Aliases: []string{"contexts"}, Short: "Which fleet, user and tenant the commands are for",
		Long: `Which fleet, user and tenant the commands are for. Contexts are those of the
kubeconfig in use: kubectl has the same ones. Muster keeps two more words in each, the
console and the tenant, which kubectl passes over.

What counts, the first that is there:
  tenant    --tenant, $MUSTER_TENANT, the context's, all that are yours (also --all-tenants)
  console   --console, $MUSTER_CONSOLE, the context's, that of the fleet in --data-dir
  context   --context, $MUSTER_CONTEXT, the current one`,
		Example: `  muster login --console https://muster.example.com --context prod --tenant acme
  muster context list
  muster context use prod
  muster context set prod --tenant acme-eu
  muster get sites --context lab`,
	}
	list := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List the contexts of the kubeconfig", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		config, err := g.kubeconfig()
		if err != nil {
			return err
		}
		t := table{header: []string{"CURRENT", "NAME", "TENANT", "CONSOLE", "SERVER", "USER"}}
		type entry struct {
			Name    string `json:"name"`
			Current bool   `json:"current"`
			contextExtra
			Server string `json:"server,omitempty"`
			User   string `json:"user,omitempty"`
		}
		all := []entry{}
		for _, name := range slices.Sorted(maps.Keys(config.Contexts)) {
			c, mark := config.Contexts[name], ""
			e := entry{Name: name, Current: name == config.CurrentContext, contextExtra: extraOf(c), User: c.AuthInfo}
			if e.Current {
				mark = "*"
			}
			if cluster := config.Clusters[c.Cluster]; cluster != nil {
				e.Server = cluster.Server
			}
			all = append(all, e)
			t.rows = append(t.rows, []string{mark, name, orDash(e.Tenant), orDash(e.Console), orDash(e.Server), orDash(e.User)})
		}
		return g.print(cmd.OutOrStdout(), all, t)
	}}
	g.addOutput(list)
	use := &cobra.Command{Use: "use NAME", Short: "Make a context the current one, for kubectl as well", Args: cobra.ExactArgs(1), ValidArgsFunction: g.completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := g.editContext(args[0], func(config *kubeconfig.Config) error { config.CurrentContext = args[0]; return nil })
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "%s is the current context of %s\n", args[0], g.kubeconfigPath())
			}
			return err
		}}
	var tenant, console string
	set := &cobra.Command{Use: "set NAME", Short: "Set the tenant or the console of a context; empty removes it", Args: cobra.ExactArgs(1), ValidArgsFunction: g.completeContexts,
		Example: "  muster context set prod --tenant acme\n  muster context set prod --tenant ''",
		RunE: func(cmd *cobra.Command, args []string) error {
			flags := cmd.Flags()
			if !flags.Changed("tenant") && !flags.Changed("console") {
				return errors.New("nothing to set: give --tenant or --console")
			}
			if tenant != "" {
				if err := fleet.ValidateTenant(tenant); err != nil {
					return fmt.Errorf("--tenant: %w", err)
				}
			}
			if console != "" {
				if _, err := (&Globals{Console: console}).consoleURL(); err != nil {
					return err
				}
			}
			return g.editContext(args[0], func(config *kubeconfig.Config) error {
				x := extraOf(config.Contexts[args[0]])
				if flags.Changed("tenant") {
					x.Tenant = tenant
				}
				if flags.Changed("console") {
					x.Console = console
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: tenant %s, console %s\n", args[0], orDash(x.Tenant), orDash(x.Console))
				return setExtra(config.Contexts[args[0]], x)
			})
		}}
	set.Flags().StringVarP(&tenant, "tenant", "T", "", "tenant that is meant where none is named")
	set.Flags().StringVar(&console, "console", "", "URL of the console, which gets the user's token")
	for _, sub := range []*cobra.Command{list, use, set} {
		sub.Flags().StringVar(&g.Kubeconfig, "kubeconfig", "", "kubeconfig whose contexts are meant (default: the one in use)")
		cmd.AddCommand(sub)
	}
	return cmd
}

// editContext changes a context, in the file that has it, of the kubeconfig in use.
func (g *Globals) editContext(name string, edit func(*kubeconfig.Config) error) error {
	if _, err := (&Globals{DataDir: g.DataDir, Kubeconfig: g.Kubeconfig, Context: name}).kubeconfig(); err != nil {
		return err
	}
	access := &clientcmd.PathOptions{GlobalFile: g.kubeconfigPath(), LoadingRules: &clientcmd.ClientConfigLoadingRules{}}
	if strings.ContainsRune(access.GlobalFile, filepath.ListSeparator) {
		access.EnvVar = clientcmd.RecommendedConfigPathEnvVar
	}
	config, err := access.GetStartingConfig()
	if err != nil {
		return err
	}
	if err := edit(config); err != nil {
		return err
	}
	return clientcmd.ModifyConfig(access, *config, false)
}

func (g *Globals) completeContexts(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	config, err := (&Globals{DataDir: g.DataDir, Kubeconfig: g.Kubeconfig}).kubeconfig()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(config.Contexts)), cobra.ShellCompDirectiveNoFileComp
}
