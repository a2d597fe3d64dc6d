package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/wire"
)

// serveConsole serves a console's API, and writes a kubeconfig with the token that it takes.
func serveConsole(t *testing.T, h http.HandlerFunc) (kubeconfig, url string) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer s3cret" {
			http.Error(w, "", http.StatusUnauthorized)
			return
		}
		h(w, r)
	}))
	t.Cleanup(srv.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	doc := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: u, user: {token: s3cret}}]}`
	if err := os.WriteFile(kubeconfig, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig, srv.URL
}

// run runs a verb as a user would, against a console that h plays.
func run(t *testing.T, ctx context.Context, h http.HandlerFunc, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	kubeconfig, url := serveConsole(t, h)
	for _, cmd := range Commands(&Globals{}) {
		if cmd.Name() != args[0] {
			continue
		}
		var out, errOut bytes.Buffer
		cmd.SetArgs(append(args[1:], "--kubeconfig", kubeconfig, "--console", url))
		cmd.SetOut(&out)
		cmd.SetErr(&errOut)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		err := cmd.ExecuteContext(ctx)
		return out.String(), errOut.String(), err
	}
	t.Fatalf("no verb %s", args[0])
	return "", "", nil
}

func hit(n int, message string) wire.LogHit {
	return wire.LogHit{Timestamp: time.Date(2026, 3, 1, 12, 0, n, 0, time.UTC), Tenant: "acme", Site: "paris", Region: "eu", Namespace: "shop", Pod: "web-1", Severity: "error", Stream: "stderr", Labels: map[string]string{"trace_id": "4bf9"}, Message: message}
}

func TestLogsPagesAndPrintsOldestFirst(t *testing.T) {
	patience := "2s"
	h := func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if strings.HasPrefix(r.URL.Path, "/api/v1/sites/") {
			_, _ = io.WriteString(w, `{}`)
			return
		}
		if r.URL.Path != "/api/v1/logs/search" || q.Get("query") != `severity:error AND "out of memory"` || q.Get("virtualSite") != "jpn" || q.Get("site") != "a,b" || q.Get("tenant") != "acme" || q.Get("from") == "" || q.Get("patience") != patience {
			t.Errorf("request %s", r.URL)
		}
		page := map[string]any{"hits": []wire.LogHit{hit(3, "third\x1b[31m"), hit(2, "second")}, "nextCursor": "c1", "missingRegions": []wire.MissingRegion{{Region: "us", Reason: "no answer in 2s", Late: true}}}
		if q.Get("cursor") == "c1" {
			page = map[string]any{"hits": []wire.LogHit{hit(1, "first")}, "missingRegions": []wire.MissingRegion{{Region: "us", Reason: "no answer in 2s", Late: true}}}
		}
		_ = json.NewEncoder(w).Encode(page)
	}
	out, errOut, err := run(t, t.Context(), h, "logs", `severity:error AND "out of memory"`, "--virtual-site", "jpn", "--site", "a,b", "-T", "acme", "-o", "message")
	if CodeOf(err) != 3 || out != "first\nsecond\nthird\uFFFD[31m\n" {
		t.Errorf("%q, %v", out, err)
	}
	if strings.Count(errOut, "us (no answer in 2s); --patience 0s waits for it\n") != 1 {
		t.Errorf("stderr: %q", errOut)
	}
	// JSON has all of a line.
	if out, _, err = run(t, t.Context(), h, "logs", `severity:error AND "out of memory"`, "--virtual-site", "jpn", "--site", "a,b", "-T", "acme", "-o", "json"); CodeOf(err) != 3 || !strings.Contains(out, `"labels":{"trace_id":"4bf9"}`) || !strings.Contains(out, `"stream":"stderr"`) {
		t.Errorf("%q, %v", out, err)
	}
	if out, _, err = run(t, t.Context(), h, "logs", `severity:error AND "out of memory"`, "--virtual-site", "jpn", "--site", "a,b", "-T", "acme"); CodeOf(err) != 3 || !strings.Contains(out, "paris  shop/web-1  ERROR  second") {
		t.Errorf("%q, %v", out, err)
	}
	patience = ""
	if out, _, err = run(t, t.Context(), h, "logs", `severity:error AND "out of memory"`, "--virtual-site", "jpn", "--site", "a,b", "-T", "acme", "--patience", "0s"); CodeOf(err) != 3 || !strings.Contains(out, "third") {
		t.Errorf("%q, %v", out, err)
	}
}

// The stream is opened, then the search is made: what both bring is printed once, and
// after a break the stream goes on without another search.
func TestLogsFollow(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var calls []string
	numbered := func(n int, message string) wire.LogHit {
		l := hit(n, message)
		l.ID = message
		return l
	}
	opened, searched := make(chan struct{}), make(chan struct{})
	h := func(w http.ResponseWriter, r *http.Request) {
		calls = append(calls, r.URL.Path+"@"+r.Header.Get("Last-Event-ID"))
		q := r.URL.Query()
		if strings.HasSuffix(r.URL.Path, "/search") {
			<-opened
			if q.Get("from") == "" || q.Get("query") != "x" {
				t.Errorf("search %s", r.URL)
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"hits": []wire.LogHit{numbered(2, "both"), numbered(1, "old")}})
			close(searched)
			return
		}
		if q.Get("from") != "" || q.Get("query") != "x" {
			t.Errorf("tail %s", r.URL)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		if r.Header.Get("Last-Event-ID") != "" {
			cancel()
			return
		}
		w.(http.Flusher).Flush()
		close(opened)
		<-searched
		b, _ := json.Marshal(map[string]any{"hits": []wire.LogHit{numbered(2, "both"), numbered(3, "new")}})
		fmt.Fprintf(w, ": hello\n\nevent: hits\nid: p1\ndata: %s\n\n", b)
	}
	if out, _, err := run(t, ctx, h, "logs", "x", "-f", "-o", "message"); err != nil || out != "old\nboth\nnew\n" {
		t.Errorf("%q, %v", out, err)
	}
	if want := []string{"/api/v1/logs/tail@", "/api/v1/logs/search@", "/api/v1/logs/tail@p1"}; !slices.Equal(calls, want) {
		t.Errorf("calls %v, want %v", calls, want)
	}
}

func TestErrorsNameTheRemedy(t *testing.T) {
	problem := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"title":"Bad request","detail":"query: at character 3: unclosed quote"}`)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"logs", `a "`}, "unclosed quote"},
		{[]string{"logs", "--since", "yesterday"}, "--since"},
		{[]string{"logs", "-f", "--until", "1m"}, "--follow"},
		{[]string{"logs", "-o", "xml"}, "--output"},
		{[]string{"silence", "add", "-c", "x"}, "alertname="},
		{[]string{"silence", "add", "a=b"}, "--comment"},
		{[]string{"silence", "add", "=b", "-c", "x"}, "matcher"},
		{[]string{"silence", "add", "a=b", "-c", "x", "-d", "soon"}, "--duration"},
	} {
		if _, _, err := run(t, t.Context(), problem, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}

func TestSilenceAdd(t *testing.T) {
	var body struct {
		Matchers []wire.Matcher
		EndsAt   time.Time
		Comment  string
	}
	h := func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			http.Error(w, "{}", http.StatusForbidden) // who may silence need not be able to look
			return
		}
		if r.Method != http.MethodPost || r.URL.Path != "/api/v1/silences" || json.NewDecoder(r.Body).Decode(&body) != nil {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":"s1"}`)
	}
	out, _, err := run(t, t.Context(), h, "silence", "add", "alertname=SiteDown", `pod!~"web-.*"`, "--site", "paris", "--virtual-site", "stores", "-d", "2h", "-c", "disk")
	if err != nil || out != "s1\n" {
		t.Fatalf("%q, %v", out, err)
	}
	want := []wire.Matcher{{Name: "alertname", Value: "SiteDown", IsRegex: false, IsEqual: true}, {Name: "pod", Value: "web-.*", IsRegex: true, IsEqual: false}, {Name: "site", Value: "paris", IsRegex: false, IsEqual: true}, {Name: "virtual_sites", Value: ".*[|]shared/stores[|].*", IsRegex: true, IsEqual: true}}
	if !slices.Equal(body.Matchers, want) || body.Comment != "disk" {
		t.Errorf("%+v", body)
	}
	if d := time.Until(body.EndsAt); d < 119*time.Minute || d > 2*time.Hour {
		t.Errorf("ends in %s", d)
	}
}

