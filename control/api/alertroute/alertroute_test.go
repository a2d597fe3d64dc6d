package alertroute

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/alertmanager/config"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/v1alpha1"
)

// spec reads a spec as a user writes it.
func spec(t testing.TB, text string) *v1alpha1.AlertRouteSpec {
	t.Helper()
	out := &v1alpha1.AlertRouteSpec{}
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return out
}

const good = `
route:
  receiver: team
  group_by: [alertname, site]
  group_wait: 5s
  matchers: ['severity!="info"']
  routes:
  - receiver: phone
    matchers: [severity="critical", site=~"paris-.*"]
    mute_time_intervals: [nights]
receivers:
- name: team
  webhook_configs:
  - url: http://127.0.0.1:1/hook
    http_config:
      http_headers: {X-Files_file: {values: [a]}}
  slack_configs:
  - api_url: {secretKeyRef: {name: slack, key: url}}
    channel: '#ops'
    title: '{{ template "slack.default.title" . }} {{ .CommonLabels.site | toUpper }}'
    fields: [{title: a, value: b}]
  telegram_configs:
  - bot_token: {secretKeyRef: {name: telegram, key: token}}
    chat_id: -1001234567890123457
- name: phone
  pagerduty_configs:
  - routing_key: {secretKeyRef: {name: pd, key: key}}
    details: {config_file: shown, firing: '{{ .Alerts.Firing | len }}'}
  email_configs:
  - to: a@example.com
    from: b@example.com
    smarthost: {secretKeyRef: {name: smtp, key: host}}
    auth_username: u
    auth_password: {secretKeyRef: {name: smtp, key: password}}
inhibit_rules:
- source_matchers: [alertname="A"]
  target_matchers: [alertname="B"]
  equal: [site]
time_intervals:
- name: nights
  time_intervals:
  - times: [{start_time: "00:00", end_time: "06:00"}]
    weekdays: ['monday:friday']
    location: Europe/Paris
`

func TestGood(t *testing.T) {
	s, errs := Parse(spec(t, good))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	want := "[{pd key} {slack url} {smtp host} {smtp password} {telegram token}]"
	if got := fmt.Sprint(s.Secrets()); got != want {
		t.Errorf("secrets %s, want %s", got, want)
	}
	values := map[string]string{"pd/key": "k", "slack/url": "https://hooks.example.com/x\n", "smtp/host": "mail.example.com:587", "smtp/password": "p<w&d", "telegram/token": "t"}
	before, _ := json.Marshal(s)
	r, err := s.Resolve(func(name, key string) (string, error) { return values[name+"/"+key], nil })
	if err != nil {
		t.Fatal(err)
	}
	if after, _ := json.Marshal(s); string(after) != string(before) {
		t.Error("Resolve changed its receiver")
	}
	b, err := Encode(map[string]any{"route": map[string]any{"receiver": "team"}, "receivers": r.Receivers})
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(string(b))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Receivers[0].SlackConfigs[0].APIURL.String(); got != "https://hooks.example.com/x" {
		t.Errorf("slack URL %q", got)
	}
	if got := c.Receivers[0].TelegramConfigs[0].ChatID; got != -1001234567890123457 {
		t.Errorf("chat ID %d", got)
	}
	if got := c.Receivers[1].EmailConfigs[0]; got.Smarthost.Host != "mail.example.com" || string(got.AuthPassword) != "p<w&d" {
		t.Errorf("email %+v", got)
	}
}

const small = `
route: {receiver: a%s}
receivers:
- name: a
%s
`

