// Package strangers bounds the connections of peers that have not shown who they are: all
// before their handshake, and whoever has no good certificate. They get little of a
// listener, and not for long, so that nobody who is known is kept out by them.
//
// It counts and closes, and shakes hands in turn (Hands); who is known says the listener.
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
	host   string
	came   time.Time
	waited time.Duration // for the peer, until since
	since  time.Time     // since when it is waited for; zero: it waits for us
	begun  bool          // we have worked for it, which would be for nothing
	life   *time.Timer
}

// keeps is how long the peer has kept us waiting.
func (e *entry) keeps(now time.Time) time.Duration {
	if e.since.IsZero() {
		return e.waited
	}
	return e.waited + now.Sub(e.since)
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
// be, the one that has kept us waiting longest goes, of the addresses that have most, and before
// others one that has not begun its handshake: a peer that is somebody shows it soon, and is not kept out by those who never do. One that waits for us
// (Busy) is not to blame for that: all sites may have come at once. Of those an address loses the
// ones that came last, to addresses that have fewer.
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
		e.since = e.came
		e.life = time.AfterFunc(t.bounds.Life, func() {
			t.mu.Lock()
			still := t.open[c] == e && !e.since.IsZero()
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

// greediestLocked is the connection that goes for another; nil if the one that asks for it has as
// many as anybody, or none has kept us waiting for long.
func (t *Table) greediestLocked(asks string) net.Conn {
	most := 0
	for _, n := range t.byHost {
		most = max(most, n)
	}
	mine := t.byHost[asks]
	if mine >= most {
		return nil
	}
	now := time.Now()
	for range asked {
		c := t.choiceLocked(most, mine, now)
		if c == nil || t.open[c].since.IsZero() || !unread(c) {
			return c
		}
		// It has said something, and nobody has had time to listen.
		t.busyLocked(t.open[c], true)
	}
	return nil
}

// asked is of how many it is found out, for one that comes, whether they keep us waiting.
const asked = 8

// choiceLocked is who seems to be the one to go, of addresses that have most.
func (t *Table) choiceLocked(most, mine int, now time.Time) net.Conn {
	var slowest, newest net.Conn
	for c, e := range t.open {
		switch {
		case t.byHost[e.host] != most:
		case e.since.IsZero():
			if newest == nil || e.came.After(t.open[newest].came) {
				newest = c
			}
		case e.keeps(now) < t.grace:
		case slowest == nil, t.open[slowest].begun && !e.begun, t.open[slowest].begun == e.begun && e.keeps(now) > t.open[slowest].keeps(now):
			slowest = c
		}
	}
	if slowest == nil && most > mine+1 {
		return newest
	}
	return slowest
}

// Busy says that the peer of a connection waits for us, or that we wait for it again. Only the
// latter counts for how long it may stand.
func (t *Table) Busy(c net.Conn, is bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.open[c]; e != nil {
		t.busyLocked(e, is)
	}
}

func (t *Table) busyLocked(e *entry, is bool) {
	if e.since.IsZero() == is {
		return
	}
	now := time.Now()
	if is {
		e.waited, e.since = e.keeps(now), time.Time{}
		e.life.Stop()
		return
	}
	e.since = now
	e.life.Reset(max(0, t.bounds.Life-e.waited))
}

// Begun says that work for the peer of a connection begins.
func (t *Table) Begun(c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.open[c]; e != nil {
		e.begun = true
	}
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
