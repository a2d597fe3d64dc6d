package intake

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/testkit"
)

// What only a real Fluent Bit shows. MUSTER_FLUENTBIT names its binary, 5.1 or later.
const envFluentBit = "MUSTER_FLUENTBIT"

func fluentBitBinary(t *testing.T) string {
	t.Helper()
	path := os.Getenv(envFluentBit)
	if path == "" {
		t.Skipf("set %s=/path/of/fluent-bit to run this with a real one", envFluentBit)
	}
	return path
}

// plugin is what `make plugin` builds.
func plugin(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../../bin/out_muster.so")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("run make plugin first: %v", err)
	}
	return path
}

// siteDir is an agent's directory with the site's certificate.
func (r *running) siteDir(t testing.TB, cert tls.Certificate) string {
	t.Helper()
	dir := t.TempDir()
	r.writeIdentity(t, dir, cert)
	return dir
}

func (r *running) writeIdentity(t testing.TB, dir string, cert tls.Certificate) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"key.pem": {Type: "PRIVATE KEY", Bytes: key}, "cert.pem": {Type: "CERTIFICATE", Bytes: cert.Certificate[0]}, "bundle.pem": {Type: "CERTIFICATE", Bytes: r.ca.Cert.Raw},
	} {
		tmp := filepath.Join(dir, name+".tmp")
		if err := os.WriteFile(tmp, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// outputs are the three ways to us, as the shipped configurations have them. want is a
// line a key.
func (r *running) outputs(t testing.TB, identityDir string) map[string]string {
	t.Helper()
	u, err := url.Parse(r.url)
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(r.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	stock := fmt.Sprintf("    tls On\n    tls.verify On\n    tls.ca_file %[1]s/bundle.pem\n    tls.crt_file %[1]s/cert.pem\n    tls.key_file %[1]s/key.pem\n    Retry_Limit no_limits\n", identityDir)
	return map[string]string{
		"plugin":  fmt.Sprintf("[OUTPUT]\n    Name muster\n    Match *\n    Endpoint https://%s\n    Identity_Dir %s\n    Workers 2\n    Retry_Limit no_limits\n", u.Host, identityDir),
		"forward": fmt.Sprintf("[OUTPUT]\n    Name forward\n    Match *\n    Host 127.0.0.1\n    Port %s\n    Require_ack_response True\n    Compress gzip\n", port) + stock,
		"http":    fmt.Sprintf("[OUTPUT]\n    Name http\n    Match *\n    Host 127.0.0.1\n    Port %s\n    URI /api/v1/logs\n    Format msgpack\n    header_tag X-Fluent-Tag\n    Compress gzip\n", u.Port()) + stock,
	}
}

// fluentBitLog is what a Fluent Bit says.
type fluentBitLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *fluentBitLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *fluentBitLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

const service = "[SERVICE]\n    Flush 0.3\n    scheduler.base 1\n    scheduler.cap 2\n    Parsers_File parsers.conf\n    Plugins_File plugins.conf\n"

// startFluentBit runs one with a configuration until the test ends. Its lines have times of
// whole seconds with the parser seconds, as nginx' and syslog's have.
func startFluentBit(t *testing.T, conf string) *fluentBitLog {
	t.Helper()
	plugins := ""
	if strings.Contains(conf, "Name muster") || strings.Contains(conf, "Name              muster") {
		plugins = "[PLUGINS]\n    Path " + plugin(t) + "\n"
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"fluent-bit.conf": conf,
		"plugins.conf":    plugins,
		"parsers.conf":    "[PARSER]\n    Name seconds\n    Format regex\n    Regex ^(?<time>[^ ]+) (?<log>.*)$\n    Time_Key time\n    Time_Format %Y-%m-%dT%H:%M:%SZ\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(fluentBitBinary(t), "-c", filepath.Join(dir, "fluent-bit.conf"))
	out := &fluentBitLog{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("fluent-bit said:\n%s", out)
		}
	})
	return out
}

func tailOf(tag, path, parser string) string {
	s := "[INPUT]\n    Name tail\n    Tag " + tag + "\n    Path " + path + "\n    Read_from_Head On\n    Refresh_Interval 1\n    Buffer_Max_Size 32M\n    Skip_Long_Lines On\n"
	if parser != "" {
		s += "    Parser " + parser + "\n"
	}
	return s
}

func appendTo(t testing.TB, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// found waits until so many lines are stored, and a moment longer in which no more may
// come.
func (r *running) found(t *testing.T, n int, log *fluentBitLog) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("%d lines", n), func() error {
		if got := r.sink.count(); got < n {
			return fmt.Errorf("%d lines found\n%s", got, log)
		}
		return nil
	})
	<-time.After(time.Second)
	if got := r.sink.count(); got != n {
		t.Errorf("%d lines found, want %d\n%s", got, n, log)
	}
}

func eachOutput(t *testing.T, f func(t *testing.T, r *running, output string)) {
	fluentBitBinary(t)
	for _, name := range []string{"plugin", "forward", "http"} {
		t.Run(name, func(t *testing.T) {
			r := start(t, nil)
			f(t, r, r.outputs(t, r.siteDir(t, r.ca.site(t, paris)))[name])
		})
	}
}

func atSecond(log string) string {
	return time.Now().UTC().Format("2006-01-02T15:04:05Z") + " " + log + "\n"
}

func TestRealEqualLinesOfTwoNodes(t *testing.T) {
	eachOutput(t, func(t *testing.T, r *running, output string) {
		lines := strings.Repeat(atSecond("GET / 200"), 6)
		var log *fluentBitLog
		for range 2 {
			path := filepath.Join(t.TempDir(), "log")
			appendTo(t, path, lines)
			log = startFluentBit(t, service+tailOf("kube.web", path, "seconds")+output)
		}
		r.found(t, 12, log)
	})
}

func TestRealEqualLinesOfTwoPods(t *testing.T) {
	eachOutput(t, func(t *testing.T, r *running, output string) {
		dir, line := t.TempDir(), atSecond("GET / 200")
		a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
		appendTo(t, a, line)
		appendTo(t, b, line)
		r.found(t, 2, startFluentBit(t, service+tailOf("kube.a", a, "seconds")+tailOf("kube.b", b, "seconds")+output))
	})
}

func TestRealEqualFlushes(t *testing.T) {
	eachOutput(t, func(t *testing.T, r *running, output string) {
		path, lines := filepath.Join(t.TempDir(), "log"), strings.Repeat(atSecond("GET / 200"), 2)
		appendTo(t, path, lines)
		log := startFluentBit(t, service+tailOf("kube.web", path, "seconds")+output)
		for i := range 5 {
			r.found(t, 2*(i+1), log)
			if i < 4 {
				appendTo(t, path, lines)
			}
		}
	})
}

func TestRealLongLines(t *testing.T) {
	for _, size := range []int{900_000, 18_000_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			eachOutput(t, func(t *testing.T, r *running, output string) {
				path := filepath.Join(t.TempDir(), "log")
				appendTo(t, path, "one\ntwo\n"+noisy(size)+"\nfour\nfive\n")
				r.found(t, 5, startFluentBit(t, service+tailOf("kube.web", path, "")+output))
				want := map[string]bool{"one": true, "two": true, "four": true, "five": true}
				for _, rec := range r.sink.all() {
					if want[rec.Message] {
						delete(want, rec.Message)
					} else if len(rec.Message) > DefaultLineBytes+64 || len(rec.Message) < DefaultLineBytes-64 || !strings.HasSuffix(rec.Message, "[truncated]") {
						t.Errorf("a line of %d bytes", len(rec.Message))
					}
				}
				if len(want) > 0 {
					t.Errorf("missing: %v", want)
				}
			})
		})
	}
}

