package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	healthapi "muster.dev/muster/health/api"
	"muster.dev/muster/internal/wire"
)

// Of a site one reads why its score is as it is, the dearest first with its points, what fires and what happened, and
// when it was heard of as the page says it; what nobody answered is named.
func TestDescribeSite(t *testing.T) {
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(time.Now().Add(-d)) }
	written := ago(4 * time.Minute)
	site := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: "paris", Labels: map[string]string{"tier": "gold"}}}
	site.Status.LastSeen, site.Status.Regional = &written, "eu-1"
	now := &siteNow{Site: site, Health: &healthapi.SiteDetail{}, Alerts: &wire.AlertList{}, Missing: []string{"events: no answer"}}
	seen, since := ago(2*time.Second).Format(time.RFC3339), ago(3*time.Hour).Format(time.RFC3339)
	for text, into := range map[string]any{
		`{"colour":"red","score":38.6,"lastSeen":"` + seen + `","since":"` + since + `","reasons":[{"dimension":"reliability","signal":"nodes-not-ready","pointsLost":61.2,"since":"` + since + `","text":"1 node is not ready: n\u001b[31m1"},
		{"dimension":"performance","signal":"disk-used","pointsLost":0,"since":"` + since + `","text":"the fullest disk\tis at 91%"}]}`: now.Health,
		`{"alerts":[{"name":"SiteNodeNotReady","severity":"critical","state":"active","startsAt":"` + since + `","annotations":{"summary":"n1 is not ready"}}]}`: now.Alerts,
	} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	describe := func() string {
		var out bytes.Buffer
		describeSite(&out, "acme", now, []v1alpha1.VirtualSite{{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-shared", Name: "stores"}, Status: v1alpha1.VirtualSiteStatus{Members: []string{"paris"}}}})
		return out.String()
	}
	want := func(text string, lines ...string) {
		t.Helper()
		at := 0
		for _, line := range lines { // in this order
			m := regexp.MustCompile(`(?m)^` + line + `$`).FindStringIndex(text[at:])
			if m == nil {
				t.Fatalf("no line %s behind the others in\n%s", line, text)
			}
			at += m[1]
		}
	}
	text := describe()
	want(text, `Health: +red, score 39, for 3h`, `Last seen: +[0-9]s ago, regional eu-1`, `Virtual sites: +shared/stores`, `  tier +gold`,
		`Reasons:`, `  -61\.2 points +reliability +for 3h +1 node is not ready: n.\[31m1`, `  - +performance +for 3h +the fullest disk is at 91%`,
		`Alerts:`, `  critical +SiteNodeNotReady +active +for 3h +n1 is not ready`, `Not known, events: no answer`)
	if strings.Contains(text, "\x1b") || strings.Contains(text, "Events:") {
		t.Errorf("%q", text)
	}
	now.Missing, now.Events = nil, &[]corev1.Event{{Type: "Warning", Reason: "ColourChanged", Message: "green → red", LastTimestamp: ago(3 * time.Hour)}}
	want(describe(), `Events:`, `  3h ago +Warning +ColourChanged +green → red`)
	// Without the console the object's own words are left.
	now.Health, site.Status.Health = nil, &v1alpha1.SiteHealth{Colour: "red", Reason: "1 node is not ready"}
	want(describe(), `Health: +red, score unknown, for .*`, `Reason: +1 node is not ready`, `Last seen: +4m.* ago, regional eu-1`)
}

// A policy that selects the site has its edits told with the site, who made them, and who does not know of them is named.
func TestDescribeSiteTellsOfItsPolicies(t *testing.T) {
	answer := `{"events":[{"id":"1","time":"` + time.Now().Add(-3*time.Hour).Format(time.RFC3339) + `","kind":"policy","tenant":"acme","object":"HealthPolicy/strict","by":"an\u001bna","text":"HealthPolicy strict was edited: signals"}]}`
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != wire.TimelinePath {
			_, _ = io.WriteString(w, `{}`)
			return
		}
		if want := "kind=policy&limit=5&site=paris&tenant=acme"; r.URL.RawQuery != want {
			t.Errorf("asked %s, want %s", r.URL.RawQuery, want)
		}
		_, _ = io.WriteString(w, answer)
	}))
	defer srv.Close()
	describe := func() string {
		now := &siteNow{Site: &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: "paris"}}}
		now.askConsole(t.Context(), &api{base: srv.URL, http: srv.Client()}, "acme")
		var out bytes.Buffer
		describeSite(&out, "acme", now, nil)
		return out.String()
	}
	if text := describe(); !regexp.MustCompile(`(?m)^Edits of its policies:\n  3h ago +an.na +HealthPolicy strict was edited: signals$`).MatchString(text) || strings.Contains(text, "\x1b") || strings.Contains(text, "Not known") {
		t.Errorf("%q", text)
	}
	answer = `{"events":[]}`
	if text := describe(); !strings.Contains(text, "Edits of its policies:\n  (none)\n") {
		t.Errorf("%q", text)
	}
	answer = `{"events":[],"missing":[{"role":"health","kinds":["colour"]},{"role":"control","kinds":["policy"]}]}`
	if text := describe(); !strings.Contains(text, "Not known, edits of its policies: control did not answer") || strings.Contains(text, "Edits of its policies:") {
		t.Errorf("%q", text)
	}
}
