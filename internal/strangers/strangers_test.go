package strangers

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
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
		{&conn{from: "[2001:db8::1]:1"}, true}, {&conn{from: "[2001:db8::2]:1"}, true},
	} {
		if got := table.Add(c.c); got != c.want || c.c.isShut() == c.want {
			t.Errorf("%s: taken %v, want %v", c.c.from, got, c.want)
		}
	}
	if want := []string{ManyHost + " 10.0.0.1", ManyHost + " 10.0.0.1"}; !slices.Equal(why, want) {
		t.Errorf("closed %v, want %v", why, want)
	}
	// One who is known makes room, and is not closed.
	is := func(c net.Conn) bool {
		table.mu.Lock()
		defer table.mu.Unlock()
		return table.open[c] != nil
	}
	if !is(first) || !table.Forget(first) || table.Forget(first) || is(first) || first.isShut() {
		t.Error("known, it still counts")
	}
	if !table.Add(&conn{from: "10.0.0.2:2"}) || table.Len() != 4 {
		t.Errorf("%d strangers", table.Len())
	}
}

// Who floods a listener, from one address or from many, keeps nobody out who soon shows who he is.
func TestAFloodKeepsNobodyOut(t *testing.T) {
	var why []string
	table := New(Bounds{Max: 6, PerHost: 4, Life: time.Hour}, func(reason, host string) { why = append(why, reason+" "+host) })
	table.grace = time.Hour
	for i := range 6 {
		table.Add(&conn{from: fmt.Sprintf("10.9.0.%d:1", i/2)})
	}
	if table.Add(&conn{from: "10.0.0.9:1"}) || len(why) != 1 { // all sites may have come at once
		t.Errorf("somebody went for another at once: %v", why)
	}
	table, why = New(table.bounds, table.closed), nil
	table.grace = 0
	var flood []*conn
	add := func(from string, want bool) *conn {
		t.Helper()
		c := &conn{from: from}
		if table.Add(c) != want {
			t.Errorf("%s: taken %v", from, !want)
		}
		return c
	}
	for i := range 4 {
		flood = append(flood, add(fmt.Sprintf("10.0.0.1:%d", i+1), true))
	}
	add("10.0.0.1:9", false)
	small := add("10.0.0.2:1", true)
	add("10.0.0.3:1", true)
	// Full: the flood's oldest goes for each who has less, until it has no more than others.
	good := add("10.0.0.4:1", true)
	if !flood[0].isShut() || flood[1].isShut() || small.isShut() || good.isShut() {
		t.Error("another one went than the flood's oldest")
	}
	add("10.0.0.1:10", false) // the flood itself gets no other's place
	table.Forget(good)
	for i := range 20 {
		add(fmt.Sprintf("10.0.1.%d:1", i), true)
	}
	// All have one: the oldest goes.
	if last := add("10.0.2.1:1", true); last.isShut() || !small.isShut() || table.Len() != 6 {
		t.Errorf("%d strangers", table.Len())
	}
	if want := []string{ManyHost + " 10.0.0.1", Many + " 10.0.0.1", Many + " 10.0.0.1"}; !slices.Equal(why[:3], want) {
		t.Errorf("closed %v, want %v", why[:3], want)
	}
	sum := 0
	for _, n := range table.byHost {
		sum += n
	}
	if sum != table.Len() {
		t.Errorf("%d by address, %d in all", sum, table.Len())
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
		if got := HostOf(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// Who waits for us goes for nobody who comes later from as many places, however long it has
// waited, and its life stands still; an address that has more than others loses its newest.
func TestWhoWaitsForUsStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New(Bounds{Max: 4, PerHost: 4, Life: time.Minute}, nil)
		add := func(from string) *conn {
			c := &conn{from: from}
			table.Add(c)
			return c
		}
		var queue []*conn
		for i := range 4 {
			c := add(fmt.Sprintf("10.0.0.%d:1", i))
			table.Busy(c, true)
			queue = append(queue, c)
		}
		time.Sleep(10 * time.Minute)
		if late := add("10.0.1.1:1"); !late.isShut() {
			t.Error("one that came later has a place")
		}
		for i, c := range queue {
			if c.isShut() {
				t.Errorf("number %d was closed because we are slow", i)
			}
		}
		table.Begun(queue[0])
		table.Busy(queue[0], false) // now it's its turn
		time.Sleep(table.grace)
		table.Busy(queue[2], false)
		time.Sleep(table.grace)
		if next := add("10.0.1.2:1"); next.isShut() || !queue[2].isShut() || queue[0].isShut() {
			t.Error("another one goes than the one that keeps us waiting and has not begun")
		}
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if !queue[0].isShut() || queue[3].isShut() {
			t.Error("a life counts other than while we wait")
		}
		table = New(Bounds{Max: 4, PerHost: 4, Life: time.Minute}, nil)
		for i := range 3 {
			queue[i] = add(fmt.Sprintf("10.0.0.1:%d", i))
			table.Busy(queue[i], true)
			time.Sleep(time.Second)
		}
		table.Busy(add("10.0.0.2:1"), true)
		if next := add("10.0.0.3:1"); next.isShut() || !queue[2].isShut() || queue[0].isShut() || queue[1].isShut() {
			t.Error("the newest of those who have most stays")
		}
		table.Busy(add("10.0.0.4:1"), true)
		if next := add("10.0.0.5:1"); !next.isShut() {
			t.Error("one goes for another who would have as many")
		}
		for c := range table.open {
			table.Forget(c)
		}
	})
}
