package engine

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/notifier"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/util/strutil"

	"muster.dev/muster/internal/fleet"
)

// sender is the way of every alert to the notifier's queue. That queue is one for all and
// drops its oldest, so a tenant with ten thousand alerts would push out everybody else's:
// alerts wait here by tenant, and go on in turn as fast as Alertmanager takes them.
//
// Labels that AlertLabels adds may change while an alert fires: its site joins a virtual
// site. To Alertmanager that is another alert, so the one that it knows is ended when the
// new one is sent.
type sender struct {
	e      *Engine
	queued func() int // alerts in the notifier's queue
	wake   chan struct{}

	dropped *prometheus.CounterVec

	mu      sync.Mutex
	sent    map[uint64]sentAlert // by the hash of the labels as the rule has them
	swept   time.Time
	waiting map[string]*tenantAlerts
	turn    []string // tenants that wait
}

// tenantAlerts are those of one tenant that wait to be sent, the oldest first.
type tenantAlerts struct {
	list  []*notifier.Alert
	bytes int64
}

const (
	// maxWaitingAlerts and maxWaitingBytes bound what waits of one tenant; beyond, its oldest
	// are dropped, and the rules send again as long as they fire.
	maxWaitingAlerts = 10_000
	maxWaitingBytes  = 16 << 20
	// turnAlerts are taken of a tenant at its turn, and queueAlerts are in the notifier's
	// queue at one time, but for a turn. At the end as many are handed on once more: the
	// rest the rules send again after the restart.
	turnAlerts  = 64
	queueAlerts = 512
)

// newSender makes the sender, and the registry for the notifier, which tells how long its
// queue is there alone.
func newSender(e *Engine) (*sender, *prometheus.Registry) {
	reg := prometheus.NewRegistry()
	s := &sender{e: e, wake: make(chan struct{}, 1), waiting: map[string]*tenantAlerts{}, queued: func() int { return queueLength(reg) },
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_engine_alerts_dropped_total", Help: "Alerts that were dropped because too many of their tenant waited to be sent to Alertmanager.",
		}, []string{"tenant"})}
	e.reg.MustRegister(reg, s.dropped)
	return s, reg
}

func queueLength(reg *prometheus.Registry) int {
	families, err := reg.Gather()
	if err != nil {
		return 0
	}
	for _, f := range families {
		if f.GetName() == "prometheus_notifications_queue_length" {
			return int(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	return 0
}

// run hands on what waits, until ctx ends.
func (s *sender) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			for range queueAlerts / turnAlerts {
				s.e.notifier.Send(s.next()...)
			}
			return
		case <-s.wake:
		}
		for ctx.Err() == nil {
			if s.queued() >= queueAlerts {
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond): // the notifier doesn't tell
				}
				continue
			}
			batch := s.next()
			if len(batch) == 0 {
				break
			}
			s.e.notifier.Send(batch...)
		}
	}
}

// next takes the turn of a tenant.
func (s *sender) next() []*notifier.Alert {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.turn) == 0 {
		return nil
	}
	tenant := s.turn[0]
	s.turn = s.turn[1:]
	t := s.waiting[tenant]
	n := min(len(t.list), turnAlerts)
	batch := t.list[:n:n]
	if t.list = t.list[n:]; len(t.list) == 0 {
		delete(s.waiting, tenant)
		return batch
	}
	for _, a := range batch {
		t.bytes -= sizeOf(a.Labels) + sizeOf(a.Annotations)
	}
	s.turn = append(s.turn, tenant)
	return batch
}

func (s *sender) enqueue(alerts []*notifier.Alert) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range alerts {
		tenant := a.Labels.Get(fleet.SeriesTenant)
		t := s.waiting[tenant]
		if t == nil {
			t = &tenantAlerts{}
			s.waiting[tenant] = t
			s.turn = append(s.turn, tenant)
		}
		t.list = append(t.list, a)
		t.bytes += sizeOf(a.Labels) + sizeOf(a.Annotations)
		for len(t.list) > maxWaitingAlerts || t.bytes > maxWaitingBytes && len(t.list) > 1 {
			t.bytes -= sizeOf(t.list[0].Labels) + sizeOf(t.list[0].Annotations)
			t.list = t.list[1:]
			s.dropped.WithLabelValues(tenant).Inc()
		}
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

type sentAlert struct {
	labels labels.Labels
	at     time.Time
}

// maxGeneratorURL is the longest link from an alert to its expression; a longer one leads
// to the engine alone. Every alert of a rule carries it, as far as the phone.
const maxGeneratorURL = 2048

// notify is a rules.NotifyFunc, as rules.SendAlerts but for the link.
func (s *sender) notify(_ context.Context, expr string, alerts ...*rules.Alert) {
	if len(alerts) == 0 {
		return
	}
	link := s.e.opts.ExternalURL + strutil.TableLinkForExpression(expr)
	if len(link) > maxGeneratorURL {
		link = s.e.opts.ExternalURL
	}
	out := make([]*notifier.Alert, len(alerts))
	for i, a := range alerts {
		out[i] = &notifier.Alert{StartsAt: a.FiredAt, EndsAt: a.ValidUntil, Labels: a.Labels, Annotations: a.Annotations, GeneratorURL: link}
		if !a.ResolvedAt.IsZero() {
			out[i].EndsAt = a.ResolvedAt
		}
	}
	s.Send(out...)
}

// Send puts alerts into their tenants' queues.
func (s *sender) Send(alerts ...*notifier.Alert) {
	if label := s.e.opts.AlertLabels; label != nil {
		alerts = s.label(alerts, label, time.Now())
	}
	s.enqueue(alerts)
}

func (s *sender) label(alerts []*notifier.Alert, label func(labels.Labels) labels.Labels, now time.Time) []*notifier.Alert {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent == nil {
		s.sent = map[uint64]sentAlert{}
	}
	for _, a := range alerts {
		key := a.Labels.Hash()
		a.Labels = label(a.Labels)
		if old, ok := s.sent[key]; ok && !labels.Equal(old.labels, a.Labels) {
			over := *a
			over.Labels, over.EndsAt = old.labels, now
			alerts = append(alerts, &over)
		}
		if a.EndsAt.After(now) {
			s.sent[key] = sentAlert{a.Labels, now}
		} else {
			delete(s.sent, key)
		}
	}
	// Rules that are removed leave alerts that nobody resolves; they end by themselves.
	if now.Sub(s.swept) > time.Minute {
		s.swept = now
		for key, x := range s.sent {
			if now.Sub(x.at) > 5*s.e.opts.ResendDelay {
				delete(s.sent, key)
			}
		}
	}
	return alerts
}
