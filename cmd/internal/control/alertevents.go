package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/peers"
	"muster.dev/muster/internal/wire"
)

const (
	alertEventsEvery = 10 * time.Second
	// An alert comes into the timeline up to this long after it began.
	alertEventsLate = 5 * time.Minute
	maxAlertEvents  = 16 << 20 // bytes of an answer
)

// alertEvents repeats what the alerting role has in its part of the timeline of alerts, and of
// who was notified of them, as Kubernetes events on Sites. What began before this process, or while
// alerting does not answer for longer than alertEventsLate, is not repeated: the timeline has it.
type alertEvents struct {
	url    string
	client *http.Client
	tell   func(id fleet.SiteID, kind, reason, message string)
	now    func() time.Time
	seen   map[string]time.Time // tenant and id; nil before the first look
}

func (a *alertEvents) run(ctx context.Context) error {
	t := time.NewTicker(alertEventsEvery)
	defer t.Stop()
	for {
		_ = a.look(ctx) // the gates of rollouts complain if alerting is away
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

func (a *alertEvents) look(ctx context.Context) error {
	from := a.now().Add(-alertEventsLate)
	page, err := a.fetch(ctx, from)
	if err != nil {
		return err
	}
	first := a.seen == nil
	if first {
		a.seen = map[string]time.Time{}
	}
	for _, e := range page.Events {
		key := e.Tenant + "/" + e.ID
		if _, told := a.seen[key]; told {
			continue
		}
		a.seen[key] = e.Time
		if first || e.Site == "" {
			continue
		}
		kind, reason := alertEvent(&e)
		a.tell(fleet.SiteID{Tenant: e.Tenant, Name: e.Site}, kind, reason, e.Text)
	}
	for key, at := range a.seen {
		if at.Before(from.Add(-alertEventsLate)) {
			delete(a.seen, key)
		}
	}
	return nil
}

func alertEvent(e *wire.TimelineEvent) (kind, reason string) {
	kind = corev1.EventTypeNormal
	if e.Severity != wire.EventInfo && e.After != wire.AlertResolved {
		kind = corev1.EventTypeWarning
	}
	switch {
	case e.Kind == wire.EventAlert && e.After == wire.AlertResolved:
		return kind, "AlertEnded"
	case e.Kind == wire.EventAlert:
		return kind, "AlertFires"
	case e.After == wire.NotificationSent:
		return kind, "Notified"
	}
	return kind, "NotNotified"
}

func (a *alertEvents) fetch(ctx context.Context, from time.Time) (*wire.TimelinePage, error) {
	ctx, cancel := context.WithTimeout(ctx, alertEventsEvery)
	defer cancel()
	q := url.Values{"kind": {wire.EventAlert, wire.EventNotification}, "from": {from.UTC().Format(time.RFC3339)}, "limit": {"1000"}}
	b, err := peers.Question{URL: a.url + wire.TimelinePath, Query: q, Tenants: wire.AllTenants, Agent: "muster-control", Max: maxAlertEvents}.Get(ctx, a.client)
	if err != nil {
		return nil, fmt.Errorf("alerts of the timeline: %w", err)
	}
	var page wire.TimelinePage
	return &page, json.Unmarshal(b, &page)
}
