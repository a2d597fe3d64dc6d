// Command demo is what `make demo-k8s` runs: the demo of bin/muster, and beside its simulated
// sites two that are Kubernetes clusters. Each joins as its admin would have it, with `muster
// token create` and `muster site manifest`, and runs what the demo's shop has for Europe and what
// else is applied to it. It stands here and not in the demo, so that no binary that ships knows of
// clusters for tests.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/testkit/kubesite"
	"muster.dev/muster/internal/testkit/senders"
)

// tenant is the demo's.
const tenant = "demo"

// places are where the clusters stand: cities that the demo has no simulated site in.
var places = []struct{ name, label, latitude, longitude string }{
	{"lille", "Lille, FR", "50.6300", "3.0600"},
	{"turin", "Turin, IT", "45.0700", "7.6900"},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	d := demo{out: os.Stdout}
	flag.StringVar(&d.bin, "bin", "bin", "directory of muster and muster-edge")
	flag.StringVar(&d.dir, "data-dir", ".muster", "the demo's data directory")
	flag.StringVar(&d.sites, "sites", "60", "number of the demo's own sites")
	flag.Parse()
	err := d.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo-k8s:", err)
		os.Exit(1)
	}
}

type demo struct {
	bin, dir, sites string
	stateMetrics    string // the program
	out             io.Writer
}

// run runs the demo and its clusters until ctx ends or one of them does.
func (d *demo) run(ctx context.Context) (err error) {
	if d.dir, err = filepath.Abs(d.dir); err != nil {
		return err
	}
	if d.bin, err = filepath.Abs(d.bin); err != nil {
		return err
	}
	// Before the demo takes both CPUs, and time counts.
	fmt.Fprintln(d.out, "  Building the clusters and kube-state-metrics, which takes some minutes the first time.")
	if _, err := kubesite.Build(); err != nil {
		return err
	}
	if d.stateMetrics, err = senders.KubeStateMetrics(); err != nil {
		return err
	}
	began := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop, err := start(cancel, os.Stdout, filepath.Join(d.bin, "muster"), "demo", "--data-dir", d.dir, "--sites", d.sites)
	if err != nil {
		return fmt.Errorf("%w; run `make build`", err)
	}
	defer stop() // after the sites, which say goodbye
	// The demo takes both CPUs to start; a cluster that starts meanwhile only holds it up.
	if err := eventually(ctx, "the demo's tenant", func() error {
		_, err := d.muster(ctx, "get", "virtualsites", "shared/europe", "-T", tenant)
		return err
	}); err != nil {
		return ended(ctx, err)
	}
	for i := range places {
		stop, err := d.site(ctx, cancel, i)
		if err != nil {
			return ended(ctx, fmt.Errorf("site %s: %w", places[i].name, err))
		}
		defer stop()
	}
	d.hint(time.Since(began))
	<-ctx.Done()
	return ended(ctx, ctx.Err())
}

// ended is why it ended: not an error if somebody wanted it to.
func ended(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return err
	case errors.Is(cause, context.Canceled):
		return nil
	default:
		return cause
	}
}

// site starts a cluster and makes it a site. What it is outlives the demo's end, as what the
// demo is does.
func (d *demo) site(ctx context.Context, cancel context.CancelCauseFunc, i int) (stop func(), err error) {
	name := places[i].name
	dir := filepath.Join(d.dir, "clusters", name)
	if err := os.MkdirAll(filepath.Join(dir, "kubernetes"), 0o700); err != nil {
		return nil, err
	}
	c, err := kubesite.Run(kubesite.Options{Nodes: 2, Prefix: "n", Dir: filepath.Join(dir, "kubernetes")})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.Kill()
		}
	}()
	token, err := d.token(ctx, filepath.Join(dir, "token"))
	if err != nil {
		return nil, err
	}
	manifest, err := d.muster(ctx, "site", "manifest", "--token", token, "--site", name, "--features", "workloads")
	if err != nil {
		return nil, err
	}
	admin, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	address, state, err := d.exportState(cancel, c.Kubeconfig, dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			state()
		}
	}()
	config, err := kubesite.Join(ctx, admin, manifest, token, filepath.Join(dir, "muster-edge"), address)
	if err != nil {
		return nil, err
	}
	edge, err := startLogged(cancel, filepath.Join(dir, "muster-edge.log"), filepath.Join(d.bin, "muster-edge"), "run", "--config", config)
	if err != nil {
		return nil, err
	}
	go func() {
		<-c.Exited()
		cancel(fmt.Errorf("the cluster of site %s has ended; its log is %s", name, filepath.Join(dir, "kubernetes", "log")))
	}()
	if err := eventually(ctx, "the site", func() error { return d.place(ctx, i) }); err != nil {
		edge()
		return nil, err
	}
	return func() { edge(); state(); c.Kill() }, nil
}

