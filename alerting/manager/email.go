package manager

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/smtp"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/notify"
	amemail "github.com/prometheus/alertmanager/notify/email"
	"github.com/prometheus/alertmanager/template"
	"github.com/prometheus/alertmanager/types"
	commoncfg "github.com/prometheus/common/config"
)

// email sends what Alertmanager's own e-mail notifier sends, from the same fields and
// templates. That one dials by itself, past the networks that receivers are kept from,
// and waits for a silent server without an end.
type email struct {
	conf     *config.EmailConfig
	tmpl     *template.Template
	log      *slog.Logger
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	hostname string
}

func newEmail(c *config.EmailConfig, t *template.Template, l *slog.Logger, dial func(context.Context, string, string) (net.Conn, error)) *email {
	conf := *c
	conf.Headers = maps.Clone(c.Headers)
	if conf.Headers == nil {
		conf.Headers = map[string]string{}
	}
	for name, or := range map[string]string{"Subject": config.DefaultEmailSubject, "To": c.To, "From": c.From} {
		if _, ok := conf.Headers[name]; !ok {
			conf.Headers[name] = or
		}
	}
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost.localdomain"
	}
	return &email{conf: &conf, tmpl: t, log: l, dial: dial, hostname: host}
}

// Notify implements notify.Notifier. The message is made before anybody is dialled.
func (e *email) Notify(ctx context.Context, alerts ...*types.Alert) (retry bool, err error) {
	var tmplErr error
	data := notify.GetTemplateData(ctx, e.tmpl, alerts, e.log)
	text := notify.TmplText(e.tmpl, data, &tmplErr)
	from, to := text(e.conf.From), text(e.conf.To)
	if tmplErr != nil {
		return false, fmt.Errorf("execute the templates of 'from' and 'to': %w", tmplErr)
	}
	sender, err := mail.ParseAddressList(from)
	if err != nil {
		return false, fmt.Errorf("parse 'from' addresses: %w", err)
	}
	if len(sender) != 1 {
		return false, fmt.Errorf("must be exactly one 'from' address (got: %d)", len(sender))
	}
	rcpt, err := mail.ParseAddressList(to)
	if err != nil {
		return false, fmt.Errorf("parse 'to' addresses: %w", err)
	}
	message, err := e.message(ctx, data)
	if err != nil {
		return false, err
	}
	c, err := e.connect(ctx)
	if err != nil {
		return true, err
	}
	defer c.Close()
	if err := c.Mail(sender[0].Address); err != nil {
		return true, fmt.Errorf("send MAIL command: %w", err)
	}
	for _, a := range rcpt {
		if err := c.Rcpt(a.Address); err != nil {
			return true, fmt.Errorf("send RCPT command: %w", err)
		}
	}
	w, err := c.Data()
	if err != nil {
		return true, fmt.Errorf("send DATA command: %w", err)
	}
	if _, err := w.Write(message); err != nil {
		return true, fmt.Errorf("send the message: %w", err)
	}
	if err := w.Close(); err != nil {
		return true, fmt.Errorf("delivery failure: %w", err)
	}
	if err := c.Quit(); err != nil {
		e.log.Debug("the mail server has the message, and closes badly", "err", err)
	}
	return false, nil
}

// client is an SMTP session that ends with its context.
type client struct {
	*smtp.Client
	release func() bool
}

func (c *client) Close() {
	c.release()
	_ = c.Client.Close()
}

// connect dials, starts TLS and logs in, as the configuration says.
func (e *email) connect(ctx context.Context) (_ *client, err error) {
	conn, err := e.dial(ctx, "tcp", e.conf.Smarthost.String())
	if err != nil {
		return nil, fmt.Errorf("establish connection to server: %w", err)
	}
	c := &client{release: context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })}
	defer func() {
		if err != nil {
			c.release()
			_ = conn.Close()
		}
	}()
	conf, err := commoncfg.NewTLSConfig(cmp.Or(e.conf.TLSConfig, &commoncfg.TLSConfig{}))
	if err != nil {
		return nil, fmt.Errorf("parse TLS configuration: %w", err)
	}
	conf.ServerName = cmp.Or(conf.ServerName, e.conf.Smarthost.Host)
	implicit := e.conf.Smarthost.Port == "465"
	if e.conf.ForceImplicitTLS != nil {
		implicit = *e.conf.ForceImplicitTLS
	}
	if implicit {
		t := tls.Client(conn, conf)
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("establish TLS connection to server: %w", err)
		}
		c.Client, err = smtp.NewClient(t, e.conf.Smarthost.Host)
	} else {
		c.Client, err = smtp.NewClient(conn, e.conf.Smarthost.Host)
	}
	if err != nil {
		return nil, fmt.Errorf("create SMTP client: %w", err)
	}
	if e.conf.Hello != "" {
		if err := c.Hello(e.conf.Hello); err != nil {
			return nil, fmt.Errorf("send EHLO command: %w", err)
		}
	}
	if !implicit && (e.conf.RequireTLS == nil || *e.conf.RequireTLS) {
		if ok, _ := c.Extension("STARTTLS"); !ok {
			return nil, fmt.Errorf("'require_tls' is true (default) but %q does not advertise the STARTTLS extension", e.conf.Smarthost)
		}
		if err := c.StartTLS(conf); err != nil {
			return nil, fmt.Errorf("send STARTTLS command: %w", err)
		}
	}
	if ok, mechanisms := c.Extension("AUTH"); ok && e.conf.AuthUsername != "" {
		auth, err := e.auth(strings.Fields(mechanisms))
		if err != nil {
			return nil, err
		}
		if err := c.Auth(auth); err != nil {
			return nil, fmt.Errorf("log in: %w", err)
		}
	}
	return c, nil
}

