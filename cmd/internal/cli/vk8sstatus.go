package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/kubeconfig"
	"muster.dev/muster/internal/wire"
)

// virtualKubernetes finds the one that NAMESPACE/NAME means.
func (g *Globals) virtualKubernetes(ctx context.Context, name string) (*v1alpha1.VirtualKubernetes, error) {
	c, tenants, err := g.connect(ctx)
	if err != nil {
		return nil, err
	}
	vk, _, err := findVirtualKubernetes(ctx, c, tenants, name)
	return vk, err
}

// report reads what the virtual Kubernetes tells below /muster/; query is names and values
// by turns.
func (g *Globals) report(ctx context.Context, vk *v1alpha1.VirtualKubernetes, path string, out any, query ...string) error {
	cfg, err := g.restConfig()
	if err != nil {
		return err
	}
	cfg.Timeout = 30 * time.Second
	c, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	req := c.RESTClient().Get().AbsPath(wire.VirtualPath(vk.Namespace, vk.Name), "muster", path)
	for pair := range slices.Chunk(query, 2) {
		req = req.Param(pair[0], pair[1])
	}
	b, err := req.Do(ctx).Raw()
	if err != nil {
		var status metav1.Status
		if json.Unmarshal(b, &status) == nil && status.Message != "" {
			return &apierrors.StatusError{ErrStatus: status}
		}
		return err
	}
	return json.Unmarshal(b, out)
}

// workloads are all of a virtual Kubernetes.
func (g *Globals) workloads(ctx context.Context, vk *v1alpha1.VirtualKubernetes, query ...string) ([]wire.Workload, error) {
	var list wire.WorkloadList
	err := g.report(ctx, vk, "workloads", &list, query...)
	return list.Items, err
}

// workloadPath is the path of KIND/NAME as kubectl takes it. Kinds of CRDs are found among
// what there is.
func workloadPath(typed string, there func() ([]wire.Workload, error)) (string, error) {
	kind, name, ok := strings.Cut(typed, "/")
	if !ok || kind == "" || name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("%q: want KIND/NAME, such as deployment/web", typed)
	}
	resource, group, _ := strings.Cut(strings.ToLower(kind), ".")
	for _, k := range offered.NewSet().Kinds() {
		if (group == "" || group == k.Group) && (resource == strings.ToLower(k.Kind) || resource == k.Resource || resource == k.Short) {
			kind, group = k.Kind, k.Group
			return workloadKey(group, kind) + "/" + name, nil
		}
	}
	all, err := there()
	if err != nil {
		return "", err
	}
	for _, w := range all {
		if k := strings.ToLower(w.Kind); w.Name == name && (k == resource || k+"s" == resource) && (group == "" || group == w.Group) {
			return workloadKey(w.Group, w.Kind) + "/" + name, nil
		}
	}
	return "", fmt.Errorf("no %s is carried to sites: see the list without it", typed)
}

func workloadKey(group, kind string) string {
	if group == "" {
		return kind
	}
	return kind + "." + group
}

func vk8sStatusCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status NAMESPACE/NAME [KIND/NAME]", Short: "Show what became of workloads on their sites", Args: cobra.RangeArgs(1, 2),
		Long: `Show what became of each object of a virtual Kubernetes on its sites, or of one object on
each site, with the reason where it is not ready.

IN SYNC tells for each site whether it has the object as it is here, for objects of all kinds:
for those, such as ConfigMaps, Secrets and NetworkPolicies, which have no status with
conditions it is what SitesInSync is to others. How many sites have it so is said at the end.
What differs is shown by muster vk8s diff, whose exit code is 0 once nothing does.`,
		Example: "  muster vk8s status shop/vk8s\n  muster vk8s status shop/vk8s deployment/web -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			vk, err := g.virtualKubernetes(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if len(args) == 1 {
				all, err := g.workloads(cmd.Context(), vk)
				if err != nil {
					return err
				}
				return g.print(cmd.OutOrStdout(), &wire.WorkloadList{Items: all}, workloadTable(all))
			}
			path, err := workloadPath(args[1], func() ([]wire.Workload, error) { return g.workloads(cmd.Context(), vk) })
			if err != nil {
				return err
			}
			var w wire.Workload
			if err := g.report(cmd.Context(), vk, "workloads/"+path, &w); err != nil {
				return err
			}
			if err := g.print(cmd.OutOrStdout(), w, siteTable(w.Sites)); err != nil {
				return err
			}
			saySync(cmd.ErrOrStderr(), w)
			return nil
		},
	}
	g.AddFlags(cmd)
	g.addOutput(cmd)
	g.addSort(cmd, workloadHeader)
	return cmd
}

var workloadHeader = []string{"KIND", "NAME", "SITES", "READY", "PROGRESSING", "WAITING", "FAILED", "OFFLINE", "PODS", "REASON", "ROLLED BACK", "DRIFTED", "VIRTUAL SITES"}

