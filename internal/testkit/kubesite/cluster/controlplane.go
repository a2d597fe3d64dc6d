package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
	cliflag "k8s.io/component-base/cli/flag"
	kubeapiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	cmoptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"muster.dev/muster/control/apiserver"
)

// startControlPlane starts etcd, the API server, the controller manager and the scheduler.
// What differs from a cluster as kubeadm makes it: they don't elect leaders, listen nowhere
// else, and have few workers.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	endpoint, _, err := apiserver.StartEtcd(ctx, filepath.Join(c.o.Dir, "etcd"), c.o.Logger)
	if err != nil {
		return err
	}
	saKey := filepath.Join(c.o.Dir, "pki", "service-account.key")
	if _, err := os.Stat(saKey); err != nil {
		pem, err := keyutil.MakeEllipticPrivateKeyPEM()
		if err != nil {
			return err
		}
		if err := keyutil.WriteKey(saKey, pem); err != nil {
			return err
		}
	}
	bound := c.door.Addr().(*net.TCPAddr)
	run, _, err := apiserver.Prepare(ctx, []string{
		"--etcd-servers=" + endpoint,
		"--bind-address=" + bound.IP.String(), "--secure-port=" + strconv.Itoa(bound.Port), "--advertise-address=10.89.0.1", "--endpoint-reconciler-type=none",
		"--tls-cert-file=" + c.ca.certFile("apiserver"), "--tls-private-key-file=" + c.ca.keyFile("apiserver"),
		"--client-ca-file=" + c.ca.certFile("ca"), "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local", "--service-account-key-file=" + saKey, "--service-account-signing-key-file=" + saKey,
		"--service-cluster-ip-range=10.96.0.0/16", "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-client-certificate=" + c.ca.certFile("kubelet-client"), "--kubelet-client-key=" + c.ca.keyFile("kubelet-client"), "--kubelet-certificate-authority=" + c.ca.certFile("ca"),
		"--profiling=false", "--shutdown-delay-duration=0s",
	}, c.door, nil, func(config *kubeapiserver.Config) {
		// Nodes have addresses of their own, which lead nowhere: they are all here.
		config.KubeAPIs.Extra.KubeletClientConfig.Lookup = func(egressselector.NetworkContext) (utilnet.DialFunc, error) { return c.dialNode, nil }
	})
	if err != nil {
		return fmt.Errorf("API server: %w", err)
	}
	go func() { c.end("API server", run(ctx)) }()
	if err := c.awaitServer(ctx); err != nil {
		return err
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	if err := c.startControllerManager(ctx, saKey); err != nil {
		return fmt.Errorf("controller manager: %w", err)
	}
	if err := c.startScheduler(ctx); err != nil {
		return fmt.Errorf("scheduler: %w", err)
	}
	return nil
}

func (c *Cluster) awaitServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		err := c.admin.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		if err == nil {
			return nil
		}
		select {
		case err := <-c.failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("the API server is not ready: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *Cluster) startControllerManager(ctx context.Context, saKey string) error {
	o, err := cmoptions.NewKubeControllerManagerOptions()
	if err != nil {
		return err
	}
	known, off, aliases := controllermanager.KnownControllers(), controllermanager.ControllersDisabledByDefault(), controllermanager.ControllerAliases()
	if err := parse(o.Flags(known, off, aliases), []string{
		"--kubeconfig=" + filepath.Join(c.o.Dir, "controller-manager.kubeconfig"),
		"--leader-elect=false", "--secure-port=0", "--profiling=false", "--use-service-account-credentials",
		"--service-account-private-key-file=" + saKey, "--root-ca-file=" + c.ca.certFile("ca"),
		"--controllers=*,-certificatesigningrequest-signing-controller,-certificatesigningrequest-approving-controller,-certificatesigningrequest-cleaner-controller," +
			"-node-ipam-controller,-node-route-controller,-service-lb-controller,-cloud-node-lifecycle-controller",
		"--concurrent-deployment-syncs=2", "--concurrent-replicaset-syncs=2", "--concurrent-statefulset-syncs=1", "--concurrent-job-syncs=2", "--concurrent-daemonset-syncs=1",
		"--concurrent-cron-job-syncs=1", "--concurrent-endpoint-syncs=1", "--concurrent-gc-syncs=4", "--concurrent-namespace-syncs=4", "--concurrent-resource-quota-syncs=2",
		"--concurrent-service-endpoint-syncs=1", "--concurrent-serviceaccount-token-syncs=2",
		"--kube-api-qps=200", "--kube-api-burst=400",
		"--node-monitor-period=1s", "--node-monitor-grace-period=" + nodeGrace.String(),
	}); err != nil {
		return err
	}
	if err := o.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	config, err := o.Config(ctx, known, off, aliases)
	if err != nil {
		return err
	}
	go func() { c.end("controller manager", controllermanager.Run(ctx, config.Complete())) }()
	return nil
}

func (c *Cluster) startScheduler(ctx context.Context) error {
	o := scheduleroptions.NewOptions()
	if err := parse(*o.Flags, []string{"--kubeconfig=" + filepath.Join(c.o.Dir, "scheduler.kubeconfig"), "--leader-elect=false", "--secure-port=0", "--profiling=false"}); err != nil {
		return err
	}
	if err := o.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	config, sched, err := scheduler.Setup(ctx, o)
	if err != nil {
		return err
	}
	go func() { c.end("scheduler", scheduler.Run(ctx, config, sched)) }()
	return nil
}

func parse(sets cliflag.NamedFlagSets, args []string) error {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		all.AddFlagSet(set)
	}
	return all.Parse(args)
}

// dialNode connects to a kubelet.
func (c *Cluster) dialNode(ctx context.Context, network, addr string) (net.Conn, error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	for _, n := range c.nodes {
		if n.ip != host {
			continue
		}
		return n.dial(ctx, network, net.JoinHostPort("127.0.0.1", p))
	}
	return nil, fmt.Errorf("no node has the address %s", host)
}
