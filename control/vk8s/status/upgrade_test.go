package status

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// exec asks for a session with a pod of paris, and returns what comes.
func exec(t *testing.T, host string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(host, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprintf(conn, "POST /api/v1/namespaces/%s/pods/db-0-paris/exec?command=sh HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\nContent-Length: 0\r\n\r\n", shop)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// A site that is asked for a session and answers without end, or with an answer that is none,
// is heard no further than a session's beginning is long.
func TestSessionsThatNeverBegin(t *testing.T) {
	const enough = 32 << 20 // of what a site says before the test gives up
	for name, answer := range map[string][2]string{
		"headers": {"HTTP/1.1 101 Switching Protocols\r\n", "X-A: " + strings.Repeat("a", 1000) + "\r\n"},
		"a line":  {"HTTP/1.1 101 ", strings.Repeat("a", 1000)},
		"a body":  {"HTTP/1.1 500 Internal Server Error\r\n\r\n", strings.Repeat("a", 1000)},
		"two":     {"HTTP/1.1 500 \r\n\r\nHTTP/1.1 101 \r\n\r\n", strings.Repeat("a", 1000)},
	} {
		t.Run(name, func(t *testing.T) {
			var said atomic.Int64
			ended := make(chan struct{})
			cfg := serve(t, twoSites(t), tunnelSite(t, func(w http.ResponseWriter, _ *http.Request) {
				defer close(ended)
				conn, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				_, _ = io.WriteString(conn, answer[0])
				for said.Load() < enough {
					n, err := io.WriteString(conn, answer[1])
					if said.Add(int64(n)); err != nil {
						return
					}
				}
			}))
			resp := exec(t, cfg.Host)
			_, _ = io.Copy(io.Discard, resp.Body)
			<-ended
			if resp.StatusCode < 500 {
				t.Errorf("%+v", resp)
			}
			if n := said.Load(); n >= enough { // the rest of what it wrote is in the sockets
				t.Errorf("%d MB were heard", n>>20)
			}
		})
	}
}

// A session that began takes as long, and as much, as it likes.
func TestSessionThatBegan(t *testing.T) {
	const much = 20 * upgradeBytes
	for name, parts := range map[string][]string{
		"at once":  {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n" + strings.Repeat("x", much)},
		"in parts": {"HTTP/1.1 101 S\r\nUpgrade: echo\r\nConnection: Upgrade\r\n", "\r", "\n", strings.Repeat("x", much)},
		"bare":     {"HTTP/1.1 101 S\nUpgrade: echo\nConnection: Upgrade\n", "\n", strings.Repeat("x", much)},
	} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			go func() {
				for _, part := range parts {
					_, _ = io.WriteString(far, part)
				}
				time.Sleep(time.Hour)
				_, _ = io.WriteString(far, "y")
				_ = far.Close()
			}()
			b, err := io.ReadAll(newUpgrading(near))
			if want := len(strings.Join(parts, "")) + 1; err != nil || len(b) != want {
				t.Errorf("%s: %d of %d bytes, %v", name, len(b), want, err)
			}
		})
	}
}

// One that begins too slowly is over, however little it says.
func TestSessionThatBeginsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		began, done := time.Now(), make(chan struct{})
		go func() {
			defer close(done)
			_, err := io.WriteString(far, "HTTP/1.1 101 S\r\nX: ")
			for err == nil && time.Since(began) < time.Hour {
				time.Sleep(time.Second)
				_, err = io.WriteString(far, "a")
			}
		}()
		_, err := io.ReadAll(newUpgrading(near))
		took := time.Since(began)
		_ = near.Close()
		<-done
		if !errors.Is(err, os.ErrDeadlineExceeded) || took != upgradeTime {
			t.Errorf("after %s: %v", took, err)
		}
	})
}
