package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/agent"
)

// A machine without an agent that runs registers with a token, renews through its gateway
// and control before its certificate is over, and the files are what a push is let in with.
func TestCertificateOfASiteThatAnotherProgramPushesFor(t *testing.T) {
	f := newFleet(t)
	dir := t.TempDir()
	f.join(dir, "stock")
	var now time.Duration // ahead, for the machine alone
	refresh := func() {
		t.Helper()
		a, err := agent.New(agent.Options{Dir: dir, Version: "v1", Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return time.Now().Add(now) }})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	pair := func() tls.Certificate {
		t.Helper()
		p, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	refresh()
	first := pair()
	now = first.Leaf.NotAfter.Sub(first.Leaf.NotBefore) * 3 / 4
	refresh()
	second := pair()
	if second.Leaf.SerialNumber.Cmp(first.Leaf.SerialNumber) == 0 {
		t.Fatal("not renewed")
	}
	pem, err := os.ReadFile(filepath.Join(dir, "bundle.pem"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatal("bundle.pem holds no certificate")
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{second}}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Post("https://"+f.gateway+"/api/v1/push", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnsupportedMediaType { // let in, and it is no remote write
		t.Errorf("the gateway answers %s", resp.Status)
	}
}
