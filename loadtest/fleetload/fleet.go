// Package fleetload is a fleet of sites in one process, for measuring what real roles
// cost. Each site registers with a token, has a key and a certificate of its own, holds
// the agent's stream, fetches and reports the policies that it is told, and pushes remote
// write 2.0 over mutual TLS. It scrapes nothing and keeps nothing: a push is a copy of
// one payload with times, values and a few names written over, so that a fleet costs a
// small part of what it loads. What it says on the wire is what control/agent and the
// collector say; it must not be kinder to the regional than they are.
//
// loadtest/rig runs it against real processes.
package fleetload

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Options of New. Sites, Series, Server, CAHash and Token are needed.
type Options struct {
	Sites  int
	Series int // of each site
	// Pushes that carry a site's series in each interval, at least 1: a real site sends
	// one for each scrape target.
	Pushes   int
	Interval time.Duration // between samples of a series; default 15 s
	Churn    float64       // share of a site's series that others take the place of in a minute
	// MinBackoff and MaxBackoff of streams and pushes that fail; default 1 s and 30 s.
	MinBackoff, MaxBackoff time.Duration
	Timeout                time.Duration // of a push; default 30 s

	// SoftwareStep is how long a simulated agent takes to download a version, and how long it
	// is on trial, half of it to one and a half; default 10 s. SoftwareBad is the share of
	// sites on which no version is ever well. SoftwareFetches is how many really download it
	// from the regional.
	SoftwareStep    time.Duration
	SoftwareBad     float64
	SoftwareFetches int

	Server string // gateway, HOST:PORT
	CAHash string // as `muster token create` prints it
	Token  string
}

// Fleet is the sites. Safe for concurrent use.
type Fleet struct {
	opts     Options
	payloads []*payload
	sites    []*site
	tally    atomic.Pointer[Tally]
	buffers  sync.Pool

	poolOnce sync.Once
	pool     *x509.CertPool // of the trust bundle, shared
	poolErr  error

	wg sync.WaitGroup
}

// New prepares the sites; nothing is sent.
func New(o Options) (*Fleet, error) {
	switch {
	case o.Sites < 1 || o.Sites > maxSites:
		return nil, fmt.Errorf("sites: %d: want 1 to %d", o.Sites, maxSites)
	case o.Series < 1:
		return nil, fmt.Errorf("series: %d: want at least 1", o.Series)
	case o.Pushes < 0 || o.Pushes > o.Series:
		return nil, fmt.Errorf("pushes: %d: want 1 to the number of series", o.Pushes)
	case o.SoftwareBad < 0 || o.SoftwareBad > 1:
		return nil, fmt.Errorf("software that is bad: %g: want 0 to 1", o.SoftwareBad)
	case o.Churn < 0 || o.Churn > 1:
		return nil, fmt.Errorf("churn: %g: want 0 to 1", o.Churn)
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.Interval, 15*time.Second)
	def(&o.MinBackoff, time.Second)
	def(&o.MaxBackoff, 30*time.Second)
	def(&o.Timeout, 30*time.Second)
	def(&o.SoftwareStep, 10*time.Second)
	o.Pushes = max(o.Pushes, 1)
	f := &Fleet{opts: o, buffers: sync.Pool{New: func() any { return &buffer{} }}}
	f.tally.Store(&Tally{})
	var err error
	if f.payloads, err = newPayloads(o.Series, o.Pushes, o.Interval, o.Churn); err != nil {
		return nil, err
	}
	for i := range o.Sites {
		s, err := newSite(f, i)
		if err != nil {
			return nil, err
		}
		f.sites = append(f.sites, s)
	}
	return f, nil
}

// maxSites have an address of their own each, below 127.64.0.0/10.
const maxSites = 1 << 20

// address is where a site connects from. The gateway counts what comes from one address,
// and a fleet does not come from one.
func address(i int) net.IP { return net.IPv4(127, byte(64+i/60000), byte(i/250%240), byte(1+i%250)) }

