package strangers

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"muster.dev/muster/internal/testkit"
)

// Peers of one address that say nothing take no more than their part; who shows who it is
// stays, as long as it likes, and so does who is exempt.
func TestDoor(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	isExempt := make(chan bool, 100)
	d := NewDoor(ln, Bounds{Max: 8, PerHost: 4, Life: 500 * time.Millisecond}, func(net.Addr) bool {
		select {
		case is := <-isExempt:
			return is
		default:
			return false
		}
	}, nil)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			d.Known(r.RemoteAddr)
		}
	})}
	go func() { _ = srv.Serve(d) }()
	defer srv.Close()
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ask := func(c net.Conn) error {
		if _, err := fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: y\r\n\r\n"); err != nil {
			return err
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	known := dial()
	if err := ask(known); err != nil {
		t.Fatal(err)
	}
	isExempt <- true
	proxy := dial()
	if err := ask(proxy); err != nil {
		t.Fatal(err)
	}
	for range 20 { // silent ones
		dial()
	}
	testkit.EventuallyTrue(t, "the address has its part", func() bool { return d.table.Len() == 4 })
	testkit.EventuallyTrue(t, "the silent ones are gone", func() bool { return d.table.Len() == 0 })
	for name, c := range map[string]net.Conn{"who is known": known, "who is exempt": proxy} {
		if err := ask(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.guests) != 0 {
		t.Errorf("%d strangers are remembered", len(d.guests))
	}
}
