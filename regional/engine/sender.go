package engine

import (
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/notifier"
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
