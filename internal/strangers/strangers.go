// Package strangers bounds the connections of peers that have not shown who they are: all
// before their handshake, and whoever has no good certificate. They get little of a
// listener, and not for long, so that nobody who is known is kept out by them.
//
// It counts and closes; who is known says the listener.
package strangers

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// Why a connection is closed: values of a label "reason".
const (
	Many     = "strangers"                // there are Bounds.Max of them
	ManyHost = "strangers_of_one_address" // Bounds.PerHost
	TooLong  = "stranger_too_long"        // Bounds.Life is over
)

// Bounds of strangers.
type Bounds struct {
	Max     int // connections
	PerHost int // of one address, or of one IPv6 network of 64 bits; many peers may stand behind one
	Life    time.Duration
}

// Table knows which connections of a listener are strangers'. Safe for concurrent use.
type Table struct {
	bounds Bounds
	closed func(reason, host string)

	mu     sync.Mutex
	open   map[net.Conn]*entry
	byHost map[string]int
}

type entry struct {
	host string
	life *time.Timer
}

// New returns an empty table. closed, which may be nil, hears of each connection that the
// table closes.
func New(b Bounds, closed func(reason, host string)) *Table {
	if closed == nil {
		closed = func(string, string) {}
	}
	return &Table{bounds: b, closed: closed, open: map[net.Conn]*entry{}, byHost: map[string]int{}}
}

// Add takes a new connection in, or closes it, and tells which.
func (t *Table) Add(c net.Conn) bool {
	e := &entry{host: hostOf(c.RemoteAddr())}
	t.mu.Lock()
	reason := ""
	switch {
	case len(t.open) >= t.bounds.Max:
		reason = Many
	case t.byHost[e.host] >= t.bounds.PerHost:
		reason = ManyHost
	default:
		e.life = time.AfterFunc(t.bounds.Life, func() {
			t.mu.Lock()
			still := t.open[c] == e
			t.mu.Unlock()
			if still {
				t.closed(TooLong, e.host)
				_ = c.Close()
			}
		})
		t.open[c] = e
		t.byHost[e.host]++
	}
	t.mu.Unlock()
	if reason != "" {
		t.closed(reason, e.host)
		_ = c.Close()
	}
	return reason == ""
}

// Is tells whether a connection is a stranger's.
func (t *Table) Is(c net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[c] != nil
}

// Forget ends the count of a connection whose peer is known by now, or that was closed. It
// tells whether it was a stranger's until then.
func (t *Table) Forget(c net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.open[c]
	if e == nil {
		return false
	}
	e.life.Stop()
	delete(t.open, c)
	if t.byHost[e.host]--; t.byHost[e.host] == 0 {
		delete(t.byHost, e.host)
	}
	return true
}

// Len is how many connections are strangers'.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open)
}

// hostOf is what an address counts for: an IPv6 network of 64 bits is one customer's.
func hostOf(addr net.Addr) string {
	ap, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return addr.String()
	}
	ip := ap.Addr().Unmap().WithZone("")
	if ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			return p.String()
		}
	}
	return ip.String()
}
