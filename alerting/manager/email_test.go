package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/http/httptest"
	"net/mail"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/notify"
	amemail "github.com/prometheus/alertmanager/notify/email"
	"github.com/prometheus/alertmanager/template"
	"github.com/prometheus/alertmanager/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"

	"muster.dev/muster/internal/egress"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

// postOffice is a real SMTP server; mechanisms are what one can log in with.
type postOffice struct {
	mechanisms []string
	mu         sync.Mutex
	got        []letter
	sessions   int
}

// letter is what a message says, in a form that two messages can be compared in.
type letter struct {
	User, From, Hello string
	TLS               bool
	To                []string
	Headers           map[string][]string
	Parts             []string
}

func (p *postOffice) NewSession(c *smtp.Conn) (smtp.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions++
	_, overTLS := c.TLSConnectionState()
	return &counter{office: p, l: letter{Hello: c.Hostname(), TLS: overTLS}}, nil
}

type counter struct {
	office *postOffice
	l      letter
}

func (s *counter) AuthMechanisms() []string { return s.office.mechanisms }
func (s *counter) Auth(m string) (sasl.Server, error) {
	check := func(user, password string) error {
		if password != "secret" {
			return errors.New("wrong password")
		}
		s.l.User = m + " " + user
		return nil
	}
	if m == sasl.Login {
		return &login{check: check}, nil
	}
	return sasl.NewPlainServer(func(_, user, password string) error { return check(user, password) }), nil
}

// login is the server's half of LOGIN.
type login struct {
	check func(user, password string) error
	user  string
	step  int
}

func (l *login) Next(response []byte) (challenge []byte, done bool, err error) {
	l.step++
	switch l.step {
	case 1:
		return []byte("Username:"), false, nil
	case 2:
		l.user = string(response)
		return []byte("Password:"), false, nil
	}
	return nil, true, l.check(l.user, string(response))
}

func (s *counter) Mail(from string, _ *smtp.MailOptions) error { s.l.From = from; return nil }
func (s *counter) Rcpt(to string, _ *smtp.RcptOptions) error   { s.l.To = append(s.l.To, to); return nil }
func (s *counter) Data(r io.Reader) error {
	m, err := mail.ReadMessage(r)
	if err != nil {
		return err
	}
	s.l.Headers = m.Header
	_, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	for parts := multipart.NewReader(m.Body, params["boundary"]); ; {
		p, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		b, err := io.ReadAll(quotedprintable.NewReader(p))
		if err != nil {
			return err
		}
		s.l.Parts = append(s.l.Parts, p.Header.Get("Content-Type")+" "+p.Header.Get("Content-Transfer-Encoding")+"\n"+string(b))
	}
	for name, varies := range map[string]bool{"Message-Id": true, "Date": true, "Content-Type": true} {
		if varies && s.l.Headers[name] != nil {
			s.l.Headers[name] = []string{"set"}
		}
	}
	s.office.mu.Lock()
	defer s.office.mu.Unlock()
	s.office.got = append(s.office.got, s.l)
	return nil
}
func (*counter) Reset()        {}
func (*counter) Logout() error { return nil }

// open serves a post office; with implicit, TLS from the first byte.
func open(t *testing.T, p *postOffice, withTLS, implicit bool) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := smtp.NewServer(p)
	s.Domain, s.AllowInsecureAuth, s.ErrorLog = "localhost", true, slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	if withTLS {
		web := httptest.NewUnstartedServer(nil) // for its certificate
		web.StartTLS()
		s.TLSConfig = &tls.Config{Certificates: web.TLS.Certificates}
		web.Close()
	}
	addr := ln.Addr().String()
	if implicit {
		ln = tls.NewListener(ln, s.TLSConfig)
	}
	go func() { _ = s.Serve(ln) }()
	t.Cleanup(func() { _ = s.Close() })
	return addr
}