func TestAlerts(t *testing.T) {
	x := wire.AlertDetail{KnownAlert: wire.KnownAlert{Fingerprint: "f1", Name: "SiteDown", Site: "paris", Severity: "critical", State: "active", StartsAt: time.Now().Add(-time.Hour),
		Annotations: map[string]string{"summary": "paris is silent"}, Labels: map[string]string{"alertname": "SiteDown"}}, History: []wire.AlertSpan{{StartsAt: time.Now().Add(-time.Hour)}}}
	h := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/alerts":
			_ = json.NewEncoder(w).Encode(wire.AlertList{Alerts: []*wire.KnownAlert{&x.KnownAlert}})
		case "/api/v1/alerts/f1":
			_ = json.NewEncoder(w).Encode(x)
		case "/api/v1/alerts/state":
			if r.URL.Query().Get("virtualSite") != "canary" {
				t.Errorf("%s", r.URL)
			}
			_, _ = io.WriteString(w, `{"asOf":"2026-03-01T00:00:00Z","firing":{"critical":2,"warning":1,"info":0},"suppressed":3,"sites":2}`)
		}
	}
	for _, c := range []struct{ args, want string }{
		{"alerts", "paris is silent"}, {"alerts -o wide", "f1"}, {"alerts show f1", "to now"}, {"alerts state --virtual-site canary", "2          1         0      3            2"},
	} {
		if out, _, err := run(t, t.Context(), h, strings.Fields(c.args)...); err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %q, %v", c.args, out, err)
		}
	}
}
