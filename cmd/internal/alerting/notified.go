package alerting

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/alertmanager/types"

	"muster.dev/muster/alerting/manager"
	"muster.dev/muster/alerting/state"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/timeline"
	"muster.dev/muster/internal/wire"
)

// notified tells the timeline who was notified of what. Of attempts that fail one after the
// other the first is told, and the one that succeeds.
type notified struct {
	store *timeline.Store
	tally *state.Tally // counts all of them; nil: nobody does
	log   *slog.Logger

	mu      sync.Mutex
	failing map[string]bool // by receiver and integration
}

func newNotified(s *timeline.Store, tally *state.Tally, log *slog.Logger) *notified {
	return &notified{store: s, tally: tally, log: log, failing: map[string]bool{}}
}

func (n *notified) record(x manager.Notification) {
	if len(x.Alerts) == 0 {
		return
	}
	now := time.Now()
	if n.tally != nil {
		n.tally.Add(now, string(x.Alerts[0].Labels[fleet.SeriesTenant]), receiverName(x.Receiver), rulesOf(x.Alerts), x.Err != nil)
	}
	key := x.Receiver + "\x00" + x.Integration
	n.mu.Lock()
	again := x.Err != nil && n.failing[key]
	if x.Err != nil {
		n.failing[key] = true
	} else {
		delete(n.failing, key)
	}
	n.mu.Unlock()
	if again {
		return
	}
	if err := n.store.Add(notification(x, now)); err != nil {
		n.log.Error("a notification is not in the timeline", "receiver", x.Receiver, "err", err)
	}
}

// receiverName is what people call a receiver, which is TENANT/ROUTE/NAME in Alertmanager.
func receiverName(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }

// rulesOf are the rules that alerts come from, each once.
func rulesOf(alerts []*types.Alert) []string {
	var out []string
	for _, a := range alerts {
		if s := string(a.Labels["alertname"]); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func notification(x manager.Notification, now time.Time) wire.TimelineEvent {
	first := x.Alerts[0].Labels
	e := wire.TimelineEvent{Time: now, Kind: wire.EventNotification, Severity: wire.EventInfo, Tenant: string(first[fleet.SeriesTenant]), Site: string(first[fleet.SeriesSite]), After: wire.NotificationSent, Link: "/alerts?tenant=" + string(first[fleet.SeriesTenant])}
	name := receiverName(x.Receiver)
	e.Object = "Receiver/" + name
	names := rulesOf(x.Alerts)
	firing := 0
	for _, a := range x.Alerts {
		if string(a.Labels[fleet.SeriesSite]) != e.Site {
			e.Site = ""
		}
		for v := range strings.SplitSeq(strings.Trim(string(a.Labels["virtual_sites"]), "|"), "|") {
			if v != "" && !slices.Contains(e.VirtualSites, v) {
				e.VirtualSites = append(e.VirtualSites, v)
			}
		}
		if !a.Resolved() {
			firing++
		}
	}
	if len(names) > 5 {
		names = append(names[:5], "…")
	}
	what := fmt.Sprintf("%s (%d fire, %d ended)", strings.Join(names, ", "), firing, len(x.Alerts)-firing)
	e.Text = fmt.Sprintf("%s was notified by %s: %s", name, x.Integration, what)
	if x.Err != nil {
		// The error may have an address with a secret in it: the log has it.
		e.Severity, e.After, e.Text = wire.EventWarning, wire.NotificationFailed, fmt.Sprintf("%s could not be notified by %s, and it is tried again: %s", name, x.Integration, what)
	}
	return e
}
