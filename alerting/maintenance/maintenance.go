// Package maintenance turns planned work into silences: the maintenance windows of
// Sites and VirtualSites, and a Site that is in maintenance now. The silences of the
// coming day stand in Alertmanager before they begin, so they work while the API
// server and this role are away.
//
// Wanted is pure; Keeper compares what it gives with what Alertmanager has. It
// touches only silences that Muster made for maintenance, never people's.
// cmd/internal runs it.
package maintenance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/control/api/maintenance"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/wire"
)

const (
	// Ahead is how long before its start a window becomes a silence.
	Ahead = 24 * time.Hour
	// A maintenance without an end is silenced for openEnded at a time, and prolonged
	// when less than half of that is left.
	openEnded = 12 * time.Hour
)

// Wanted are the silences that should be there at now.
func Wanted(s *inventory.Snapshot, now time.Time) []amclient.Silence {
	var out []amclient.Silence
	add := func(matchers []wire.Matcher, what string, spans []maintenance.Span) {
		for _, span := range spans {
			out = append(out, amclient.Silence{Matchers: matchers, StartsAt: span.Start, EndsAt: span.End, CreatedBy: amclient.CreatedByMaintenance,
				Comment: fmt.Sprintf("Maintenance window %s of %s: %s", span.Name, what, span.Reason)})
		}
	}
	for _, site := range s.Sites {
		if !site.Counts() {
			continue
		}
		matchers := []wire.Matcher{wire.EqualMatcher("site", site.ID.Name), wire.EqualMatcher("tenant", site.ID.Tenant)}
		add(matchers, "site "+site.ID.String(), site.Planned(now, now.Add(Ahead)))
		m := site.ByHand
		if m == nil || m.Until != nil && !m.Until.After(now) {
			continue
		}
		silence := amclient.Silence{Matchers: matchers, StartsAt: now, CreatedBy: amclient.CreatedByMaintenance, Comment: fmt.Sprintf("Maintenance of site %s: %s", site.ID, m.Reason)}
		if m.Until != nil {
			silence.EndsAt = m.Until.UTC()
		}
		out = append(out, silence)
	}
	for _, v := range s.VirtualSites {
		matchers := []wire.Matcher{wire.EqualMatcher("tenant", v.Tenant), {Name: "virtual_sites", Value: ".*[|]" + regexp.QuoteMeta(v.Key()) + "[|].*", IsRegex: true, IsEqual: true}}
		add(matchers, "virtual site "+v.Tenant+"/"+v.Key(), v.Planned(now, now.Add(Ahead)))
	}
	return out
}

// API is what a Keeper needs of Alertmanager; *amclient.Client is one.
type API interface {
	Silences(ctx context.Context, filter ...string) ([]amclient.Silence, error)
	SetSilence(ctx context.Context, s amclient.Silence) (string, error)
	ExpireSilence(ctx context.Context, id string) error
}

// Options of New. Alertmanager, Snapshot and Logger are needed.
type Options struct {
	Alertmanager API
	// Snapshot is the fleet, nil while nothing is known of it.
	Snapshot   func() *inventory.Snapshot
	Interval   time.Duration // between looks when nothing changes; default 30 s
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
}

// Keeper keeps Alertmanager's silences in step with the windows.
type Keeper struct {
	opts   Options
	wake   chan struct{}
	active prometheus.Gauge
	failed prometheus.Counter

	mu     sync.Mutex
	status Status
}

// Status is for /debug/.
type Status struct {
	Silences  int       `json:"silences"` // that stand for windows
	LastRun   time.Time `json:"lastRun"`
	LastError string    `json:"lastError,omitempty"`
}

