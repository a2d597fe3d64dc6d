package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster.dev/muster/internal/wire"
)

// Tenant is the admin of a tenant: what they may do they do to excess. Safe for
// concurrent use.
type Tenant struct {
	Name    string
	Token   string       // bearer, of a user who is admin of this tenant and nothing else
	Kube    string       // base URL of the Kubernetes API
	Console string       // base URL of the console
	Client  *http.Client // trusts both
	// Own are addresses of the fleet's own listeners, HOST:PORT, for webhooks to call.
	Own []string

	holding
}

// Endless is an expression of a few bytes that takes hours.
const Endless = `sum_over_time(sum_over_time(vector(1)[1d:1s])[1d:1s])`

// costlyRegex is 3 KiB of text that become 25 MB as they are compiled, and half a million steps
// for each character.
var costlyRegex = strings.Repeat(".{999}", 500)

// Attacks of a tenant.
func (t *Tenant) Attacks() []Attack {
	system := t.Name + "-system"
	return []Attack{
		{Name: "queries without end", Every: 200 * time.Millisecond, Try: func(ctx context.Context, _ int) string {
			return t.query(ctx, Endless)
		}, Wall: refused},
		{Name: "wrong tokens", Every: 100 * time.Millisecond, Try: func(ctx context.Context, n int) string {
			wrong := Tenant{Token: fmt.Sprintf("%s-%d", t.Token[:min(len(t.Token), 20)], n), Console: t.Console, Client: t.Client}
			return wrong.get(ctx, "/api/v1/health/sites?tenant="+t.Name)
		}, Wall: refused},
		{Name: "the dearest queries that are let in", Every: 50 * time.Millisecond, Try: func(ctx context.Context, n int) string {
			return t.query(ctx, []string{
				`count({__name__=~".+"})`, `sum_over_time(vector(1)[1h:1s])`, `max_over_time(sum by (i) ({__name__=~"flood|bomb"})[30m:15s])`,
			}[n%3])
		}},
		{Name: "range queries of eleven thousand points", Every: 100 * time.Millisecond, Try: func(ctx context.Context, _ int) string {
			now := time.Now()
			return t.get(ctx, "/api/v1/metrics/query_range?"+url.Values{"tenant": {t.Name}, "query": {`sum by (__name__) ({__name__=~".+"})`},
				"start": {strconv.FormatInt(now.Add(-11_000*time.Second).Unix(), 10)}, "end": {strconv.FormatInt(now.Unix(), 10)}, "step": {"1"}}.Encode())
		}},
		{Name: "log searches for anything anywhere", Every: 100 * time.Millisecond, Try: func(ctx context.Context, _ int) string {
			return t.get(ctx, "/api/v1/logs/search?"+url.Values{"tenant": {t.Name}, "query": {"x* OR y* OR NOT z*"}, "from": {"now-30d"}, "limit": {"1000"}}.Encode())
		}},
		{Name: "log searches by a regular expression of half a million steps", Every: 200 * time.Millisecond, Try: func(ctx context.Context, _ int) string {
			return t.get(ctx, "/api/v1/logs/search?"+url.Values{"tenant": {t.Name}, "query": {"message:/" + costlyRegex + "/"}, "from": {"now-30d"}}.Encode())
		}, Wall: refused},
		{Name: "log searches by many regular expressions of two hundred bytes", Every: 200 * time.Millisecond, Try: func(ctx context.Context, _ int) string {
			one := "message:/" + strings.Repeat(".{999}", 33) + "/"
			return t.get(ctx, "/api/v1/logs/search?"+url.Values{"tenant": {t.Name}, "query": {strings.Repeat(one+" OR ", 10) + one}, "from": {"now-30d"}}.Encode())
		}, Wall: refused},
		{Name: "log searches by the dearest regular expressions that are let in", Every: 100 * time.Millisecond, Try: func(ctx context.Context, n int) string {
			return t.get(ctx, "/api/v1/logs/search?"+url.Values{"tenant": {t.Name}, "query": {fmt.Sprintf("message:/.*(a|x){20}.*%d/", n)}, "from": {"now-30d"}, "limit": {"1000"}}.Encode())
		}},
		{Name: "silences by regular expressions of half a million steps", Every: 200 * time.Millisecond, Try: func(ctx context.Context, _ int) string {
			return t.silence(ctx, costlyRegex)
		}, Wall: refused},
		// A thousand are a tenant's most (alerting/state has the test): at the pace at which they are made
		// that takes longer than the attack.
		{Name: "silences without number", Every: 20 * time.Millisecond, Try: func(ctx context.Context, n int) string {
			return t.silence(ctx, ".*(a|b){20}"+strconv.Itoa(n))
		}},
		{Name: "routes by regular expressions of half a million steps", Every: 500 * time.Millisecond, Try: func(ctx context.Context, n int) string {
			return t.apply(ctx, "alertroutes", system, "costly-"+strconv.Itoa(n%20), map[string]any{
				"route":     map[string]any{"receiver": "r", "routes": []any{map[string]any{"matchers": []any{`site=~"` + costlyRegex + `"`}}}},
				"receivers": []any{map[string]any{"name": "r"}}})
		}, Wall: refused},
		{Name: "policies by regular expressions of half a million steps", Every: 500 * time.Millisecond, Try: func(ctx context.Context, n int) string {
			patterns := slices.Repeat([]string{".{999}"}, 200) // as many as the schema lets in, and as long
			if n%2 == 0 {
				patterns = []string{costlyRegex[:504]}
			}
			return t.apply(ctx, "collectionpolicies", system, "costly-"+strconv.Itoa(n%20), map[string]any{
				"siteSelector": map[string]any{}, "allow": map[string]any{"patterns": patterns}})
		}, Wall: refused},
		{Name: "streams that nobody reads", Every: 500 * time.Millisecond, Try: func(ctx context.Context, n int) string {
			return t.stream(ctx, []string{"/api/v1/health/stream", "/api/v1/logs/tail"}[n%2]+"?tenant="+t.Name)
		}},
		{Name: "rules without end", Every: time.Second, Try: func(ctx context.Context, n int) string {
			return t.apply(ctx, "alertrules", system, "endless-"+strconv.Itoa(n%50), rules(25, Endless))
		}, Wall: refused},
		{Name: "rules that are let in, many", Every: time.Second, Try: func(ctx context.Context, n int) string {
			return t.apply(ctx, "alertrules", system, "many-"+strconv.Itoa(n%50), rules(25, `sum by (i) ({__name__=~"flood|bomb"}) > bool `+strconv.Itoa(n)))
		}},
		{Name: "recording rules that multiply series", Every: time.Second, Try: func(ctx context.Context, n int) string {
			var out []any
			for i := range 50 {
				out = append(out, map[string]any{"record": fmt.Sprintf("copy:%d", i), "expr": `{__name__=~"flood|bomb"}`})
			}
			return t.apply(ctx, "alertrules", system, "copies-"+strconv.Itoa(n%20), map[string]any{"groups": []any{map[string]any{"name": "g", "interval": "5s", "rules": out}}})
		}},
		{Name: "alerts by the thousand", Every: 5 * time.Second, Try: func(ctx context.Context, n int) string {
			return t.apply(ctx, "alertrules", system, "loud-"+strconv.Itoa(n%5), rules(5, `{__name__="flood"} > 0`))
		}},
		{Name: "recording rules in one object of 830 kB", Every: 5 * time.Second, Try: func(ctx context.Context, n int) string {
			var out []any
			for i := range 800 { // a kilobyte each
				out = append(out, map[string]any{"record": fmt.Sprintf("large:%d", i), "expr": `{__name__=~"flood|bomb"}`, "labels": map[string]any{"padding": strings.Repeat("x", 950)}})
			}
			return t.apply(ctx, "alertrules", system, "large-"+strconv.Itoa(n%5), map[string]any{"groups": []any{map[string]any{"name": "g", "interval": "5s", "rules": out}}})
		}, Wall: refused},
		{Name: "annotations of a hundred kilobytes an alert", Every: 5 * time.Second, Try: func(ctx context.Context, n int) string {
			text := `{{ reReplaceAll "" "` + strings.Repeat("y", 200) + `" (print $labels) }}`
			return t.apply(ctx, "alertrules", system, "annotations-"+strconv.Itoa(n%5), map[string]any{"groups": []any{map[string]any{"name": "g", "interval": "5s", "rules": []any{
				map[string]any{"alert": "Annotated", "expr": `{__name__="flood"} > 0`, "annotations": map[string]any{"a": text, "b": text, "c": text}}}}}})
		}},
		{Name: "webhooks to the fleet's own listeners", Every: 500 * time.Millisecond, Try: func(ctx context.Context, n int) string {
			return t.route(ctx, n, map[string]any{"webhook_configs": []any{map[string]any{"url": t.own(n)}}})
		}, Wall: refused},
		{Name: "webhooks to the fleet's own listeners by name", Every: 2 * time.Second, Try: func(ctx context.Context, n int) string {
			return t.route(ctx, n, map[string]any{"webhook_configs": []any{map[string]any{"url": strings.Replace(t.own(0), "127.0.0.1", "localhost", 1)}}})
		}, Wall: refused},
		{Name: "mail through the fleet's own listeners", Every: time.Second, Try: func(ctx context.Context, n int) string {
			to := "169.254.169.254:25"
			if len(t.Own) > 0 && n%2 == 0 {
				to = t.Own[n/2%len(t.Own)]
			}
			return t.route(ctx, n, map[string]any{"email_configs": []any{map[string]any{"to": "a@b.example", "from": "c@d.example", "smarthost": to}}})
		}, Wall: refused},
		{Name: "log rules over everything", Every: time.Second, Try: func(ctx context.Context, n int) string {
			var out []any
			for i := range 20 {
				out = append(out, map[string]any{"name": fmt.Sprintf("R%d", i), "type": "any", "filter": "*", "severity": "info"})
			}
			return t.apply(ctx, "logrules", system, "all-"+strconv.Itoa(n%20), map[string]any{"siteSelector": map[string]any{}, "rules": out})
		}},
		{Name: "virtual sites that change all the time", Every: 200 * time.Millisecond, Try: func(ctx context.Context, n int) string {
			return t.apply(ctx, "virtualsites", t.Name+"-shared", "v-"+strconv.Itoa(n%100), map[string]any{
				"siteSelector": map[string]any{"matchLabels": map[string]any{"n": strconv.Itoa(n)}}})
		}},
		{Name: "config maps of a megabyte", Every: 500 * time.Millisecond, Try: func(ctx context.Context, n int) string {
			return t.send(ctx, http.MethodPost, t.Kube+"/api/v1/namespaces/"+t.Name+"-shared/configmaps", map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "fill-" + strconv.Itoa(n)}, "data": map[string]any{"x": strings.Repeat("x", 1_000_000)}})
		}, Wall: bounded},
	}
}

