// Command muster-edge is what runs on a site: the agent that registers it and
// applies its policies, and the collector that sends its metrics. It holds flags
// and signals; cmd/internal/edge composes the parts.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // windows are in the site's own time zone, and not every site has the database

	"github.com/spf13/cobra"

	"muster.dev/muster/cmd/internal/edge"
	"muster.dev/muster/internal/obs"
)

const defaultConfig = "/etc/muster/edge.yaml"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "muster-edge: "+err.Error())
		os.Exit(1)
	}
}

func root() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "muster-edge", Short: "Muster's agent and collector for one edge site",
		Long: `Makes this machine, or the Kubernetes cluster that it belongs to, a site of a Muster
fleet. It holds one outbound connection to its regional; nothing ever dials it.

  muster-edge join --server GATEWAY --ca-hash HASH --token TOKEN
  muster-edge watch -- run (what the systemd unit runs: it starts another version of the
                           agent when control wants one, and goes back if that is ill)
  muster-edge run          the agent and the collector alone
  muster-edge status       what it does, and what is wrong
  muster-edge software     what it runs, what it is to run, and when
  muster-edge certificate  the certificate alone, where something else pushes the metrics`,
		SilenceUsage: true, SilenceErrors: true, Version: obs.Version,
	}
	cmd.PersistentFlags().StringVar(&file, "config", defaultConfig, "configuration `FILE`; not needed if every default fits (see muster-edge config sample)")
	load := func(cmd *cobra.Command) (edge.Config, error) {
		return edge.LoadConfig(file, !cmd.Flags().Changed("config"))
	}

	var j edge.JoinOptions
	join := &cobra.Command{
		Use: "join", Short: "Register this machine as a site", Args: cobra.NoArgs,
		Long: `Register this machine with a token, wait until it is approved, and keep the
certificate in the state directory. ` + "`muster token create`" + ` prints the whole command.
Joining again with the same key is harmless: the same site gets a new certificate.`,
		Example: "  muster-edge join --server gw.example.com:7443 --ca-hash sha256:6d2f… --token muster1.acme.token-x7.…",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := load(cmd)
			if err != nil {
				return err
			}
			j.Out = cmd.OutOrStdout()
			return edge.Join(cmd.Context(), c, j)
		},
	}
	joinFlags(join, &j)

	run := &cobra.Command{
		Use: "run", Short: "Run the agent and the collector", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := load(cmd)
			if err != nil {
				return err
			}
			return edge.Run(cmd.Context(), c)
		},
	}
	var watch edge.WatchOptions
	watchdog := &cobra.Command{
		Use: "watch [flags] -- run [flags]", Short: "Start the agent, and another version of it when control wants one", Args: cobra.MinimumNArgs(1),
		Long: `Start muster-edge with the arguments after --, from one of two slots that hold the agent's
binary; the one that is installed fills the first. A new version is started once, and stays
if it is well; if it ends before, or is not well in time, the old one is started again. What
the systemd unit runs. It reads no configuration.`,
		Example: "  muster-edge watch -- run --config /etc/muster/edge.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			watch.Args = args
			return edge.Watch(cmd.Context(), watch)
		},
	}
	watchdog.Flags().StringVar(&watch.Dir, "dir", "/var/lib/muster-edge/bin", "`DIR` of the two binaries; this user has to be able to write there, and to run what is in it")
	watchdog.Flags().DurationVar(&watch.Within, "within", edge.WatchWithin, "by when a new version has to be well; longer than software.within")

	var output string
	var asJSON bool
	status := &cobra.Command{
		Use: "status", Short: "Say what the running muster-edge does and what is wrong", Args: cobra.NoArgs,
		Long: `Ask the running muster-edge for its state: its connection, its targets by job, which
exporters feed each dimension of the site's health, and what is missing. Exits with 1 if
something is wrong.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := load(cmd)
			if err != nil {
				return err
			}
			if output != "text" && output != "json" {
				return fmt.Errorf("--output %q: want text or json", output)
			}
			return edge.PrintStatus(cmd.Context(), cmd.OutOrStdout(), c, asJSON || output == "json")
		},
	}
	status.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	status.Flags().BoolVar(&asJSON, "json", false, "the same as -o json")

	var hm edge.HostMetricsOptions
	var address, port string
	host := &cobra.Command{
		Use: "host-metrics", Short: "Serve this node's metrics to the site's muster-edge", Args: cobra.NoArgs,
		Long: `Serve the metrics of one node of a cluster, over TLS, to who shows the certificate that
the page itself has. What the DaemonSet of ` + "`muster site manifest`" + ` runs.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hm.Listen, hm.Log = net.JoinHostPort(address, port), edge.DefaultConfig().Log
			return edge.HostMetrics(cmd.Context(), hm)
		},
	}
	host.Flags().StringVar(&address, "address", "", "address to listen on (default: all)")
	host.Flags().StringVar(&port, "port", edge.HostPort, "port to listen on")
	host.Flags().StringVar(&hm.PairDir, "key-pair", "", "`DIR` with tls.crt and tls.key, such as a mounted Secret")
	host.Flags().StringVar(&hm.Host, "host", "", "`DIR` in which root, proc and sys are those of the host (default: this process sees them itself)")
	host.Flags().StringVar(&hm.TextfileDir, "textfile-dir", "", "directory of *.prom files on the host, to be served too")

	conf := &cobra.Command{Use: "config", Short: "Check the configuration file, or print the annotated sample"}
	conf.AddCommand(
		&cobra.Command{Use: "check FILE", Short: "Check a file without starting anything", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			if err := edge.Check(args[0]); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is good\n", args[0])
			return nil
		}},
		&cobra.Command{Use: "sample", Short: "Print every field with its default and what it means", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(edge.Sample)
			return err
		}})
	cmd.AddCommand(join, run, watchdog, status, softwareCommand(load), guardCommand(), host, certificateCommand(), conf)
	return cmd
}

// joinFlags are what `muster token create` prints.
func joinFlags(cmd *cobra.Command, j *edge.JoinOptions) {
	cmd.Flags().StringSliceVar(&j.Servers, "server", nil, "HOST:PORT of a gateway; repeatable, nearest first")
	cmd.Flags().StringVar(&j.CAHash, "ca-hash", "", "hash of the fleet's CA; the gateway has to prove that it belongs to it")
	cmd.Flags().StringVar(&j.Token, "token", "", "registration token; - reads it from standard input, which keeps it out of the process list")
	cmd.Flags().StringVar(&j.Site, "site", "", "wanted name of the site (default: the host name)")
}
