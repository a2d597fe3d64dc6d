package obs

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
)

// Guard keeps web pages of others away from h, in the browser of an operator who can
// reach it: roles' listeners have no login of their own. It refuses
//
//   - a Host that is neither an IP address, nor localhost, nor one of hosts, nor this
//     machine's name: a page whose name was made to resolve to us (DNS rebinding) is of
//     the same origin to a browser, and sends the name that it has;
//   - what another origin asks for, be it a change, a read, or a preflight, but for the
//     links that people follow.
//
// Programs send neither Origin nor Sec-Fetch-Site, and are let through.
func Guard(h http.Handler, hosts []string) http.Handler {
	known := map[string]bool{"localhost": true}
	for _, host := range hosts {
		known[hostName(host)] = true
	}
	if name, err := os.Hostname(); err == nil {
		known[hostName(name)] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		if _, err := netip.ParseAddr(host); err != nil && !known[hostName(host)] {
			http.Error(w, fmt.Sprintf("%q is not a name of this listener: use its IP address, or add the name to opsHosts in the config file", r.Host), http.StatusMisdirectedRequest)
			return
		}
		if foreign(r) {
			http.Error(w, "not for pages of another origin", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func hostName(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) }

// foreign is stricter than http.CrossOriginProtection, which lets every read through:
// Alertmanager answers those of any origin with the headers that let a page read them.
func foreign(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		link := r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
		return site != "same-origin" && site != "none" && !link
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host != r.Host
}
