package cli

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/wire"
)

// TestWhatIsNotThereIsAnError: a script that asks for a misspelt site must not hear that all is well.
func TestWhatIsNotThereIsAnError(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) {
		switch q := r.URL.Query(); r.URL.Path {
		case "/api/v1/sites/pariss", "/api/v1/health/virtualsites/stors":
			if q.Get("tenant") != "acme" || strings.HasSuffix(r.URL.Path, "stors") && q.Get("namespace") != "shared" {
				t.Errorf("%s", r.URL)
			}
			http.Error(w, "", http.StatusNotFound)
		case "/api/v1/silences":
			t.Error("silenced")
		case "/api/v1/logs/search":
			page := wire.LogPage{}
			if strings.Contains(q.Get("site"), "paris,") {
				page.Hits = []wire.LogHit{hit(1, "a line")}
			}
			_ = json.NewEncoder(w).Encode(page)
		default:
			_, _ = io.WriteString(w, "{}")
		}
	}
	for _, verb := range []string{"alerts", "alerts -o json", "alerts state", "timeline", "timeline -w", "logs", "logs -f", "logs --site paris", "silence add -c known"} {
		for what, want := range map[string]string{"--site pariss": `there is no site "pariss" in tenant acme`, "--virtual-site stors": "there is no virtual site shared/stors in tenant acme"} {
			if verb == "logs --site paris" && what != "--site pariss" {
				continue // with a line of it, it is there
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // for those that would go on for ever
			out, _, err := run(t, ctx, h, strings.Fields(verb+" -T acme "+what)...)
			cancel()
			if CodeOf(err) != 1 || err != nil && !strings.Contains(err.Error(), want) || strings.Contains(verb, "paris") != strings.Contains(out, "a line") || strings.Contains(out, "0") && !strings.Contains(verb, "paris") {
				t.Errorf("%s %s: %q, %v", verb, what, out, err)
			}
		}
	}
	for _, verb := range []string{"alerts", "alerts state", "timeline", "logs"} {
		if _, _, err := run(t, t.Context(), h, strings.Fields(verb+" -T acme --site oslo --virtual-site eu/north")...); err != nil {
			t.Errorf("%s of what is there: %v", verb, err)
		}
	}
}