func emailConfig(t *testing.T, more string) *config.EmailConfig {
	t.Helper()
	c, err := config.Load("route: {receiver: x}\nreceivers: [{name: x, email_configs: [{" + more + "}]}]")
	if err != nil {
		t.Fatalf("%v in %s", err, more)
	}
	return c.Receivers[0].EmailConfigs[0]
}

func emailTemplates(t *testing.T) *template.Template {
	t.Helper()
	tmpl, err := template.FromGlobs(nil)
	if err != nil {
		t.Fatal(err)
	}
	tmpl.ExternalURL = &url.URL{Scheme: "http", Host: "muster.example"}
	return tmpl
}

func notifyContext(ctx context.Context) context.Context {
	ctx = notify.WithReceiverName(ctx, "acme/oncall/mail")
	ctx = notify.WithGroupLabels(ctx, model.LabelSet{"alertname": "DiskFull"})
	return notify.WithGroupKey(ctx, "key")
}

func someAlerts() []*types.Alert {
	a := func(site string) *types.Alert {
		return &types.Alert{Alert: model.Alert{Labels: model.LabelSet{"alertname": "DiskFull", "site": model.LabelValue(site), "tenant": "acme"},
			Annotations: model.LabelSet{"summary": "the <disk> of " + model.LabelValue(site) + " is full: 100 %, größer geht's nicht"}, StartsAt: time.Unix(1e9, 0), GeneratorURL: "http://g"}}
	}
	return []*types.Alert{a("paris"), a("rome")}
}

// E-mail is what Alertmanager's own notifier sends: both talk to the same server, and
// the letters are the same.
func TestEmailIsAlertmanagers(t *testing.T) {
	for _, c := range []struct {
		name, more    string
		mechanisms    []string
		tls, implicit bool
		fails         bool
	}{
		{name: "plain", more: `require_tls: false`},
		{name: "starttls", more: `tls_config: {insecure_skip_verify: true}`, tls: true},
		{name: "wrong certificate", more: `to: "x@y.example"`, tls: true, fails: true},
		{name: "no starttls", more: `hello: me.example`, fails: true},
		{name: "implicit", more: `force_implicit_tls: true, tls_config: {insecure_skip_verify: true}`, tls: true, implicit: true},
		{name: "login", more: `auth_username: acme, auth_password: secret, tls_config: {insecure_skip_verify: true}`, mechanisms: []string{"LOGIN"}, tls: true},
		{name: "the first that there is a secret for", more: `auth_username: acme, auth_password: secret, auth_identity: id, tls_config: {insecure_skip_verify: true}`, mechanisms: []string{"CRAM-MD5", "PLAIN", "LOGIN"}, tls: true},
		{name: "wrong password", more: `auth_username: acme, auth_password: nonsense, require_tls: false`, mechanisms: []string{"PLAIN"}, fails: true},
		{name: "no secret", more: `auth_username: acme, require_tls: false`, mechanisms: []string{"PLAIN"}, fails: true},
		{name: "unknown mechanism", more: `auth_username: acme, auth_password: secret, require_tls: false`, mechanisms: []string{"XOAUTH2"}, fails: true},
		{name: "name without login", more: `auth_username: acme, auth_password: secret, require_tls: false`},
		{name: "own headers and bodies", more: `require_tls: false, hello: me.example, headers: {subject: "größer {{ .CommonLabels.alertname }}", X-More: a, message-id: "<1@2>"}, text: "{{ .Alerts | len }} alerts\n.\n", html: "<b>{{ (index .Alerts 0).Annotations.summary }}</b>"`},
		{name: "text alone", more: `require_tls: false, html: "", text: "x"`},
		{name: "thread", more: `require_tls: false, threading: {enabled: true, thread_by_date: none}`},
		{name: "template in addresses", more: `require_tls: false, to: "{{ .CommonLabels.tenant }}@example.com, Second <b@example.com>"`},
		{name: "bad template", more: `require_tls: false, text: "{{ .Nonsense }}"`, fails: true},
		{name: "bad address", more: `require_tls: false, to: "{{ .CommonLabels.tenant }}"`, fails: true},
		{name: "two senders", more: `require_tls: false, from: "a@b.example, c@d.example"`, fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			office := &postOffice{mechanisms: c.mechanisms}
			more := c.more + ", smarthost: '" + open(t, office, c.tls, c.implicit) + "'"
			if !strings.Contains(more, "to:") {
				more += ", to: oncall@example.com"
			}
			if !strings.Contains(more, "from:") {
				more += ", from: muster@example.com"
			}
			ctx, log := notifyContext(t.Context()), slog.New(slog.DiscardHandler)
			retryTheirs, theirs := amemail.New(emailConfig(t, more), emailTemplates(t), log).Notify(ctx, someAlerts()...)
			before := len(office.got) // theirs sends an empty letter when a template fails
			retryOurs, ours := newEmail(emailConfig(t, more), emailTemplates(t), log, nil).Notify(ctx, someAlerts()...)
			if (theirs != nil) != c.fails || (ours != nil) != c.fails || retryTheirs != retryOurs {
				t.Fatalf("theirs: %v (retry %v); ours: %v (retry %v); want an error: %v", theirs, retryTheirs, ours, retryOurs, c.fails)
			}
			if c.fails {
				if len(office.got) > before {
					t.Errorf("sent %+v", office.got[before:])
				}
				return
			}
			if len(office.got) != 2 || !reflect.DeepEqual(office.got[0], office.got[1]) {
				t.Errorf("theirs and ours:\n%+v", office.got)
			}
		})
	}
}

