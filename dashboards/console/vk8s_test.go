package console

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	kubeconfig "k8s.io/client-go/tools/clientcmd/api"

	"muster.dev/muster/internal/oidclogin"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

const acmeShop = "/api/v1/vk8s/shop/vk8s"

func TestVirtualKubernetesAreThoseOfTheUsersNamespaces(t *testing.T) {
	h := newHarness(t)
	for user, want := range map[string]string{
		"alice": "acme/shop", "bob": "globex/shop", "carol": "acme/shop", "dave": "acme/shop globex/shop", "root": "acme/shop globex/shop", "nobody": "", "both": "",
	} {
		var list virtualListView
		h.want(200, user, "GET", "/api/v1/vk8s", "").json(t, &list)
		var got []string
		for _, v := range list.VirtualKubernetes {
			got = append(got, v.Tenant+"/"+v.Namespace)
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s sees %q, want %q", user, s, want)
		}
	}
	var list virtualListView
	h.want(200, "dave", "GET", "/api/v1/vk8s?tenant=globex", "").json(t, &list)
	if len(list.VirtualKubernetes) != 1 || list.VirtualKubernetes[0].Fault != "there is no virtual site shared/all-eu" {
		t.Errorf("of one tenant: %+v", list)
	}

	for user, want := range map[string]virtualRights{"alice": {true, true, true}, "carol": {}, "dave": {ReadLogs: true}} {
		var one virtualDetail
		h.want(200, user, "GET", acmeShop+"?tenant=acme", "").json(t, &one)
		if one.Rights != want || one.Sites != 3 || one.DefaultVirtualSite != "shared/all-eu" {
			t.Errorf("%s: %+v, want rights %+v", user, one, want)
		}
	}
	// Without the tenant, the one that the user may read; several are asked back.
	h.want(200, "alice", "GET", acmeShop, "")
	if p := h.want(409, "dave", "GET", acmeShop+"/workloads", "").problem(t); !slices.Equal(p.Tenants, []string{"acme", "globex"}) {
		t.Errorf("ambiguous: %+v", p)
	}
	h.want(404, "nobody", "GET", acmeShop+"/workloads", "")
	h.want(403, "nobody", "GET", acmeShop+"/workloads?tenant=acme", "")
	h.want(404, "alice", "GET", "/api/v1/vk8s/shop/other/workloads?tenant=acme", "")
	h.want(403, "alice", "GET", acmeShop+"/workloads?tenant=globex", "")
}

// The console's kubeconfig leads to the virtual Kubernetes, and gives nobody's credentials away.
func TestKubeconfigOfAVirtualKubernetes(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Options, *timing)
		user   kubeconfig.AuthInfo
		says   string
	}{
		"with tokens": {func(o *Options, _ *timing) {}, kubeconfig.AuthInfo{TokenFile: "muster.token"}, "# Put the token"},
		"with an identity provider": {func(o *Options, _ *timing) {
			o.ExternalURL = mustURL(t, "https://muster.example.com")
			o.OIDC = &oidclogin.Options{IssuerURL: "https://127.0.0.1:1", ClientID: "muster", Scopes: []string{"openid"}}
		}, kubeconfig.AuthInfo{Exec: &kubeconfig.ExecConfig{Command: "muster", Args: []string{"credential", "--console", "https://muster.example.com"}}}, "# Log in once with `muster login --console https://muster.example.com`"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, func(o *Options, _ *timing) { o.KubernetesCA = func() []byte { return []byte("a CA") } }, tc.change)
			h.want(404, "nobody", "GET", acmeShop+"/kubeconfig", "")
			h.want(403, "alice", "GET", acmeShop+"/kubeconfig?tenant=globex", "")
			res := h.want(200, "alice", "GET", acmeShop+"/kubeconfig", "")
			if got := res.Header.Get("Content-Disposition"); got != `attachment; filename="acme-shop-vk8s.kubeconfig"` {
				t.Error(got)
			}
			config, err := clientcmd.Load(res.body)
			if err != nil {
				t.Fatal(err)
			}
			at := config.Contexts[config.CurrentContext]
			user, cluster := config.AuthInfos[at.AuthInfo], config.Clusters[at.Cluster]
			if at.Namespace != "acme-shop" || cluster.Server != h.api.config().Host+"/api/vK8s/namespaces/acme-shop/vk8s" || string(cluster.CertificateAuthorityData) != "a CA" {
				t.Errorf("%+v, %+v", at, cluster)
			}
			if user.TokenFile != tc.user.TokenFile || (user.Exec == nil) != (tc.user.Exec == nil) || user.Token != "" || !strings.HasPrefix(string(res.body), tc.says) {
				t.Errorf("%+v\n%s", user, res.body)
			}
			if e := user.Exec; e != nil && (e.Command != tc.user.Exec.Command || !slices.Equal(e.Args, tc.user.Exec.Args)) {
				t.Errorf("%+v", e)
			}
		})
	}
}

