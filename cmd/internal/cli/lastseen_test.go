package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	healthapi "muster.dev/muster/health/api"
	"muster.dev/muster/internal/fleet"
)

// lastSeen is a site that was heard of so many seconds ago, and how that reads: testdata/lastseen.json,
// to which the page's own tests hold the page (dashboards/console/ui/src/lib/lastseen.test.ts).
type lastSeen struct {
	What                       string
	Phase                      fleet.Phase
	Written                    *float64 // in the object, which is written every five minutes at most
	Heard                      *float64 // by the health engine
	Get, Query, Describe, Page string
}

// TestLastSeenAgreesWithThePage: whoever looks at a site on the page, in `get sites`, in the answer
// to a query and in `describe site` is told the same, as exactly as each of them has room for.
func TestLastSeenAgreesWithThePage(t *testing.T) {
	b, err := os.ReadFile("testdata/lastseen.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []lastSeen
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.What, func(t *testing.T) {
			site := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: "paris"}, Status: v1alpha1.SiteStatus{Phase: c.Phase, Regional: "eu-1"}}
			if at := timeAgo(c.Written); at != nil {
				site.Status.LastSeen = &metav1.Time{Time: *at}
			}
			if got := siteRow("acme", site)[5]; got != c.Get {
				t.Errorf("muster get sites: %q, want %q", got, c.Get)
			}
			var cell any
			if at := timeAgo(c.Heard); at != nil {
				cell = at.Format(time.RFC3339Nano)
			}
			if got := siteCell("lastSeen", cell); got != c.Query {
				t.Errorf("muster get sites -q: %q, want %q", got, c.Query)
			}
			if got := describedSeen(t, &siteNow{Site: site, Health: &healthapi.SiteDetail{Site: healthapi.Site{LastSeen: timeAgo(c.Heard)}}}); got != c.Describe {
				t.Errorf("muster describe site: %q, want %q", got, c.Describe)
			}
			// Nobody has asked the health engine: then it says what the list says.
			if got := strings.TrimSuffix(describedSeen(t, &siteNow{Site: site}), " ago"); got != c.Get && c.Get != "-" {
				t.Errorf("muster describe site, without its health: %q, want %q", got, c.Get)
			}
			for _, text := range []string{c.Get, c.Query, c.Describe, c.Page} {
				from, to := meant(t, text)
				if c.Heard == nil && from != never || c.Heard != nil && (*c.Heard < from || *c.Heard >= to) {
					t.Errorf("%q means %v to %v seconds, and it is %v", text, from, to, c.Heard)
				}
			}
		})
	}
}

const never = -1

func timeAgo(seconds *float64) *time.Time {
	if seconds == nil {
		return nil
	}
	at := time.Now().Add(-time.Duration(*seconds * float64(time.Second)))
	return &at
}

// describedSeen is what describe says of when a site was seen.
func describedSeen(t *testing.T, now *siteNow) string {
	t.Helper()
	var out bytes.Buffer
	describeSite(&out, "acme", now, nil)
	m := regexp.MustCompile(`(?m)^Last seen: +(.*?)(, regional eu-1)?$`).FindStringSubmatch(out.String())
	if m == nil {
		t.Fatalf("says nothing of when it was seen:\n%s", out.String())
	}
	return m[1]
}

// meant is what a text may mean, in seconds: from this until before that. A site that is there was
// heard of within the 90 seconds after which it is off line.
func meant(t *testing.T, text string) (from, to float64) {
	t.Helper()
	switch text = strings.TrimSuffix(text, " ago"); text {
	case "never", "-":
		return never, never
	case "now":
		return 0, 90
	case "just now":
		return 0, 2
	}
	unit := map[string]float64{"s": 1, "m": 60, "h": 3600, "d": 86_400}
	parts := regexp.MustCompile(`(\d+)([smhd])`).FindAllStringSubmatch(text, -1)
	if len(parts) == 0 {
		t.Fatalf("%q is no age", text)
	}
	for _, p := range parts {
		n, _ := strconv.ParseFloat(p[1], 64)
		from += n * unit[p[2]]
		to = from + unit[p[2]]
	}
	return from, to
}