// Begin starts a new tally, which counts from now on, and returns the one before.
func (f *Fleet) Begin() (before *Tally) { return f.tally.Swap(&Tally{}) }

// Tally is the present one.
func (f *Fleet) Tally() *Tally { return f.tally.Load() }

// Register gets a certificate for each site, width at a time. It tries again where the
// gateway can't be reached or says later, until ctx ends; a refusal is an error.
func (f *Fleet) Register(ctx context.Context, width int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(width, 1))
	for _, s := range f.sites {
		g.Go(func() error { return s.register(ctx) })
	}
	return g.Wait()
}

// Join makes sites that have registered, width at a time, and whose streams are open, or will be
// soon. They go on until stop, which waits for their end.
func Join(ctx context.Context, o Options, width int) (f *Fleet, stop func(), err error) {
	if f, err = New(o); err != nil {
		return nil, nil, err
	}
	if err := f.Register(ctx, width); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f.Connect(ctx)
	return f, func() {
		cancel()
		f.Wait()
	}, nil
}

// ReadCAHash reads what control writes beside its data for those who join.
func ReadCAHash(dataDir string) (string, error) {
	hash, err := os.ReadFile(filepath.Join(dataDir, "join-ca-hash"))
	return strings.TrimSpace(string(hash)), err
}

// Connect opens the sites' streams, and keeps them open until ctx ends.
func (f *Fleet) Connect(ctx context.Context) {
	for _, s := range f.sites {
		f.wg.Go(func() { s.connect(ctx) })
	}
}

// Push starts the sites' pushes, spread over an interval, until ctx ends.
func (f *Fleet) Push(ctx context.Context) {
	for _, s := range f.sites {
		f.wg.Go(func() { s.push(ctx) })
	}
}

// Wait returns once all that Connect and Push began has ended.
func (f *Fleet) Wait() {
	f.wg.Wait()
	for _, s := range f.sites {
		s.client.CloseIdleConnections()
	}
}

// Sites is how many there are.
func (f *Fleet) Sites() int { return len(f.sites) }

func (f *Fleet) count(is func(*site) bool) int {
	n := 0
	for _, s := range f.sites {
		if is(s) {
			n++
		}
	}
	return n
}

// Registered is how many sites have a certificate.
func (f *Fleet) Registered() int {
	return f.count(func(s *site) bool { return s.registered.Load() })
}

// Connected is how many sites have a stream that was welcomed.
func (f *Fleet) Connected() int { return f.count(func(s *site) bool { return s.connected.Load() }) }

// Fresh is how many sites had a sample acknowledged that is younger than an age.
func (f *Fleet) Fresh(age time.Duration) int {
	oldest := time.Now().Add(-age).UnixMilli()
	return f.count(func(s *site) bool { return s.acked.Load() > oldest })
}

// Policies is how many sites hold each collection policy, by its hash; "" for none yet.
func (f *Fleet) Policies() map[string]int {
	out := map[string]int{}
	for _, s := range f.sites {
		out[s.policy.Load().(string)]++
	}
	return out
}

// Digests is how many sites hold each version of an item (workload.ItemName), by digest;
// "" for none.
func (f *Fleet) Digests(item string) map[string]int {
	out := map[string]int{}
	for _, s := range f.sites {
		out[s.cluster.HeldDigest(item)]++
	}
	return out
}

// SoftwareBad is on how many sites no version is ever well.
func (f *Fleet) SoftwareBad() int { return f.count((*site).bad) }

// Cut makes the uplinks of n sites swallow all that is sent, spread over the fleet,
// and returns the sites' names.
func (f *Fleet) Cut(n int) []string {
	var names []string
	for i := range n {
		s := f.sites[i*len(f.sites)/n]
		s.link.Cut()
		names = append(names, s.name)
	}
	return names
}

// Restore brings all uplinks back.
func (f *Fleet) Restore() {
	for _, s := range f.sites {
		s.link.Restore()
	}
}

var errPending = errors.New("registered, but not approved; the token must approve by itself (muster token create --auto-approve)")