func rules(groups int, expr string) map[string]any {
	var out []any
	for i := range groups {
		out = append(out, map[string]any{"name": "g" + strconv.Itoa(i), "interval": "5s", "rules": []any{map[string]any{"alert": "A" + strconv.Itoa(i), "expr": expr}}})
	}
	return map[string]any{"groups": out}
}

// own is a URL at one of the fleet's own listeners; the first shut the metric store down
// once.
func (t *Tenant) own(n int) string {
	to := "127.0.0.1:9009"
	if len(t.Own) > 0 {
		to = t.Own[n%len(t.Own)]
	}
	return "http://" + to + []string{"/ingester/shutdown", "/-/quit", "/api/v1/admin/tsdb/delete_series?match[]={__name__!=\"\"}"}[n%3]
}

// route applies an AlertRoute with one receiver, which gets every alert at once.
func (t *Tenant) route(ctx context.Context, n int, receiver map[string]any) string {
	receiver["name"] = "r"
	return t.apply(ctx, "alertroutes", t.Name+"-system", "route-"+strconv.Itoa(n%20), map[string]any{
		"route":     map[string]any{"receiver": "r", "group_by": []any{"..."}, "group_wait": "1s", "group_interval": "1s"},
		"receivers": []any{receiver},
	})
}

func (t *Tenant) query(ctx context.Context, q string) string {
	return t.get(ctx, "/api/v1/metrics/query?"+url.Values{"tenant": {t.Name}, "query": {q}}.Encode())
}

