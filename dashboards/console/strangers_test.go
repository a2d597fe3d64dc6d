package console

import (
	"sync/atomic"
	"testing"
)

// A connection is known by a request that shows who asks, and by no other.
func TestWhoIsKnown(t *testing.T) {
	h := newHarness(t)
	var known atomic.Int32
	h.con.OnKnown(func(addr string) {
		if addr == "" {
			t.Error("without an address")
		}
		known.Add(1)
	})
	h.send("", "GET", "/", "")
	h.send("", "GET", "/api/v1/tenants", "")
	h.send("nobody-like-this", "GET", "/api/v1/tenants", "")
	if n := known.Load(); n != 0 {
		t.Errorf("%d strangers are known", n)
	}
	h.want(200, "alice", "GET", "/api/v1/tenants", "")
	if n := known.Load(); n != 1 {
		t.Errorf("%d are known", n)
	}
}
