// Package linkmeter measures a site's link to its regional on the connections that the
// agent has anyway: nothing is sent for the sake of measuring. What the kernel knows of a
// connection (TCP_INFO of tcp(7), Linux alone) is read when metrics are collected.
//
// The agent hands in every connection that it opens and every request that it sends; the
// collector serves the Meter with its own series. It opens no connection itself.
package linkmeter

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What connections are for: the values of the label connection.
const (
	Stream   = "stream"   // registration, heartbeats, reports, what the site is told
	Requests = "requests" // pushes of samples, logs, files of software
	Tunnels  = "tunnels"  // logs, exec and the like of pods; to and from virtual hosts
)

// Meter measures one site's link. Make it with New; safe for concurrent use.
type Meter struct {
	mu      sync.Mutex
	kinds   map[string]*kind
	targets map[string]*target
}

// kind is all connections that are for the same.
type kind struct {
	open             map[*conn]struct{}
	connects, failed uint64
	handshake        time.Duration // the last one's; 0: there was none
	ended            counters      // of those that are closed
	lost             uint64        // the most that was told: a counter does not fall
	known            bool          // the kernel told of one
	sent, received   atomic.Uint64
}

// counters are what the kernel counts of connections: segments sent, those that were sent
// again, and those of them that the other side had (RFC 2883). A probe for a lost tail
// (RFC 8985) goes out whenever an acknowledgement is slow, so that on a good link nearly all
// that is sent again is needless.
type counters struct{ segments, retransmitted, needless uint64 }

func (c counters) plus(o counters) counters {
	return counters{c.segments + o.segments, c.retransmitted + o.retransmitted, c.needless + o.needless}
}

// lost are the segments that were sent again with reason. Word that one was not comes a
// round trip later, so that this may fall for a moment.
func (c counters) lost() uint64 { return c.retransmitted - min(c.needless, c.retransmitted) }

// tcpInfo is what the kernel says of one connection.
type tcpInfo struct {
	counters
	roundTrip, deviation time.Duration // 0: not measured yet
	deliveryRate         float64       // bytes a second
	acked                time.Duration // since the last acknowledgement came
}

// New makes a Meter.
func New() *Meter { return &Meter{kinds: map[string]*kind{}, targets: map[string]*target{}} }

func (m *Meter) kindLocked(of string) *kind {
	k := m.kinds[of]
	if k == nil {
		k = &kind{open: map[*conn]struct{}{}}
		m.kinds[of] = k
	}
	return k
}

// Dial opens a connection that is for one of the constants, and measures it until it is
// closed. A failure is counted, unless ctx was cancelled.
func (m *Meter) Dial(ctx context.Context, of string, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	raw, err := dial(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.kindLocked(of)
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) {
			k.failed++
		}
		return nil, err
	}
	c := &conn{Conn: raw, meter: m, kind: k}
	k.open[c] = struct{}{}
	return c, nil
}

// Handshake notes how a connection's TLS handshake went, which makes it one that counts.
func (m *Meter) Handshake(of string, took time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.kindLocked(of)
	if err != nil {
		k.failed++
		return
	}
	k.connects++
	k.handshake = took
}

// conn is a measured connection.
type conn struct {
	net.Conn
	meter *Meter
	kind  *kind
	once  sync.Once
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.kind.received.Add(uint64(n))
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.kind.sent.Add(uint64(n))
	return n, err
}

// NetConn returns what is measured.
func (c *conn) NetConn() net.Conn { return c.Conn }

func (c *conn) Close() error {
	c.once.Do(func() {
		c.meter.mu.Lock()
		defer c.meter.mu.Unlock()
		if info, ok := c.info(); ok {
			c.kind.ended, c.kind.known = c.kind.ended.plus(info.counters), true
		}
		delete(c.kind.open, c)
	})
	return c.Conn.Close()
}

