package link

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

func echo(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	return ln.Addr().String()
}

func TestCutSwallowsAndRestoreForgets(t *testing.T) {
	addr := echo(t)
	var l Link
	c, err := l.DialContext(context.Background(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4)
	if _, err := c.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "ping" {
		t.Fatalf("%q %v", buf, err)
	}

	l.Cut()
	wrote := make(chan error, 1)
	go func() { _, err := c.Write([]byte("lost")); wrote <- err }()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.DialContext(ctx, "tcp", addr); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dial over a cut link: %v", err)
	}
	if len(wrote) != 0 {
		t.Error("a write over a cut link returned")
	}

	l.Restore()
	if err := <-wrote; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the old connection's write: %v", err)
	}
	c2, err := l.DialContext(context.Background(), "tcp", addr)
	if err != nil || l.IsCut() {
		t.Fatalf("dial after restore: %v", err)
	}
	c2.Close()
}
