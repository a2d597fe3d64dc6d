// Package elasticsearch starts a real Elasticsearch for tests: the published Java
// artifacts of the version that Muster is built against, one process a node, on
// loopback ports that the node chooses itself.
//
// These artifacts are Elasticsearch's server without the parts that only a
// distribution adds: no index lifecycle management, no data streams, no ingest
// processors, no Painless scripts, no reindex and no delete-by-query, no security,
// and GET / answers 405. Whatever passes here works with a distribution too; the
// other way round only what keeps clear of that list.
//
// Only tests call it. It never skips: a machine without Java or Maven fails the
// test with the one command that installs them.
package elasticsearch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startTimeout is generous: on a busy machine with two cores a node takes 30 s.
const startTimeout = 3 * time.Minute

// Options of a node. The zero value asks for the node that all tests of a binary
// share; anything set makes a node of the test's own, stopped when the test ends.
type Options struct {
	// Name of the node and of its cluster; default "muster-test".
	Name string
	// Remotes are clusters that this one may search across: name → Transport of one
	// of their nodes. All have skip_unavailable set.
	Remotes map[string]string
	// Settings are any other settings of Elasticsearch, over the defaults.
	Settings map[string]string
	// Private asks for a node of one's own though nothing else is set: for tests that
	// kill it, or that count what is in it.
	Private bool
	// Optimize lets Java compile hot code fully, and gives it 2 GiB instead of 512 MiB:
	// for benchmarks. Left out, the node starts in half the time.
	Optimize bool
}

// Node is one running Elasticsearch, a cluster of its own.
type Node struct {
	URL       string // of its HTTP API: http://127.0.0.1:PORT
	Transport string // host:port for Options.Remotes of another

	opts                Options
	home                string
	dir                 string // artifacts
	httpPort, transport string
	mu                  sync.Mutex
	stdin               io.WriteCloser
	proc                *os.Process
	exited              chan struct{}
	exitErr             error
}

// shared is the node of this test binary. It ends with the process: see Launcher.java.
var shared struct {
	sync.Once
	node *Node
	err  error
}

// Start returns a running node, or fails the test.
func Start(t testing.TB, opts Options) *Node {
	t.Helper()
	if !opts.Private && opts.Name == "" && len(opts.Remotes) == 0 && len(opts.Settings) == 0 && !opts.Optimize {
		shared.Do(func() { shared.node, shared.err = start(opts) })
		if shared.err != nil {
			t.Fatal(shared.err)
		}
		return shared.node
	}
	n, err := start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.kill()
		if err := os.RemoveAll(n.home); err != nil {
			t.Errorf("remove the home of Elasticsearch: %v", err)
		}
	})
	return n
}

// Kill ends the node at once, as kill -9 does. Its data stays for Restart. Only for
// a node of the test's own.
func (n *Node) Kill(t testing.TB) {
	t.Helper()
	n.mustBeOwn(t)
	n.kill()
}

// Restart starts the node again on its data and its ports, after Kill.
func (n *Node) Restart(t testing.TB) {
	t.Helper()
	n.mustBeOwn(t)
	n.kill()
	if err := n.run(); err != nil {
		t.Fatal(err)
	}
}

// Log returns what the node wrote to its standard output and error.
func (n *Node) Log() string {
	data, _ := os.ReadFile(filepath.Join(n.home, "output.txt"))
	return string(data)
}

func (n *Node) mustBeOwn(t testing.TB) {
	if n == shared.node {
		t.Fatal("the shared Elasticsearch must live on for other tests: start one with Options.Private")
	}
}

