package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	cadvisorv2 "github.com/google/cadvisor/info/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/metrics/collectors"
	proberfake "k8s.io/kubernetes/pkg/kubelet/prober/testing"
	kubeletserver "k8s.io/kubernetes/pkg/kubelet/server"
	kubeletutil "k8s.io/kubernetes/pkg/kubelet/util"
	"k8s.io/kubernetes/pkg/util/oom"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/downwardapi"
	"k8s.io/kubernetes/pkg/volume/emptydir"
	"k8s.io/kubernetes/pkg/volume/hostpath"
	"k8s.io/kubernetes/pkg/volume/projected"
	"k8s.io/kubernetes/pkg/volume/secret"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/mount-utils"
)

// A node says every few seconds that it is there, and is taken for gone after nodeGrace:
// a fifth of what is usual, so that tests don't wait.
const (
	nodeLease = 8 * time.Second
	nodeGrace = 10 * time.Second
)

// node is a kubelet. Kubelets can't be stopped; they end with the process.
type node struct {
	name, ip string
	conns    connections // to and from it
}

func (n *node) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if c := n.conns.add(conn); c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("node %s: no route to host", n.name)
}

func (c *Cluster) startNode(ctx context.Context, i int) error {
	n := &node{name: c.o.Prefix + strconv.Itoa(i+1), ip: fmt.Sprintf("10.89.0.%d", 11+i)}
	c.nodes = append(c.nodes, n)
	if err := c.register(ctx, n); err != nil {
		return err
	}
	user := "system:node:" + n.name
	if err := c.ca.issue(user, user, []string{"system:nodes"}, []string{n.ip, n.name}); err != nil {
		return err
	}
	if err := c.writeKubeconfig(user); err != nil {
		return err
	}
	flags, config, err := c.kubeletConfig(n)
	if err != nil {
		return err
	}
	client, heartbeat, events, err := c.kubeletClients(n, user+".kubeconfig")
	if err != nil {
		return err
	}
	auth, reload, err := kubeletapp.BuildAuth(types.NodeName(n.name), client, *config)
	if err != nil {
		return err
	}
	go reload(ctx.Done())
	v := &view{containers: c.containers, node: n.name, ips: fmt.Sprintf("10.244.%d.", i+1)}
	deps := &kubelet.Dependencies{
		Auth: auth, KubeClient: client, HeartbeatClient: heartbeat, EventClient: events.CoreV1(),
		RemoteRuntimeService: v, RemoteImageService: &imageView{v},
		ProbeManager:      probes{},
		CAdvisorInterface: &machine{Fake: cadvisortest.Fake{NodeName: n.name}}, ContainerManager: &resources{cm.NewStubContainerManager(), c.containers},
		OSInterface: system{}, Mounter: &mount.FakeMounter{}, Subpather: &subpath.FakeSubpath{}, HostUtil: hostutil.NewFakeHostUtil(nil), OOMAdjuster: oom.NewFakeOOMAdjuster(),
		VolumePlugins: plugins(), TLSOptions: &kubeletserver.TLSOptions{Config: &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert}, CertFile: c.ca.certFile(user), KeyFile: c.ca.keyFile(user)},
		PodStartupLatencyTracker: kubeletutil.NewPodStartupLatencyTracker(), NodeStartupLatencyTracker: kubeletutil.NewNodeStartupLatencyTracker(), TracerProvider: noop.NewTracerProvider(),
	}
	// A kubelet reads there that the machine has killed something, and doesn't start
	// without; with a recorder that keeps nothing it does, but then nobody sees events.
	if f, err := os.Open("/dev/kmsg"); err != nil {
		c.o.Logger.Warn("kubelets report no events", "err", err)
		deps.Recorder = &record.FakeRecorder{}
	} else {
		_ = f.Close()
	}
	if err := kubeletapp.RunKubelet(ctx, &options.KubeletServer{KubeletFlags: *flags, KubeletConfiguration: *config}, deps); err != nil {
		return fmt.Errorf("kubelet %s: %w", n.name, err)
	}
	return forgetMetrics(ctx)
}

