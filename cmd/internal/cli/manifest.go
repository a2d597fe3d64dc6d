package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"

	"muster.dev/muster/control/agent/software/images"
	"muster.dev/muster/deploy/helm"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/obs"
)

// Features of a site that is a cluster, in the order of the chart.
var Features = []string{"metrics", "host", "logs", "workloads", "virtualhosts", "restarts", "upgrades", "resets"}

// ManifestOptions say how a cluster becomes a site.
type ManifestOptions struct {
	Namespace        string
	Servers          []string
	CAHash           string
	Token            string
	Site             string
	Features         []string
	Image            string
	KubeStateMetrics string
	HostTextfileDir  string
	NoNetworkPolicy  bool
}

func siteManifestCmd(g *Globals) *cobra.Command {
	var o ManifestOptions
	cmd := &cobra.Command{
		Use: "manifest", Short: "Print what makes a Kubernetes cluster a site", Args: cobra.NoArgs,
		Long: `Print the objects that make a Kubernetes cluster a site, for kubectl. They are those of
the Helm chart deploy/helm/muster-edge. Applying them again, with other features too,
changes the site and keeps what it is.

Features, each with just the rights that it needs:
  metrics    health: kubelets, cAdvisor, kube-state-metrics, Cilium, CoreDNS, annotated pods
  host       metrics of the nodes themselves, by a DaemonSet
  logs       lines of all pods, by a DaemonSet of Fluent Bit
  workloads  what the fleet deploys is applied to the cluster
  virtualhosts  Services of the tenant's other sites are reached by name, and served to them;
             needs workloads
  restarts   an account by which the nodes restart into a new operating system one at a time
  upgrades   the fleet may bring another version of muster-edge, by the digest of its image;
             a guard puts the old one back if it is not well
  resets     the fleet's operators may have the site go back to how it was before it
             registered (muster site reset)`,
		Example: `  muster site manifest --token $(muster token create --token-only) | kubectl apply -f -
  muster site manifest --token - --site paris-07 --features metrics,host,logs <token >paris-07.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Token == "-" {
				b, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), 4096))
				if err != nil {
					return fmt.Errorf("read the token from standard input: %w", err)
				}
				o.Token = strings.TrimSpace(string(b))
			}
			if err := o.complete(g.DataDir); err != nil {
				return err
			}
			return Manifest(cmd.OutOrStdout(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Token, "token", "", "registration token, of `muster token create`; - reads it from standard input")
	f.StringSliceVar(&o.Servers, "server", nil, "HOST:PORT of a gateway; repeatable, nearest first (default: the first regional of this data directory)")
	f.StringVar(&o.CAHash, "ca-hash", "", "hash of the fleet's CA (default: of this data directory)")
	f.StringVar(&o.Site, "site", "", "name of the site (default: cluster- and eight digits that the cluster has for ever)")
	f.StringSliceVar(&o.Features, "features", []string{"metrics", "host"}, "what the cluster is asked for: "+strings.Join(Features, ", "))
	f.StringVar(&o.Namespace, "namespace", "muster-edge", "namespace to be made for it")
	f.StringVar(&o.Image, "image", "muster-edge:"+obs.Version, "image of muster-edge (make image)")
	f.StringVar(&o.KubeStateMetrics, "kube-state-metrics", "auto", "auto: one comes along and runs while the cluster has no other; deploy: it always runs; existing: none comes along")
	f.StringVar(&o.HostTextfileDir, "host-textfile-dir", "", "directory of *.prom files on the nodes, such as /var/lib/prometheus/node-exporter")
	f.BoolVar(&o.NoNetworkPolicy, "no-network-policy", false, "leave out the NetworkPolicy of muster-edge's own pod: where the API server listens on none of 443, 6443 and 16443, or annotated pods are in the nodes' own network")
	_ = cmd.RegisterFlagCompletionFunc("features", cobra.FixedCompletions(Features, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// complete takes from the data directory what is not given, and names what can't work.
func (o *ManifestOptions) complete(dataDir string) error {
	if o.Token == "" {
		return errors.New("--token is missing: make one with `muster token create --token-only`")
	}
	if !strings.HasPrefix(o.Token, "muster1.") || strings.Count(o.Token, ".") != 3 {
		return errors.New("--token: want muster1.TENANT.NAME.SECRET, as `muster token create --token-only` prints it")
	}
	given := func(file, flag string) (string, error) {
		b, err := os.ReadFile(filepath.Join(dataDir, file))
		if err != nil {
			return "", fmt.Errorf("%s is missing, and %s is not in %s: run this where `muster control` keeps its data, or give what `muster token create` printed there", flag, file, dataDir)
		}
		return strings.TrimSpace(string(b)), nil
	}
	if len(o.Servers) == 0 {
		s, err := given(JoinServerFile, "--server")
		if err != nil {
			return err
		}
		o.Servers = []string{s}
	}
	if o.CAHash == "" {
		var err error
		if o.CAHash, err = given(JoinHashFile, "--ca-hash"); err != nil {
			return err
		}
	}
	if err := identity.ValidateCAHash(o.CAHash); err != nil {
		return fmt.Errorf("--ca-hash: %w", err)
	}
	if o.Site != "" {
		if err := (fleet.SiteID{Tenant: "x", Name: o.Site}).Validate(); err != nil {
			return fmt.Errorf("--site: %w", err)
		}
	}
	for _, f := range o.Features {
		if !slices.Contains(Features, f) {
			return fmt.Errorf("--features: %q: want %s", f, strings.Join(Features, ", "))
		}
	}
	return nil
}

// values are the chart's values for o.
func (o *ManifestOptions) values() map[string]any {
	servers := make([]any, len(o.Servers))
	for i, s := range o.Servers {
		servers[i] = s
	}
	features := map[string]any{}
	for _, f := range Features {
		features[f] = slices.Contains(o.Features, f)
	}
	v := map[string]any{
		"join": map[string]any{"servers": servers, "caHash": o.CAHash, "token": o.Token}, "site": o.Site, "features": features,
		"namespace":        map[string]any{"create": true},
		"hostNamespace":    o.Namespace + "-host",
		"kubeStateMetrics": map[string]any{"mode": cmp.Or(o.KubeStateMetrics, "auto")},
		"host":             map[string]any{"textfileDir": o.HostTextfileDir},
		"networkPolicy":    map[string]any{"enabled": !o.NoNetworkPolicy},
	}
	if o.Image != "" {
		repo, tag, digest := images.Split(o.Image)
		if tag = cmp.Or(tag, "latest"); digest != "" {
			tag += "@" + digest
		}
		v["image"] = map[string]any{"repository": repo, "tag": tag}
	}
	return v
}

// Manifest renders the chart as Helm does, in the order in which the objects can be made.
func Manifest(w io.Writer, o ManifestOptions) error {
	c, err := edgeChart()
	if err != nil {
		return err
	}
	values, err := chartutil.ToRenderValues(c, o.values(), chartutil.ReleaseOptions{Name: "muster-edge", Namespace: o.Namespace, IsInstall: true, Revision: 1}, nil)
	if err != nil {
		return fmt.Errorf("values of the chart: %w", err)
	}
	values["Release"].(map[string]any)["Service"] = "muster" // not a release of Helm's
	files, err := engine.Render(c, values)
	if err != nil {
		return fmt.Errorf("render the chart: %w", chartError(err))
	}
	for name := range files {
		if path.Ext(name) == ".txt" {
			delete(files, name)
		}
	}
	_, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return fmt.Errorf("render the chart: %w", err)
	}
	for _, m := range manifests {
		if _, err := fmt.Fprintf(w, "---\n%s\n", strings.TrimSpace(m.Content)); err != nil {
			return err
		}
	}
	return nil
}

// chartError is what a template refused, without the way through the templates.
func chartError(err error) error {
	if _, said, ok := strings.Cut(err.Error(), "error calling fail: "); ok {
		return errors.New(said)
	}
	return err
}

// edgeChart loads the embedded chart.
func edgeChart() (*chart.Chart, error) {
	const root = "muster-edge"
	var files []*loader.BufferedFile
	err := fs.WalkDir(helm.MusterEdge, root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := helm.MusterEdge.ReadFile(name)
		files = append(files, &loader.BufferedFile{Name: strings.TrimPrefix(name, root+"/"), Data: b})
		return err
	})
	if err != nil {
		return nil, err
	}
	return loader.LoadFiles(files)
}
