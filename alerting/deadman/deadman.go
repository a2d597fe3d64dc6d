// Package deadman raises alerts for what falls silent: a site, a region, a regional.
// It looks at every regional's live view and at the inventory, and notifies once, at
// the level that is to blame: when a region's network fails, the region alerts, and the
// alerts of its 900 sites are inhibited by it.
//
// Decide is pure; Deadman feeds it and sends what it says. It knows nothing of routes
// and silences. cmd/internal runs it.
package deadman

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/peers"
	"muster.dev/muster/internal/wire"
)

// maxLive bounds a live view: 100,000 sites are about 25 MB.
const maxLive = 128 << 20

// Sink takes alerts; it may be called again with the same ones. An EndsAt in the past
// ends one.
type Sink interface {
	PostAlerts(ctx context.Context, alerts []wire.Alert) error
}

// Regional is one that is watched.
type Regional struct{ Name, URL string } // URL of its query listener

// Options of New. Regionals, Sites, Sink, File and Logger are needed.
type Options struct {
	Regionals []Regional
	// Sites returns all approved sites that are not decommissioned, and whether they
	// are known at all.
	Sites func() ([]Site, bool)
	Sink  Sink
	File  string // keeps the state over restarts
	// SiteFor is Config.SiteFor; default 15 s.
	SiteFor time.Duration
	// RegionalFor default 15 s, Grace 30 s, NeverFor 15 min.
	RegionalFor, Grace, NeverFor time.Duration
	Interval                     time.Duration // between looks; default 3 s
	Timeout                      time.Duration // of one look; default 3 s
	Resend                       time.Duration // of alerts that fire; default 45 s
	Client                       *http.Client
	Logger                       *slog.Logger
	Registerer                   prometheus.Registerer
	Now                          func() time.Time
	Console                      string // Config.Console
}

// Deadman watches. Safe for concurrent use.
type Deadman struct {
	opts  Options
	log   *slog.Logger
	conf  Config
	state State
	views map[string]*View
	sent  map[string]sentAlert // firing, by key

	firing *prometheus.GaugeVec
	up     *prometheus.GaugeVec
	looks  *prometheus.CounterVec
	took   *prometheus.HistogramVec
	failed prometheus.Counter

	mu     sync.Mutex
	status Status
}

type sentAlert struct {
	wire.Alert
	at time.Time // when it was last taken by the sink
}

// Status is for /debug/.
type Status struct {
	Regionals map[string]bool `json:"regionals"` // answers
	Firing    map[string]int  `json:"firing"`    // by alertname
	LastError string          `json:"lastError,omitempty"`
}

// New loads the state of a former run.
func New(o Options) (*Deadman, error) {
	if o.Sites == nil || o.Sink == nil || o.File == "" || o.Logger == nil {
		return nil, errors.New("dead-man: Sites, Sink, File and Logger must be set")
	}
	o.SiteFor = cmp.Or(max(o.SiteFor, 0), 15*time.Second)
	o.RegionalFor = cmp.Or(max(o.RegionalFor, 0), 15*time.Second)
	o.Grace = cmp.Or(max(o.Grace, 0), 30*time.Second)
	o.NeverFor = cmp.Or(max(o.NeverFor, 0), 15*time.Minute)
	o.Interval = cmp.Or(max(o.Interval, 0), 3*time.Second)
	o.Timeout = cmp.Or(max(o.Timeout, 0), 3*time.Second)
	o.Resend = cmp.Or(max(o.Resend, 0), 45*time.Second)
	if o.Client == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.Proxy = nil
		o.Client = &http.Client{Transport: t}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	d := &Deadman{opts: o, log: o.Logger, views: map[string]*View{}, sent: map[string]sentAlert{},
		conf: Config{SiteFor: o.SiteFor, RegionalFor: o.RegionalFor, Grace: o.Grace, NeverFor: o.NeverFor, MinSites: 5, MinShare: 0.8, EndShare: 0.5, Watchdog: true, Console: o.Console}}
	for _, r := range o.Regionals {
		d.conf.Regionals = append(d.conf.Regionals, r.Name)
		// Until it answers for the first time, nothing is known.
		d.views[r.Name] = &View{Name: r.Name, Since: o.Now()}
	}
	f := promauto.With(o.Registerer)
	d.firing = f.NewGaugeVec(prometheus.GaugeOpts{Name: "muster_deadman_firing", Help: "Alerts of the dead-man that fire, by name."}, []string{"alertname"})
	d.up = f.NewGaugeVec(prometheus.GaugeOpts{Name: "muster_deadman_regional_up", Help: "1 while the regional's live view answers the alerting role."}, []string{"regional"})
	d.took = f.NewHistogramVec(prometheus.HistogramOpts{Name: "muster_deadman_look_duration_seconds", Help: "How long live views took to come, or were waited for in vain, by regional.", Buckets: []float64{.01, .03, .1, .3, 1, 3, 10}}, []string{"regional"})
	d.looks = f.NewCounterVec(prometheus.CounterOpts{Name: "muster_deadman_looks_total", Help: "Looks at live views, by regional and result."}, []string{"regional", "result"})
	d.failed = f.NewCounter(prometheus.CounterOpts{Name: "muster_deadman_send_failures_total", Help: "Sends that Alertmanager did not take; they are made again."})
	if err := disk.MkdirAll(disk.OS{}, filepath.Dir(o.File), 0o700); err != nil {
		return nil, fmt.Errorf("dead-man: %w", err)
	}
	b, err := os.ReadFile(o.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("dead-man: %w", err)
	default:
		if d.state, err = decodeState(b); err != nil {
			d.log.Error("the dead-man's state on disk can't be read; silences are timed anew", "file", o.File, "err", err)
			d.state = State{}
		}
	}
	return d, nil
}

