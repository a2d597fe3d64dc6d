package manager

import (
	"context"

	"github.com/prometheus/alertmanager/notify"
	"github.com/prometheus/alertmanager/types"
)

// Notification is an attempt to notify a receiver of a group of alerts.
type Notification struct {
	Receiver    string // as the configuration has it
	Integration string // webhook, email, …
	Alerts      []*types.Alert
	// Err is why it failed; nil: the receiver took it. Failed ones are tried again, and each
	// attempt is a Notification.
	Err error
}

// telling tells what became of each attempt.
type telling struct {
	in                    notify.Notifier
	integration, receiver string
	told                  func(Notification) // may be nil
}

// Notify implements notify.Notifier.
func (t *telling) Notify(ctx context.Context, alerts ...*types.Alert) (bool, error) {
	retry, err := t.in.Notify(ctx, alerts...)
	if t.told != nil {
		t.told(Notification{Receiver: t.receiver, Integration: t.integration, Alerts: alerts, Err: err})
	}
	return retry, err
}
