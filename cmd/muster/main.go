// Command muster is the central binary: one role a process, all roles at once with
// `muster up`, a whole simulated fleet with `muster demo`, and the verbs of an
// operator. It holds flags and signals; the roles live in cmd/internal.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"muster.dev/muster/cmd/internal/cli"
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/control"
	"muster.dev/muster/internal/obs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// kube-apiserver's packages register flags of their own for the whole process;
	// they are no flags of muster.
	pflag.CommandLine = pflag.NewFlagSet("muster", pflag.ContinueOnError)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		if text := err.Error(); text != "" {
			fmt.Fprintln(os.Stderr, "muster: "+text)
		}
		os.Exit(cli.CodeOf(err))
	}
}

// flags are what every command shares.
type flags struct {
	cli.Globals
	configFile string
}

// load reads the config file and applies --data-dir over it.
func (f *flags) load(cmd *cobra.Command) (config.Config, error) {
	c, err := config.Load(f.configFile)
	if err != nil {
		return c, err
	}
	if cmd.Flags().Changed("data-dir") || f.configFile == "" {
		c.DataDir = f.DataDir
	}
	return c, nil
}

func root() *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:   "muster",
		Short: "Health of a fleet of edge Kubernetes sites, and change as fast as it allows",
		Long: `Muster shows the operators of thousands of edge sites how healthy each one is and
why, and lets them change the fleet only as fast as that health allows.

  muster demo        a fleet of 60 sites on this machine, to look at
  muster up          all central roles on this machine, for real sites
  muster get sites   what the fleet looks like now`,
		SilenceUsage: true, SilenceErrors: true, Version: obs.Version,
	}
	cmd.PersistentFlags().StringVar(&f.configFile, "config", "", "configuration `FILE` (default: built-in defaults; see muster config sample)")
	cmd.PersistentFlags().StringVar(&f.DataDir, "data-dir", "./.muster", "where state, admin.kubeconfig and admin.token are kept")
	cmd.AddGroup(&cobra.Group{ID: "run", Title: "Run:"}, &cobra.Group{ID: "role", Title: "Run one role:"}, &cobra.Group{ID: "fleet", Title: "Work on a running fleet:"})

	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			if role, _, err := cmd.Find([]string{c.Name()}); err == nil && role != cmd {
				beside(role, c) // "muster health" runs the role, "muster health explain" is a verb
				continue
			}
			c.GroupID = group
			cmd.AddCommand(c)
		}
	}
	add("run", upCmd(f), demoCmd(f))
	add("role", roleCmds(f)...)
	add("fleet", cli.Commands(&f.Globals)...)
	cmd.AddCommand(configCmd())
	cmd.AddCommand(caCmd(f), backupCmd(f), restoreCmd(f))
	cli.RefuseUnknown(cmd)
	return cmd
}

// beside puts the verbs of group below the role of the same name.
func beside(role, group *cobra.Command) {
	role.Long = role.Short + ".\nWithout a verb it runs the role. " + group.Short + " with its verbs."
	role.Short += "; " + strings.ToLower(group.Short[:1]) + group.Short[1:]
	role.AddCommand(group.Commands()...)
}

func caCmd(f *flags) *cobra.Command {
	cmd := &cobra.Command{Use: "ca", Short: "Change the fleet's CA, step by step",
		Long: `Change the CA that signs for sites, regionals and control, without locking anyone out:
prepare the next one, let it sign, retire the old one, each a site's certificate's life
after the one before. Run it where control keeps its data; control takes each step up
by itself, and nothing is restarted.`}
	now := cmd.PersistentFlags().Bool("now", false, "don't wait until every site has renewed; those that have not are locked out")
	for _, step := range control.RolloverSteps {
		cmd.AddCommand(&cobra.Command{Use: step, Short: map[string]string{"prepare": "Make the next CA and let everybody trust it", "activate": "Let the prepared CA sign", "retire": "Trust the old CA no more"}[step], Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				c, err := f.load(cmd)
				if err != nil {
					return err
				}
				return control.Rollover(c, step, *now, cmd.OutOrStdout())
			}})
	}
	cmd.AddCommand(identityCmd(f))
	return cmd
}

func identityCmd(f *flags) *cobra.Command {
	return &cobra.Command{Use: "identity NAME", Short: "Write what a role on another machine needs to be one of this fleet",
		Long: `Write what a role on another machine needs of this one: its certificate and key, the CA,
and its kubeconfig if it has one. NAME is a role, such as health, or regional-NAME. It is a tar
archive, to be unpacked in the data directory there. Run it where control keeps its data.

The certificate lives 30 days and control renews it after 20, so run it every few days; the
role takes up what changed by itself. The archive holds a private key: pass it on by a pipe.`,
		Example: "  muster ca identity regional-two | ssh edge2 'tar -x -C /var/lib/muster'", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.load(cmd)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if onScreen(out) {
				return errors.New("it is an archive with a private key and not for a screen: pipe it to tar on the other machine, see --help")
			}
			return control.Bundle(c, args[0], out)
		}}
}

func configCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check a configuration file, or print the annotated sample"}
	cmd.AddCommand(&cobra.Command{
		Use: "check FILE", Short: "Check a file without starting anything", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := config.Load(args[0]); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is good\n", args[0])
			return nil
		},
	}, &cobra.Command{
		Use: "sample", Short: "Print every field with its default and what it means", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(config.Sample)
			return err
		},
	})
	return cmd
}
