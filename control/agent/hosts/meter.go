package hosts

import (
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/internal/vhost"
)

// Which way a connection goes, seen from this site: the values of the label direction.
const (
	outward = "out" // to a host of other sites
	inward  = "in"  // from another site, to a Service here
)

// How an attempt ended: the values of the label result.
const (
	resultOK     = "ok"
	resultFailed = "failed"
	resultLimit  = "limit" // the site had as many connections as it takes
)

// maxLinks is how many links to other sites are told one by one: each is three series,
// which no policy has to allow. Those beyond it go together, without a peer.
const maxLinks = 16

// ConditionReachable of a site is False while the last attempt at one of its hosts failed.
const ConditionReachable = "VirtualHostReachable"

// maxSaid is how many hosts the condition names.
const maxSaid = 5

// meter counts a site's connections. Safe for concurrent use.
type meter struct {
	mu       sync.Mutex
	links    map[linkKey]*link
	attempts map[attemptKey]uint64
	failing  map[failKey]string // why the last attempt failed
}

type linkKey struct{ host, direction, peer string }

type attemptKey struct{ host, direction, result string }

// failKey has the SERVICE:PORT of a route; empty: it is about the host.
type failKey struct{ host, direction, service string }

// link is all connections over one host with one other site.
type link struct {
	open           int
	used           time.Time // when one was opened or ended last
	sent, received atomic.Uint64
}

func newMeter() *meter {
	return &meter{links: map[linkKey]*link{}, attempts: map[attemptKey]uint64{}, failing: map[failKey]string{}}
}

// open counts a connection and what passes over it, until it is closed.
func (m *meter) open(host, direction, peer string, c net.Conn) *measured {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := linkKey{host, direction, peer}
	l := m.links[key]
	if l == nil {
		if len(m.links) >= maxLinks && !m.makeRoomLocked() {
			key.peer = ""
			l = m.links[key]
		}
		if l == nil {
			l = &link{}
			m.links[key] = l
		}
	}
	l.open++
	l.used = time.Now()
	return &measured{Conn: c, meter: m, link: l, sent: &l.sent, received: &l.received}
}

// makeRoomLocked forgets the link that has not been used for longest; false: all are.
func (m *meter) makeRoomLocked() bool {
	var oldest *linkKey
	for key, l := range m.links {
		if l.open == 0 && (oldest == nil || l.used.Before(m.links[*oldest].used)) {
			oldest = &key
		}
	}
	if oldest != nil {
		delete(m.links, *oldest)
	}
	return oldest != nil
}

// attempt counts one, and why this site or what it asked failed; empty: nothing here is to
// blame. changed: the condition has another status or text now.
func (m *meter) attempt(host, direction, service, result, why string) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.attempts[attemptKey{host, direction, result}]++
	key := failKey{host, direction, service}
	before, was := m.failing[key]
	if result == resultOK {
		delete(m.failing, key)
		return was
	}
	if why == "" {
		return false
	}
	m.failing[key] = clip(why)
	return !was || before != m.failing[key]
}

// fails tells whether the last attempt failed.
func (m *meter) fails(host, direction, service string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.failing[failKey{host, direction, service}]
	return ok
}

// keep forgets hosts that are not the site's any more, and Services that nothing leads to;
// nil: the host is not served here, or can't be read now.
func (m *meter) keep(hosts map[string]*vhost.Host) {
	m.mu.Lock()
	defer m.mu.Unlock()
	gone := func(host string) bool {
		_, ok := hosts[host]
		return !ok
	}
	maps.DeleteFunc(m.links, func(k linkKey, l *link) bool { return gone(k.host) && l.open == 0 })
	maps.DeleteFunc(m.attempts, func(k attemptKey, _ uint64) bool { return gone(k.host) })
	maps.DeleteFunc(m.failing, func(k failKey, _ string) bool {
		h := hosts[k.host]
		return gone(k.host) || k.service != "" && h != nil && !slices.ContainsFunc(h.Routes, func(r vhost.Route) bool { return address(r.Service, r.Port) == k.service })
	})
}

// condition is ConditionReachable; false: nothing was tried yet.
func (m *meter) condition() (status, reason, message string, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.failing) == 0 {
		return "True", "Reachable", "the last attempts at its virtual hosts succeeded", len(m.attempts) > 0
	}
	var said []string
	reason = "ServiceFails"
	for key, why := range m.failing {
		if key.direction == outward {
			reason = "Unreachable"
			said = append(said, key.host+": "+why)
		} else {
			said = append(said, key.host+", served here: "+why)
		}
	}
	slices.Sort(said)
	return "False", reason, strings.Join(said[:min(len(said), maxSaid)], "; "), true
}

var (
	hostConnections = prometheus.NewDesc("muster_agent_host_connections", "Connections to virtual hosts that are open, by direction (out to another site, in from it) and the site at the other end.", []string{"host", "direction", "peer"}, nil)
	hostSent        = prometheus.NewDesc("muster_agent_host_sent_bytes_total", "Bytes sent to the other site over connections to virtual hosts.", []string{"host", "direction", "peer"}, nil)
	hostReceived    = prometheus.NewDesc("muster_agent_host_received_bytes_total", "Bytes received from the other site over connections to virtual hosts.", []string{"host", "direction", "peer"}, nil)
	hostAttempts    = prometheus.NewDesc("muster_agent_host_attempts_total", "Connections to virtual hosts that were asked for, by direction and result: ok, failed, limit.", []string{"host", "direction", "result"}, nil)
)

// Describe implements prometheus.Collector.
func (h *Hosts) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{hostConnections, hostSent, hostReceived, hostAttempts} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (h *Hosts) Collect(ch chan<- prometheus.Metric) {
	m := h.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, l := range m.links {
		ch <- prometheus.MustNewConstMetric(hostConnections, prometheus.GaugeValue, float64(l.open), k.host, k.direction, k.peer)
		ch <- prometheus.MustNewConstMetric(hostSent, prometheus.CounterValue, float64(l.sent.Load()), k.host, k.direction, k.peer)
		ch <- prometheus.MustNewConstMetric(hostReceived, prometheus.CounterValue, float64(l.received.Load()), k.host, k.direction, k.peer)
	}
	for k, n := range m.attempts {
		ch <- prometheus.MustNewConstMetric(hostAttempts, prometheus.CounterValue, float64(n), k.host, k.direction, k.result)
	}
}

// measured is a connection that is counted.
type measured struct {
	net.Conn
	meter          *meter
	link           *link
	sent, received *atomic.Uint64 // of the link
	once           sync.Once
}

// turned counts as sent what is read, of a connection on this side of the link.
func (c *measured) turned() *measured {
	c.sent, c.received = c.received, c.sent
	return c
}

func (c *measured) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(uint64(n))
	return n, err
}

func (c *measured) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.Add(uint64(n))
	return n, err
}

var errWhole = errors.New("this connection can't be closed by half")

// CloseWrite ends one direction, where the connection below can.
func (c *measured) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errWhole
}

// Close implements net.Conn.
func (c *measured) Close() error {
	c.once.Do(func() {
		c.meter.mu.Lock()
		defer c.meter.mu.Unlock()
		c.link.open--
		c.link.used = time.Now()
	})
	return c.Conn.Close()
}
