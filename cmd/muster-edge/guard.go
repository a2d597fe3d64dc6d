package main

import (
	"github.com/spf13/cobra"

	"muster.dev/muster/cmd/internal/edge"
)

// guardCommand is what the chart's Deployment of the guard runs.
func guardCommand() *cobra.Command {
	var o edge.GuardOptions
	cmd := &cobra.Command{
		Use: "guard", Short: "Exchange the agent's image on a cluster, and put the old one back if need be", Args: cobra.NoArgs,
		Long: `Exchange the image of muster-edge's DaemonSet and Deployment when the agent asks for it, and
put both back unless the new agent says in time that it is well. What the guard's Deployment
of ` + "`muster site manifest --features …,upgrades`" + ` runs; it is scaled to none when there is
nothing to guard. What it knows is in the ConfigMap muster-edge-upgrade.`,
		Example: "  muster-edge guard --namespace muster-edge --host-namespace muster-edge-host",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return edge.Guard(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Namespace, "namespace", "muster-edge", "namespace of the agent, and of the guard")
	cmd.Flags().StringVar(&o.HostNamespace, "host-namespace", "", "namespace of the DaemonSet; empty: there is none")
	cmd.Flags().DurationVar(&o.Within, "within", edge.WatchWithin, "by when a new version has to be well; longer than software.within")
	cmd.Flags().StringVar(&o.Kubeconfig, "kubeconfig", "", "`FILE` that reaches the cluster, outside of a pod")
	return cmd
}