func decodeState(b []byte) (State, error) {
	var s State
	err := json.Unmarshal(b, &s)
	return s, err
}

// Status returns the state now.
func (d *Deadman) Status() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status
}

// Run watches until ctx ends.
func (d *Deadman) Run(ctx context.Context) error {
	t := time.NewTicker(d.opts.Interval)
	defer t.Stop()
	for {
		d.askRegionals(ctx)
		if ctx.Err() != nil {
			return nil
		}
		d.act(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// askRegionals asks every regional.
func (d *Deadman) askRegionals(ctx context.Context) {
	type answer struct {
		sites map[fleet.SiteID]LiveSite
		err   error
	}
	answers := make([]answer, len(d.opts.Regionals))
	var wg sync.WaitGroup
	for i, r := range d.opts.Regionals {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, d.opts.Timeout)
			defer cancel()
			defer prometheus.NewTimer(d.took.WithLabelValues(r.Name)).ObserveDuration()
			sites, err := d.ask(ctx, r)
			answers[i] = answer{sites, err}
		})
	}
	wg.Wait()
	now := d.opts.Now()
	for i, r := range d.opts.Regionals {
		v, a := d.views[r.Name], answers[i]
		result := "ok"
		if a.err != nil {
			result = "error"
		}
		d.looks.WithLabelValues(r.Name, result).Inc()
		if ok := a.err == nil; ok != v.Reachable {
			v.Reachable, v.Since = ok, now
			if !ok {
				d.log.Warn("a regional's live view does not answer", "regional", r.Name, "err", a.err)
			} else {
				d.log.Info("a regional's live view answers", "regional", r.Name)
			}
		}
		if a.err == nil {
			v.Sites = a.sites
			d.up.WithLabelValues(r.Name).Set(1)
		} else {
			d.up.WithLabelValues(r.Name).Set(0)
		}
	}
}

func (d *Deadman) ask(ctx context.Context, r Regional) (map[fleet.SiteID]LiveSite, error) {
	b, err := peers.Question{URL: r.URL + wire.LivePath, Max: maxLive}.Get(ctx, d.opts.Client)
	if err != nil {
		return nil, fmt.Errorf("live view of %s: %w", r.Name, err)
	}
	sites, err := decodeLive(b, r.Name)
	if err != nil {
		return nil, fmt.Errorf("live view of %s: %w", r.Name, err)
	}
	return sites, nil
}

