// Package vhost is what a site is told of a virtual host: a Service of some sites of a
// tenant that is reached by name from others. It holds the shape and its coding, and does
// no I/O: control/desired encodes, control/agent/hosts decodes. The edge binary links it.
package vhost

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"muster.dev/muster/internal/fleet"
)

// Kind is the wire.Item kind of a Host; the item's name is Host.Key.
const Kind = "VirtualHost"

// ServiceLabel is on the Service that stands for a host on a site that reaches it, with the
// name of the VirtualHost.
const ServiceLabel = "muster.dev/virtual-host"

// MaxRoutes of a Host.
const MaxRoutes = 32

// MaxBytes of one encoded Host: 20,000 sites have some 1.3 MB of names.
const MaxBytes = 4 << 20

// Host is one virtual host as a site has it. Both ends get the names of all sites of
// either end and check each other's certificate against them, so that nobody between
// them can lead a connection elsewhere.
type Host struct {
	Tenant    string `json:"tenant"`
	Namespace string `json:"namespace"` // as the tenant's users type it
	Name      string `json:"name"`      // of the VirtualHost
	// Host is the name under which it is reached: that of a Service in the namespace.
	Host string `json:"host"`
	Port int    `json:"port"`
	// Service is what serves it, in the same namespace on the sites of Providers.
	Service     string `json:"service"`
	ServicePort int    `json:"servicePort"`
	// HTTP: requests are passed on, each to the Service of the first of Routes that is for
	// it, or else to that above; else connections are.
	HTTP   bool    `json:"http,omitempty"`
	Routes []Route `json:"routes,omitempty"`
	// Providers and Consumers are names of sites of the tenant, sorted.
	Providers []string `json:"providers"`
	Consumers []string `json:"consumers"`
}

// Route leads requests to a Service of the same namespace.
type Route struct {
	Host    string `json:"host,omitempty"` // empty: any
	Path    string `json:"path"`           // with which that of the request begins, by whole segments
	Service string `json:"service"`
	Port    int    `json:"port"`
}

// Matches tells whether a request for a host, without a port, and a path is its.
func (r *Route) Matches(host, path string) bool {
	if r.Host != "" && !strings.EqualFold(r.Host, host) {
		return false
	}
	prefix := strings.TrimSuffix(r.Path, "/")
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || rest[0] == '/')
}

// SortRoutes brings routes into the order in which they are tried: those with a host
// first, and then the longest paths. Of two for the same requests the first stays first.
func SortRoutes(routes []Route) {
	slices.SortStableFunc(routes, func(a, b Route) int {
		return cmp.Or(cmp.Compare(min(len(b.Host), 1), min(len(a.Host), 1)), cmp.Compare(len(b.Path), len(a.Path)))
	})
}

// To is the host with the Service of another one of its routes as that which serves it.
func (h *Host) To(service string, port int) *Host {
	to := *h
	to.Service, to.ServicePort = service, port
	return &to
}

// Services are all that serve it, each once, that of no route first.
func (h *Host) Services() []string {
	out := []string{h.Service}
	for _, r := range h.Routes {
		if !slices.Contains(out, r.Service) {
			out = append(out, r.Service)
		}
	}
	return out
}

// Key names it within a tenant: NAMESPACE/NAME.
func (h *Host) Key() string { return h.Namespace + "/" + h.Name }

// SiteNamespace is the namespace that it has on sites.
func (h *Host) SiteNamespace() string { return h.Tenant + "-" + h.Namespace }

// Provides tells whether the site serves it.
func (h *Host) Provides(site string) bool { return has(h.Providers, site) }

// Consumes tells whether it is advertised to the site.
func (h *Host) Consumes(site string) bool { return has(h.Consumers, site) }

func has(sorted []string, name string) bool {
	_, ok := slices.BinarySearch(sorted, name)
	return ok
}

// Equal tells whether they encode to the same.
func (h *Host) Equal(o *Host) bool {
	return h.Tenant == o.Tenant && h.Namespace == o.Namespace && h.Name == o.Name && h.Host == o.Host && h.Port == o.Port &&
		h.Service == o.Service && h.ServicePort == o.ServicePort && h.HTTP == o.HTTP && slices.Equal(h.Routes, o.Routes) && slices.Equal(h.Providers, o.Providers) && slices.Equal(h.Consumers, o.Consumers)
}

// Encode returns the blob; equal values give equal bytes.
func (h *Host) Encode() []byte {
	b, err := json.Marshal(h)
	if err != nil {
		panic(fmt.Sprintf("vhost: encode: %v", err)) // plain data: can't fail
	}
	return b
}

// Decode parses and checks a blob. Fields that a newer control has added are ignored.
func Decode(b []byte) (*Host, error) {
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("virtual host: %d bytes, the limit is %d", len(b), MaxBytes)
	}
	h := &Host{}
	if err := json.Unmarshal(b, h); err != nil {
		return nil, fmt.Errorf("virtual host: %w", err)
	}
	return h, h.validate()
}

var (
	label   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	service = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
)

func (h *Host) validate() error {
	if err := fleet.ValidateTenant(h.Tenant); err != nil {
		return fmt.Errorf("virtual host: tenant: %w", err)
	}
	for field, v := range map[string]string{"namespace": h.Namespace, "name": h.Name} {
		if !label.MatchString(v) {
			return fmt.Errorf("virtual host: %s: %q: want at most 63 lower-case letters, digits or '-'", field, v)
		}
	}
	for field, v := range map[string]string{"host": h.Host, "service": h.Service} {
		if !service.MatchString(v) {
			return fmt.Errorf("virtual host: %s: %q: want the name of a Service", field, v)
		}
	}
	for field, v := range map[string]int{"port": h.Port, "servicePort": h.ServicePort} {
		if v < 1 || v > 65535 {
			return fmt.Errorf("virtual host: %s: %d: want 1 to 65535", field, v)
		}
	}
	if len(h.Routes) > MaxRoutes {
		return fmt.Errorf("virtual host: routes: %d, the limit is %d", len(h.Routes), MaxRoutes)
	}
	for _, r := range h.Routes {
		switch {
		case !h.HTTP:
			return errors.New("virtual host: routes: of HTTP alone")
		case !strings.HasPrefix(r.Path, "/"):
			return fmt.Errorf("virtual host: routes: path %q: want one that begins with /", r.Path)
		case !service.MatchString(r.Service):
			return fmt.Errorf("virtual host: routes: service %q: want the name of a Service", r.Service)
		case r.Port < 1 || r.Port > 65535:
			return fmt.Errorf("virtual host: routes: port %d: want 1 to 65535", r.Port)
		}
	}
	for field, sites := range map[string][]string{"providers": h.Providers, "consumers": h.Consumers} {
		for _, s := range sites {
			if err := (fleet.SiteID{Tenant: h.Tenant, Name: s}).Validate(); err != nil {
				return fmt.Errorf("virtual host: %s: %w", field, err)
			}
		}
		if !slices.IsSorted(sites) {
			return fmt.Errorf("virtual host: %s: not in order of their names", field)
		}
	}
	return nil
}

// MaxKey is how long a Key may be, in bytes.
const MaxKey = 127

// ValidHost tells whether it can be a Host.Host.
func ValidHost(name string) bool { return service.MatchString(name) }

// ValidKey tells whether it can be a Key.
func ValidKey(key string) bool {
	ns, name, ok := strings.Cut(key, "/")
	return ok && label.MatchString(ns) && label.MatchString(name)
}
