package manager

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/powercut"
	"muster.dev/muster/internal/wire"
)

// TestPowerLossKeepsSilences cuts the power after the answers to a user who made two
// silences and ended one, on the first day of the data directory. The notification log is
// a snapshot now and then, of which nobody is told anything: without it an alert is
// notified once more.
func TestPowerLossKeepsSilences(t *testing.T) {
	dir := t.TempDir()
	silence := func(comment string) amclient.Silence {
		return amclient.Silence{Matchers: []wire.Matcher{wire.EqualMatcher("a", "b")}, StartsAt: time.Now(), EndsAt: time.Now().Add(time.Hour), CreatedBy: "me", Comment: comment}
	}
	powercut.Run(t, dir, func(dir string) {
		m, c, _ := start(t, Options{Dir: filepath.Join(dir, "made", "now"), Maintenance: 20 * time.Millisecond})
		h := newHook(t)
		must(t, m.SetConfig(h.config("")))
		must(t, c.PostAlerts(t.Context(), []wire.Alert{alert("A")}))
		testkit.EventuallyTrue(t, "A notified", func() bool { return strings.Contains(h.names(), "A firing") })
		_, err := c.SetSilence(t.Context(), silence("stays"))
		must(t, err)
		id, err := c.SetSilence(t.Context(), silence("ends"))
		must(t, err)
		must(t, c.ExpireSilence(t.Context(), id))
	})
	_, c, _ := start(t, Options{Dir: filepath.Join(dir, "made", "now")})
	silences, err := c.Silences(t.Context())
	must(t, err)
	got := map[string]string{}
	for _, s := range silences {
		got[s.Comment] = s.Status.State
	}
	if len(got) != 2 || got["stays"] != "active" || got["ends"] != "expired" {
		t.Errorf("after the power cut: %v", got)
	}
}
