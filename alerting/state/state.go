// Package state keeps an index of what fires, with the history of each alert on disk,
// and serves it, and silences, as JSON below /api/v1/alerts and /api/v1/silences.
//
// It asks Alertmanager every few seconds, embedded or external, and decides nothing: what
// is suppressed, Alertmanager says. It authenticates nobody: X-Muster-Tenants says
// what a request may read and X-Muster-User who asks, so it must be mounted on a
// listener that only the console reaches. cmd/internal runs and mounts it.
package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/internal/timeline"
	"muster.dev/muster/internal/wire"
)

// Source lists the alerts that fire: *amclient.Client behind External, or an
// embedded *manager.Manager, which spares the coding of JSON.
//
// It also lists the groups that notifications are made of, for which all matchers,
// each of which demands a value, hold.
type Source interface {
	Alerts(ctx context.Context) ([]wire.Alert, error)
	Groups(ctx context.Context, filter ...wire.Matcher) ([]wire.GroupedAlerts, error)
}

// SourceFunc is a Source that knows of no groups.
type SourceFunc func(ctx context.Context) ([]wire.Alert, error)

// Alerts calls f.
func (f SourceFunc) Alerts(ctx context.Context) ([]wire.Alert, error) { return f(ctx) }

// Groups has none.
func (f SourceFunc) Groups(context.Context, ...wire.Matcher) ([]wire.GroupedAlerts, error) {
	return nil, nil
}

// External is the Source of an Alertmanager that is not embedded.
type External struct{ *amclient.Client }

// Alerts lists the alerts that fire.
func (x External) Alerts(ctx context.Context) ([]wire.Alert, error) { return x.Client.Alerts(ctx) }

// Silences is what the API needs of *amclient.Client.
type Silences interface {
	Silences(ctx context.Context, filter ...string) ([]amclient.Silence, error)
	Silence(ctx context.Context, id string) (*amclient.Silence, error)
	SetSilence(ctx context.Context, s amclient.Silence) (string, error)
	ExpireSilence(ctx context.Context, id string) error
}

// Options of a State. Source, Silences, File and Logger are needed.
type Options struct {
	Source   Source
	Silences Silences
	// File is the history (bbolt).
	File string
	// Every is the time between two questions to Source; default 2 s. It grows to ten
	// times what an answer takes, so that this costs at most a tenth of a core.
	Every time.Duration
	// Settle is how long after the start an alert that fired before it is taken to
	// fire on though Alertmanager, which forgets alerts as it restarts, does not list
	// it yet: until those who raise alerts have sent them again. Default 2 min; negative: 0.
	Settle time.Duration
	// HistoryAge and HistorySpans bound the history: default 90 days, 200,000 times
	// that an alert fired. One alert keeps at most 100.
	HistoryAge   time.Duration
	HistorySpans int
	// Timeline is told which alerts begin and end, and of silences; nil: nobody is.
	Timeline *timeline.Store
	// Tally of what rules notify; nil: nobody counts.
	Tally      *Tally
	Logger     *slog.Logger
	Registerer prometheus.Registerer // may be nil
}

// State is the index and its API. Safe for concurrent use.
type State struct {
	opts     Options
	log      *slog.Logger
	history  *history
	teller   *teller // nil: there is no timeline
	view     atomic.Pointer[view]
	firingOf firing
	carried  []wire.KnownAlert // fired before the start; only Run's goroutine
	started  time.Time
	kick     chan chan struct{} // asks for a poll now, and for word of its end

	making      sync.Mutex // while one more is counted and made
	maxSilences int        // of a tenant

	polled          prometheus.Gauge
	failures        prometheus.Counter
	took            prometheus.Histogram
	firing          *prometheus.GaugeVec
	historyFailures prometheus.Counter
}

var severities = []string{"critical", "warning", "info"} // worst first

