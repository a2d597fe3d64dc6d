package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"muster.dev/muster/cmd/internal/cli"
)

// ask is a request to the console as the user of a kubeconfig; the caller closes the body.
func (f *fleetUnderTest) ask(t *testing.T, kubeconfig, method, path, body string) *http.Response {
	t.Helper()
	base, err := os.ReadFile(filepath.Join(f.dir, cli.ConsoleFile))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, strings.TrimSpace(string(base))+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+cfg.BearerToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// rolloutsByConsole asks the console's API for rollouts, through the real API server.
func (f *fleetUnderTest) rolloutsByConsole(t *testing.T, admin, viewer string) {
	const one = "/api/v1/rollouts/shop/to-read"
	for _, c := range []struct {
		who, method, path, body string
		code                    int
		want                    string
	}{
		{viewer, "GET", "/api/v1/rollouts?object=ConfigMap/to-read", "", 200, `"name":"to-read"`},
		{viewer, "GET", one, "", 200, `"control":false`},
		{admin, "GET", one, "", 200, `"skipGates":true`},
		{viewer, "GET", "/api/v1/rollouts", "", 200, `"name":"to-read"`},
		{viewer, "GET", "/api/v1/rollouts/to-read/gates", "", 200, `"verdict":`},
		{viewer, "GET", "/api/v1/rollouts?tenant=acme-eu", "", 403, ""},
		{viewer, "GET", one + "?tenant=acme-eu", "", 403, ""},
		{admin, "POST", one + "/pause?tenant=acme-eu", "", 403, ""},
		{viewer, "GET", one + "/sites", "", 200, `"counts":`},
		{viewer, "POST", one + "/pause", "", 403, "forbidden"},
		{admin, "POST", one + "/pause", "", 200, `"paused":true`},
		{admin, "POST", one + "/resume", "", 200, `"paused":false`},
		{admin, "DELETE", one + "?tenant=acme-eu", "", 403, ""},
		{admin, "GET", "/api/v1/rollouts/roman-roll", "", 404, ""},
		{admin, "POST", "/api/v1/rollouts", `{"namespace":"shop","dryRun":true,"spec":{"changes":[{"apiVersion":"v1","kind":"ConfigMap","name":"mine","content":{"data":{"a":"b"}}}]}}`, 200, `"soak":"15m0s"`},
		{admin, "POST", "/api/v1/rollouts", `{"namespace":"shop","dryRun":true,"spec":{"soaked":"15m","changes":[{"apiVersion":"v1","kind":"ConfigMap","name":"mine"}]}}`, 400, "soaked"},
		{admin, "POST", "/api/v1/rollouts", `{"namespace":"shop","dryRun":true,"spec":{"strategy":{"waves":[{"percent":5},{"percent":1}]},"changes":[{"apiVersion":"v1","kind":"ConfigMap","name":"mine"}]}}`, 400, "spec.strategy.waves[1].percent"},
		{admin, "POST", "/api/v1/gates:evaluate", `{"virtualSite":"shared/stores","since":"10m"}`, 200, `"answered":true`},
		{viewer, "POST", "/api/v1/gates:evaluate", `{"virtualSite":"shared/stores"}`, 403, ""},
		{admin, "POST", "/api/v1/gates:evaluate", `{"virtualSite":"shared/roman"}`, 200, `"verdict":"Unknown"`}, // acme has none of that name
		{admin, "POST", "/api/v1/gates:evaluate", `{"namespace":"shop","virtualSite":"shared/stores","gates":[{"name":"x","query":{"query":"sum(","max":1}}]}`, 400, "spec.gates"},
	} {
		resp := f.ask(t, c.who, c.method, c.path, c.body)
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != c.code || !strings.Contains(string(b), c.want) {
			t.Errorf("%s %s %s: %d %s, %v; want %d and %q", c.method, c.path, c.body, resp.StatusCode, b, err, c.code, c.want)
		}
		if resp.StatusCode == 200 && (strings.Contains(string(b), "acme-eu") || strings.Contains(string(b), "roman-")) {
			t.Errorf("%s %s tells of the other tenant: %s", c.method, c.path, b)
		}
	}
	// A stream begins with all that the list has: six of acme's namespace, and at least the one.
	for path, n := range map[string]int{"/api/v1/rollouts/stream?namespace=shop": 6, one + "/stream": 1} {
		resp := f.ask(t, viewer, "GET", path, "")
		in := bufio.NewScanner(resp.Body)
		in.Buffer(nil, 1<<20)
		said := map[string]bool{}
		for len(said) < n && in.Scan() {
			data, ok := strings.CutPrefix(in.Text(), "data: ")
			if !ok {
				continue
			}
			var r struct{ Tenant, Namespace, Name string }
			if err := json.Unmarshal([]byte(data), &r); err != nil || r.Tenant != "acme" || r.Namespace != "shop" || n == 1 && r.Name != "to-read" {
				t.Errorf("%s: %s, %v", path, data, err)
			}
			said[r.Name] = true
		}
		if len(said) < n {
			t.Errorf("%s: %d %v, %v", path, resp.StatusCode, said, in.Err())
		}
	}
}

// dryRuns says who would change when, and starts nothing.
func (f *fleetUnderTest) dryRuns(t *testing.T, admin string) {
	const start = "rollout start shop cm/mine --file testdata/configmap.yaml --dry-run --soak 10m"
	out, err := f.muster(t, admin, strings.Fields(start+" -o json")...)
	var plan struct {
		Name  string
		Waves []struct{ Sites, Offline []string }
	}
	if err != nil || json.Unmarshal([]byte(out), &plan) != nil || len(plan.Waves) == 0 || len(plan.Waves[0].Sites) == 0 || len(plan.Waves[0].Offline) == 0 {
		t.Errorf("%s, %v", out, err)
	}
	out, err = f.muster(t, admin, strings.Fields(start)...)
	if err != nil || !strings.Contains(out, "nothing has been started") || !strings.Contains(out, "offline now: ") {
		t.Errorf("%s, %v", out, err)
	}
	t.Log(out)
	if out, err := f.muster(t, admin, "rollout", "status", "shop/"+plan.Name); err == nil {
		t.Errorf("a dry run has started something: %s", out)
	}
	for args, want := range map[string]string{
		"rollout start shop cm/none --file testdata/configmap.yaml":                                      "create it first",
		"rollout start nowhere cm/mine --file testdata/configmap.yaml":                                   "describe tenant",
		"rollout start shop cm/mine --image a=b":                                                         "--file",
		"rollout start shop cm/mine":                                                                     "Give --image, --file or --revision",
		"rollout start shop thing/mine --file testdata/configmap.yaml":                                   "KIND.GROUP/NAME",
		"rollout start shop cm/mine --file testdata/configmap.yaml --waves 10%,1%":                       "percentages count earlier waves in",
		"rollout start shop cm/mine --file testdata/configmap.yaml --virtual-site shared/none --dry-run": "muster get virtualsites",
		"rollout status nowhere/none":                                                                    "muster",
		"rollout abort shop/to-read":                                                                     "--yes",
		"rollout retry shop/to-read":                                                                     "no site has failed",
		"rollout promote to-read --wave 99":                                                              "--wave",
	} {
		if out, err := f.muster(t, admin, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want %q", args, out, err, want)
		}
	}
}
