package apiserver_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"muster.dev/muster/control/apiserver"
	"muster.dev/muster/internal/testkit/kubeapi"
)

// The API server keeps process-wide state, so what is told about its starts and
// ends is told with processes: the test binary again, as an API server on $serveDir.
const (
	serveDir    = "MUSTER_TEST_SERVE_DIR"
	serveListen = "MUSTER_TEST_SERVE_LISTEN" // unset: any port
	serveEtcd   = "MUSTER_TEST_SERVE_ETCD"   // an external etcd's endpoint
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(serveDir); dir != "" {
		os.Exit(serve(dir))
	}
	os.Exit(m.Run())
}

// serve runs an API server until standard input ends.
func serve(dir string) int {
	began := time.Now()
	s, err := kubeapi.Run(context.Background(), dir, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), func(o *apiserver.Options) {
		o.Listen = cmp.Or(os.Getenv(serveListen), o.Listen)
		if e := os.Getenv(serveEtcd); e != "" {
			o.Etcd.Endpoints = []string{e}
		}
	})
	if err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	fmt.Println("ready", time.Since(began).Milliseconds())
	_, _ = io.Copy(io.Discard, os.Stdin)
	began = time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	fmt.Println("stopped", time.Since(began).Milliseconds())
	return 0
}

type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	out   *bufio.Scanner
}

func start(t *testing.T, dir string, env ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(append(os.Environ(), serveDir+"="+dir), env...)
	p.cmd.Stderr = t.Output()
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin, p.out = stdin, bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	return p
}

// said returns what follows the word in the next line, which must begin with it.
func (p *process) said(word string) string {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.Fatalf("the process ended; want it to say %q", word)
	}
	rest, ok := strings.CutPrefix(p.out.Text(), word+" ")
	if !ok {
		p.t.Fatalf("it said %q, want %q", p.out.Text(), word)
	}
	return rest
}

func (p *process) stop() string {
	p.t.Helper()
	_ = p.stdin.Close()
	took := p.said("stopped")
	if err := p.cmd.Wait(); err != nil {
		p.t.Fatal(err)
	}
	return took
}

func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	_ = p.cmd.Wait()
}

func (p *process) rssKiB() int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); f[0] == "VmRSS:" {
			n, _ := strconv.Atoi(f[1])
			return n
		}
	}
	return 0
}

func clientOf(t *testing.T, dir string) kubernetes.Interface {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	return kubernetes.NewForConfigOrDie(cfg)
}

// What was acknowledged is there after a clean stop and after a kill -9, under the
// same administrator's token.
func TestRestartKeepsData(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	var token string
	for i, end := range []string{"stop", "kill", "stop"} {
		p := start(t, dir)
		ready := p.said("ready")
		b, err := os.ReadFile(filepath.Join(dir, "admin.token"))
		if err != nil {
			t.Fatal(err)
		}
		if token != "" && token != string(b) {
			t.Error("the administrator's token changed")
		}
		token = string(b)
		k := clientOf(t, dir)
		list, err := k.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{LabelSelector: "test=restart"})
		if err != nil || len(list.Items) != i {
			t.Errorf("start %d: %d objects, %v", i, len(list.Items), err)
		}
		if _, err := k.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "c" + strconv.Itoa(i), Labels: map[string]string{"test": "restart"}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		rss := p.rssKiB() / 1024
		if end == "kill" {
			p.kill()
			t.Logf("start %d: ready in %s ms, RSS %d MiB, killed", i, ready, rss)
		} else {
			t.Logf("start %d: ready in %s ms, RSS %d MiB, stopped in %s ms", i, ready, rss, p.stop())
		}
	}
}

// What is wrong with a data directory or a port is one line.
func TestStartsThatFail(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir)
	first.said("ready")
	refused := func(p *process, want ...string) {
		t.Helper()
		said := p.said("failed:")
		t.Log(said)
		for _, w := range want {
			if !strings.Contains(said, w) {
				t.Errorf("said %q, want %q", said, w)
			}
		}
		if p.out.Scan() {
			t.Errorf("a second line: %q", p.out.Text())
		}
	}
	refused(start(t, dir), " uses "+filepath.Join(dir, "apiserver")+"; stop it")
	first.stop()

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	refused(start(t, dir, serveListen+"="+ln.Addr().String()), "listen on "+ln.Addr().String(), "stop what holds it")

	damage := func(name string, data []byte) (repair func()) {
		t.Helper()
		name = filepath.Join(dir, "apiserver", name)
		good, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		write := func(b []byte) {
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(data)
		return func() { write(good) }
	}
	repair := damage("service-account.key", []byte("-----BEGIN EC PRIV"))
	refused(start(t, dir), "service-account.key is damaged")
	repair()
	for _, name := range []string{"etcd/data/member/snap/db", "etcd/data/member/wal/0000000000000000-0000000000000000.wal"} {
		repair := damage(name, []byte("this is no database of any kind, nor was it ever"))
		refused(start(t, dir), "etcd in "+filepath.Join(dir, "apiserver", "etcd"), "from a backup")
		repair()
	}

	// A file that was cut off as it was made is made anew.
	damage("service-account.key", nil)
	damage("tokens.csv", []byte("abc,muster:adm"))
	p := start(t, dir)
	p.said("ready")
	if _, err := clientOf(t, dir).CoreV1().Namespaces().Get(context.Background(), "default", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	p.stop()
}

// An etcd of one's own, and a data directory too deep for sockets in it.
func TestExternalEtcd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 25))
	endpoint, stop, err := apiserver.StartEtcd(t.Context(), filepath.Join(dir, "etcd"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	p := start(t, dir, serveEtcd+"="+endpoint)
	p.said("ready")
	if _, err := clientOf(t, dir).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "apiserver", "etcd")); err == nil {
		t.Error("an embedded etcd was started all the same")
	}
	p.stop()
}
