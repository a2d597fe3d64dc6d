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
	grace  time.Duration
}

// grace is how long nobody goes for another: after it a peer that is somebody has shown it, also
// when all sites come at once.
const grace = 2 * time.Second

type entry struct {
	host string
	came time.Time
	life *time.Timer
}

// New returns an empty table. closed, which may be nil, hears of each connection that the
// table closes.
func New(b Bounds, closed func(reason, host string)) *Table {
	if closed == nil {
		closed = func(string, string) {}
	}
	return &Table{bounds: b, closed: closed, open: map[net.Conn]*entry{}, byHost: map[string]int{}, grace: grace}
}

// Add takes a new connection in, or closes it, and tells which. Where there are as many as may
// be, the one that has stood longest goes, of the addresses that have most: a peer that is
// somebody shows it soon, and is not kept out by those who never do.
func (t *Table) Add(c net.Conn) bool {
	e := &entry{host: HostOf(c.RemoteAddr().String())}
	t.mu.Lock()
	reason := ""
	var evicted net.Conn
	var from string
	if t.byHost[e.host] >= t.bounds.PerHost {
		reason = ManyHost
	} else if len(t.open) >= t.bounds.Max {
		if evicted = t.greediestLocked(e.host); evicted == nil {
			reason = Many
		} else {
			from = t.open[evicted].host
			t.forgetLocked(evicted)
		}
	}
	if reason == "" {
		e.came = time.Now()
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
	if evicted != nil {
		t.closed(Many, from)
		_ = evicted.Close()
	}
	if reason != "" {
		t.closed(reason, e.host)
		_ = c.Close()
	}
	return reason == ""
}

// greediestLocked is the connection that has stood longest of the addresses that have most; nil
// if the one that asks for another has as many, or none has stood for long.
func (t *Table) greediestLocked(asks string) net.Conn {
	most := 0
	for _, n := range t.byHost {
		most = max(most, n)
	}
	if t.byHost[asks] >= most {
		return nil
	}
	var oldest net.Conn
	for c, e := range t.open {
		if t.byHost[e.host] == most && (oldest == nil || e.came.Before(t.open[oldest].came)) {
			oldest = c
		}
	}
	if oldest == nil || time.Since(t.open[oldest].came) < t.grace {
		return nil
	}
	return oldest
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
	return t.forgetLocked(c)
}

func (t *Table) forgetLocked(c net.Conn) bool {
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

// HostOf is what an address, HOST:PORT, counts for: an IPv6 network of 64 bits is one
// customer's.
func HostOf(addr string) string {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return addr
	}
	ip := ap.Addr().Unmap().WithZone("")
	if ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			return p.String()
		}
	}
	return ip.String()
}