// register makes the node's object before its kubelet would, with an address: a kubelet
// finds out its own from the machine's, and here they would all have the same.
func (c *Cluster) register(ctx context.Context, n *node) error {
	obj := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: map[string]string{
		corev1.LabelHostname: n.name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}}}
	for k, v := range c.o.Labels {
		obj.Labels[k] = v
	}
	nodes := c.admin.CoreV1().Nodes()
	_, err := nodes.Create(ctx, obj, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":%q},{"type":"Hostname","address":%q}]}}`, n.ip, n.name)
	_, err = nodes.Patch(ctx, n.name, "application/strategic-merge-patch+json", []byte(patch), metav1.PatchOptions{}, "status")
	return err
}

func (c *Cluster) kubeletConfig(n *node) (*options.KubeletFlags, *kubeletconfig.KubeletConfiguration, error) {
	root := filepath.Join(c.o.Dir, n.name)
	flags := options.NewKubeletFlags()
	flags.RootDirectory = root
	flags.CertDirectory = filepath.Join(root, "pki")
	flags.HostnameOverride = n.name
	flags.CloudProvider = "external" // the addresses are not its business
	flags.MaxContainerCount = 100
	flags.MaxPerPodContainerCount = 2
	config, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, nil, err
	}
	kubeletPort, err := freePort()
	if err != nil {
		return nil, nil, err
	}
	config.Address = "127.0.0.1"
	config.Port = int32(kubeletPort)
	config.ReadOnlyPort, config.HealthzPort = 0, 0
	config.PodLogsDir = filepath.Join(root, "logs")
	config.Authentication.X509.ClientCAFile = c.ca.certFile("ca")
	config.NodeLeaseDurationSeconds = int32(nodeLease / time.Second)
	config.NodeStatusUpdateFrequency.Duration = nodeLease / 2
	config.SyncFrequency.Duration = 5 * time.Second // what a container waits for is seen only at the sync after
	config.EvictionHard = map[string]string{}
	config.EnforceNodeAllocatable = nil
	config.CgroupsPerQOS = false
	config.EnableControllerAttachDetach = false
	config.MakeIPTablesUtilChains = false
	config.LocalStorageCapacityIsolation = true
	config.RegisterNode = true
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return nil, nil, err
	}
	config.MaxOpenFiles = int64(files.Cur) // as it is: it would be set for the process
	config.ResolverConfig = ""
	config.ClusterDNS = []string{"10.96.0.10"}
	config.ClusterDomain = "cluster.local"
	return flags, config, nil
}

func (c *Cluster) kubeletClients(n *node, kubeconfig string) (client, heartbeat, events *kubernetes.Clientset, err error) {
	cfg, err := c.config(kubeconfig)
	if err != nil {
		return nil, nil, nil, err
	}
	cfg.Dial = n.dial
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.UserAgent = "kubelet"
	cfg.QPS, cfg.Burst = 50, 100
	if client, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, nil, nil, err
	}
	beat := rest.CopyConfig(cfg)
	beat.QPS, beat.Timeout = -1, nodeLease
	if heartbeat, err = kubernetes.NewForConfig(beat); err != nil {
		return nil, nil, nil, err
	}
	events, err = kubernetes.NewForConfig(rest.CopyConfig(cfg))
	return client, heartbeat, events, err
}

// forgetMetrics takes a kubelet's metrics out of the process's registry, as soon as they are
// in it: it has room for one kubelet's, and the next would panic. Nobody reads them.
func forgetMetrics(ctx context.Context) error {
	all := []metrics.StableCollector{collectors.NewVolumeStatsCollector(nil), collectors.NewLogMetricsCollector(nil)}
	metrics.NewKubeRegistry().CustomMustRegister(all...)
	registry, ok := legacyregistry.DefaultGatherer.(metrics.KubeRegistry)
	if !ok {
		return errors.New("the registry of metrics is none of Kubernetes'")
	}
	for _, collector := range all {
		for !prometheus.Unregister(collector) {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(5 * time.Millisecond):
			}
		}
		registry.Unregister(collector)
	}
	return nil
}

// machine is what a node's machine is.
type machine struct{ cadvisortest.Fake }

// MachineInfo implements cadvisor.Interface.
func (m *machine) MachineInfo() (*cadvisorapi.MachineInfo, error) {
	return &cadvisorapi.MachineInfo{NumCores: 8, MemoryCapacity: 16 << 30, MachineID: m.NodeName, SystemUUID: m.NodeName, BootID: m.NodeName, InstanceID: cadvisorapi.InstanceID(m.NodeName)}, nil
}