// decodeLive reads the live view of a regional.
func decodeLive(b []byte, name string) (map[fleet.SiteID]LiveSite, error) {
	view, err := wire.DecodeLiveView(b, name)
	if err != nil {
		return nil, err
	}
	out := make(map[fleet.SiteID]LiveSite, len(view.Sites))
	for _, s := range view.Sites {
		out[fleet.SiteID{Tenant: s.Tenant, Name: s.Site}] = LiveSite{Connected: s.Connected, LastSeen: s.LastHeartbeat}
	}
	return out, nil
}

// act decides, and sends what is due.
func (d *Deadman) act(ctx context.Context) {
	sites, known := d.opts.Sites()
	if !known {
		return
	}
	now := d.opts.Now()
	var views []View
	for _, r := range d.opts.Regionals {
		views = append(views, *d.views[r.Name])
	}
	alerts, next := Decide(d.conf, sites, views, d.state, now)
	d.save(next)
	due := d.due(alerts, now)
	err := d.send(ctx, due, now)
	d.setStatus(alerts, err)
}

// due are the alerts that are new, changed, over, or not sent for a while.
func (d *Deadman) due(alerts []Alert, now time.Time) []wire.Alert {
	var due []wire.Alert
	firing := map[string]bool{}
	again := func(a Alert) bool {
		old, sent := d.sent[a.key()]
		return !sent || !maps.Equal(old.Labels, a.Labels) || now.Sub(old.at) >= d.opts.Resend
	}
	// Regions go along with every site, so that an Alertmanager that has just started does
	// not get the site alone and notify.
	sites := slices.ContainsFunc(alerts, func(a Alert) bool { return a.Labels["alertname"] == AlertSiteDown && again(a) })
	for _, a := range alerts {
		k := a.key()
		firing[k] = true
		out := wire.Alert{Labels: a.Labels, Annotations: a.Annotations, StartsAt: a.StartsAt, EndsAt: now.Add(4*d.opts.Resend + d.opts.Interval)}
		old, sent := d.sent[k]
		if sent && !maps.Equal(old.Labels, a.Labels) {
			// To Alertmanager other labels are another alert; the old one is over.
			end := old.Alert
			end.EndsAt = now
			due = append(due, end)
		}
		if again(a) || sites && a.Labels["alertname"] == AlertRegionDown {
			due = append(due, out)
		}
	}
	// Sites end before their region, which inhibits them until they have.
	for _, k := range slices.Backward(slices.Sorted(maps.Keys(d.sent))) {
		if !firing[k] {
			end := d.sent[k].Alert
			end.EndsAt = now
			due = append(due, end)
		}
	}
	return due
}

func (d *Deadman) send(ctx context.Context, due []wire.Alert, now time.Time) error {
	if len(due) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := d.opts.Sink.PostAlerts(ctx, due); err != nil {
		d.failed.Inc()
		return fmt.Errorf("send %d alerts: %w", len(due), err)
	}
	for _, o := range due {
		k := Alert{Labels: o.Labels}.key()
		if o.EndsAt.After(now) {
			d.sent[k] = sentAlert{Alert: o, at: now}
		} else if maps.Equal(d.sent[k].Labels, o.Labels) {
			delete(d.sent, k)
		}
	}
	return nil
}

func (d *Deadman) setStatus(alerts []Alert, err error) {
	st := Status{Regionals: map[string]bool{}, Firing: map[string]int{}}
	for name, v := range d.views {
		st.Regionals[name] = v.Reachable
	}
	d.firing.Reset()
	for _, a := range alerts {
		st.Firing[a.Labels["alertname"]]++
	}
	for name, n := range st.Firing {
		d.firing.WithLabelValues(name).Set(float64(n))
	}
	if err != nil {
		st.LastError = err.Error()
		d.log.Warn("alerts of silent sites wait", "err", err)
	}
	d.mu.Lock()
	d.status = st
	d.mu.Unlock()
}

// save keeps the state, if it changed.
func (d *Deadman) save(next State) {
	if maps.Equal(next.Silent, d.state.Silent) && maps.Equal(next.Regions, d.state.Regions) && maps.Equal(next.Firing, d.state.Firing) {
		return
	}
	d.state = next
	b, err := json.Marshal(next)
	if err == nil {
		err = atomicfile.Write(d.opts.File, b, 0o600)
	}
	if err != nil {
		d.log.Error("save the dead-man's state", "err", err)
	}
}
