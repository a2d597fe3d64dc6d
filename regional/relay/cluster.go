package relay

import (
	"context"
	"math"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/mirror"
	"muster.dev/muster/internal/tunnel"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional"
)

// keepCluster is how long what runs on a site is kept after its stream has ended: a site
// that is back by then goes on with what changed.
const keepCluster = 15 * time.Minute

// cluster is what runs on a site, as the site said it and as control was told. It is kept
// so that control, when it restarts, hears it again from here. A nil one is none. Guarded
// by Relay.mu, but for the mirror, which guards itself.
type cluster struct {
	mirror *mirror.Mirror
	due    bool      // there may be something to tell
	left   time.Time // when the site's stream ended; zero: it is there
}

func (c *cluster) isDue() bool { return c != nil && c.due }

func (c *cluster) interrupted() {
	if c != nil {
		c.mirror.Interrupted()
		c.left = time.Time{}
	}
}

// announce says which version is held; control says so if it holds another one.
func (c *cluster) announce(id fleet.SiteID) *wire.RelayUp {
	if c == nil {
		return nil
	}
	epoch, seq := c.mirror.Assume()
	if epoch == "" {
		return nil
	}
	return &wire.RelayUp{Msg: &wire.RelayUp_SiteKubernetes{SiteKubernetes: &wire.SiteKubernetes{Tenant: id.Tenant, Site: id.Name, Epoch: epoch, Seq: seq}}}
}

// KubernetesVersion implements regional.Upstream.
func (r *Relay) KubernetesVersion(id fleet.SiteID) (epoch string, seq uint64) {
	r.mu.Lock()
	c := r.clusters[id]
	r.mu.Unlock()
	if c == nil {
		return "", 0
	}
	return c.mirror.Version()
}

// Kubernetes implements regional.Upstream.
func (r *Relay) Kubernetes(id fleet.SiteID, sess regional.Session, st *wire.KubernetesStatus) {
	r.mu.Lock()
	s := r.sites[id]
	if s == nil || s.session != sess {
		r.mu.Unlock()
		return
	}
	c := r.clusters[id]
	if c == nil {
		c = &cluster{}
		limits := mirror.DefaultLimits
		limits.Room, limits.Tenant = r.room, id.Tenant
		c.mirror = mirror.New(limits, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			c.due = true
			r.poke()
		})
		r.clusters[id] = c
	}
	r.mu.Unlock()
	if !c.mirror.Apply(st) {
		sess.Resync()
	}
}

// takeCluster returns what control is to be told of a site's cluster.
func (r *Relay) takeCluster(id fleet.SiteID) []*wire.RelayUp {
	r.mu.Lock()
	s, c := r.sites[id], r.clusters[id]
	if s == nil || !s.announced || !c.isDue() {
		r.mu.Unlock()
		return nil
	}
	c.due = false
	r.mu.Unlock()
	var out []*wire.RelayUp
	left := uint32(min(c.mirror.Stats().LeftOut, math.MaxUint32))
	for _, st := range c.mirror.Next(false) {
		out = append(out, &wire.RelayUp{Msg: &wire.RelayUp_SiteKubernetes{SiteKubernetes: &wire.SiteKubernetes{Tenant: id.Tenant, Site: id.Name, Status: st, LeftOut: left}}})
	}
	return out
}

// onResync: control holds another version than was announced, or none.
func (r *Relay) onResync(m *wire.SiteKubernetesResync) {
	id := fleet.SiteID{Tenant: m.GetTenant(), Name: m.GetSite()}
	r.mu.Lock()
	c := r.clusters[id]
	r.mu.Unlock()
	if c != nil {
		c.mirror.Resync()
	}
}

func (r *Relay) forgetClusterLocked(id fleet.SiteID) {
	if c := r.clusters[id]; c != nil {
		c.mirror.Close()
		delete(r.clusters, id)
	}
}

// sweepClusters forgets what runs on sites that have been away for long.
func (r *Relay) sweepClusters() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.opts.Now()
	for id, c := range r.clusters {
		if !c.left.IsZero() && now.Sub(c.left) > keepCluster {
			r.forgetClusterLocked(id)
		}
	}
	for id, t := range r.tunnels {
		if now.After(t.until) {
			delete(r.tunnels, id)
		}
	}
}

// tunnelWait is how long control waits for a tunnel that it asked for, about.
const tunnelWait = time.Minute

// maxPendingTunnels of all sites together, and of one: an agent has 16 open at once. One that
// opens none of those that it is asked for takes no other site's.
const maxPendingTunnels, maxPendingOfSite = 10_000, 64

// pendingTunnel is one that control asked for and that the site has not opened yet.
type pendingTunnel struct {
	site  fleet.SiteID
	until time.Time
}

func (r *Relay) onOpenTunnel(m *wire.SiteOpenTunnel) {
	id := fleet.SiteID{Tenant: m.GetTenant(), Name: m.GetSite()}
	r.mu.Lock()
	var sess regional.Session
	if s := r.sites[id]; s != nil && len(r.tunnels) < maxPendingTunnels {
		pending := 0
		for _, t := range r.tunnels {
			if t.site == id {
				pending++
			}
		}
		if sess = s.session; sess != nil && pending >= maxPendingOfSite {
			sess = nil
		}
		if sess != nil {
			r.tunnels[m.GetId()] = pendingTunnel{id, r.opts.Now().Add(tunnelWait)}
		}
	}
	r.mu.Unlock()
	if sess != nil {
		sess.OpenTunnel(m.GetId())
	}
}

// Tunnel implements regional.Upstream.
func (r *Relay) Tunnel(ctx context.Context, site fleet.SiteID, id string, stream tunnel.Stream) error {
	r.mu.Lock()
	t, ok := r.tunnels[id]
	if ok = ok && t.site == site; ok {
		delete(r.tunnels, id)
	}
	r.mu.Unlock()
	if !ok || r.opts.Now().After(t.until) {
		return regional.ErrUnknownTunnel
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	up, err := r.opts.Control.Tunnel(ctx)
	if err == nil {
		err = up.Send(&wire.TunnelData{Id: id})
	}
	if err != nil {
		return status.Error(codes.Unavailable, "control can't be reached by this regional now")
	}
	return tunnel.Splice(stream, up)
}
