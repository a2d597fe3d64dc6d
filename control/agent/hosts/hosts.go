// Package hosts is a site's part in virtual hosts: it listens for those that are advertised
// to the site and carries each connection to a site that serves them; and it connects
// those that come from other sites with the Service that serves them here.
//
// What is reached and served is what control says (package vhost), never what a server or
// another site asks for. Both ends of a connection check each other's certificate against
// the lists in it: the regionals between them pass on ciphertext and are not trusted.
// muster-edge runs it; how a name comes to lead here is the Site's business, which is
// control/agent/kube on a cluster.
package hosts

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/vhost"
)

// Agent is what this package needs of *agent.Agent.
type Agent interface {
	Identity() (site fleet.SiteID, region string, ok bool)
	Reach(ctx context.Context, host string) (net.Conn, error)
	Answer(ctx context.Context, server, id string) (net.Conn, error)
	Refuse(ctx context.Context, server, id, why string) error
	PeerTLS(verify func(fleet.SiteID) error) *tls.Config
	SetCondition(typ, status, reason, message string)
}

// Published is a host that is to be reached on this machine's port.
type Published struct {
	Host *vhost.Host
	Port int
}

// Site is what surrounds the agent. It may be called from several goroutines.
type Site interface {
	// Publish makes the names of these hosts, and of no others, lead to their ports, and
	// returns by Host.Key why some don't; all of them fail alike if err is set.
	Publish(ctx context.Context, list []Published) (failed map[string]error, err error)
	// Dial connects with the Service that serves a host on this site.
	Dial(ctx context.Context, h *vhost.Host) (net.Conn, error)
}

// Options of New; Site and Logger are required.
type Options struct {
	Site   Site
	Listen string // address without a port for listeners; empty: all of the machine's
	Logger *slog.Logger
	// Every is how often names are looked after; default 1 min. RetryAfter is after how
	// long what failed is tried again; default 10 s.
	Every, RetryAfter time.Duration
}

// How long the steps to a connection may take, and how many there are at once.
const (
	reachWithin     = 30 * time.Second
	handshakeWithin = 15 * time.Second
	dialWithin      = 5 * time.Second
	maxConnections  = 256
)

// Hosts is safe for concurrent use. As a prometheus.Collector it tells of its connections.
type Hosts struct {
	*agent.Newest
	o      Options
	agent  Agent
	meter  *meter
	places chan struct{} // of connections

	mu     sync.Mutex
	served map[string]*vhost.Host
	ctx    context.Context // of Run; nil: it does not run
	wg     sync.WaitGroup

	listeners map[string]*listener // by key; belongs to Run
}

// New returns Hosts; Run runs it.
func New(o Options) *Hosts {
	o.Every, o.RetryAfter = cmp.Or(max(o.Every, 0), time.Minute), cmp.Or(max(o.RetryAfter, 0), 10*time.Second)
	return &Hosts{Newest: agent.NewNewest(), o: o, meter: newMeter(), places: make(chan struct{}, maxConnections), served: map[string]*vhost.Host{}, listeners: map[string]*listener{}}
}

// Run works until ctx ends. It is called once.
func (h *Hosts) Run(ctx context.Context, a Agent) error {
	h.mu.Lock()
	h.ctx, h.agent = ctx, a
	h.mu.Unlock()
	defer h.wg.Wait()
	defer func() {
		for _, l := range h.listeners {
			l.close()
		}
	}()
	next := time.NewTimer(time.Hour)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.Changed():
		case <-next.C:
		}
		wait := h.o.Every
		if !h.settle(ctx) {
			wait = h.o.RetryAfter
		}
		next.Reset(wait)
	}
}

// settle brings listeners and names to what the newest set says; false: some failed.
func (h *Hosts) settle(ctx context.Context) bool {
	set := h.Set()
	own, _, ok := h.agent.Identity()
	if set == nil || !ok {
		return set == nil
	}
	type wanted struct {
		*vhost.Host
		digest string
	}
	var want []wanted
	failed := map[string]error{}
	digests := map[string]string{}
	for _, it := range set.Items {
		digests[it.Name] = it.Digest
		host, err := read(set, it, own)
		if err != nil {
			failed[it.Name] = err
			continue
		}
		want = append(want, wanted{host, it.Digest})
	}
	served := map[string]*vhost.Host{}
	var list []Published
	keep := map[string]bool{}
	for _, w := range want {
		if w.Provides(own.Name) {
			served[w.Key()] = w.Host
		}
		if !w.Consumes(own.Name) {
			continue
		}
		keep[w.Key()] = true
		l, err := h.listen(ctx, w.Host)
		if err != nil {
			failed[w.Key()] = err
			continue
		}
		list = append(list, Published{w.Host, l.port()})
	}
	for key := range failed { // what can't be read now goes on as it was
		if h.listeners[key] != nil && !keep[key] {
			keep[key] = true
			list = append(list, Published{h.listeners[key].current(), h.listeners[key].port()})
		}
	}
	h.mu.Lock()
	for key := range failed {
		if old := h.served[key]; old != nil && served[key] == nil {
			served[key] = old
		}
	}
	h.served = served
	h.mu.Unlock()
	for key, l := range h.listeners {
		if !keep[key] {
			l.close()
			delete(h.listeners, key)
		}
	}
	known := map[string]*vhost.Host{}
	for key := range digests {
		known[key] = served[key]
	}
	h.meter.keep(known)
	h.setReachable()
	bad, err := h.o.Site.Publish(ctx, list)
	for _, p := range list {
		why := cmp.Or(bad[p.Host.Key()], err)
		if why != nil && failed[p.Host.Key()] == nil {
			failed[p.Host.Key()] = why
		}
	}
	if ctx.Err() != nil {
		return true
	}
	for _, it := range set.Items {
		set.Applied(it.Name, it.Digest, failed[it.Name])
	}
	return len(failed) == 0 && err == nil
}