// exportState has a kube-state-metrics, which would run in the cluster if images did, tell of it at an address.
func (d *demo) exportState(cancel context.CancelCauseFunc, kubeconfig, dir string) (address string, stop func(), err error) {
	ports, err := freePorts(2)
	if err != nil {
		return "", nil, err
	}
	stop, err = startLogged(cancel, filepath.Join(dir, "kube-state-metrics.log"), d.stateMetrics, "--kubeconfig", kubeconfig,
		"--host", "127.0.0.1", "--port", ports[0], "--telemetry-host", "127.0.0.1", "--telemetry-port", ports[1])
	return net.JoinHostPort("127.0.0.1", ports[0]), stop, err
}

// freePorts are different ones of this machine that nobody listens at.
func freePorts(n int) (ports []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		ports = append(ports, port)
	}
	return ports, nil
}

// token returns the registration token of a site, which is kept for the next start.
func (d *demo) token(ctx context.Context, file string) (string, error) {
	if b, err := os.ReadFile(file); err == nil {
		return strings.TrimSpace(string(b)), nil
	}
	token, err := d.muster(ctx, "token", "create", "--auto-approve", "--label", "region=eu", "--label", "kind=cluster", "--token-only", "-T", tenant)
	if err != nil {
		return "", err
	}
	return token, atomicfile.Write(file, []byte(token+"\n"), 0o600)
}

// place puts a site on the map, as somebody would on the registrations page.
func (d *demo) place(ctx context.Context, i int) error {
	admin, err := clientcmd.BuildConfigFromFlags("", filepath.Join(d.dir, "admin.kubeconfig"))
	if err != nil {
		return err
	}
	c, err := dynamic.NewForConfig(admin)
	if err != nil {
		return err
	}
	p := places[i]
	patch := fmt.Sprintf(`{"metadata":{"labels":{"city":%q}},"spec":{"place":{"latitude":%q,"longitude":%q,"address":%q}}}`, p.name, p.latitude, p.longitude, p.label)
	_, err = c.Resource(schema.GroupVersionResource{Group: "muster.dev", Version: "v1alpha1", Resource: "sites"}).Namespace(tenant+"-system").
		Patch(ctx, p.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (d *demo) hint(took time.Duration) {
	var names []string
	for _, p := range places {
		names = append(names, p.name)
	}
	fmt.Fprintf(d.out, "\n  %s are Kubernetes clusters (%s after the start). What is applied runs there:\n\n"+
		"    %[3]s vk8s kubeconfig shop/vk8s > kc\n    kubectl --kubeconfig kc get pods -o wide\n"+
		"    kubectl --kubeconfig kc create deployment hello --image nginx:1.27\n    kubectl --kubeconfig %[4]s get pods -A\n\n",
		strings.Join(names, " and "), took.Round(100*time.Millisecond), filepath.Join(d.bin, "muster"), filepath.Join(d.dir, "clusters", names[0], "kubernetes", "admin.kubeconfig"))
}

// startLogged starts a process whose output goes to a file.
func startLogged(cancel context.CancelCauseFunc, file, program string, args ...string) (stop func(), err error) {
	log, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	return start(cancel, log, program, args...)
}

// start starts a process that is to run until stop; if it ends before, cancel is told.
func start(cancel context.CancelCauseFunc, out *os.File, program string, args ...string) (stop func(), err error) {
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	// Ctrl-C is for this process, which ends the others in their order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
		cancel(fmt.Errorf("%s has ended: %s", filepath.Base(program), cmd.ProcessState))
	}()
	return func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-exited
	}, nil
}

// muster runs one of its verbs on the demo.
func (d *demo) muster(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(d.bin, "muster"), append(args, "--data-dir", d.dir)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("muster %s: %w: %s", strings.Join(args[:2], " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// eventually asks once a second until it is so, for the minutes that a busy machine may take.
func eventually(ctx context.Context, what string, ok func() error) error {
	for deadline := time.Now().Add(5 * time.Minute); ; {
		err := ok()
		switch {
		case err == nil:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}