// info is what the kernel says of the connection below all that wraps it.
func (c *conn) info() (tcpInfo, bool) {
	below := c.Conn
	for {
		w, ok := below.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		below = w.NetConn()
	}
	sc, ok := below.(syscall.Conn)
	if !ok {
		return tcpInfo{}, false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return tcpInfo{}, false
	}
	var info tcpInfo
	if err := raw.Control(func(fd uintptr) { info, ok = readTCPInfo(int(fd)) }); err != nil {
		return tcpInfo{}, false
	}
	return info, ok
}

// sum adds up a kind's counters, and picks the connection over which something came last:
// one that is idle knows only how the link was.
func (k *kind) sum() (all counters, newest tcpInfo, known, open bool) {
	all, known = k.ended, k.known
	for c := range k.open {
		info, ok := c.info()
		if !ok {
			continue
		}
		all, known = all.plus(info.counters), true
		if info.roundTrip > 0 && (!open || info.acked < newest.acked) {
			newest, open = info, true
		}
	}
	return all, newest, known, open
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("muster_agent_link_"+name, help, labels, nil)
}

var (
	roundTrip     = desc("round_trip_seconds", "Round trip to the regional, smoothed by the kernel, of the connection over which something was acknowledged last.", "connection")
	deviation     = desc("round_trip_deviation_seconds", "Mean deviation of that round trip.", "connection")
	deliveryRate  = desc("delivery_rate_bytes_per_second", "How fast the kernel saw that connection deliver last; a lower bound of what the link can do.", "connection")
	segments      = desc("segments_sent_total", "TCP segments with data that were sent, repeated ones included.", "connection")
	retransmitted = desc("segments_retransmitted_total", "TCP segments that were sent again, but for those that had come.", "connection")
	sentBytes     = desc("sent_bytes_total", "Bytes that were sent, encrypted.", "connection")
	receivedBytes = desc("received_bytes_total", "Bytes that were received, encrypted.", "connection")
	handshake     = desc("handshake_seconds", "How long the last TLS handshake took that succeeded.", "connection")
	connects      = desc("connects_total", "Connections that were opened, their TLS handshake included.", "connection")
	connectErrors = desc("connect_errors_total", "Connections that could not be opened.", "connection")
	requestTime   = desc("request_seconds", "Requests to the regional, and the seconds until their answers began.", "target")
	requestErrors = desc("request_errors_total", "Requests that failed, by reason: refused (HTTP status 4xx), failed (5xx), unreachable (no answer).", "target", "reason")
)

// Describe implements prometheus.Collector.
func (m *Meter) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		roundTrip, deviation, deliveryRate, segments, retransmitted, sentBytes, receivedBytes, handshake, connects, connectErrors, requestTime, requestErrors,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. What is not known is left out: round trips
// while no connection is open, and what the kernel does not tell.
func (m *Meter) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for of, k := range m.kinds {
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, of)
		}
		counter := func(d *prometheus.Desc, v uint64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), of)
		}
		all, newest, known, open := k.sum()
		if open {
			gauge(roundTrip, newest.roundTrip.Seconds())
			gauge(deviation, newest.deviation.Seconds())
			gauge(deliveryRate, newest.deliveryRate)
		}
		if known {
			counter(segments, all.segments)
			k.lost = max(k.lost, all.lost())
			counter(retransmitted, k.lost)
		}
		counter(sentBytes, k.sent.Load())
		counter(receivedBytes, k.received.Load())
		if k.connects > 0 {
			gauge(handshake, k.handshake.Seconds())
		}
		counter(connects, k.connects)
		counter(connectErrors, k.failed)
	}
	for of, t := range m.targets {
		ch <- prometheus.MustNewConstSummary(requestTime, t.requests, t.took.Seconds(), nil, of)
		for i, reason := range reasons {
			ch <- prometheus.MustNewConstMetric(requestErrors, prometheus.CounterValue, float64(t.errors[i]), of, reason)
		}
	}
}
