package edge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/collector"
	"muster.dev/muster/collector/cluster"
	"muster.dev/muster/control/agent/facts"
	"muster.dev/muster/control/agent/kube"
	"muster.dev/muster/internal/backoff"
)

// namespaceFile tells a pod its own namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// discoveryFailing is the condition of what is in the way of discovery; True is bad.
const discoveryFailing = "DiscoveryFailing"

// inCluster is what a site that is a Kubernetes cluster has and a machine has not: its
// identity in a Secret, targets that are found, and facts of all its nodes.
type inCluster struct {
	conf    Kubernetes
	config  *rest.Config
	kube    kubernetes.Interface
	state   *secretState // nil: the state directory is kept by other means
	pair    *hostPair    // nil: no host metrics of our own
	watcher *cluster.Watcher

	mu      sync.Mutex
	facts   facts.Facts
	waiting string // for what, before the site starts
}

// waitsFor says for what the start waits; empty: for nothing.
func (in *inCluster) waitsFor() string {
	if in == nil {
		return ""
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.waiting
}

// discovered is what discovery found; nil if there is none.
func (in *inCluster) discovered() *cluster.Status {
	if in == nil || in.watcher == nil {
		return nil
	}
	st := in.watcher.Status()
	return &st
}

// newInCluster reaches the cluster of the config; nil if the config has none.
func newInCluster(c Config, env *role.Env) (*inCluster, error) {
	k := c.Kubernetes
	if !k.Enabled {
		return nil, nil //nolint:nilnil // no cluster
	}
	config, err := k.restConfig()
	if err != nil {
		return nil, err
	}
	if k.Namespace == "" {
		b, err := os.ReadFile(namespaceFile)
		if err != nil {
			return nil, fmt.Errorf("kubernetes.namespace: say which one is muster-edge's own, outside of a pod: %w", err)
		}
		k.Namespace = strings.TrimSpace(string(b))
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	in := &inCluster{conf: k, config: config, kube: kube}
	if k.StateSecret != "" {
		in.state = &secretState{secrets: kube.CoreV1().Secrets(k.Namespace), name: k.Namespace + "/" + k.StateSecret, dir: agentDir(c.StateDir), resetDir: resetDir(c.StateDir), log: env.Log}
	}
	if k.HostSecret != "" {
		in.pair = &hostPair{secrets: kube.CoreV1().Secrets(k.HostNamespace), namespace: k.HostNamespace, secret: k.HostSecret, log: env.Log,
			names: []string{hostServerName, "muster-edge." + k.Namespace + ".svc", "muster-edge." + k.Namespace}}
	}
	return in, nil
}

// restConfig reaches the site's own API server.
func (k *Kubernetes) restConfig() (*rest.Config, error) {
	var c *rest.Config
	var err error
	if k.Kubeconfig != "" {
		c, err = clientcmd.BuildConfigFromFlags("", k.Kubeconfig)
	} else {
		c, err = rest.InClusterConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("kubernetes: reach the cluster's API server: %w; in a pod leave kubernetes.kubeconfig empty, elsewhere name a file", err)
	}
	c.UserAgent, c.QPS, c.Burst = "muster-edge", 10, 20
	return c, nil
}

// workloads is what runs tenants' objects on the cluster; nil if the config has none.
func (in *inCluster) workloads(c Config, env *role.Env) (*kube.Kube, error) {
	if !in.conf.Workloads {
		return nil, nil //nolint:nilnil // the collector alone
	}
	return kube.New(kube.Options{Dir: kubeDir(c.StateDir), Config: in.config, MaxPods: in.conf.MaxPods, Address: in.conf.Address, VirtualHosts: in.conf.VirtualHosts, Logger: env.Log, Registerer: env.Reg})
}

// prepare brings back what must be there before the agent starts: the site's key, and
// with it its name. It waits for the API server, because a site that made itself another
// key would be another site.
func (in *inCluster) prepare(ctx context.Context, env *role.Env) error {
	if in.state == nil {
		return nil
	}
	return in.retry(ctx, env, "bring back the site's identity", in.state.restore)
}

// keep stores a key that was made just now, before anybody is told of it.
func (in *inCluster) keep(ctx context.Context, env *role.Env) error {
	if in.state == nil {
		return nil
	}
	return in.retry(ctx, env, "keep the site's identity", in.state.save)
}

// keeper stores a factory reset that has begun, or is over, beside the key; nil: the state
// directory is kept by other means.
func (in *inCluster) keeper(env *role.Env) func(context.Context) error {
	if in == nil || in.state == nil {
		return nil
	}
	return func(ctx context.Context) error { return in.keep(ctx, env) }
}

func (in *inCluster) retry(ctx context.Context, env *role.Env, what string, fn func(context.Context) error) error {
	say := func(waiting string) {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.waiting = waiting
	}
	defer say("")
	for failed := 0; ; failed++ {
		cctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		err := fn(cctx)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		wait := backoff.FullJitter(failed, time.Second, 30*time.Second)
		say(err.Error())
		env.Log.Warn("can't "+what+"; trying again", "err", err, "wait", wait.Round(time.Millisecond))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// siteName is a name that stays the same however often the pod is made anew: from the
// cluster itself.
func (in *inCluster) siteName(ctx context.Context) (string, error) {
	ns, err := in.kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("site: no name is set, and the cluster can't be asked for one: %w", err)
	}
	id := strings.ReplaceAll(string(ns.UID), "-", "")
	if len(id) < 8 {
		return "", errors.New("site: no name is set, and the namespace kube-system has no UID to make one from; set site")
	}
	return "cluster-" + id[:8], nil
}

// look asks for the nodes. What they are is the site's facts, not what this pod is.
func (in *inCluster) look(ctx context.Context) error {
	nodes, err := in.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("list the nodes: %w", err)
	}
	version, err := in.kube.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("ask for the cluster's version: %w", err)
	}
	list := make([]facts.Node, len(nodes.Items))
	for i := range nodes.Items {
		n := &nodes.Items[i]
		list[i] = facts.Node{
			Arch: n.Status.NodeInfo.Architecture, OSImage: n.Status.NodeInfo.OSImage, Kernel: n.Status.NodeInfo.KernelVersion, ProviderID: n.Spec.ProviderID,
			CPUs: int(n.Status.Capacity.Cpu().Value()), MemoryMiB: n.Status.Capacity.Memory().Value() >> 20,
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.facts = facts.OfCluster(list, version.GitVersion)
	return nil
}

// refreshed are today's facts, or the last ones if the cluster does not answer.
func (in *inCluster) refreshed() facts.Facts {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = in.look(ctx)
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.facts
}

// watch makes the watcher whose scrape configs go to col beside those of the config file.
func (in *inCluster) watch(c Config, col *collector.Collector, env *role.Env) error {
	if !in.conf.Discovery {
		return nil
	}
	o := cluster.Options{
		Config: in.config, Kubeconfig: in.conf.Kubeconfig, Namespace: in.conf.Namespace, TenantPods: in.conf.TenantPods, VerifyKubelets: in.conf.VerifyKubelets,
		ScaleKubeStateMetrics: in.conf.KubeStateMetrics, Every: in.conf.LookEvery, Logger: env.Log,
		Apply: func(jobs []any) error {
			all := c
			all.ScrapeConfigs = append(append([]any{}, c.ScrapeConfigs...), jobs...)
			b, err := all.scrapeYAML()
			if err != nil {
				return err
			}
			return col.Reload(b)
		},
	}
	if in.pair != nil && in.conf.HostMetrics {
		o.Hosts = in.pair.hosts
	}
	var err error
	in.watcher, err = cluster.New(o)
	return err
}

// run runs the parts until the role stops.
func (in *inCluster) run(env *role.Env) {
	if in.state != nil {
		env.Go("identity", in.state.run)
	}
	if in.pair != nil {
		env.Go("host key pair", in.pair.run)
	}
	if in.watcher != nil {
		env.Go("discovery", in.watcher.Run)
		env.Ops.Status("cluster", func() any { return in.watcher.Status() })
	}
}

// conditions of discovery.
func (in *inCluster) conditions() []collector.Condition {
	if in.watcher == nil {
		return nil
	}
	st := in.watcher.Status()
	if st.Looked.IsZero() && st.Error == "" {
		return nil
	}
	if reason, message := st.Summary(); reason != "" {
		return []collector.Condition{{Type: discoveryFailing, Status: "True", Reason: reason, Message: message}}
	}
	return []collector.Condition{{Type: discoveryFailing, Status: "False", Reason: "Found", Message: fmt.Sprintf("%d exporters are found beside kubelets and nodes", len(st.Found))}}
}

// probes serves readiness and health alone, for the kubelet: the rest of the ops pages
// is for who is on the machine.
func probes(ops http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /-/ready", ops)
	mux.Handle("GET /-/healthy", ops)
	return mux
}

// validate names the first field that can't work.
func (k *Kubernetes) validate() error {
	switch {
	case k.Workloads && !k.Enabled:
		return errors.New("kubernetes.workloads: needs kubernetes.enabled")
	case k.VirtualHosts && !k.Workloads:
		return errors.New("kubernetes.virtualHosts: needs kubernetes.workloads")
	case !k.Enabled:
		return nil
	case k.Address != "" && net.ParseIP(k.Address) == nil:
		return fmt.Errorf("kubernetes.address: %q: want an IP address", k.Address)
	case k.HostSecret != "" && k.HostNamespace == "":
		return errors.New("kubernetes.hostNamespace: say in which namespace hostSecret is")
	case k.HostMetrics && k.HostSecret == "":
		return errors.New("kubernetes.hostMetrics: needs kubernetes.hostSecret, whose key pair muster-edge shows to the nodes")
	case k.MaxPods < 1 || k.MaxPods > 100_000:
		return fmt.Errorf("kubernetes.maxPods: %d: want 1 to 100000", k.MaxPods)
	case strings.Contains(k.StateSecret, "/") || strings.Contains(k.HostSecret, "/"):
		return errors.New("kubernetes.stateSecret, kubernetes.hostSecret: want the name alone, without a namespace")
	}
	return nil
}