// New opens the history.
func New(o Options) (*State, error) {
	if o.Source == nil || o.Silences == nil || o.File == "" || o.Logger == nil {
		return nil, errors.New("alert state: Source, Silences, File and Logger must be set")
	}
	if o.Every <= 0 {
		o.Every = 2 * time.Second
	}
	if o.Settle == 0 {
		o.Settle = 2 * time.Minute
	}
	if o.HistoryAge <= 0 {
		o.HistoryAge = 90 * 24 * time.Hour
	}
	if o.HistorySpans <= 0 {
		o.HistorySpans = 200_000
	}
	h, err := openHistory(o.File, o.HistoryAge, o.HistorySpans)
	if err != nil {
		return nil, err
	}
	s := &State{opts: o, log: o.Logger, history: h, started: time.Now(), kick: make(chan chan struct{}), maxSilences: maxSilences}
	if s.carried, err = h.stillOpen(); err != nil {
		return nil, errors.Join(err, h.close())
	}
	if s.teller, err = newTeller(o.Timeline); err != nil {
		return nil, errors.Join(err, h.close())
	}
	f := promauto.With(o.Registerer)
	s.polled = f.NewGauge(prometheus.GaugeOpts{Name: "muster_alerts_polled_timestamp_seconds", Help: "When Alertmanager last said what fires."})
	s.failures = f.NewCounter(prometheus.CounterOpts{Name: "muster_alerts_poll_failures_total", Help: "Times that Alertmanager did not say what fires."})
	s.took = f.NewHistogram(prometheus.HistogramOpts{Name: "muster_alerts_poll_duration_seconds", Help: "Time to ask and to index.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)})
	s.firing = f.NewGaugeVec(prometheus.GaugeOpts{Name: "muster_alerts", Help: "Alerts by severity and state."}, []string{"severity", "state"})
	s.historyFailures = f.NewCounter(prometheus.CounterOpts{Name: "muster_alerts_history_failures_total", Help: "Times that the history could not be written."})
	return s, nil
}

// Close closes the history; after Run has ended.
func (s *State) Close() error { return s.history.close() }

// Ready is nil once Alertmanager has been heard.
func (s *State) Ready() error {
	if s.view.Load() == nil {
		return errors.New("alert state: Alertmanager has not said yet what fires")
	}
	return nil
}

// Run asks until ctx ends. A failure leaves the last answer, with its age, in place.
func (s *State) Run(ctx context.Context) error {
	pruned := time.Time{}
	var waiting chan struct{}
	for {
		began := time.Now()
		if err := s.poll(ctx); err != nil && ctx.Err() == nil {
			s.failures.Inc()
			s.log.Warn("alert state: can't learn what fires", "err", err)
		}
		if waiting != nil {
			close(waiting)
			waiting = nil
		}
		if time.Since(pruned) > time.Hour {
			if err := s.history.prune(time.Now()); err != nil {
				s.historyFailures.Inc()
				s.log.Error("alert history", "err", err)
			}
			pruned = time.Now()
		}
		took := time.Since(began)
		s.took.Observe(took.Seconds())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case waiting = <-s.kick:
		case <-time.After(max(s.opts.Every, 10*took)):
		}
	}
}

// refreshFor is how long somebody who changed something waits for it to be seen.
const refreshFor = 2 * time.Second

// refresh asks Alertmanager now, so that whoever made or ended a silence sees it with the next
// request. What takes too long comes with the next poll.
func (s *State) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, refreshFor)
	defer cancel()
	done := make(chan struct{})
	select {
	case s.kick <- done:
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func (s *State) poll(ctx context.Context) error {
	listed, err := s.opts.Source.Alerts(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	alerts := make([]wire.KnownAlert, 0, len(listed)+len(s.carried))
	for i := range listed {
		alerts = append(alerts, alertOf(&listed[i]))
	}
	if now.Sub(s.started) >= s.opts.Settle {
		s.carried = nil
	}
	if len(s.carried) > 0 {
		seen := make(map[string]bool, len(alerts))
		for i := range alerts {
			seen[alerts[i].Fingerprint] = true
		}
		s.carried = slices.DeleteFunc(s.carried, func(a wire.KnownAlert) bool { return seen[a.Fingerprint] })
		alerts = append(alerts, s.carried...)
	}
	v := newView(now, alerts)
	if err := s.history.record(now, v.all); err != nil {
		s.historyFailures.Inc()
		s.log.Error("alert history", "err", err) // what fires is told all the same
	}
	if err := s.teller.record(now, v); err != nil {
		s.log.Error("alert state: not in the timeline yet", "err", err)
	}
	for _, tenant := range s.firingOf.wanted(now) {
		_, _ = v.firingOf(tenant) // who asks is told of an error
	}
	s.view.Store(v)
	s.polled.Set(float64(now.UnixMilli()) / 1000)
	for _, sev := range severities {
		s.firing.WithLabelValues(sev, wire.AlertActive).Set(float64(v.active[sev]))
		s.firing.WithLabelValues(sev, wire.AlertSuppressed).Set(float64(v.suppressed[sev]))
	}
	return nil
}

func alertOf(a *wire.Alert) wire.KnownAlert {
	out := wire.KnownAlert{
		Fingerprint: a.Fingerprint, Name: a.Labels["alertname"], Tenant: a.Labels["tenant"], Site: a.Labels["site"], Region: a.Labels["region"],
		Severity: a.Labels["severity"], State: wire.AlertActive, SilencedBy: a.Status.SilencedBy, InhibitedBy: a.Status.InhibitedBy,
		StartsAt: a.StartsAt.UTC(), UpdatedAt: a.UpdatedAt.UTC(), EndsAt: a.EndsAt.UTC(), Labels: a.Labels, Annotations: a.Annotations, GeneratorURL: a.GeneratorURL,
		VirtualSites: []string{},
	}
	if v := strings.Trim(a.Labels["virtual_sites"], "|"); v != "" {
		out.VirtualSites = strings.Split(v, "|")
	}
	if !slices.Contains(severities, out.Severity) {
		out.Severity = "warning"
	}
	if a.Status.State == wire.AlertSuppressed {
		out.State = wire.AlertSuppressed
	}
	if out.SilencedBy == nil {
		out.SilencedBy = []string{}
	}
	if out.InhibitedBy == nil {
		out.InhibitedBy = []string{}
	}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	return out
}

// view is what fires at one moment; but for answers never changed once made.
type view struct {
	at                 time.Time
	all                []*wire.KnownAlert // the worst first, then the newest
	byTenant           map[string][]*wire.KnownAlert
	bySite             map[[2]string][]*wire.KnownAlert // tenant, site
	byVirtual          map[[2]string][]*wire.KnownAlert // tenant, NAMESPACE/NAME
	byID               map[string]*wire.KnownAlert
	active, suppressed map[string]int // by severity

	answers  sync.Mutex
	answered map[string]encoded // by tenant, see firing.go
}

func newView(at time.Time, alerts []wire.KnownAlert) *view {
	v := &view{at: at, all: make([]*wire.KnownAlert, len(alerts)), byTenant: map[string][]*wire.KnownAlert{}, bySite: map[[2]string][]*wire.KnownAlert{}, byVirtual: map[[2]string][]*wire.KnownAlert{},
		byID: make(map[string]*wire.KnownAlert, len(alerts)), active: map[string]int{}, suppressed: map[string]int{}}
	for i := range alerts {
		v.all[i] = &alerts[i]
	}
	slices.SortFunc(v.all, func(a, b *wire.KnownAlert) int { return positionOf(a).compare(positionOf(b)) })
	for _, a := range v.all {
		v.byID[a.Fingerprint] = a
		v.byTenant[a.Tenant] = append(v.byTenant[a.Tenant], a)
		if a.Site != "" {
			k := [2]string{a.Tenant, a.Site}
			v.bySite[k] = append(v.bySite[k], a)
		}
		for _, vs := range a.VirtualSites {
			k := [2]string{a.Tenant, vs}
			v.byVirtual[k] = append(v.byVirtual[k], a)
		}
		if a.State == wire.AlertSuppressed {
			v.suppressed[a.Severity]++
		} else {
			v.active[a.Severity]++
		}
	}
	return v
}

// position in the order of lists: also what a cursor holds.
type position struct {
	Severity    int    `json:"s"`
	Start       int64  `json:"t"` // Unix nanoseconds
	Fingerprint string `json:"f"`
}

func positionOf(a *wire.KnownAlert) position {
	return position{slices.Index(severities, a.Severity), a.StartsAt.UnixNano(), a.Fingerprint}
}

func (p position) compare(q position) int {
	return cmp.Or(cmp.Compare(p.Severity, q.Severity), cmp.Compare(q.Start, p.Start), strings.Compare(p.Fingerprint, q.Fingerprint))
}

// within lists the alerts of a scope, narrowed by sites and virtual sites, in order and
// without touching others.
func (v *view) within(sc *wire.Scope, sites, virtual []string) []*wire.KnownAlert {
	tenants := sc.Asked
	if len(tenants) == 0 {
		tenants = sc.Allowed
	}
	if sc.Fleet() {
		if len(sites) == 0 && len(virtual) == 0 {
			return v.all
		}
		tenants = make([]string, 0, len(v.byTenant))
		for t := range v.byTenant {
			tenants = append(tenants, t)
		}
	}
	tenants = slices.Compact(slices.Sorted(slices.Values(tenants)))
	var lists [][]*wire.KnownAlert
	for _, t := range tenants {
		switch {
		case len(virtual) > 0:
			for _, x := range virtual {
				lists = append(lists, v.byVirtual[[2]string{t, x}])
			}
		case len(sites) > 0:
			for _, x := range sites {
				lists = append(lists, v.bySite[[2]string{t, x}])
			}
		default:
			lists = append(lists, v.byTenant[t])
		}
	}
	if len(lists) == 1 && (len(virtual) == 0 || len(sites) == 0) {
		return lists[0]
	}
	out := slices.Concat(lists...)
	if len(virtual) > 0 && len(sites) > 0 {
		out = slices.DeleteFunc(out, func(a *wire.KnownAlert) bool { return !slices.Contains(sites, a.Site) })
	}
	slices.SortFunc(out, func(a, b *wire.KnownAlert) int { return positionOf(a).compare(positionOf(b)) })
	return slices.Compact(out) // one alert may be of several virtual sites
}

func historyError(what string, err error) error {
	return fmt.Errorf("alert history: %s: %w", what, err)
}
