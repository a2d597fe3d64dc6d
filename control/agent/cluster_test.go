package agent_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/fakeregional"
	"muster.dev/muster/internal/wire"
)

func quick(o *agent.Options) { o.MirrorEvery = time.Millisecond }

func agrees(t *testing.T, r *fakeregional.Regional, s *site, what string) {
	t.Helper()
	testkit.Eventually(t, what, func() error {
		has, told := s.Mirror(), r.Cluster(paris)
		e1, s1 := has.Version()
		e2, s2 := told.Version()
		if has.Stats() != told.Stats() || e1 != e2 || s1 != s2 {
			return fmt.Errorf("the site holds %.4s %d %+v, the regional %.4s %d %+v", e1, s1, has.Stats(), e2, s2, told.Stats())
		}
		return nil
	})
}

func TestWhatRunsOnTheSiteIsTold(t *testing.T) {
	r, s := fleetOf(t, quick)
	put := func(name string, bytes int) {
		s.Mirror().Put(&wire.Mirrored{Kind: "Pod", Namespace: "acme-shop", Name: name, Object: []byte(strings.Repeat("x", bytes))})
	}
	for i := range 50 {
		put(fmt.Sprint("web-", i), 5000)
	}
	time.Sleep(50 * time.Millisecond)
	if n := r.Seen(paris).Clusters; n != 0 {
		t.Errorf("%d messages before all is known", n)
	}
	s.Mirror().Begin()
	agrees(t, r, s, "all of it")
	put("web-0", 6000)
	s.Mirror().Drop("Pod/acme-shop/web-1")
	agrees(t, r, s, "a change")
	before := r.Seen(paris).Snapshots

	// The regional keeps what it holds over a broken stream: no snapshot.
	r.Stop()
	put("web-2", 7000)
	r.Restart()
	agrees(t, r, s, "after a broken stream")
	if n := r.Seen(paris).Snapshots; n != before {
		t.Errorf("%d messages of snapshots again", n-before)
	}
}

func TestTunnel(t *testing.T) {
	r, s := fleetOf(t, quick, func(o *agent.Options) {
		o.Tunnel = func(_ context.Context, conn net.Conn) {
			req, err := http.ReadRequest(bufio.NewReader(conn))
			if err != nil {
				return
			}
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nyou asked for %s", req.URL)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 40 { // more than there may be at once, one after the other
		conn, err := r.Dial(ctx, paris)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n")
		got, err := io.ReadAll(conn)
		if err != nil || !strings.Contains(string(got), "you asked for /api/v1/pods") {
			t.Fatalf("%q, %v", got, err)
		}
		conn.Close()
	}
	// One that is open ends with the agent.
	conn, err := r.Dial(ctx, paris)
	if err != nil {
		t.Fatal(err)
	}
	go s.stop()
	if _, err := io.ReadAll(conn); ctx.Err() != nil {
		t.Errorf("it is open though the agent is gone: %v", err)
	}
}
