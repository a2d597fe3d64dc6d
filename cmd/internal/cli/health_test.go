package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/health/defaults"
)

func TestHealthTest(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var out bytes.Buffer
	if err := testPolicies(&out, []string{write("shipped.yaml", defaults.CasesYAML)}, ""); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	// A policy of its own beside the cases, in which a full disk is no matter.
	policy := bytes.Replace(defaults.HealthPolicyYAML, []byte(`    good: "70"
    bad: "95"
`), []byte(`    good: "98"
    bad: "99"
`), 1)
	write("policy.yaml", policy)
	cases := write("cases.yaml", []byte(`policy: policy.yaml
cases: [{name: a full disk, readings: {disk-used: "97"}, expect: [{at: 1m, colour: red}]}]
`))
	out.Reset()
	err := testPolicies(&out, []string{cases}, "")
	if err == nil || err.Error() != "1 of 1 cases failed" || !strings.Contains(out.String(), "FAIL  a full disk\n      at 1m0s: want red; it is 100 green") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := testPolicies(&out, []string{cases}, cases); err == nil || !strings.Contains(err.Error(), "cases.yaml") {
		t.Errorf("a file of cases is taken for a policy: %v", err)
	}
}

// TestHealthExplain: what the API answers comes out as its own text does, under the
// policy's name.
func TestHealthExplain(t *testing.T) {
	const dir = "../../../health/api/testdata/"
	asked := ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RawQuery
		if r.URL.Path != "/api/v1/health/sites/paris-07/explain" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		http.ServeFile(w, r, dir+"explanation.json")
	}))
	defer srv.Close()
	want, err := os.ReadFile(dir + "explanation.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := new(Globals).explainSite(t.Context(), &out, &api{base: srv.URL, http: srv.Client()}, "paris-07", false, false); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "paris-07, policy (shipped): "+string(want) {
		t.Errorf("%s", got)
	}
	if asked != "" {
		t.Errorf("asked %q", asked)
	}
	out.Reset()
	if err := new(Globals).explainSite(t.Context(), &out, &api{base: srv.URL, http: srv.Client()}, "paris-07", false, true); err != nil || asked != "shadow=true" {
		t.Errorf("asked %q: %v", asked, err)
	}
	out.Reset()
	if err := (&Globals{Output: "json"}).explainSite(t.Context(), &out, &api{base: srv.URL, http: srv.Client()}, "paris-07", false, false); err != nil {
		t.Fatal(err)
	}
	if said, err := os.ReadFile(dir + "explanation.json"); err != nil || !sameJSON(t, out.Bytes(), said) {
		t.Errorf("%v: -o json is not what the API answered:\n%s", err, out.String())
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}

// TestHealthTry: the policy is sent as it was read, and a change of colour fails the verb.
func TestHealthTry(t *testing.T) {
	trial := `{"tenant":"acme","policy":"default","sites":2,"changed":1,"results":[{"site":"paris","before":{"score":90,"colour":"green","reason":""},"after":{"score":60,"colour":"orange","reason":"the disk is full"}}]}`
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var p v1alpha1.HealthPolicy
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil || r.Method != http.MethodPost || r.URL.Path != "/api/v1/health/try" || r.URL.Query().Get("tenant") != "acme" || p.Name != "default" || len(p.Spec.Signals) < 50 {
			t.Errorf("%s %s: %v, %d signals", r.Method, r.URL, err, len(p.Spec.Signals))
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(trial))
	}))
	defer srv.Close()
	policy, err := readPolicy(bytes.NewReader(defaults.HealthPolicyYAML), "-")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	g := &Globals{Tenant: "acme"}
	a := &api{base: srv.URL, http: srv.Client()}
	if err := g.tryPolicy(t.Context(), &out, io.Discard, a, policy); err == nil || err.Error() != "1 of 2 sites would change colour" || !strings.Contains(out.String(), "paris  green → orange  90 → 60  the disk is full") {
		t.Errorf("%v\n%s", err, out.String())
	}
	g.Output = "json"
	out.Reset()
	if err := g.tryPolicy(t.Context(), &out, io.Discard, a, policy); err == nil || !strings.Contains(out.String(), `"changed": 1`) {
		t.Errorf("%v\n%s", err, out.String())
	}
	// A site chooses the names of its objects.
	g.Output = ""
	out.Reset()
	trial = `{"policy":"default","sites":2,"changed":1,"results":[{"site":"paris","before":{"score":90,"colour":"green","reason":""},"after":{"score":60,"colour":"orange","reason":"pod \u001b]52;c;cm0gLXJm\u0007 fails"}}]}`
	if _ = g.tryPolicy(t.Context(), &out, io.Discard, a, policy); strings.ContainsAny(out.String(), "\x1b\x07") || !strings.Contains(out.String(), "pod ") {
		t.Errorf("%q", out.String())
	}
	trial = `{"policy":"default","sites":2,"signals":[{"name":"disk","error":"HTTP 422"}]}`
	if err := g.tryPolicy(t.Context(), &out, io.Discard, a, policy); err == nil || err.Error() != "1 of the policy's queries fail" {
		t.Error(err)
	}
	trial = `{"policy":"default","sites":2}`
	if err := g.tryPolicy(t.Context(), &out, io.Discard, a, policy); err != nil {
		t.Error(err)
	}
	if _, err := readPolicy(strings.NewReader("kind: HealthPolicy\nspec: {signal: []}"), "-"); err == nil || !strings.Contains(err.Error(), "standard input") {
		t.Errorf("an unknown field: %v", err)
	}
}

