package alerting

import (
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/alertmanager/types"
	"github.com/prometheus/common/model"

	"muster.dev/muster/alerting/manager"
	"muster.dev/muster/internal/timeline"
)

// A receiver that is down for hours is told of once, and when it is back; what an error says
// of addresses is for nobody.
func TestNotificationsInTheTimeline(t *testing.T) {
	s, err := timeline.Open(timeline.Options{File: filepath.Join(t.TempDir(), "timeline.db"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	alert := func(site string) *types.Alert {
		return &types.Alert{Alert: model.Alert{StartsAt: time.Now(), Labels: model.LabelSet{"alertname": "DiskFull", "tenant": "acme", "site": model.LabelValue(site), "virtual_sites": "|shared/eu|"}}}
	}
	n := newNotified(s, nil, slog.New(slog.DiscardHandler))
	x := manager.Notification{Receiver: "acme/route/on-call", Integration: "webhook", Alerts: []*types.Alert{alert("paris")}}
	for range 3 {
		failed := x
		failed.Err = errors.New("https://hooks.example/SECRET: 503")
		n.record(failed)
	}
	n.record(x)
	x.Alerts = append(x.Alerts, alert("rome"))
	n.record(x)
	events, _, err := s.Page(t.Context(), timeline.Query{Tenants: []string{"acme"}, VirtualSites: []string{"shared/eu"}, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range slices.Backward(events) {
		got = append(got, e.After+" "+e.Site+" "+e.Text)
	}
	want := []string{"failed paris on-call could not be notified by webhook, and it is tried again: DiskFull (1 fire, 0 ended)", "sent paris on-call was notified by webhook: DiskFull (1 fire, 0 ended)", "sent  on-call was notified by webhook: DiskFull (2 fire, 0 ended)"}
	if !slices.Equal(got, want) {
		t.Errorf("told:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
