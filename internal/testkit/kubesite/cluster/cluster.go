// Package cluster is a Kubernetes cluster in one process: the stock API server on an embedded
// etcd, the stock controller manager and scheduler, and a stock kubelet for each node, on a
// container runtime that only pretends (see containers). It keeps Kubernetes' process-wide
// state, so a process runs one, until it ends. Only the command beside it imports it: tests
// use package kubesite, which starts the command.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
)

// Options of a Cluster.
type Options struct {
	Dir    string // keeps everything; a cluster started on it again goes on where it was
	Nodes  int
	Prefix string // of the names of nodes: <Prefix>1, <Prefix>2
	Labels map[string]string
	Logger *slog.Logger
}

// Cluster is a running cluster.
type Cluster struct {
	o          Options
	ca         *authority
	door       *door
	host       string // HOST:PORT of the API server
	containers *containers
	nodes      []*node
	admin      *kubernetes.Clientset
	failed     chan error
}

// Start starts a cluster and returns when its nodes are ready and pods can be made.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	klog.SetSlogLogger(o.Logger)
	for _, d := range []string{"pki", "etcd", "containers"} {
		if err := os.MkdirAll(filepath.Join(o.Dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	c := &Cluster{o: o, failed: make(chan error, 8)}
	var err error
	if c.ca, err = openAuthority(filepath.Join(o.Dir, "pki")); err != nil {
		return nil, err
	}
	if c.door, err = listenAgain(filepath.Join(o.Dir, "address")); err != nil {
		return nil, err
	}
	c.host = c.door.Addr().String()
	if c.containers, err = newContainers(filepath.Join(o.Dir, "containers")); err != nil {
		return nil, err
	}
	if err := c.users(); err != nil {
		return nil, err
	}
	if err := c.startControlPlane(ctx); err != nil {
		return nil, err
	}
	for i := range o.Nodes {
		if err := c.startNode(ctx, i); err != nil {
			return nil, err
		}
	}
	err = c.awaitReady(ctx)
	debug.FreeOSMemory() // the start leaves garbage that the process would keep
	return c, err
}

// Failed gives the error of a part that has ended, which is the cluster's end.
func (c *Cluster) Failed() <-chan error { return c.failed }

// Kubeconfig is the administrator's.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.o.Dir, "admin.kubeconfig") }

// users makes the certificate and the kubeconfig of each who talks to the API server.
func (c *Cluster) users() error {
	if err := c.ca.issue("apiserver", "kube-apiserver", nil, []string{"127.0.0.1", "localhost", "10.96.0.1", "kubernetes.default.svc"}); err != nil {
		return err
	}
	for name, user := range map[string]struct {
		name   string
		groups []string
	}{
		"admin":              {"kubernetes-admin", []string{"system:masters"}},
		"controller-manager": {"system:kube-controller-manager", nil},
		"scheduler":          {"system:kube-scheduler", nil},
		"kubelet-client":     {"kube-apiserver-kubelet-client", []string{"system:masters"}},
	} {
		if err := c.ca.issue(name, user.name, user.groups, nil); err != nil {
			return err
		}
		if err := c.writeKubeconfig(name); err != nil {
			return err
		}
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return err
	}
	cfg.QPS = -1
	c.admin, err = kubernetes.NewForConfig(cfg)
	return err
}

func (c *Cluster) writeKubeconfig(name string) error {
	cert, err := os.ReadFile(c.ca.certFile(name))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(c.ca.keyFile(name))
	if err != nil {
		return err
	}
	k := clientcmdapi.NewConfig()
	k.Clusters["kubesite"] = &clientcmdapi.Cluster{Server: "https://" + c.host, CertificateAuthorityData: certPEM(c.ca.cert)}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	k.Contexts["kubesite"] = &clientcmdapi.Context{Cluster: "kubesite", AuthInfo: name}
	k.CurrentContext = "kubesite"
	return clientcmd.WriteToFile(*k, filepath.Join(c.o.Dir, name+".kubeconfig"))
}

// awaitReady waits for what a user of a cluster takes for granted.
func (c *Cluster) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		err := c.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case err := <-c.failed:
			return err
		case <-ctx.Done():
			return fmt.Errorf("the cluster is not ready: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *Cluster) ready(ctx context.Context) error {
	nodes, err := c.admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready := 0
	for _, n := range nodes.Items {
		for _, cond := range n.Status.Conditions {
			if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue && len(n.Spec.Taints) == 0 {
				ready++
			}
		}
	}
	if ready < c.o.Nodes {
		return fmt.Errorf("%d of %d nodes are ready", ready, c.o.Nodes)
	}
	_, err = c.admin.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
	return err
}

// door is a listener that can be shut, which ends all connections through it, and opened again.
type door struct {
	addr   net.Addr
	conns  connections
	mu     sync.Mutex
	ln     net.Listener
	opened chan struct{} // closed when it is open
}

// listenAgain listens on the address in a file, or on any and writes it there.
func listenAgain(file string) (*door, error) {
	addr := "127.0.0.1:0"
	if b, err := os.ReadFile(file); err == nil {
		addr = string(b)
	}
	ln, err := listen(addr)
	if err != nil {
		return nil, err
	}
	d := &door{addr: ln.Addr(), ln: ln, opened: make(chan struct{})}
	close(d.opened)
	return d, os.WriteFile(file, []byte(ln.Addr().String()), 0o600)
}

// listen waits a while for an address: who listened there may have been killed a moment ago,
// or a client may have the port.
func listen(addr string) (ln net.Listener, err error) {
	for range 100 {
		if ln, err = net.Listen("tcp", addr); err == nil {
			return ln, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, err
}

// set shuts the door, so that connections are refused, or opens it.
func (d *door) set(shut bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.opened:
		if !shut {
			return nil
		}
		d.opened = make(chan struct{})
		err := d.ln.Close()
		d.conns.set(true)
		return err
	default:
		if shut {
			return nil
		}
		ln, err := listen(d.addr.String())
		if err != nil {
			return err
		}
		d.ln = ln
		d.conns.set(false)
		close(d.opened)
		return nil
	}
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	for {
		d.mu.Lock()
		ln, opened := d.ln, d.opened
		d.mu.Unlock()
		<-opened
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			continue // shut, or opened again
		}
		if err != nil {
			return nil, err
		}
		if c := d.conns.add(conn); c != nil {
			return c, nil
		}
	}
}

// Addr implements net.Listener.
func (d *door) Addr() net.Addr { return d.addr }

// Close implements net.Listener. Only the end of the process closes it.
func (d *door) Close() error { return nil }

func (c *Cluster) node(name string) (*node, error) {
	for _, n := range c.nodes {
		if n.name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("no node %q", name)
}

// freePort is one that nobody listened on a moment ago.
func freePort() (int, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}

func (c *Cluster) config(kubeconfig string) (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", filepath.Join(c.o.Dir, kubeconfig))
}

// end reports the end of a part.
func (c *Cluster) end(part string, err error) {
	if err == nil {
		err = errors.New("it has ended")
	}
	c.failed <- fmt.Errorf("%s: %w", part, err)
}