// A mail server is dialled by the door that webhooks go through.
func TestEmailIsKeptFromDeniedNetworks(t *testing.T) {
	office := &postOffice{}
	addr := open(t, office, false, false)
	reg := prometheus.NewRegistry()
	policy, err := egress.New(egress.Options{Registerer: reg})
	must(t, err)
	m, c, _ := start(t, Options{Dial: policy.DialContext})
	must(t, m.SetConfig([]byte(`
route: {receiver: mail, group_wait: 10ms}
receivers: [{name: mail, email_configs: [{to: a@example.com, from: b@example.com, require_tls: false, smarthost: "`+addr+`"}]}]`)))
	must(t, c.PostAlerts(t.Context(), []wire.Alert{alert("A")}))
	greeted := func() int {
		office.mu.Lock()
		defer office.mu.Unlock()
		return office.sessions
	}
	testkit.EventuallyTrue(t, "a refusal", func() bool { return greeted() > 0 || refused(t, reg) > 0 })
	if n := greeted(); n > 0 {
		t.Errorf("the mail server was greeted %d times", n)
	}
}

func refused(t *testing.T, reg *prometheus.Registry) float64 {
	t.Helper()
	families, err := reg.Gather()
	must(t, err)
	return families[0].GetMetric()[0].GetCounter().GetValue()
}

// A server that takes a connection and says nothing holds nobody longer than the
// notification lasts.
func TestEmailToASilentServerEnds(t *testing.T) {
	conf := emailConfig(t, `to: a@example.com, from: b@example.com, smarthost: "mail.example.com:25"`)
	tmpl := emailTemplates(t)
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		e := newEmail(conf, tmpl, slog.New(slog.DiscardHandler), func(context.Context, string, string) (net.Conn, error) { return ours, nil })
		ctx, cancel := context.WithTimeout(notifyContext(t.Context()), time.Minute)
		defer cancel()
		if _, err := e.Notify(ctx, someAlerts()...); err == nil || ctx.Err() == nil {
			t.Errorf("%v, %v", err, ctx.Err())
		}
		if _, err := ours.Write([]byte("x")); err == nil {
			t.Error("the connection is still open")
		}
	})
}