// read decodes an item, which has to be of this tenant.
func read(set *agent.Set, it agent.SetItem, own fleet.SiteID) (*vhost.Host, error) {
	if it.Err != nil {
		return nil, it.Err
	}
	blob, err := set.Blob(it.Digest)
	if err != nil {
		return nil, err
	}
	host, err := vhost.Decode(blob)
	switch {
	case err != nil:
		return nil, err
	case host.Key() != it.Name:
		return nil, fmt.Errorf("it is of the virtual host %s", host.Key())
	case host.Tenant != own.Tenant:
		return nil, fmt.Errorf("it is of tenant %s", host.Tenant)
	}
	return host, nil
}

// setReachable has the site's condition say what the last attempts came to.
func (h *Hosts) setReachable() {
	if status, reason, message, known := h.meter.condition(); known {
		h.agent.SetCondition(ConditionReachable, status, reason, message)
	}
}

// tried counts an attempt at a host, and tells where it changes something.
func (h *Hosts) tried(host, direction string, err error) { h.triedService(host, direction, "", err) }

// triedService is tried, of the SERVICE:PORT of a route; empty: of none.
func (h *Hosts) triedService(host, direction, service string, err error) {
	result, why := resultOK, ""
	if err != nil {
		result, why = resultFailed, err.Error()
	}
	if errors.Is(err, errNoPlace) {
		result = resultLimit
	}
	if h.meter.attempt(host, direction, service, result, why) {
		h.setReachable()
	}
}

// peer checks that the other end is one of these sites, and says which.
func (h *Hosts) peer(tenant string, sites []string, who *fleet.SiteID) *tls.Config {
	return h.agent.PeerTLS(func(id fleet.SiteID) error {
		if _, ok := slices.BinarySearch(sites, id.Name); id.Tenant != tenant || !ok {
			return fmt.Errorf("site %s has no part in this virtual host", id)
		}
		*who = id
		return nil
	})
}

// errNoPlace is when the site has as many connections as it takes.
var errNoPlace = errors.New("the site has as many connections to and from virtual hosts as it takes")

// place takes one of the site's places; false: there is none.
func (h *Hosts) place() (give func(), ok bool) {
	select {
	case h.places <- struct{}{}:
		return func() { <-h.places }, true
	default:
		return nil, false
	}
}

// serves is the host of a key that is served here; nil: there is none.
func (h *Hosts) serves(key string) *vhost.Host {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.served[key]
}

// Open is agent.Options.OpenHost: a server asks for a connection to what this site serves.
func (h *Hosts) Open(server, id, key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx == nil || h.ctx.Err() != nil {
		return
	}
	ctx, host := h.ctx, h.served[key]
	h.wg.Go(func() {
		if err := h.answer(ctx, server, id, key, host); err != nil {
			h.o.Logger.Debug("a connection from another site came to nothing", "host", key, "err", err)
		}
	})
}

func (h *Hosts) answer(ctx context.Context, server, id, key string, host *vhost.Host) error {
	refuse := func(why string) error {
		return errors.Join(errors.New(why), h.agent.Refuse(ctx, server, id, why))
	}
	if host == nil {
		return refuse(key + " is not served here")
	}
	give, ok := h.place()
	if !ok {
		h.tried(key, inward, errNoPlace)
		return refuse("it has as many connections as it takes")
	}
	defer give()
	dctx, cancel := context.WithTimeout(ctx, dialWithin)
	service, err := h.o.Site.Dial(dctx, host)
	cancel()
	if err != nil {
		why := fmt.Sprintf("service %s: %v", host.Service, err)
		if ctx.Err() == nil {
			h.tried(key, inward, errors.New(why))
		}
		return refuse(why)
	}
	defer service.Close()
	actx, cancel := context.WithTimeout(ctx, reachWithin)
	raw, err := h.agent.Answer(actx, server, id)
	cancel()
	if err == nil {
		var who fleet.SiteID
		err = h.carry(ctx, host, inward, tls.Server(raw, h.peer(host.Tenant, host.Consumers, &who)), &who, service)
	}
	if err != nil { // at the other site, or on the way
		h.meter.attempt(key, inward, "", resultFailed, "")
	}
	return err
}

// carry shakes hands with the other site, and then passes on until both directions end.
func (h *Hosts) carry(ctx context.Context, host *vhost.Host, direction string, site *tls.Conn, who *fleet.SiteID, local net.Conn) error {
	defer site.Close()
	hctx, cancel := context.WithTimeout(ctx, handshakeWithin)
	err := site.HandshakeContext(hctx)
	cancel()
	if err != nil {
		return fmt.Errorf("handshake with the other site: %w", err)
	}
	h.tried(host.Key(), direction, nil)
	stop := context.AfterFunc(ctx, func() { site.NetConn().Close(); local.Close() })
	defer stop()
	c := h.meter.open(host.Key(), direction, who.Name, site)
	if host.HTTP && direction == inward {
		h.passRequests(ctx, func() *vhost.Host { return h.serves(host.Key()) }, who.Name, c, local)
	} else {
		Copy(c, local)
	}
	return nil
}

// clip keeps what is logged of a message short.
func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), 300)], "") }