// TestHealthTryDoesNotWaitSilently: who is late is told with what the others say, and the end is that of all sites.
func TestHealthTryDoesNotWaitSilently(t *testing.T) {
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		patience := r.URL.Query().Get("patience")
		asked = append(asked, patience)
		answer := `{"policy":"default","sites":5,"changed":2,"missingRegions":[],"waiting":0,"results":[]}`
		if patience != "" {
			answer = `{"policy":"default","sites":3,"changed":0,"missingRegions":[{"region":"us-east","reason":"has not answered yet","late":true}],"waiting":2,"results":[]}`
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}))
	defer srv.Close()
	policy, err := readPolicy(bytes.NewReader(defaults.HealthPolicyYAML), "-")
	if err != nil {
		t.Fatal(err)
	}
	var out, progress bytes.Buffer
	g := &Globals{Tenant: "acme", Output: "json"}
	err = g.tryPolicy(t.Context(), &out, &progress, &api{base: srv.URL, http: srv.Client()}, policy)
	if err == nil || err.Error() != "2 of 5 sites would change colour" || strings.Contains(out.String(), "us-east") || !json.Valid(out.Bytes()) {
		t.Errorf("%v\n%s", err, out.String())
	}
	if progress.String() != "0 of 3 sites would change colour so far; no answer yet from us-east, for 2 more sites: waiting\n" {
		t.Errorf("meanwhile: %q", progress.String())
	}
	if !slices.Equal(asked, []string{"2s", ""}) {
		t.Errorf("asked with patience %q", asked)
	}
}

// TestHealthTrySince: all pages are read, what is done is told, and other colours fail the
// verb.
func TestHealthTrySince(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := `{"from":"2026-05-01T00:00:00Z","to":"2026-05-02T00:00:00Z","policy":"default","stepSeconds":60,"done":1,"total":2,"nextCursor":"oslo","signals":[{"name":"x"}],"sites":[{"site":"oslo","differs":false}]}`
		if r.URL.Query().Get("cursor") == "oslo" {
			page = `{"from":"2026-05-01T00:00:00Z","to":"2026-05-02T00:00:00Z","policy":"default","stepSeconds":60,"done":2,"total":2,"signals":[{"name":"x"}],
				"sites":[{"site":"rome","differs":true,"would":[{"at":"2026-05-01T03:00:00Z","from":"green","to":"red","reason":"hot"}]}]}`
		}
		if r.URL.Path != "/api/v1/health/replay" || r.URL.Query().Get("since") != "24h0m0s" {
			t.Error(r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(page))
	}))
	defer srv.Close()
	var out, progress bytes.Buffer
	err := new(Globals).replayPolicy(t.Context(), &out, &progress, &api{base: srv.URL, http: srv.Client()}, &v1alpha1.HealthPolicy{}, 24*time.Hour)
	if err == nil || err.Error() != "1 of 2 sites would have had other colours" || progress.String() != "1 of 2 sites\n2 of 2 sites\n" || !strings.Contains(out.String(), "rome\n  2026-05-01T03:00:00Z  would  green → red  hot\n1 of 2 sites") {
		t.Errorf("%v\n%s%s", err, progress.String(), out.String())
	}
}
