package engine

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/notifier"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/util/strutil"
)

// sender is the way of every alert to the notifier's queue. Labels that AlertLabels
// adds may change while an alert fires: its site joins a virtual site. To Alertmanager
// that is another alert, so the one that it knows is ended when the new one is sent.
type sender struct {
	e *Engine

	mu    sync.Mutex
	sent  map[uint64]sentAlert // by the hash of the labels as the rule has them
	swept time.Time
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

// Send implements rules.Sender. The queue is bounded: when Alertmanager is away for
// long, the oldest are dropped, and the rules send again as long as an alert fires.
func (s *sender) Send(alerts ...*notifier.Alert) {
	if label := s.e.opts.AlertLabels; label != nil {
		alerts = s.label(alerts, label, time.Now())
	}
	s.e.notifier.Send(alerts...)
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
