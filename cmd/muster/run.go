package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"muster.dev/muster/cmd/internal/aggregator"
	"muster.dev/muster/cmd/internal/alerting"
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/console"
	"muster.dev/muster/cmd/internal/control"
	"muster.dev/muster/cmd/internal/demo"
	"muster.dev/muster/cmd/internal/health"
	"muster.dev/muster/cmd/internal/regional"
	"muster.dev/muster/cmd/internal/up"
	"muster.dev/muster/internal/obs"
)

// runners run each role of config.Roles in this process. name is one of several of it.
var runners = map[string]func(ctx context.Context, c config.Config, name string) error{
	"control":    alone(control.Run),
	"aggregator": alone(aggregator.Run),
	"alerting":   alone(alerting.Run),
	"health":     alone(health.Run),
	"console":    alone(console.Run),
	"regional": func(ctx context.Context, c config.Config, name string) error {
		if name == "" && len(c.Regionals) == 1 {
			name = c.Regionals[0].Name
		}
		r, err := c.Regional(name)
		if err != nil {
			return fmt.Errorf("--name: %w", err)
		}
		return regional.Run(ctx, c, r)
	},
}

func alone(run func(context.Context, config.Config) error) func(context.Context, config.Config, string) error {
	return func(ctx context.Context, c config.Config, _ string) error { return run(ctx, c) }
}

// roleCmds are the commands of config.Roles: each runs one role in this process.
func roleCmds(f *flags) []*cobra.Command {
	var out []*cobra.Command
	for _, role := range config.Roles {
		var name string
		cmd := &cobra.Command{Use: role.Name, Short: role.Short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.load(cmd)
			if err != nil {
				return err
			}
			return runners[role.Name](cmd.Context(), c, name)
		}}
		if role.Name == "regional" {
			cmd.Flags().StringVar(&name, "name", "", "which of the config's regionals to run (default: the only one)")
		}
		out = append(out, cmd)
	}
	return out
}

func upCmd(f *flags) *cobra.Command {
	return &cobra.Command{
		Use: "up", Short: "Run all roles on this machine, each as a child process", Args: cobra.NoArgs,
		Long: `Run every central role on this machine: control, aggregator, the regionals of the
config, alerting, health and console. A role that dies is started again; Ctrl-C stops all of
them. State lives in --data-dir; a second start on the same directory resumes.`,
		Example: "  muster up\n  muster up --config muster.yaml --data-dir /var/lib/muster",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.load(cmd)
			if err != nil {
				return err
			}
			log, err := obs.NewLogger(os.Stderr, obs.LogOptions(c.Log))
			if err != nil {
				return err
			}
			return runUp(cmd.Context(), f, c, log)
		},
	}
}

func runUp(ctx context.Context, f *flags, c config.Config, log *slog.Logger) error {
	args, err := childArgs(f.configFile, c.DataDir)
	if err != nil {
		return err
	}
	// The lock comes first: "another muster is running" explains more than the
	// ports that it holds.
	known, err := c.Probe(config.Operator)
	if err != nil {
		return err
	}
	s, err := up.New(up.Options{Dir: c.DataDir, Out: os.Stderr, Log: log, Transport: known.Transport()}, up.Roles(c, args...))
	if err != nil {
		return err
	}
	if err := c.CheckPorts(); err != nil {
		return err
	}
	go func() {
		select {
		case <-s.Ready("console"):
			log.Info("the console is up", "url", "http://"+c.Console.Listen, "token", filepath.Join(c.DataDir, "admin.token"))
		case <-ctx.Done():
		}
	}()
	return s.Run(ctx)
}

func childArgs(configFile, dataDir string) ([]string, error) {
	dir, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, err
	}
	args := []string{"--data-dir", dir}
	if configFile != "" {
		file, err := filepath.Abs(configFile)
		if err != nil {
			return nil, err
		}
		args = append(args, "--config", file)
	}
	return args, nil
}

func demoCmd(f *flags) *cobra.Command {
	o := demo.Options{}
	cmd := &cobra.Command{
		Use: "demo", Short: "A fleet of simulated sites, and this machine as one of them", Args: cobra.NoArgs,
		Long: `Start all roles, 59 simulated sites around the world and this machine as the 60th,
and print a link to the map that is already logged in. Every sample goes the whole
way: collector, regional, Cortex, health engine, console. Break a site and watch:

  muster demo break paris crash-loop
  muster alerts
  muster logs --site paris severity:error
  muster demo oncall
  muster demo heal paris
  muster demo release bad`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.DataDir, o.ConfigFile, o.Out = f.DataDir, f.configFile, cmd.OutOrStdout()
			return demo.Run(cmd.Context(), o)
		},
	}
	cmd.Flags().IntVar(&o.Sites, "sites", 60, "number of sites, this machine included")
	cmd.Flags().BoolVarP(&o.Verbose, "verbose", "v", false, "show the roles' logs instead of writing them to DATA-DIR/demo/muster.log")
	fleet := &cobra.Command{Use: "fleet", Hidden: true, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		c, err := f.load(cmd)
		if err != nil {
			return err
		}
		return demo.RunFleet(cmd.Context(), c, o.Sites)
	}}
	fleet.Flags().IntVar(&o.Sites, "sites", 60, "number of sites")
	client := demo.NewFaultClient()
	cmd.AddCommand(fleet,
		&cobra.Command{Use: "break SITE FAULT", Short: "Break a simulated site", Args: cobra.ExactArgs(2), RunE: func(cmd *cobra.Command, args []string) error {
			return client.Break(cmd.Context(), cmd.OutOrStdout(), args[0], args[1])
		}},
		&cobra.Command{Use: "heal SITE", Short: "Heal a simulated site of all its faults", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			return client.Heal(cmd.Context(), cmd.OutOrStdout(), args[0])
		}},
		&cobra.Command{Use: "release good|bad", Short: "Take a new version of the shop over Europe, wave by wave", Args: cobra.ExactArgs(1), ValidArgs: []string{"good", "bad"},
			Long: "Start a rollout of the shop's web over shared/europe, and print its name. A good version reaches all sites; a bad\none becomes ready and takes all CPUs of its sites, which is seen, and put back before it leaves its first wave. In a demo that has just begun it waits for the shop, most of\nEurope's sites and scores.",
			RunE: func(cmd *cobra.Command, args []string) error {
				c, err := f.load(cmd)
				if err != nil {
					return err
				}
				return demo.Release(cmd.Context(), c, args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
			}},
		&cobra.Command{Use: "oncall", Short: "Show the notifications that reached whoever is on call", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return client.OnCall(cmd.Context(), cmd.OutOrStdout())
		}},
		&cobra.Command{Use: "faults", Short: "List the faults there are, and the sites that are broken", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return client.List(cmd.Context(), cmd.OutOrStdout())
		}})
	return cmd
}
