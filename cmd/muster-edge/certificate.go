package main

import (
	"github.com/spf13/cobra"

	"muster.dev/muster/cmd/internal/edge"
)

// certificateCommand is for sites that something else pushes for.
func certificateCommand() *cobra.Command {
	var o edge.CertificateOptions
	cmd := &cobra.Command{
		Use: "certificate --dir DIR", Short: "Get and renew the certificate of a site that Prometheus or an OpenTelemetry Collector pushes for", Args: cobra.NoArgs,
		Long: `Keep a site's certificate fresh where muster-edge does not run: a stock Prometheus in agent
mode, or an OpenTelemetry Collector, pushes by itself, with the files that this keeps in DIR:

  cert.pem    the site's certificate, with the CAs that it comes from
  key.pem     its key, which never leaves the machine
  bundle.pem  the CAs to trust
  join.json   how it registered

All are 0600, so run it as the user that pushes. The first time it registers with --server,
--ca-hash and --token, which ` + "`muster token create`" + ` prints for join; then --dir is enough. It asks
the gateway only when two thirds of the certificate's life are over, so a timer may start
it as often as it likes: each hour for certificates of 24 hours. If the machine was away for
longer than that, it registers again as the same site; keep key.pem, and a token that is
not revoked.

It ends with 1, and the reason, while the site waits for approval or nobody can be reached;
the files stay as they are.`,
		Example: `  muster-edge certificate --dir /var/lib/muster-site --server gw.example.com:7443 \
      --ca-hash sha256:6d2f… --token - --site paris < token
  muster-edge certificate --dir /var/lib/muster-site              # from a timer
  muster-edge certificate --dir /var/lib/muster-site --every 10m  # as a service, or a sidecar`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = cmd.OutOrStdout()
			return edge.Certificate(cmd.Context(), o)
		},
	}
	joinFlags(cmd, &o.JoinOptions)
	cmd.Flags().StringVar(&o.Dir, "dir", "", "`DIR` of the files; made if it is not there")
	cmd.Flags().DurationVar(&o.Every, "every", 0, "stay, and look as often as this; 1s to 1h (default: look once)")
	return cmd
}