func TestBad(t *testing.T) {
	for _, c := range []struct{ name, text, path, says string }{
		{"unknown field of a route", fmt.Sprintf(small, ", reciever: b", ""), "spec.route", "reciever"},
		{"unknown field of a receiver", fmt.Sprintf(small, "", "  webhook_configs: [{uri: http://x}]"), "spec.receivers[0]", "uri"},
		{"unknown receiver", fmt.Sprintf(small, ", routes: [{receiver: b}]", ""), "spec.route.routes[0].receiver", `"b"`},
		{"unknown interval", fmt.Sprintf(small, ", routes: [{active_time_intervals: [x]}]", ""), "spec.route.routes[0].active_time_intervals[0]", `"x"`},
		{"same name twice", fmt.Sprintf(small, "", "- name: a"), "spec.receivers[1].name", "Duplicate"},
		{"matcher", fmt.Sprintf(small, `, matchers: ["a b"]`, ""), "spec.route", "a b"},
		{"regular expression", fmt.Sprintf(small, `, matchers: ["a=~\"(\""]`, ""), "spec.route", "missing closing )"},
		{"continue at the top", fmt.Sprintf(small, `, continue: true`, ""), "spec.route.continue", "remove it"},
		{"no receiver at the top", "route: {}\nreceivers: [{name: a}]", "spec.route.receiver", "Required"},
		{"empty sub-route", fmt.Sprintf(small, `, routes: [null]`, ""), "spec.route.routes[0]", "object"},
		{"no receivers", "route: {receiver: a}\nreceivers: []", "spec.receivers", "Required"},
		{"null receiver", "route: {receiver: a}\nreceivers: [null]", "spec.receivers[0]", "object"},
		{"e-mail without a host", fmt.Sprintf(small, "", "  email_configs: [{to: a@b}]"), "spec.receivers[0]", "set it in the receiver itself"},
		{"file", fmt.Sprintf(small, "", "  webhook_configs: [{url_file: /etc/passwd}]"), "spec.receivers[0].webhook_configs[0].url_file", "url: {secretKeyRef"},
		{"headers' files", fmt.Sprintf(small, "", "  webhook_configs: [{url: 'http://x', http_config: {http_headers: {A: {files: [/etc/passwd]}}}}]"), "spec.receivers[0].webhook_configs[0].http_config.http_headers.A.files", "secretKeyRef"},
		{"certificate", fmt.Sprintf(small, "", "  webhook_configs: [{url: 'http://x', http_config: {tls_config: {ca: nonsense}}}]"), "spec.receivers[0]", "CA"},
		{"token of OAuth", fmt.Sprintf(small, "", "  webhook_configs: [{url: 'http://x', http_config: {oauth2: {client_id: a, client_secret: b, token_url: 'http://169.254.169.254/'}}}]"), "spec.receivers[0].webhook_configs[0].http_config.oauth2", "basic_auth"},
		{"proxy of the server", fmt.Sprintf(small, "", "  webhook_configs: [{url: 'http://x', http_config: {proxy_from_environment: true}}]"), "spec.receivers[0].webhook_configs[0].http_config.proxy_from_environment", "proxy_url"},
		{"template that grows", fmt.Sprintf(small, "", "  slack_configs: [{api_url: 'http://x', title: '{{ range 1000000000 }}x{{ end }}'}]"), "spec.receivers[0].slack_configs[0].title", "range"},
		{"key that grows", fmt.Sprintf(small, "", "  pagerduty_configs: [{routing_key: '{{ range 1000000000 }}x{{ end }}'}]"), "spec.receivers[0].pagerduty_configs[0].routing_key", "range"},
		{"AWS credentials of the server", fmt.Sprintf(small, "", "  sns_configs: [{topic_arn: x, sigv4: {region: eu}}]"), "spec.receivers[0].sns_configs[0].sigv4", "access_key"},
		{"secret in a route", fmt.Sprintf(small, ", routes: [{matchers: [{secretKeyRef: {name: a, key: b}}]}]", ""), "spec.route.routes[0].matchers[0].secretKeyRef", "receivers only"},
		{"number as a name", "route: {receiver: a}\nreceivers: [{name: a}, {name: 5}]", "spec.receivers[1].name", "quotes"},
		{"number as a receiver", fmt.Sprintf(small, ", routes: [{receiver: 5}]", ""), "spec.route.routes[0].receiver", "quotes"},
		{"bool in group_by", fmt.Sprintf(small, ", group_by: [a, true]", ""), "spec.route.group_by[1]", "quotes"},
		{"secret of another namespace", fmt.Sprintf(small, "", "  webhook_configs: [{url: {secretKeyRef: {name: a, key: b, namespace: c}}}]"), "spec.receivers[0].webhook_configs[0].url.secretKeyRef", "nothing else"},
		{"secret's name", fmt.Sprintf(small, "", "  webhook_configs: [{url: {secretKeyRef: {name: ../a, key: b}}}]"), "spec.receivers[0].webhook_configs[0].url.secretKeyRef.name", "not the name"},
		{"secret for a number", fmt.Sprintf(small, "", "  telegram_configs: [{bot_token: x, chat_id: {secretKeyRef: {name: a, key: b}}}]"), "spec.receivers[0]", "int64"},
		{"redacted", fmt.Sprintf(small, "", "  webhook_configs: [{url: <secret>}]"), "spec.receivers[0].webhook_configs[0].url", "instead of a secret"},
		{"template", fmt.Sprintf(small, "", "  slack_configs: [{api_url: 'http://x', title: '{{ .A'}]"), "spec.receivers[0].slack_configs[0].title", "not a template"},
		{"interval", "route: {receiver: a}\nreceivers: [{name: a}]\ntime_intervals: [{name: x, time_intervals: [{weekdays: [noday]}]}]", "spec.time_intervals[0]", "noday"},
		{"interval twice", "route: {receiver: a}\nreceivers: [{name: a}]\ntime_intervals: [{name: x, time_intervals: []}, {name: x, time_intervals: []}]", "spec.time_intervals[1].name", "Duplicate"},
		{"inhibition", "route: {receiver: a}\nreceivers: [{name: a}]\ninhibit_rules: [{source: x}]", "spec.inhibit_rules[0]", "source"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, errs := Parse(spec(t, c.text))
			if s != nil || len(errs) != 1 {
				t.Fatalf("want one error, got %v", errs)
			}
			if errs[0].Field != c.path || !strings.Contains(errs[0].Error(), c.says) || strings.Contains(errs[0].Error(), "\n") {
				t.Errorf("got %v, want it at %s with %q, in one line", errs[0], c.path, c.says)
			}
		})
	}
}