func TestRealSharedKey(t *testing.T) {
	fluentBitBinary(t)
	run := func(t *testing.T, r *running) *fluentBitLog {
		path := filepath.Join(t.TempDir(), "log")
		appendTo(t, path, "one\ntwo\n")
		return startFluentBit(t, service+tailOf("kube.web", path, "")+r.outputs(t, r.siteDir(t, r.ca.site(t, paris)))["forward"]+"    Shared_Key secret\n    Self_Hostname node-1\n")
	}
	t.Run("served", func(t *testing.T) {
		r := start(t, func(o *Options) { o.SharedKey = "secret" })
		r.found(t, 2, run(t, r))
	})
	t.Run("not served", func(t *testing.T) {
		said := &fluentBitLog{}
		r := start(t, func(o *Options) { o.HandshakeTime, o.Logger = time.Second, slog.New(slog.NewTextHandler(said, nil)) })
		log := run(t, r)
		testkit.EventuallyTrue(t, "the regional's log names the sender and the remedy", func() bool {
			return strings.Contains(said.String(), "Shared_Key") && strings.Contains(said.String(), "paris")
		})
		r.found(t, 0, log)
	})
}

// The shipped configurations, with their places changed and nothing else.
func TestRealShippedConfigurations(t *testing.T) {
	fluentBitBinary(t)
	ship := func(name string) string {
		b, err := os.ReadFile(filepath.Join("../../../deploy/fluent-bit", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	inputs, _, ok := strings.Cut(ship("forward.conf"), "[OUTPUT]")
	if !ok {
		t.Fatal("no output in forward.conf")
	}
	for name, conf := range map[string]string{"muster.conf": ship("muster.conf"), "forward.conf": ship("forward.conf"), "http.conf": inputs + ship("http.conf")} {
		t.Run(name, func(t *testing.T) {
			r := start(t, nil)
			u, err := url.Parse(r.url)
			if err != nil {
				t.Fatal(err)
			}
			_, forwardPort, _ := net.SplitHostPort(r.Addr().String())
			dir := t.TempDir()
			logs := filepath.Join(dir, "containers")
			for _, d := range []string{logs, filepath.Join(dir, "fluent-bit")} {
				if err := os.Mkdir(d, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			// Not every machine that runs this has a journal.
			if before, after, ok := strings.Cut(conf, "[INPUT]\n    Name              systemd\n"); ok {
				_, after, _ = strings.Cut(after, "\n\n")
				conf = before + after
			}
			text := strings.NewReplacer("/var/log/containers", logs, "/var/lib/fluent-bit", filepath.Join(dir, "fluent-bit"), "/var/lib/muster-edge/agent", r.siteDir(t, r.ca.site(t, paris)),
				"GATEWAY:7443", u.Host, "GATEWAY", "127.0.0.1", "7443", u.Port(), "24224", forwardPort).Replace(conf)
			line := func(n int) string {
				return time.Now().UTC().Format(time.RFC3339Nano) + fmt.Sprintf(" stdout F line %d\n", n)
			}
			for i := range 10 {
				appendTo(t, filepath.Join(logs, "web-1_shop_nginx-"+strings.Repeat("a", 64)+".log"), line(i))
			}
			log := startFluentBit(t, text)
			testkit.EventuallyTrue(t, "the lines that were there before", func() bool { return r.sink.count() >= 10 })
			all := ""
			for i := range 10 {
				all += line(10 + i)
			}
			appendTo(t, filepath.Join(logs, "web-2_shop_nginx-"+strings.Repeat("b", 64)+".log"), all) // a new pod's
			r.found(t, 20, log)
			for _, rec := range r.sink.all() {
				if !strings.HasPrefix(rec.Message, "line ") || rec.Stream != "stdout" {
					t.Errorf("%+v", rec)
				}
			}
		})
	}
}

// What an OpenTelemetry agent sends to a Fluent Bit arrives whole.
func TestRealOpenTelemetry(t *testing.T) {
	eachOutput(t, func(t *testing.T, r *running, output string) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		_ = ln.Close()
		log := startFluentBit(t, service+"[INPUT]\n    Name opentelemetry\n    Tag otel\n    Listen 127.0.0.1\n    Port "+port+"\n"+output)
		body := `{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}]},"scopeLogs":[{"scope":{"name":"lib"},"logRecords":[
			{"timeUnixNano":"` + fmt.Sprint(time.Now().UnixNano()) + `","severityNumber":17,"severityText":"ERROR","body":{"stringValue":"paid"},
			"traceId":"4bf92f3577b34da6a3ce929d0e0e4736","spanId":"00f067aa0ba902b7","attributes":[{"key":"order","value":{"stringValue":"7"}}]}]}]}]}`
		testkit.EventuallyTrue(t, "Fluent Bit takes the record", func() bool {
			res, err := http.Post("http://127.0.0.1:"+port+"/v1/logs", "application/json", strings.NewReader(body))
			if err != nil {
				return false
			}
			_ = res.Body.Close()
			return res.StatusCode/100 == 2
		})
		r.found(t, 1, log)
		for _, rec := range r.sink.all() {
			for k, want := range map[string]string{"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7", "attributes.order": "7", "resource.service.name": "shop"} {
				if rec.Labels[k] != want {
					t.Errorf("label %s is %q, want %q", k, rec.Labels[k], want)
				}
			}
			if rec.Message != "paid" || rec.Severity != "error" {
				t.Errorf("%+v", rec)
			}
		}
	})
}

// A certificate that is renewed in time, and one that had expired before.
func TestRealCertificateRenewal(t *testing.T) {
	fluentBitBinary(t)
	short := func(t *testing.T, r *running, d time.Duration) tls.Certificate {
		return *r.ca.Issue(t, func(c *x509.Certificate) {
			c.URIs, c.NotAfter = append(c.URIs, identity.SiteURI(identity.DefaultTrustDomain, fleet.SiteID{Tenant: "acme", Name: "paris"})), time.Now().Add(d)
		})
	}
	for _, late := range []bool{false, true} {
		t.Run(map[bool]string{false: "in time", true: "after it expired"}[late], func(t *testing.T) {
			r := start(t, nil)
			cert := short(t, r, 8*time.Second)
			dir := r.siteDir(t, cert)
			path := filepath.Join(t.TempDir(), "log")
			appendTo(t, path, "one\n")
			log := startFluentBit(t, service+tailOf("kube.web", path, "")+r.outputs(t, dir)["plugin"])
			r.found(t, 1, log)
			if !late {
				r.writeIdentity(t, dir, r.ca.site(t, paris))
			}
			parsed, err := x509.ParseCertificate(cert.Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Until(parsed.NotAfter) + time.Second)
			appendTo(t, path, "two\n")
			if late {
				<-time.After(2 * time.Second) // it is refused, and told to come again in half a minute
				r.writeIdentity(t, dir, r.ca.site(t, paris))
			}
			began := time.Now()
			r.found(t, 2, log)
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("silent for %s after the renewal", took)
			}
		})
	}
}