func TestWorkloads(t *testing.T) {
	h := newHarness(t)
	var list wire.WorkloadList
	h.want(200, "carol", "GET", acmeShop+"/workloads", "").json(t, &list)
	if len(list.Items) != 2 || list.Items[0].Counts.Failed != 1 || list.Items[0].Reasons[0].Reason != "ImagePullBackOff" {
		t.Errorf("%+v", list)
	}
	h.api.mount.list503 = true
	h.want(503, "carol", "GET", acmeShop+"/workloads", "")
	h.api.mount.list503 = false

	var one wire.Workload
	h.want(200, "carol", "GET", acmeShop+"/workloads/Deployment.apps/web", "").json(t, &one)
	if len(one.Sites) != 2 || !one.Sites[0].Drifted || one.Sites[0].State != "Failed" {
		t.Errorf("%+v", one)
	}
	h.want(404, "carol", "GET", acmeShop+"/workloads/Deployment.apps/other", "")

	var o objectView
	h.want(200, "alice", "GET", acmeShop+"/workloads/Deployment.apps/web/object", "").json(t, &o)
	if o.Annotations["ves.io/virtual-sites"] != "shared/stores" || len(o.Annotations) != 1 || o.ResourceVersion != "7" {
		t.Errorf("%+v", o)
	}
	for _, not := range []string{"status", "managedFields", "uid", "last-applied", "generation"} {
		if strings.Contains(o.YAML, not) {
			t.Errorf("the YAML has %s:\n%s", not, o.YAML)
		}
	}
	if !strings.HasPrefix(o.YAML, "apiVersion: apps/v1\nkind: Deployment\n") || !strings.Contains(o.YAML, "replicas: 3") {
		t.Errorf("the YAML:\n%s", o.YAML)
	}
	h.want(403, "carol", "GET", acmeShop+"/workloads/Deployment.apps/web/object", "")
	h.want(404, "alice", "GET", acmeShop+"/workloads/Widget.example.com/web/object", "")

	// What a site has, of those virtual Kubernetes that the user may read.
	var on siteWorkloadsView
	h.want(200, "carol", "GET", "/api/v1/sites/paris-07/workloads", "").json(t, &on)
	if len(on.VirtualKubernetes) != 1 || len(on.VirtualKubernetes[0].Items) != 1 || on.VirtualKubernetes[0].Items[0].Sites[0].Site != "paris-07" {
		t.Errorf("%+v", on)
	}
	h.want(200, "carol", "GET", "/api/v1/sites/rome-01/workloads", "").json(t, &on)
	if len(on.VirtualKubernetes) != 0 {
		t.Errorf("of a site without any: %+v", on)
	}
	h.want(200, "both", "GET", "/api/v1/sites/paris-07/workloads", "").json(t, &on)
	if len(on.VirtualKubernetes) != 0 {
		t.Errorf("shown to a user without a right in the namespace: %+v", on)
	}
}

func TestPodsOfAWorkload(t *testing.T) {
	h := newHarness(t)
	const pods = acmeShop + "/workloads/Deployment.apps/web/pods"
	var list podListView
	h.want(200, "alice", "GET", pods, "").json(t, &list)
	var got []string
	for _, p := range list.Pods {
		got = append(got, fmt.Sprintf("%s@%s %s %d %d %q", p.Name, p.Site, p.Phase, p.Ready, p.Restarts, p.Reason))
	}
	want := []string{`web-1@paris-07 Running 1 2 ""`, `web-2@oslo-001 Running 0 9 "OOMKilled"`, `web-3@oslo-001 Pending 0 0 "Unschedulable"`, `web-4@oslo-001 Running 0 0 "Error"`}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if c := list.Pods[0].Containers; !slices.Equal(c, []string{"web", "init"}) {
		t.Errorf("containers %v", c)
	}
	var on podListView
	h.want(200, "alice", "GET", pods+"?site=oslo-001&limit=1", "").json(t, &on)
	if len(on.Pods) != 1 || on.Pods[0].Name != "web-2" || on.NextCursor == "" {
		t.Errorf("a page of a site's: %+v", on)
	}
	var next podListView
	h.want(200, "alice", "GET", pods+"?site=oslo-001&limit=1&cursor="+on.NextCursor, "").json(t, &next)
	if len(next.Pods) != 1 || next.Pods[0].Name != "web-3" {
		t.Errorf("the page after it: %+v", next)
	}
	// A kind without a selector: by its owner.
	var jobs podListView
	h.want(200, "alice", "GET", acmeShop+"/workloads/CronJob.batch/nightly/pods", "").json(t, &jobs)
	if len(jobs.Pods) != 1 || jobs.Pods[0].Name != "nightly-28-x" {
		t.Errorf("of a CronJob: %+v", jobs)
	}

	h.want(403, "dave", "DELETE", acmeShop+"/pods/web-1?tenant=acme", "")
	h.want(404, "alice", "DELETE", acmeShop+"/pods/web-9", "")
	h.want(204, "alice", "DELETE", acmeShop+"/pods/web-1", "")
	if !slices.Equal(h.api.mount.deleted, []string{"web-1"}) {
		t.Errorf("deleted: %v", h.api.mount.deleted)
	}
}

