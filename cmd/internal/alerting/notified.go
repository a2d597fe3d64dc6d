package alerting

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"muster.dev/muster/alerting/manager"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/timeline"
	"muster.dev/muster/internal/wire"
)

// notified tells the timeline who was notified of what. Of attempts that fail one after the
// other the first is told, and the one that succeeds.
type notified struct {
	store *timeline.Store
	log   *slog.Logger

	mu      sync.Mutex
	failing map[string]bool // by receiver and integration
}

func newNotified(s *timeline.Store, log *slog.Logger) *notified {
	return &notified{store: s, log: log, failing: map[string]bool{}}
}

func (n *notified) tell(x manager.Notification) {
	if len(x.Alerts) == 0 {
		return
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
	if err := n.store.Add(notification(x, time.Now())); err != nil {
		n.log.Error("a notification is not in the timeline", "receiver", x.Receiver, "err", err)
	}
}

func notification(x manager.Notification, now time.Time) wire.TimelineEvent {
	first := x.Alerts[0].Labels
	e := wire.TimelineEvent{Time: now, Kind: wire.EventNotification, Severity: wire.EventInfo, Tenant: string(first[fleet.SeriesTenant]), Site: string(first[fleet.SeriesSite]), After: "sent", Link: "/alerts?tenant=" + string(first[fleet.SeriesTenant])}
	// Receivers are called TENANT/ROUTE/NAME here; people know the name.
	name := x.Receiver[strings.LastIndexByte(x.Receiver, '/')+1:]
	e.Object = "Receiver/" + name
	var names []string
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
		if s := string(a.Labels["alertname"]); !slices.Contains(names, s) {
			names = append(names, s)
		}
	}
	if len(names) > 5 {
		names = append(names[:5], "…")
	}
	what := fmt.Sprintf("%s (%d fire, %d ended)", strings.Join(names, ", "), firing, len(x.Alerts)-firing)
	e.Text = fmt.Sprintf("%s was notified by %s: %s", name, x.Integration, what)
	if x.Err != nil {
		// The error may have an address with a secret in it: the log has it.
		e.Severity, e.After, e.Text = wire.EventWarning, "failed", fmt.Sprintf("%s could not be notified by %s, and it is tried again: %s", name, x.Integration, what)
	}
	return e
}
