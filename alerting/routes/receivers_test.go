package routes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/alerting/manager"
	"muster.dev/muster/internal/wire"
)

// runManager runs a real Alertmanager with a configuration until the test ends.
func runManager(t *testing.T, config []byte) *amclient.Client {
	t.Helper()
	m, err := manager.New(manager.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if err := m.SetConfig(config); err != nil {
		t.Fatal(err)
	}
	c, err := amclient.New(amclient.Options{URLs: []string{m.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// inbox keeps what services got: a line for each, with what they must check.
type inbox struct {
	mu  sync.Mutex
	got map[string]string
}

func (in *inbox) put(service, what string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.got[service] = what
}

func (in *inbox) get(service string) string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.got[service]
}

// mailbox is an SMTP server with one user.
type mailbox struct{ in *inbox }

func (b mailbox) NewSession(*smtp.Conn) (smtp.Session, error) { return &mail{in: b.in}, nil }

type mail struct {
	in             *inbox
	user, from, to string
}

func (*mail) AuthMechanisms() []string { return []string{sasl.Plain} }
func (s *mail) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != "acme" || password != "mail-secret" {
			return errors.New("wrong password")
		}
		s.user = user
		return nil
	}), nil
}
func (s *mail) Mail(from string, _ *smtp.MailOptions) error { s.from = from; return nil }
func (s *mail) Rcpt(to string, _ *smtp.RcptOptions) error   { s.to = to; return nil }
func (s *mail) Data(r io.Reader) error {
	b, err := io.ReadAll(r)
	s.in.put("email", fmt.Sprintf("%s %s %s %s", s.user, s.from, s.to, b))
	return err
}
func (*mail) Reset()        {}
func (*mail) Logout() error { return nil }

// A tenant's alert reaches each kind of service that people are called by, in the form
// that the service takes and with the secret that it asks for.
func TestReceivers(t *testing.T) {
	in := &inbox{got: map[string]string{}}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil || !json.Valid(b) {
			t.Errorf("%s: %v: %s", r.URL, err, b)
		}
		service, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		in.put(service, fmt.Sprintf("%s %s %s %s", r.Method, r.URL.Path, r.Header.Get("Authorization"), b))
		switch service {
		case "pagerduty", "opsgenie":
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, `{"status":"success"}`)
		case "slack":
			fmt.Fprint(w, "ok")
		}
	}))
	defer web.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	post := smtp.NewServer(mailbox{in})
	post.Domain, post.AllowInsecureAuth = "localhost", true
	go func() { _ = post.Serve(ln) }()
	defer post.Close()

	values := map[string]string{
		"slack/url": web.URL + "/slack/T0/B0/xyz\n", "pagerduty/key": "pd-secret", "opsgenie/key": "og-secret",
		"mail/password": "mail-secret", "hook/token": "hook-secret",
	}
	text := fmt.Sprintf(`
route: {receiver: all, group_wait: 10ms}
receivers:
- name: all
  webhook_configs: [{url: %[1]q, http_config: {authorization: {credentials: {secretKeyRef: {name: hook, key: token}}}}}]
  slack_configs: [{api_url: {secretKeyRef: {name: slack, key: url}}, channel: "#edge"}]
  pagerduty_configs: [{url: %[2]q, routing_key: {secretKeyRef: {name: pagerduty, key: key}}}]
  opsgenie_configs: [{api_url: %[3]q, api_key: {secretKeyRef: {name: opsgenie, key: key}}}]
  email_configs:
  - {to: oncall@acme.example, from: muster@acme.example, smarthost: %[4]q, require_tls: false, auth_username: acme, auth_password: {secretKeyRef: {name: mail, key: password}}}
`, web.URL+"/webhook", web.URL+"/pagerduty/v2/enqueue", web.URL+"/opsgenie/", ln.Addr().String())
	b, results, err := Merge([]Object{object(t, "acme", "oncall", text)}, func(tenant, name, key string) (string, error) {
		v, ok := values[name+"/"+key]
		if tenant != "acme" || !ok {
			return "", fmt.Errorf("there is no secret %s of %s", name, tenant)
		}
		return v, nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for id, r := range results {
		if r.Err != nil {
			t.Fatalf("%s: %v", id, r.Err)
		}
	}
	c := runManager(t, b)
	alerts := []wire.Alert{
		{Labels: map[string]string{"alertname": "DiskFull", "tenant": "acme", "site": "paris-07", "severity": "critical"}, Annotations: map[string]string{"summary": "the disk is full"}},
		{Labels: map[string]string{"alertname": "NotOurs", "tenant": "globex", "site": "rome", "severity": "critical"}},
	}
	if err := c.PostAlerts(t.Context(), alerts); err != nil {
		t.Fatal(err)
	}
	for service, want := range map[string][]string{
		"webhook":   {"POST /webhook Bearer hook-secret", `"alertname":"DiskFull"`, `"the disk is full"`},
		"slack":     {"POST /slack/T0/B0/xyz ", `"channel":"#edge"`, "DiskFull"},
		"pagerduty": {"POST /pagerduty/v2/enqueue ", `"routing_key":"pd-secret"`, `"event_action":"trigger"`, "DiskFull"},
		"opsgenie":  {"POST /opsgenie/v2/alerts GenieKey og-secret", "DiskFull"},
		"email":     {"acme muster@acme.example oncall@acme.example", "Subject: [FIRING:1]", "DiskFull"},
	} {
		for end := time.Now().Add(30 * time.Second); in.get(service) == "" && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		got := in.get(service)
		if got == "" {
			t.Errorf("%s got nothing in 30 s", service)
			continue
		}
		for _, w := range append(want, "paris-07") {
			if !strings.Contains(got, w) {
				t.Errorf("%s got %s\nwithout %q", service, got, w)
			}
		}
		if strings.Contains(got, "NotOurs") {
			t.Errorf("%s got another tenant's alert: %s", service, got)
		}
	}
}