func applyBody(yaml string, more string) string {
	return fmt.Sprintf(`{"yaml":%q%s}`, yaml, more)
}

const twoObjects = `# a shop
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {ves.io/virtual-sites: shared/stores}}
spec: {replicas: 5, selector: {matchLabels: {app: web}}}
---
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {currency: EUR, warn: "1"}
`

func TestApply(t *testing.T) {
	h := newHarness(t)
	m := h.api.mount
	var out applyView
	h.want(200, "alice", "POST", acmeShop+"/apply", applyBody(twoObjects, `,"dryRun":true`)).json(t, &out)
	if out.Applied || len(out.Objects) != 2 || out.Objects[0].Change != "change" || out.Objects[1].Change != "create" || out.Objects[1].Document != 2 {
		t.Fatalf("a dry run: %+v", out)
	}
	if o := out.Objects; !slices.Equal(o[0].VirtualSites, []string{"shared/stores"}) || len(o[1].VirtualSites) != 0 || !slices.Equal(o[1].Warnings, []string{"this is deprecated"}) {
		t.Errorf("a dry run: %+v", o)
	}
	for _, q := range m.applies {
		if !strings.Contains(q, "dryRun=All") || strings.Contains(q, "force") {
			t.Errorf("a dry run asked %s", q)
		}
	}

	m.applies = nil
	h.want(200, "alice", "POST", acmeShop+"/apply", applyBody(twoObjects, `,"virtualSite":"shared/all-eu"`)).json(t, &out)
	if !out.Applied || len(m.applies) != 4 || strings.Contains(m.applies[3], "dryRun") || !strings.HasPrefix(m.applies[3], "acme-shop/configmaps/settings ") {
		t.Fatalf("applied: %+v by %q", out, m.applies)
	}
	for _, key := range []string{"acme-shop/deployments/web", "acme-shop/configmaps/settings"} {
		meta := m.objects[key]["metadata"].(map[string]any)
		if a, _ := meta["annotations"].(map[string]any); a["ves.io/virtual-sites"] != "shared/all-eu" || meta["namespace"] != "acme-shop" {
			t.Errorf("%s: %v", key, meta)
		}
	}
	h.want(200, "alice", "POST", acmeShop+"/apply", applyBody(twoObjects, `,"virtualSite":"shared/all-eu","dryRun":true`)).json(t, &out)
	if out.Objects[0].Change != "none" {
		t.Errorf("applied again it is a %q", out.Objects[0].Change)
	}
}