// ContainerInfoV2 implements cadvisor.Interface: the kubelet asks for what the whole machine uses.
func (m *machine) ContainerInfoV2(name string, _ cadvisorv2.RequestOptions) (map[string]cadvisorv2.ContainerInfo, error) {
	now := time.Now()
	return map[string]cadvisorv2.ContainerInfo{name: {Spec: cadvisorv2.ContainerSpec{CreationTime: now}, Stats: []*cadvisorv2.ContainerStats{{Timestamp: now}}}}, nil
}

// RootFsInfo implements cadvisor.Interface.
func (m *machine) RootFsInfo() (cadvisorv2.FsInfo, error) {
	free := uint64(1 << 20)
	return cadvisorv2.FsInfo{Timestamp: time.Now(), Device: "disk", Mountpoint: "/", Capacity: diskSize, Available: diskSize - 1<<30, Usage: 1 << 30, Inodes: &free, InodesFree: &free}, nil
}

// ImagesFsInfo implements cadvisor.Interface.
func (m *machine) ImagesFsInfo(context.Context) (cadvisorv2.FsInfo, error) { return m.RootFsInfo() }

// ContainerFsInfo implements cadvisor.Interface.
func (m *machine) ContainerFsInfo(context.Context) (cadvisorv2.FsInfo, error) { return m.RootFsInfo() }

// GetDirFsInfo implements cadvisor.Interface.
func (m *machine) GetDirFsInfo(string) (cadvisorv2.FsInfo, error) { return m.RootFsInfo() }

// VersionInfo implements cadvisor.Interface.
func (m *machine) VersionInfo() (*cadvisorapi.VersionInfo, error) {
	return &cadvisorapi.VersionInfo{KernelVersion: "6.12.0", ContainerOsVersion: "Pretended Linux"}, nil
}

// diskSize of a node, in bytes.
const diskSize = 100 << 30

// resources tells the container runtime of pods, and the node of its disk.
type resources struct {
	cm.ContainerManager
	containers *containers
}

// GetResources implements cm.ContainerManager; it is asked before each container is made.
func (r *resources) GetResources(ctx context.Context, pod *corev1.Pod, container *corev1.Container) (*kubecontainer.RunContainerOptions, error) {
	r.containers.learn(pod)
	return r.ContainerManager.GetResources(ctx, pod, container)
}

// GetCapacity implements cm.ContainerManager.
func (r *resources) GetCapacity(bool) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceEphemeralStorage: *resource.NewQuantity(diskSize, resource.BinarySI)}
}

// probes finds whatever runs ready: there is nothing to connect to.
type probes struct{ proberfake.FakeManager }

// UpdatePodStatus implements prober.Manager.
func (probes) UpdatePodStatus(_ context.Context, pod *corev1.Pod, status *corev1.PodStatus) {
	for i := range status.ContainerStatuses {
		s := &status.ContainerStatuses[i]
		s.Ready = s.State.Running != nil
		s.Started = &s.Ready
	}
	for i := range status.InitContainerStatuses {
		s := &status.InitContainerStatuses[i]
		started := s.State.Running != nil
		s.Started = &started
		if endsByItself(pod, s.Name) {
			s.Ready = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		} else {
			s.Ready = started
		}
	}
}

// system is the machine's, without the links that a kubelet leaves in its /var/log.
type system struct{ kubecontainer.RealOS }

// Symlink implements kubecontainer.OSInterface.
func (system) Symlink(string, string) error { return nil }

// Glob implements kubecontainer.OSInterface.
func (system) Glob(string) ([]string, error) { return nil, nil }

// MkdirAll implements kubecontainer.OSInterface.
func (s system) MkdirAll(path string, perm os.FileMode) error {
	if path == kubelet.ContainerLogsDir {
		return nil
	}
	return s.RealOS.MkdirAll(path, perm)
}

func plugins() []volume.VolumePlugin {
	var out []volume.VolumePlugin
	for _, some := range [][]volume.VolumePlugin{
		emptydir.ProbeVolumePlugins(), secret.ProbeVolumePlugins(), configmap.ProbeVolumePlugins(), projected.ProbeVolumePlugins(),
		downwardapi.ProbeVolumePlugins(), hostpath.FakeProbeVolumePlugins(volume.VolumeConfig{}),
	} {
		out = append(out, some...)
	}
	return out
}
