package console

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"muster.dev/muster/internal/wire"
)

// proxies are the networks of the proxies in front of us. What a request says of where
// it comes from is believed only when one of them sent it, and only as far back as
// they reach: the first address from the end that is none of theirs is the client's,
// and everything before it is the client's own tale.
type proxies []netip.Prefix

func (p proxies) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(p, func(n netip.Prefix) bool { return n.Contains(a) })
}

// client is the address that wrong tokens are counted for; invalid for a connection
// without one, such as a Unix socket's.
func (p proxies) client(r *http.Request) netip.Addr {
	peer := connectionAddr(r)
	if !p.trusts(peer) {
		return peer
	}
	first, one := p.walk(peer, wire.Values(r.Header["X-Forwarded-For"]))
	second, other := p.walk(peer, forwarded(r.Header["Forwarded"], "for"))
	switch {
	case one && other && first != second:
		// A proxy keeps one of the two headers and passes the other on as the client
		// wrote it. Which one we can't know.
		return peer
	case one:
		return first
	case other:
		return second
	}
	return peer
}

// walk goes from the connection's end of the path towards the client.
func (p proxies) walk(peer netip.Addr, hops []string) (_ netip.Addr, any bool) {
	at := peer
	for _, hop := range slices.Backward(hops) {
		a, ok := parseHop(hop)
		if !ok {
			return at, true
		}
		if at = a; !p.trusts(a) {
			return at, true
		}
	}
	return at, len(hops) > 0
}

// https tells whether the browser spoke TLS to the outermost proxy, as far as trusted
// ones say. A client that lies here only spoils its own cookie.
func (p proxies) https(r *http.Request) bool {
	if !p.trusts(connectionAddr(r)) {
		return false
	}
	said := append(wire.Values(r.Header["X-Forwarded-Proto"]), forwarded(r.Header["Forwarded"], "proto")...)
	return slices.ContainsFunc(said, func(s string) bool { return strings.EqualFold(s, "https") })
}

func connectionAddr(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return plain(ap.Addr())
}

// plain is the address without what makes equal ones differ.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// parseHop reads an address with or without a port: 192.0.2.1, 192.0.2.1:80,
// 2001:db8::1, [2001:db8::1], [2001:db8::1]:80.
func parseHop(s string) (netip.Addr, bool) {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return plain(ap.Addr()), true
	}
	if inner, ok := strings.CutPrefix(s, "["); ok {
		s = strings.TrimSuffix(inner, "]")
	}
	a, err := netip.ParseAddr(s)
	return plain(a), err == nil
}

// forwarded returns one parameter of each element of a Forwarded header (RFC 7239), ""
// where an element lacks it.
func forwarded(lines []string, name string) []string {
	var out []string
	for _, line := range lines {
		for _, element := range splitQuoted(line, ',') {
			if element == "" {
				continue
			}
			value := ""
			for _, pair := range splitQuoted(element, ';') {
				k, v, _ := strings.Cut(pair, "=")
				if strings.EqualFold(strings.TrimSpace(k), name) {
					value = unquote(strings.TrimSpace(v))
				}
			}
			out = append(out, value)
		}
	}
	return out
}

// splitQuoted splits at sep outside of quoted strings, and trims.
func splitQuoted(s string, sep byte) []string {
	var out []string
	quoted, from := false, 0
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == sep && !quoted:
			out = append(out, strings.TrimSpace(s[from:i]))
			from = i + 1
		}
	}
	return append(out, strings.TrimSpace(s[from:]))
}

func unquote(s string) string {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return s
	}
	var b strings.Builder
	for i := 1; i < len(s)-1; i++ {
		if s[i] == '\\' && i+1 < len(s)-1 {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