// New checks the options.
func New(o Options) (*Keeper, error) {
	if o.Alertmanager == nil || o.Snapshot == nil || o.Logger == nil {
		return nil, errors.New("maintenance silences: Alertmanager, Snapshot and Logger must be set")
	}
	if o.Interval <= 0 {
		o.Interval = 30 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	f := promauto.With(o.Registerer)
	return &Keeper{opts: o, wake: make(chan struct{}, 1),
		active: f.NewGauge(prometheus.GaugeOpts{Name: "muster_maintenance_silences", Help: "Silences that stand for maintenance windows, active and pending."}),
		failed: f.NewCounter(prometheus.CounterOpts{Name: "muster_maintenance_failures_total", Help: "Times that silences could not be brought in step with the maintenance windows."})}, nil
}

// Changed tells that the snapshot is another one.
func (k *Keeper) Changed() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Status returns the state now.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.status
}

// Run works until ctx ends. What fails is tried again at the next look.
func (k *Keeper) Run(ctx context.Context) error {
	t := time.NewTicker(k.opts.Interval)
	defer t.Stop()
	for {
		if s := k.opts.Snapshot(); s != nil {
			n, err := k.sync(ctx, s)
			if ctx.Err() != nil {
				return nil
			}
			k.setStatus(n, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		case <-k.wake:
		}
	}
}

func (k *Keeper) setStatus(n int, err error) {
	st := Status{Silences: n, LastRun: k.opts.Now().UTC()}
	if err != nil {
		st.LastError = err.Error()
		k.failed.Inc()
		k.opts.Logger.Warn("silences of maintenance windows wait", "err", err)
	} else {
		k.active.Set(float64(n))
	}
	k.mu.Lock()
	k.status = st
	k.mu.Unlock()
}

// sync makes what is missing and ends what is no longer wanted. A failure with one
// silence does not keep the others.
func (k *Keeper) sync(ctx context.Context, s *inventory.Snapshot) (int, error) {
	all, err := k.opts.Alertmanager.Silences(ctx)
	if err != nil {
		return 0, fmt.Errorf("list silences: %w", err)
	}
	now := k.opts.Now()
	have, open := map[string]amclient.Silence{}, map[string]amclient.Silence{}
	var drop []amclient.Silence
	for _, x := range all {
		if x.CreatedBy != amclient.CreatedByMaintenance || x.Status.State == "expired" {
			continue
		}
		if key := identity(x); have[key].ID == "" {
			have[key], open[openIdentity(x)] = x, x
		} else {
			drop = append(drop, x) // two of a kind: made by two replicas at once
		}
	}
	var errs []error
	wanted := Wanted(s, now)
	for _, w := range wanted {
		if !w.EndsAt.IsZero() {
			if key := identity(w); have[key].ID != "" {
				delete(have, key)
				continue
			}
		} else {
			// An open end is prolonged in place, under the same ID.
			w.EndsAt = now.Add(openEnded)
			if old, found := open[openIdentity(w)]; found {
				delete(have, identity(old))
				if old.EndsAt.Sub(now) > openEnded/2 {
					continue
				}
				w.ID, w.StartsAt = old.ID, old.StartsAt
			}
		}
		if _, err := k.opts.Alertmanager.SetSilence(ctx, w); err != nil {
			errs = append(errs, fmt.Errorf("make the silence %q: %w", w.Comment, err))
		}
	}
	for _, x := range have {
		drop = append(drop, x)
	}
	for _, x := range drop {
		if err := k.opts.Alertmanager.ExpireSilence(ctx, x.ID); err != nil && !errors.Is(err, amclient.ErrNotFound) {
			errs = append(errs, fmt.Errorf("end the silence %q: %w", x.Comment, err))
		}
	}
	return len(wanted), errors.Join(errs...)
}

// identity tells silences apart: whom they silence, until when and why. Not from
// when: Alertmanager moves a start that is past to now.
func identity(s amclient.Silence) string {
	return openIdentity(s) + "\x00" + s.EndsAt.UTC().Truncate(time.Second).Format(time.RFC3339)
}

// openIdentity leaves the end out.
func openIdentity(s amclient.Silence) string {
	byName := map[string]string{}
	for _, m := range s.Matchers {
		byName[m.Name] = fmt.Sprint(m.Value, "\x00", m.IsRegex, m.IsEqual)
	}
	return strings.Join([]string{byName["tenant"], byName["site"], byName["virtual_sites"], s.Comment}, "\x00")
}
