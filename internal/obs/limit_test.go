package obs

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) { b.mu.Lock(); defer b.mu.Unlock(); return b.b.Write(p) }
func (b *buffer) String() string              { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out buffer
		l := slog.New(Limit(slog.NewTextHandler(&out, nil), time.Minute))
		for range 100 {
			l.Warn("same", "peer", 1)
			l.With("rule", "a").Warn("same")
			l.With("rule", "b").Warn("same")
			l.Info("same")
		}
		if n := strings.Count(out.String(), "\n"); n != 4 {
			t.Errorf("%d lines, want one of each kind:\n%s", n, out.String())
		}
		time.Sleep(time.Minute)
		l.Warn("same")
		if s := out.String(); !strings.HasSuffix(s, "left_out=99\n") {
			t.Errorf("the last line does not say how many were left out:\n%s", s)
		}
		for i := range 10_000 {
			l.Warn(strings.Repeat("x", i))
		}
		if h := l.Handler().(*limited); len(h.every.kinds) > maxKinds {
			t.Errorf("%d kinds are remembered", len(h.every.kinds))
		}
	})
}

func TestLimitWarnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out buffer
		l := slog.New(LimitWarnings(slog.NewTextHandler(&out, nil), time.Minute))
		for range 3 {
			l.Info("info")
			l.With("group", "a").Warn("same")
			l.With("group", "b").WithGroup("g").Warn("same")
			l.Error("same")
		}
		if got := out.String(); strings.Count(got, "level=INFO") != 3 || strings.Count(got, "level=WARN") != 1 || strings.Count(got, "level=ERROR") != 1 {
			t.Error(got)
		}
		time.Sleep(time.Minute)
		l.With("group", "c").Warn("same")
		if s := out.String(); !strings.HasSuffix(s, "group=c left_out=5\n") {
			t.Errorf("the last line does not say how many were left out:\n%s", s)
		}
	})
}

// A handler's panic is an error with its stack, whoever asked; a peer that is no HTTP
// client is a warning.
func TestServerLog(t *testing.T) {
	var out buffer
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("assignment to entry in nil map") }))
	srv.Config.ErrorLog = ServerLog(slog.New(slog.NewTextHandler(&out, nil)))
	srv.StartTLS()
	defer srv.Close()
	for range 5 {
		if resp, err := srv.Client().Get(srv.URL); err == nil {
			resp.Body.Close()
			t.Fatal("the handler did not panic")
		}
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
		_, _ = io.Copy(io.Discard, conn)
		conn.Close()
	}
	srv.Close()
	s := out.String()
	if strings.Count(s, "level=ERROR") != 1 || !strings.Contains(s, "assignment to entry in nil map") || !strings.Contains(s, "limit_test.go") {
		t.Errorf("the panic:\n%s", s)
	}
	if n := strings.Count(s, "level=WARN"); n != 1 {
		t.Errorf("%d warnings of five peers:\n%s", n, s)
	}
}
