package hosts

import (
	"fmt"
	"net"
	"testing"

	"muster.dev/muster/internal/vhost"
)

// A site that talks with many others tells of the last ones, and of the others together.
func TestLinksAreBounded(t *testing.T) {
	m := newMeter()
	var open []net.Conn
	for i := range 3 * maxLinks {
		c, _ := net.Pipe()
		c = m.open("shop/db", outward, fmt.Sprintf("site-%02d", i), c)
		if i < maxLinks {
			c.Close()
		} else {
			open = append(open, c)
		}
	}
	if n := len(m.links); n != maxLinks+1 {
		t.Errorf("%d links are told, want %d and the others", n, maxLinks)
	}
	if l := m.links[linkKey{"shop/db", outward, ""}]; l == nil || l.open != maxLinks {
		t.Errorf("%+v are with others, want %d", l, maxLinks)
	}
	for _, c := range open {
		c.Close()
	}
	m.attempt("shop/db", outward, "", resultFailed, "nobody is there")
	m.attempt("shop/db", inward, "api:80", resultFailed, "it is down")
	m.keep(map[string]*vhost.Host{"shop/db": {Routes: []vhost.Route{{Service: "api", Port: 80}}}})
	if _, _, says, _ := m.condition(); says != "shop/db, served here: it is down; shop/db: nobody is there" {
		t.Error(says)
	}
	m.keep(map[string]*vhost.Host{"shop/db": {}}) // without the route
	if _, _, says, _ := m.condition(); says != "shop/db: nobody is there" {
		t.Error(says)
	}
	m.keep(nil)
	if _, _, _, known := m.condition(); known || len(m.links) != 0 || len(m.attempts) != 0 {
		t.Errorf("a host that is gone is still told of: %v, %v", m.links, m.attempts)
	}
}