// auth is the server's first mechanism that there is a secret for.
func (e *email) auth(mechanisms []string) (smtp.Auth, error) {
	user, password, secret := e.conf.AuthUsername, string(e.conf.AuthPassword), string(e.conf.AuthSecret)
	for _, m := range mechanisms {
		switch {
		case m == "CRAM-MD5" && secret != "":
			return smtp.CRAMMD5Auth(user, secret), nil
		case m == "PLAIN" && password != "":
			return smtp.PlainAuth(e.conf.AuthIdentity, user, password, e.conf.Smarthost.Host), nil
		case m == "LOGIN" && password != "":
			return amemail.LoginAuth(user, password), nil
		}
	}
	return nil, errors.New("the server offers no way to log in that there is a secret for: set auth_password for PLAIN and LOGIN, auth_secret for CRAM-MD5")
}

// message is the headers and both bodies.
func (e *email) message(ctx context.Context, data *template.Data) ([]byte, error) {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(e.conf.Headers)) {
		value, err := e.tmpl.ExecuteTextString(e.conf.Headers[name], data)
		if err != nil {
			return nil, fmt.Errorf("execute %q header template: %w", name, err)
		}
		fmt.Fprintf(&b, "%s: %s\r\n", name, mime.QEncoding.Encode("utf-8", value))
	}
	if _, ok := e.conf.Headers["Message-Id"]; !ok {
		fmt.Fprintf(&b, "Message-Id: <%d.%d@%s>\r\n", time.Now().UnixNano(), rand.Uint64(), e.hostname)
	}
	if e.conf.Threading.Enabled {
		key, err := notify.ExtractGroupKey(ctx)
		if err != nil {
			return nil, err
		}
		// The messages of a group name a first one that nobody ever sent, which mail programs
		// take for the beginning of a thread.
		day := ""
		if e.conf.Threading.ThreadByDate != "none" {
			day = time.Now().Format("2006-01-02")
		}
		root := fmt.Sprintf("<alert-%.16s-%s@alertmanager>", key.Hash(), day)
		fmt.Fprintf(&b, "References: %s\r\nIn-Reply-To: %s\r\n", root, root)
	}
	parts := multipart.NewWriter(&b)
	fmt.Fprintf(&b, "Date: %s\r\nContent-Type: multipart/alternative;  boundary=%s\r\nMIME-Version: 1.0\r\n\r\n", time.Now().Format(time.RFC1123Z), parts.Boundary())
	for _, p := range []struct {
		kind, text string
		execute    func(string, any) (string, error)
	}{
		{"text/plain", e.conf.Text, e.tmpl.ExecuteTextString},
		{"text/html", e.conf.HTML, e.tmpl.ExecuteHTMLString}, // the preferred one last, RFC 2046
	} {
		if p.text == "" {
			continue
		}
		body, err := p.execute(p.text, data)
		if err != nil {
			return nil, fmt.Errorf("execute the template of the %s part: %w", p.kind, err)
		}
		w, err := parts.CreatePart(textproto.MIMEHeader{"Content-Transfer-Encoding": {"quoted-printable"}, "Content-Type": {p.kind + "; charset=UTF-8"}})
		if err != nil {
			return nil, err
		}
		q := quotedprintable.NewWriter(w)
		if _, err := io.WriteString(q, body); err != nil {
			return nil, err
		}
		if err := q.Close(); err != nil {
			return nil, err
		}
	}
	if err := parts.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
