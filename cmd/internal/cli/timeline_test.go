package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster.dev/muster/internal/wire"
)

func happening(n int, text string) wire.TimelineEvent {
	return wire.TimelineEvent{ID: fmt.Sprintf("%032d", n), Time: time.Now().Add(time.Duration(n-100) * time.Second), Kind: wire.EventColour, Severity: wire.EventCritical, Tenant: "acme", Site: "paris", By: "anna", Text: text}
}

func TestTimelinePages(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != wire.TimelinePath || q.Get("site") != "paris" || q.Get("virtualSite") != "eu" || !slices.Equal(q["kind"], []string{"colour", "alert"}) || q.Get("tenant") != "acme" || q.Get("from") == "" {
			t.Errorf("request %s", r.URL)
		}
		page := wire.TimelinePage{Events: []wire.TimelineEvent{happening(3, "third\x1b[31m"), happening(2, "second")}, NextCursor: "c1", Missing: []wire.TimelineMissing{{Role: "alerting", Kinds: []string{"alert"}, Reason: "no answer"}}}
		if q.Get("cursor") == "c1" {
			page = wire.TimelinePage{Events: []wire.TimelineEvent{happening(1, "first")}}
		}
		_ = json.NewEncoder(w).Encode(page)
	}
	args := []string{"timeline", "--site", "paris", "--virtual-site", "eu", "--kind", "colour,alert", "-T", "acme"}
	out, errOut, err := run(t, t.Context(), h, args...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err != nil || len(lines) != 4 || !strings.HasSuffix(lines[1], "first") || !strings.Contains(lines[3], "third\uFFFD[31m") || !strings.Contains(lines[1], "anna") {
		t.Errorf("%q, %v", out, err)
	}
	if strings.Count(errOut, "not here: alert, which alerting keeps") != 1 {
		t.Errorf("stderr: %q", errOut)
	}
	if out, _, err = run(t, t.Context(), h, append(args, "-o", "json")...); err != nil || strings.Index(out, "first") > strings.Index(out, "second") || !strings.Contains(out, `"severity"`) {
		t.Errorf("%q, %v", out, err)
	}
	for _, bad := range [][]string{{"--since", "yesterday"}, {"--kind", "mood"}, {"--limit", "0"}, {"-w", "-o", "yaml"}} {
		if _, _, err := run(t, t.Context(), h, append([]string{"timeline"}, bad...)...); err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(bad[0], "-w")) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// A watch prints each event once, also one that comes late.
func TestTimelineWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var calls atomic.Int32
	h := func(w http.ResponseWriter, _ *http.Request) {
		page := wire.TimelinePage{Events: []wire.TimelineEvent{happening(5, "fifth"), happening(1, "first")}}
		if calls.Add(1) > 1 {
			page.Events = slices.Insert(page.Events, 1, happening(3, "late"))
			time.AfterFunc(200*time.Millisecond, cancel)
		}
		_ = json.NewEncoder(w).Encode(page)
	}
	out, _, err := run(t, ctx, h, "timeline", "-w", "-T", "acme")
	if err != nil || strings.Count(out, "\n") != 3 || strings.Index(out, "fifth") > strings.Index(out, "late") {
		t.Errorf("%q, %v", out, err)
	}
}