// TestApplyRefusals: one object that is refused keeps all from being stored, and each
// refusal stands at its object, with its field.
func TestApplyRefusals(t *testing.T) {
	h := newHarness(t)
	m := h.api.mount
	good := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: good}\ndata: {a: b}\n---\n"
	for name, c := range map[string]struct {
		yaml, field, detail string
		conflict            bool
	}{
		"the API server's own":   {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {refuse: y}", "spec.place.latitude", "does not match", false},
		"a field of others":      {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {conflict: y}", ".data.x", `conflict with "helm"`, true},
		"an unknown kind":        {"apiVersion: apps/v1\nkind: Deploymnet\nmetadata: {name: x}", "kind", "Deploymnet of apps/v1 is not served here", false},
		"an unknown group":       {"apiVersion: widgets.io/v1\nkind: Widget\nmetadata: {name: x}", "kind", "is not served here", false},
		"outside of namespaces":  {"apiVersion: v1\nkind: Namespace\nmetadata: {name: x}", "kind", "is not served here", false},
		"no name":                {"apiVersion: v1\nkind: ConfigMap", "metadata.name", "is missing", false},
		"no kind":                {"apiVersion: v1\nmetadata: {name: x}", "kind", "is missing", false},
		"no version":             {"kind: ConfigMap\nmetadata: {name: x}", "apiVersion", "such as apps/v1", false},
		"another path":           {"apiVersion: v1/../../..\nkind: ConfigMap\nmetadata: {name: x}", "apiVersion", "such as apps/v1", false},
		"a name that is a path":  {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ../../secrets/x}", "metadata.name", "no name", false},
		"another namespace":      {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: globex-shop}", "metadata.namespace", "leave it out", false},
		"annotations of numbers": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, annotations: {a: 1}}", "metadata.annotations.a", "quotes", false},
		"no YAML":                {"a: [", "", "line 1", false},
		"a field twice":          {"apiVersion: v1\napiVersion: v1", "", "already set", false},
		"no object":              {"just text", "", "", false},
	} {
		m.applies = nil
		var out applyView
		h.want(200, "alice", "POST", acmeShop+"/apply", applyBody(good+c.yaml, "")).json(t, &out)
		if out.Applied || len(out.Objects) != 2 || out.Objects[0].Error != nil || out.Objects[1].Error == nil {
			t.Errorf("%s: %+v", name, out)
			continue
		}
		e := out.Objects[1].Error
		text := e.Detail
		if c.field != "" {
			if len(e.Errors) != 1 || e.Errors[0].Field != c.field {
				t.Errorf("%s: %+v, want field %s", name, e, c.field)
				continue
			}
			text = e.Errors[0].Detail
		}
		if !strings.Contains(text, c.detail) || text == "" || e.Conflict != c.conflict {
			t.Errorf("%s: %+v, want %q", name, e, c.detail)
		}
		if _, stored := m.objects["acme-shop/configmaps/good"]; stored {
			t.Fatalf("%s: another object was stored", name)
		}
	}
	var out applyView
	h.want(200, "alice", "POST", acmeShop+"/apply", applyBody("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {conflict: y}", `,"force":true`)).json(t, &out)
	if !out.Applied {
		t.Errorf("taken over: %+v", out)
	}
	// Refused after all: what is stored is told.
	h.want(200, "alice", "POST", acmeShop+"/apply", applyBody(good+"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {late: y}", "")).json(t, &out)
	if e := out.Objects[1].Error; out.Applied || e == nil || !strings.Contains(e.Detail, "exceeded quota (the 1 before it are applied)") {
		t.Errorf("refused late: %+v", out.Objects[1])
	}
	h.want(200, "dave", "POST", acmeShop+"/apply?tenant=globex", applyBody(good, "")).json(t, &out)
	if out.Applied || out.Objects[0].Error == nil {
		t.Errorf("without the right: %+v", out)
	}
	for body, field := range map[string]string{
		applyBody("# nothing", ""):                "yaml",
		applyBody(strings.Repeat(good, 201), ""):  "yaml",
		applyBody(good, `,"virtualSite":"a,b"`):   "virtualSite",
		applyBody(good, `,"virtualSite":"../x"`):  "virtualSite",
		applyBody(good, `,"virtualSite":"a/b/c"`): "virtualSite",
	} {
		if p := h.want(400, "alice", "POST", acmeShop+"/apply", body).problem(t); p.Errors[0].Field != field {
			t.Errorf("%.60s: %+v", body, p.Errors)
		}
	}
}

// events reads a stream of server-sent events until it has n, or its end.
func events(t *testing.T, body io.Reader, n int) (out []string) {
	t.Helper()
	sc := bufio.NewScanner(body)
	sc.Buffer(nil, 1<<20)
	var event []string
	for len(out) < n && sc.Scan() {
		switch l := sc.Text(); {
		case l == "" && len(event) > 0:
			out, event = append(out, strings.Join(event, "\n")), nil
		case strings.HasPrefix(l, "event:"), strings.HasPrefix(l, "id:"), strings.HasPrefix(l, "data:"):
			event = append(event, l)
		}
	}
	return out
}

func (h *harness) follow(ctx context.Context, user, target string, header ...string) *http.Response {
	h.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", h.srv.URL+target, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer token-"+user)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := h.srv.Client().Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// says is what the next log has until its container ends.
func (h *harness) says(text string) {
	h.api.mu.Lock()
	defer h.api.mu.Unlock()
	h.api.mount.lines = make(chan string, 1)
	h.api.mount.lines <- text
	close(h.api.mount.lines)
}