func start(opts Options) (*Node, error) {
	if opts.Name == "" {
		opts.Name = "muster-test"
	}
	dir, err := artifacts()
	if err != nil {
		return nil, err
	}
	home, err := os.MkdirTemp("", "muster-elasticsearch-*")
	if err != nil {
		return nil, err
	}
	n := &Node{opts: opts, home: home, dir: dir, httpPort: "0", transport: "0"}
	for _, sub := range []string{"config", "plugins", "modules", "logs"} {
		if err := os.MkdirAll(filepath.Join(home, sub), 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.Symlink(filepath.Join(dir, netty), filepath.Join(home, netty)); err != nil {
		return nil, err
	}
	source, err := launcher.ReadFile("launcher/Launcher.java")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(home, "Launcher.java"), source, 0o644); err != nil {
		return nil, err
	}
	if err := n.run(); err != nil {
		os.RemoveAll(home)
		return nil, err
	}
	return n, nil
}

func (n *Node) args() []string {
	settings := map[string]string{
		"node.name":             n.opts.Name,
		"cluster.name":          n.opts.Name,
		"discovery.type":        "single-node",
		"network.host":          "127.0.0.1",
		"http.port":             n.httpPort,
		"transport.port":        n.transport,
		"node.portsfile":        "true", // says in logs/ which ports it took
		"node.store.allow_mmap": "false",
		"node.processors":       "2",
		"cluster.routing.allocation.disk.threshold_enabled": "false",
	}
	for name, seed := range n.opts.Remotes {
		settings["cluster.remote."+name+".seeds"] = seed
		settings["cluster.remote."+name+".skip_unavailable"] = "true"
	}
	for k, v := range n.opts.Settings {
		settings[k] = v
	}
	args := []string{"-Xms2g", "-Xmx2g", "-XX:+UseSerialGC"}
	if !n.opts.Optimize {
		args = []string{"-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}
	}
	args = append(args, "-Des.distribution.type=zip",
		"-p", filepath.Join(n.dir, "lib"), "--add-modules", "ALL-MODULE-PATH,jdk.net", "Launcher.java", n.home)
	for k, v := range settings {
		args = append(args, k+"="+v)
	}
	return args
}

// run starts the process and waits until the node answers.
func (n *Node) run() error {
	for _, f := range []string{"http.ports", "transport.ports"} {
		os.Remove(filepath.Join(n.home, "logs", f))
	}
	out, err := os.OpenFile(filepath.Join(n.home, "output.txt"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command("java", n.args()...)
	cmd.Dir = n.home
	cmd.Stdout, cmd.Stderr = out, out
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	started, exited := make(chan error, 1), make(chan struct{})
	go func() {
		// The kernel ties the child's life to the thread that started it, so this
		// one must not end before the child does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			n.exitErr = cmd.Wait()
			close(exited)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start Elasticsearch: %w", err)
	}
	n.mu.Lock()
	n.stdin, n.proc, n.exited = stdin, cmd.Process, exited
	n.mu.Unlock()
	if err := n.waitReady(exited); err != nil {
		n.kill()
		return fmt.Errorf("%w; its last words:\n%s", err, tail(n.Log(), 3000))
	}
	return nil
}

func (n *Node) waitReady(exited chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-exited:
			return fmt.Errorf("Elasticsearch ended while starting: %w", n.exitErr)
		case <-ctx.Done():
			return fmt.Errorf("Elasticsearch was not ready within %s", startTimeout)
		case <-tick.C:
		}
		if err := n.ready(ctx); err == nil {
			return nil
		}
	}
}

func (n *Node) ready(ctx context.Context) error {
	httpAddr, err := n.port("http")
	if err != nil {
		return err
	}
	transportAddr, err := n.port("transport")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+httpAddr+"/_cluster/health?wait_for_status=yellow&timeout=5s", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	n.URL, n.Transport = "http://"+httpAddr, transportAddr
	_, n.httpPort, _ = strings.Cut(httpAddr, ":")
	_, n.transport, _ = strings.Cut(transportAddr, ":")
	return nil
}

// port reads the loopback address out of the file that the node writes once bound.
func (n *Node) port(kind string) (string, error) {
	data, err := os.ReadFile(filepath.Join(n.home, "logs", kind+".ports"))
	if err != nil {
		return "", err
	}
	for line := range bytes.Lines(data) {
		if addr := strings.TrimSpace(string(line)); strings.HasPrefix(addr, "127.0.0.1:") {
			return addr, nil
		}
	}
	return "", fmt.Errorf("no loopback address in %s.ports: %q", kind, data)
}

func (n *Node) kill() {
	n.mu.Lock()
	proc, exited, stdin := n.proc, n.exited, n.stdin
	n.mu.Unlock()
	if proc == nil {
		return
	}
	_ = proc.Kill()
	<-exited
	_ = stdin.Close()
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}
