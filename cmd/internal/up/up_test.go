package up

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster.dev/muster/internal/testkit"
)

// The test binary is its own child: with UP_CHILD set it serves /ready on the
// given address until it is told to stop.
func TestMain(m *testing.M) {
	addr := os.Getenv("UP_CHILD")
	if addr == "" {
		os.Exit(m.Run())
	}
	if os.Getenv("UP_DEAF") != "" {
		signal.Ignore(syscall.SIGTERM)
	}
	fmt.Println("hello from", addr)
	if err := http.ListenAndServe(addr, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) { b.mu.Lock(); defer b.mu.Unlock(); return b.b.Write(p) }
func (b *buffer) String() string              { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

func child(t *testing.T, name string, env []string, after ...string) Process {
	addr := testkit.FreeAddr(t)
	return Process{Name: name, Args: []string{"-test.run=^$"}, Env: append(env, "UP_CHILD="+addr), Ready: "http://" + addr + "/ready", After: after}
}

func TestOrderRestartAndStop(t *testing.T) {
	var out buffer
	dir := t.TempDir()
	opts := Options{Dir: dir, Out: &out, Log: slog.New(slog.DiscardHandler), MinBackoff: 10 * time.Millisecond, MaxBackoff: 20 * time.Millisecond, StopTimeout: 3 * time.Second}
	s, err := New(opts, []Process{child(t, "second", nil, "first"), child(t, "first", nil), child(t, "deaf", []string{"UP_DEAF=1"})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(opts, nil); err == nil || !strings.Contains(err.Error(), " uses "+dir) {
		t.Errorf("a second supervisor on the same directory: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for _, name := range []string{"first", "second", "deaf"} {
		select {
		case <-s.Ready(name):
		case <-time.After(20 * time.Second):
			t.Fatalf("%s never ready; output:\n%s", name, out.String())
		}
	}
	log := out.String()
	if a, b := strings.Index(log, "first  | hello"), strings.Index(log, "second | hello"); a < 0 || b < a {
		t.Errorf("second was not started after first was ready:\n%s", log)
	}

	old := s.PIDs()["first"]
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyTrue(t, "first is restarted", func() bool { p := s.PIDs()["first"]; return p != 0 && p != old })

	pids := s.PIDs()
	began := time.Now()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 2*opts.StopTimeout {
		t.Errorf("stop took %s", took)
	}
	for name, pid := range pids {
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("%s is still running", name)
		}
	}
	again, err := New(opts, nil)
	if err != nil {
		t.Fatalf("the directory was not given back: %v", err)
	}
	_ = again.lock.Close()
}
