package tunnel

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/testkit/tunnelpipe"
	"muster.dev/muster/internal/wire"
)

// HTTP goes over two hops and the one between them, in both directions, also much of it.
func TestHTTPOverSplicedStreams(t *testing.T) {
	agent, regionalA := tunnelpipe.New()
	regionalB, control := tunnelpipe.New()
	spliced := make(chan error, 1)
	go func() { spliced <- Splice(regionalA, regionalB) }()
	site := Conn(agent, "site", func() { agent.Cut() })
	go Serve(t.Context(), site, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})})

	conn := Conn(control, "control", func() { control.Cut() })
	body := make([]byte, 5<<20)
	_, _ = rand.Read(body)
	req, err := http.NewRequest(http.MethodPost, "http://site/echo", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = req.Write(conn) }()
	res, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(res.Body)
	if err != nil || !bytes.Equal(got, body) {
		t.Fatalf("%d bytes of %d came back, %v", len(got), len(body), err)
	}
	conn.Close()
	select {
	case err := <-spliced:
		if err != nil {
			t.Errorf("a tunnel that was closed: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the hop between does not notice that the tunnel is closed")
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read of a closed one: %v", err)
	}
}

func TestDeadline(t *testing.T) {
	a, b := tunnelpipe.New()
	conn := Conn(a, "x", func() { a.Cut() })
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%v", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	go func() { _ = b.Send(&wire.TunnelData{Data: []byte("hello")}) }()
	var got strings.Builder
	if _, err := io.CopyN(&got, conn, 5); err != nil || got.String() != "hello" {
		t.Errorf("after the deadline was taken away: %q, %v", got.String(), err)
	}
}