func TestPodLog(t *testing.T) {
	h := newHarness(t, func(_ *Options, tm *timing) { tm.goodFor, tm.streamCheck = time.Millisecond, 10*time.Millisecond })
	const log = acmeShop + "/pods/web-1/log"
	m := h.api.mount
	ctx, cancel := context.WithCancel(t.Context())
	m.lines <- "2026-01-31T11:59:58.5Z one\n"
	res := h.follow(ctx, "alice", log+"?container=web&lines=5")
	if ct := res.Header.Get("Content-Type"); res.StatusCode != 200 || ct != "text/event-stream" {
		t.Fatalf("%d %s", res.StatusCode, ct)
	}
	if got := events(t, res.Body, 1); !slices.Equal(got, []string{"event: lines\nid: 2026-01-31T11:59:58.5Z\ndata: " + `{"lines":[{"time":"2026-01-31T11:59:58.5Z","text":"one"}]}`}) {
		t.Errorf("%q", got)
	}
	if q := m.logs[0]; q != "container=web&follow=true&tailLines=5&timestamps=true" {
		t.Errorf("asked %s", q)
	}
	cancel()

	// After a break: what was sent of the same second is not sent again, and a line that is
	// too long is cut. Then the container ends.
	long := strings.Repeat("x", maxLineBytes+100)
	h.says("2026-01-31T11:59:58.5Z one\n2026-01-31T11:59:58.6Z " + long + "\nno time\n")
	res = h.follow(t.Context(), "alice", log, "Last-Event-ID", "2026-01-31T11:59:58.5Z")
	all, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := events(t, bytes.NewReader(all), 10)
	text := strings.Join(got, "\n")
	if strings.Contains(text, `"one"`) || !strings.Contains(text, `{"time":"","text":"no time"}`) || strings.Contains(text, long) || !strings.Contains(text, long[:maxLineBytes-100]) || got[len(got)-1] != "event: end\ndata: {}" {
		t.Errorf("%d events, the last %q", len(got), got[len(got)-1])
	}
	if q := m.logs[1]; q != "follow=true&sinceTime=2026-01-31T11%3A59%3A58Z&timestamps=true" {
		t.Errorf("asked %s", q)
	}
	h.follow(t.Context(), "alice", log+"?previous=true")
	if q := m.logs[2]; q != "previous=true&tailLines=1000&timestamps=true" {
		t.Errorf("asked %s", q)
	}

	h.want(403, "carol", "GET", log, "")
	h.want(404, "alice", "GET", acmeShop+"/pods/web-9/log", "")
	if p := h.want(503, "alice", "GET", acmeShop+"/pods/web-2/log", "").problem(t); !strings.Contains(p.Detail, "not connected") {
		t.Errorf("an offline site: %s", p.Detail)
	}

	// It ends with the right.
	h.api.mu.Lock()
	m.lines = make(chan string)
	h.api.mu.Unlock()
	res = h.follow(t.Context(), "alice", log)
	h.api.grant("alice", "get/virtualkubernetes acme-shop")
	done := make(chan struct{})
	go func() { defer close(done); _, _ = io.Copy(io.Discard, res.Body) }()
	testkit.EventuallyTrue(t, "the stream ends", func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
}

func FuzzDocuments(f *testing.F) {
	f.Add(twoObjects)
	f.Add("kind: List\napiVersion: v1\nitems: [1, {}, {metadata: 3}]")
	f.Add("metadata: {name: 1, annotations: []}\n---\n- a")
	f.Fuzz(func(t *testing.T, text string) {
		docs, err := documents(text)
		if err != nil {
			return
		}
		for i := range docs {
			if docs[i].err == nil && docs[i].prepare(virtualRef{"acme", "shop", "vk8s"}, "shared/x") == nil {
				if o := docs[i].object; o.GetNamespace() != "acme-shop" || o.GetAnnotations()["ves.io/virtual-sites"] != "shared/x" {
					t.Errorf("%v", o.Object)
				}
			}
		}
	})
}

func FuzzReadLines(f *testing.F) {
	f.Add([]byte("2026-01-31T11:59:58.5Z one\r\ntwo"))
	f.Fuzz(func(t *testing.T, b []byte) {
		to := make(chan podLine, len(b)+1)
		readLines(t.Context(), bytes.NewReader(b), time.Time{}, to)
		close(to)
		n := 0
		for l := range to {
			if n++; strings.ContainsAny(l.Text, "\n") || len(l.Text) > 3*maxLineBytes {
				t.Errorf("%q", l)
			}
		}
		if want := bytes.Count(b, []byte("\n")); n < want || n > want+1 {
			t.Errorf("%d lines of %d", n, want)
		}
	})
}
