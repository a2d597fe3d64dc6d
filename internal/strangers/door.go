package strangers

import (
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Door is a listener whose connections are strangers' until Known says that the peer of one
// is somebody. It is for servers that tell nobody which connection a request came by. Safe for
// concurrent use.
type Door struct {
	net.Listener
	table  *Table
	exempt func(net.Addr) bool

	mu     sync.Mutex
	guests map[string]*guest // by the peer's address
}

// guest is a connection through the door.
type guest struct {
	net.Conn
	door *Door
}

// Usual bounds of a listener that is not only for Muster's roles.
var Usual = Bounds{Max: 1024, PerHost: 512, Life: time.Minute}

// Counting counts the connections that are closed, by reason.
func Counting(reg prometheus.Registerer, metric string) (closed func(reason, host string)) {
	c := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{Name: metric, Help: "Connections of peers that have not shown who they are, closed because there were too many or because they stood too long."}, []string{"reason"})
	for _, reason := range []string{Many, ManyHost, TooLong} {
		c.WithLabelValues(reason)
	}
	return func(reason, _ string) { c.WithLabelValues(reason).Inc() }
}

// NewDoor bounds the strangers of a listener. exempt, which may be nil, names peers that are
// none, such as proxies. closed is as for New.
func NewDoor(ln net.Listener, b Bounds, exempt func(net.Addr) bool, closed func(reason, host string)) *Door {
	if exempt == nil {
		exempt = func(net.Addr) bool { return false }
	}
	return &Door{Listener: ln, table: New(b, closed), exempt: exempt, guests: map[string]*guest{}}
}

// Accept implements net.Listener.
func (d *Door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil || d.exempt(c.RemoteAddr()) {
			return c, err
		}
		g := &guest{c, d}
		d.mu.Lock()
		d.guests[c.RemoteAddr().String()] = g
		d.mu.Unlock()
		if d.table.Add(g) {
			return g, nil
		}
	}
}

// Known says that the peer at an address, HOST:PORT, has shown who it is.
func (d *Door) Known(addr string) {
	d.mu.Lock()
	g := d.guests[addr]
	delete(d.guests, addr)
	d.mu.Unlock()
	if g != nil {
		d.table.Forget(g)
	}
}

// Close implements net.Conn.
func (g *guest) Close() error {
	addr := g.RemoteAddr().String()
	g.door.mu.Lock()
	if g.door.guests[addr] == g {
		delete(g.door.guests, addr)
	}
	g.door.mu.Unlock()
	g.door.table.Forget(g)
	return g.Conn.Close()
}
