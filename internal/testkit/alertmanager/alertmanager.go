// Package alertmanager builds and runs the real Alertmanager and amtool, for what must
// work with one that is not embedded.
package alertmanager

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster.dev/muster/internal/testkit"
)

// Build makes a command of Alertmanager's module, alertmanager or amtool, from the
// module cache and with that module's own go.mod. It skips short tests: the first time
// it takes a minute.
func Build(t testing.TB, command string) string {
	t.Helper()
	if testing.Short() {
		t.Skipf("builds %s", command)
	}
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/prometheus/alertmanager").Output()
	if err != nil {
		t.Fatalf("where is Alertmanager's module: %v", err)
	}
	bin := filepath.Join(t.TempDir(), command)
	build := exec.Command("go", "build", "-o", bin, "./cmd/"+command)
	build.Dir, build.Env = strings.TrimSpace(string(dir)), append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", command, err, out)
	}
	return bin
}

// Start runs Alertmanager with a configuration file, which it reads again on
// POST /-/reload, and returns its URL. It ends with the test.
func Start(t testing.TB, configFile string) string {
	t.Helper()
	bin := Build(t, "alertmanager")
	addr := testkit.FreeAddr(t)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, bin, "--config.file="+configFile, "--storage.path="+t.TempDir(), "--web.listen-address="+addr, "--cluster.listen-address=")
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	t.Cleanup(func() {
		cancel()
		<-done
		if t.Failed() {
			t.Logf("Alertmanager wrote:\n%s", out)
		}
	})
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get("http://" + addr + "/-/ready")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return "http://" + addr
			}
		}
		select {
		case <-done:
			t.Fatalf("Alertmanager ended:\n%s", out)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("Alertmanager is not ready after 30 s: %v", err)
		}
	}
}

// output is what a process wrote, to be read while it runs.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