// silence makes a silence of an hour.
func (t *Tenant) silence(ctx context.Context, regex string) string {
	return t.send(ctx, http.MethodPost, t.Console+"/api/v1/silences?tenant="+t.Name, wire.SilenceRequest{
		Matchers: []wire.Matcher{{Name: "site", Value: regex, IsRegex: true, IsEqual: true}}, Duration: "1h", Comment: "hostile"})
}

func (t *Tenant) get(ctx context.Context, path string) string {
	return t.send(ctx, http.MethodGet, t.Console+path, nil)
}

// apply creates an object or replaces its spec, by server-side apply.
func (t *Tenant) apply(ctx context.Context, resource, namespace, name string, spec map[string]any) string {
	kind := map[string]string{"alertrules": "AlertRules", "alertroutes": "AlertRoute", "logrules": "LogRules", "virtualsites": "VirtualSite", "collectionpolicies": "CollectionPolicy"}[resource]
	return t.send(ctx, http.MethodPatch, t.Kube+"/apis/muster.dev/v1alpha1/namespaces/"+namespace+"/"+resource+"/"+name+"?fieldManager=hostile&force=true", map[string]any{
		"apiVersion": "muster.dev/v1alpha1", "kind": kind, "metadata": map[string]any{"name": name, "namespace": namespace}, "spec": spec})
}

func (t *Tenant) send(ctx context.Context, method, to string, body any) string {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	b, err := json.Marshal(body)
	if err != nil {
		return "error"
	}
	req, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(b))
	if err != nil {
		return "error"
	}
	req.Header.Set("Authorization", "Bearer "+t.Token)
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/apply-patch+yaml")
	}
	resp, err := t.Client.Do(req)
	if err != nil {
		return short(err)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<20))
	_ = resp.Body.Close()
	return strconv.Itoa(resp.StatusCode)
}

// stream opens a stream and leaves it unread.
func (t *Tenant) stream(ctx context.Context, path string) string {
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, t.Console+path, nil)
	if err != nil {
		return "error"
	}
	req.Header.Set("Authorization", "Bearer "+t.Token)
	resp, err := t.Client.Do(req)
	if err != nil {
		return short(err)
	}
	t.hold(resp.Body)
	return strconv.Itoa(resp.StatusCode)
}
