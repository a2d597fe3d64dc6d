package strangers

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"muster.dev/muster/internal/testkit"
)

// conn is one that notes that it was closed.
type conn struct {
	net.Conn
	from string
	mu   sync.Mutex
	shut bool
}

func (c *conn) RemoteAddr() net.Addr {
	a, _ := net.ResolveTCPAddr("tcp", c.from)
	return a
}

func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut = true
	return nil
}

func (c *conn) isShut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shut
}

func TestStrangersAreFew(t *testing.T) {
	var mu sync.Mutex
	var why []string
	table := New(Bounds{Max: 4, PerHost: 2, Life: time.Hour}, func(reason, host string) {
		mu.Lock()
		defer mu.Unlock()
		why = append(why, reason+" "+host)
	})
	first := &conn{from: "10.0.0.1:1"}
	for _, c := range []struct {
		c    *conn
		want bool
	}{
		{first, true}, {&conn{from: "10.0.0.1:2"}, true}, {&conn{from: "10.0.0.1:3"}, false}, {&conn{from: "[::ffff:10.0.0.1]:4"}, false},
		{&conn{from: "[2001:db8::1]:1"}, true}, {&conn{from: "[2001:db8::2]:1"}, true}, {&conn{from: "10.0.0.2:1"}, false},
	} {
		if got := table.Add(c.c); got != c.want || c.c.isShut() == c.want {
			t.Errorf("%s: taken %v, want %v", c.c.from, got, c.want)
		}
	}
	if want := []string{ManyHost + " 10.0.0.1", ManyHost + " 10.0.0.1", Many + " 10.0.0.2"}; !slices.Equal(why, want) {
		t.Errorf("closed %v, want %v", why, want)
	}
	// One who is known makes room, and is not closed.
	if !table.Is(first) || !table.Forget(first) || table.Forget(first) || table.Is(first) || first.isShut() {
		t.Error("known, it still counts")
	}
	if !table.Add(&conn{from: "10.0.0.2:2"}) || table.Len() != 4 {
		t.Errorf("%d strangers", table.Len())
	}
}

func TestStrangersAreShort(t *testing.T) {
	table := New(Bounds{Max: 2, PerHost: 2, Life: 10 * time.Millisecond}, nil)
	known, strange := &conn{from: "10.0.0.1:1"}, &conn{from: "10.0.0.1:2"}
	table.Add(known)
	table.Forget(known)
	table.Add(strange)
	testkit.EventuallyTrue(t, "the stranger is closed", strange.isShut)
	if known.isShut() {
		t.Error("who was known was closed")
	}
}

func TestHostOf(t *testing.T) {
	for in, want := range map[string]string{"10.0.0.1:99": "10.0.0.1", "[2001:db8::1:2]:9": "2001:db8::/64", "[::ffff:10.0.0.1]:9": "10.0.0.1", "[fe80::1%eth0]:1": "fe80::/64"} {
		if got := hostOf((&conn{from: in}).RemoteAddr()); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