// Every field of every receiver that names a file or a secret store, whatever version
// of Alertmanager this is.
func TestNoFileOfTheServer(t *testing.T) {
	n := 0
	var visit func(typ reflect.Type, path []string)
	visit = func(typ reflect.Type, path []string) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || len(path) > 8 {
			return
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, opts, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if opts == "inline" {
				visit(f.Type, path)
				continue
			}
			if !f.IsExported() || name == "" || name == "-" {
				continue
			}
			at := append(append([]string{}, path...), name)
			if pastDenied[name] != "" {
				n++
				refused(t, at)
				continue
			}
			if strings.HasSuffix(name, "_file") || strings.HasSuffix(name, "files") || strings.HasSuffix(name, "_ref") {
				n++
				refused(t, at)
			}
			visit(f.Type, at)
		}
	}
	visit(reflect.TypeFor[config.Receiver](), nil)
	if n < 100 {
		t.Errorf("found only %d fields", n)
	}
}

func refused(t *testing.T, at []string) {
	t.Helper()
	var v any = "/etc/shadow"
	for i := len(at) - 1; i > 0; i-- {
		v = map[string]any{at[i]: v}
	}
	r, err := json.Marshal(map[string]any{"name": "a", at[0]: []any{v}})
	if err != nil {
		t.Fatal(err)
	}
	_, errs := Parse(&v1alpha1.AlertRouteSpec{Route: apiextensionsv1.JSON{Raw: []byte(`{"receiver":"a"}`)}, Receivers: []apiextensionsv1.JSON{{Raw: r}}})
	want := "spec.receivers[0]." + at[0] + "[0]." + strings.Join(at[1:], ".")
	if len(errs) != 1 || errs[0].Field != want || errs[0].Type != "FieldValueForbidden" {
		t.Errorf("%s is not refused: %v", want, errs)
	}
}

func TestResolveErrors(t *testing.T) {
	s, errs := Parse(spec(t, good))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	values := map[string]string{"pd/key": "k", "slack/url": "https://x.example/", "smtp/host": "h:1", "smtp/password": "p", "telegram/token": "t"}
	get := func(name, key string) (string, error) {
		v, ok := values[name+"/"+key]
		if !ok {
			return "", errors.New("there is no such key")
		}
		return v, nil
	}
	if _, err := s.Resolve(get); err != nil {
		t.Fatal(err)
	}
	values["slack/url"] = "hunter2 is no URL"
	if _, err := s.Resolve(get); err == nil || !strings.Contains(err.Error(), "secret slack, key url") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a bad value: %v", err)
	}
	values["slack/url"] = " \n"
	if _, err := s.Resolve(get); err == nil || !strings.Contains(err.Error(), "secret slack, key url: is empty") {
		t.Errorf("an empty value: %v", err)
	}
	delete(values, "slack/url")
	delete(values, "pd/key")
	if _, err := s.Resolve(get); err == nil || !strings.Contains(err.Error(), "slack") || !strings.Contains(err.Error(), "secret pd, key key: there is no such key") {
		t.Errorf("missing ones: %v", err)
	}
}