func workloadTable(items []wire.Workload) table {
	t := table{header: workloadHeader, wide: 10}
	for _, w := range items {
		reason := "-"
		if len(w.Reasons) > 0 {
			reason = fmt.Sprintf("%s (%s)", w.Reasons[0].Reason, sites(w.Reasons[0].Sites, w.Reasons[0].Example))
		}
		n := w.Counts
		t.rows = append(t.rows, []string{w.Kind, w.Name, fmt.Sprint(n.Sites), fmt.Sprint(n.Ready), fmt.Sprint(n.Progressing), fmt.Sprint(n.Waiting), fmt.Sprint(n.Failed), fmt.Sprint(n.Offline), podsCell(w.Pods), reason,
			fmt.Sprint(n.RolledBack), fmt.Sprint(n.Drifted), strings.Join(w.VirtualSites, ",")})
	}
	return t
}

func sites(n int, example string) string {
	if n == 1 {
		return example
	}
	return fmt.Sprintf("%d sites such as %s", n, example)
}

func podsCell(p wire.WorkloadPods) string {
	if p.Desired == 0 && p.Ready == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", p.Ready, p.Desired)
}

func siteTable(list []wire.WorkloadSite) table {
	t := table{header: []string{"SITE", "ONLINE", "STATE", "IN SYNC", "PODS", "SINCE", "REASON", "MESSAGE", "WANTED", "HAS"}, wide: 8}
	for _, s := range list {
		since := metav1.NewTime(s.Since)
		t.rows = append(t.rows, []string{s.Site, yesNo(s.Online), s.State, syncCell(s), podsCell(s.Pods), age(&since), orDash(s.Reason), orDash(s.Message), shortDigest(s.Wanted), shortDigest(s.Digest)})
	}
	return t
}

// syncCell tells whether a site has an object as it should be there, and else why not.
func syncCell(s wire.WorkloadSite) string {
	switch {
	case s.Digest == "":
		return "no: not there"
	case s.Digest != s.Wanted:
		return "no: another version"
	case s.Drifted:
		return "no: changed there"
	}
	return "yes"
}

// saySync tells of how many sites have an object as it should be there, and names those that
// have not.
func saySync(out io.Writer, w wire.Workload) {
	var not []string
	for _, s := range w.Sites {
		if syncCell(s) != "yes" {
			not = append(not, s.Site)
		}
	}
	switch n := len(w.Sites); {
	case n == 0:
		fmt.Fprintln(out, "no site is a member of its virtual sites")
	case len(not) == 0:
		fmt.Fprintf(out, "in sync on %d of %d sites\n", n, n)
	default:
		fmt.Fprintf(out, "in sync on %d of %d sites; not on %s\n", n-len(not), n, fewNames(not))
	}
}

func yesNo(b bool) string { return map[bool]string{true: "yes", false: "no"}[b] }

func shortDigest(d string) string {
	if len(d) > 12 {
		d = d[:12]
	}
	return orDash(d)
}

func vk8sKubeconfigCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use: "kubeconfig NAMESPACE/NAME", Short: "Print a kubeconfig of a virtual Kubernetes, for kubectl and Helm", Args: cobra.ExactArgs(1),
		Long: `Print a kubeconfig whose cluster is the virtual Kubernetes, with the credentials of the
kubeconfig in use. kubectl, Helm and client-go use it as that of any cluster.`,
		Example: "  muster vk8s kubeconfig shop/vk8s > kc\n  kubectl --kubeconfig kc get pods -o wide",
		RunE: func(cmd *cobra.Command, args []string) error {
			vk, err := g.virtualKubernetes(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			now, err := g.kubeconfig()
			if err != nil {
				return err
			}
			out, err := virtualKubeconfig(now, vk.Namespace, vk.Name)
			if err != nil {
				return fmt.Errorf("%s: %w", g.kubeconfigPath(), err)
			}
			b, err := clientcmd.Write(*out)
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

// virtualKubeconfig is the current context of a kubeconfig, with a virtual Kubernetes for
// its cluster. Files that it names are taken into it: it may be kept elsewhere.
func virtualKubeconfig(now *clientcmdapi.Config, namespace, name string) (*clientcmdapi.Config, error) {
	if err := clientcmdapi.MinifyConfig(now); err != nil {
		return nil, err
	}
	if err := clientcmd.ResolveLocalPaths(now); err != nil {
		return nil, err
	}
	if err := clientcmdapi.FlattenConfig(now); err != nil {
		return nil, err
	}
	is := now.Contexts[now.CurrentContext]
	cluster, user := now.Clusters[is.Cluster], now.AuthInfos[is.AuthInfo]
	if cluster == nil || user == nil {
		return nil, errors.New("the current context has no cluster or no user")
	}
	return kubeconfig.Virtual(namespace, name, *cluster, is.AuthInfo, user), nil
}