// A secret that is a certificate is not looked at before it is known.
func TestCertificateFromSecret(t *testing.T) {
	s, errs := Parse(spec(t, fmt.Sprintf(small, "", "  webhook_configs: [{url: 'http://x', http_config: {tls_config: {ca: {secretKeyRef: {name: a, key: ca}}}}}]")))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	if _, err := s.Resolve(func(string, string) (string, error) { return "no PEM", nil }); err == nil || !strings.Contains(err.Error(), "secret a, key ca") {
		t.Errorf("no PEM: %v", err)
	}
}

func TestStringsStayStrings(t *testing.T) {
	odd := "yes\u2028no: {a}\t#\x7f'\"\\ \u00e9"
	b, err := Encode(map[string]any{"route": map[string]any{"receiver": odd}, "receivers": []any{map[string]any{"name": odd}}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(string(b))
	if err != nil {
		t.Fatal(err)
	}
	if c.Route.Receiver != odd {
		t.Errorf("%q became %q", odd, c.Route.Receiver)
	}
}

func FuzzParse(f *testing.F) {
	g := spec(f, good)
	f.Add(g.Route.Raw, g.Receivers[0].Raw, g.InhibitRules[0].Raw, g.TimeIntervals[0].Raw)
	f.Add(g.Route.Raw, g.Receivers[1].Raw, []byte(`{}`), []byte(`{"name":1}`))
	f.Add([]byte(`{"receiver":"a","routes":[{"match_re":{"a":"("}}]}`), []byte(`{"name":"a","jira_configs":[{"fields":{"x":{"y_file":[1e999]}}}]}`), []byte(`null`), []byte(``))
	f.Fuzz(func(t *testing.T, route, rcv, inhibit, interval []byte) {
		in := &v1alpha1.AlertRouteSpec{Route: apiextensionsv1.JSON{Raw: route}, Receivers: []apiextensionsv1.JSON{{Raw: rcv}}}
		if len(inhibit) > 0 {
			in.InhibitRules = []apiextensionsv1.JSON{{Raw: inhibit}}
		}
		if len(interval) > 0 {
			in.TimeIntervals = []apiextensionsv1.JSON{{Raw: interval}}
		}
		s, errs := Parse(in)
		if (s == nil) != (len(errs) > 0) {
			t.Fatalf("spec %v with errors %v", s, errs)
		}
		if s == nil {
			return
		}
		r, err := s.Resolve(func(string, string) (string, error) { return "https://x.example/", nil })
		if err != nil {
			return
		}
		// What was let in loads as a whole.
		top := map[string]any{"receiver": s.Route["receiver"], "routes": []any{r.Route}}
		b, err := Encode(map[string]any{"route": top, "receivers": r.Receivers, "inhibit_rules": r.InhibitRules, "time_intervals": r.TimeIntervals})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load(string(b)); err != nil {
			t.Fatalf("let in, but does not load: %v\n%s", err, b)
		}
	})
}

// Thousands of routes would be looked at for every alert.
func TestRoutesAreBounded(t *testing.T) {
	wide := func(n int) string {
		return `{receiver: a, routes: [` + strings.Repeat(`{receiver: a, continue: true}, `, n-1) + `]}`
	}
	deep := func(n int) string {
		return strings.Repeat(`{receiver: a, routes: [`, n-1) + `{receiver: a}` + strings.Repeat(`]}`, n-1)
	}
	for _, c := range []struct {
		route string
		ok    bool
	}{{wide(MaxRoutes), true}, {wide(MaxRoutes + 1), false}, {deep(MaxDepth), true}, {deep(MaxDepth + 1), false}} {
		_, errs := Parse(spec(t, "route: "+c.route+"\nreceivers: [{name: a}]"))
		if (len(errs) == 0) != c.ok || !c.ok && errs[0].Field != "spec.route" {
			t.Errorf("%.60s: %v", c.route, errs)
		}
	}
}
