// Package realregional is a regional's gateway over TLS with a real engine and a real
// forward spool behind it, in the process of a test, for what needs to see samples arrive.
// Without a relay (Start) sites can push, and nothing else.
package realregional

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/spool"
	"muster.dev/muster/regional"
	"muster.dev/muster/regional/engine"
	"muster.dev/muster/regional/gateway"
)

// Regional is a running one.
type Regional struct {
	Gateway *gateway.Gateway
	Series  *gateway.HeadSeries
	Edge    *engine.Engine

	t   testing.TB
	ca  *pki.CA
	url string
}

// nobody is a relay of which nothing is asked but whom it denies.
type nobody struct{ regional.Upstream }

func (nobody) Denied(fleet.SiteID, *x509.Certificate) (string, bool) { return "", false }

// Start starts one that ends with the test. tenantSeries is how many series a tenant may
// have, 0: any number.
func Start(t testing.TB, name string, tenantSeries int) *Regional {
	t.Helper()
	ca, err := pki.Open(pki.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return StartBelow(t, name, tenantSeries, ca, nobody{})
}

// StartBelow starts one with a relay to control and control's CA: sites register and hold
// their streams.
func StartBelow(t testing.TB, name string, tenantSeries int, ca *pki.CA, up regional.Upstream) *Regional {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	r := &Regional{t: t, ca: ca, Series: gateway.NewHeadSeries(func(string) int { return tenantSeries })}
	fwd, err := spool.Open(spool.Options{Dir: t.TempDir(), OnFull: spool.RefuseNew})
	must(err)
	t.Cleanup(func() { must(fwd.Close()) })
	r.Edge, err = engine.New(engine.Options{Name: engine.Edge, Dir: t.TempDir(), OutOfOrderWindow: fleet.DefaultSpoolMaxAge, SeriesLifecycle: r.Series,
		Forward: func(string, []remotewrite.Series) error { return nil }})
	must(err)
	t.Cleanup(func() { must(r.Edge.Close()) })
	r.Series.Enforce()
	cert := r.issue(func(key *ecdsa.PrivateKey) (pki.Issued, error) {
		return r.ca.IssueRegional(key.Public(), name, []string{"127.0.0.1"})
	})
	for _, ca := range r.ca.Bundle() { // a machine that joins knows the CA by its hash
		cert.Certificate = append(cert.Certificate, ca.Raw)
	}
	pool := identity.PoolOf(r.ca.Bundle())
	r.Gateway, err = gateway.New(gateway.Options{
		Name: name, Listen: "127.0.0.1:0", TLS: &tls.Config{Certificates: []tls.Certificate{*cert}, ClientAuth: tls.RequestClientCert}, Trust: func() *x509.CertPool { return pool },
		Edge: r.Edge.Storage(), Series: r.Series, Self: r.Edge.Appendable(), Upstream: up,
		Forward: func(tenant string, series []remotewrite.Series) (func() error, error) {
			_, durable, err := fwd.Put(remotewrite.Encode(tenant, 0, series))
			return durable, err
		},
		ForwardRaw: func(site fleet.SiteID, raw remotewrite.Raw) (func() error, error) {
			_, durable, err := fwd.Put(remotewrite.AppendRaw(nil, site.Tenant, 0, raw))
			return durable, err
		},
	})
	must(err)
	r.url = "https://" + r.Gateway.Addr().String() + "/api/v1/push"
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Gateway.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(<-done)
	})
	return r
}

func (r *Regional) issue(sign func(*ecdsa.PrivateKey) (pki.Issued, error)) *tls.Certificate {
	r.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := sign(key)
	if err != nil {
		r.t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{out.Leaf.Raw}, PrivateKey: key, Leaf: out.Leaf}
}

// Client is a site's own.
func (r *Regional) Client(id fleet.SiteID) *http.Client {
	r.t.Helper()
	cert := r.issue(func(key *ecdsa.PrivateKey) (pki.Issued, error) { return r.ca.IssueSite(key.Public(), id, "eu") })
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: identity.PoolOf(r.ca.Bundle()), Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS13}}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

// PEM is what a site's machine has on its disk.
type PEM struct{ Cert, Key, CA []byte }

// PEM issues a certificate to a site whose program is not part of the test.
func (r *Regional) PEM(id fleet.SiteID) PEM {
	r.t.Helper()
	cert := r.issue(func(key *ecdsa.PrivateKey) (pki.Issued, error) { return r.ca.IssueSite(key.Public(), id, "eu") })
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		r.t.Fatal(err)
	}
	out := PEM{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Leaf.Raw}), Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})}
	for _, ca := range r.ca.Bundle() {
		out.CA = append(out.CA, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})...)
	}
	return out
}

// PushURL is where sites push to.
func (r *Regional) PushURL() string { return r.url }

// Push sends one sample for each of n series of a metric, and returns the status.
func (r *Regional) Push(c *http.Client, metric string, n int, at time.Time) int {
	r.t.Helper()
	series := make([]remotewrite.Series, n)
	for i := range series {
		series[i] = remotewrite.Series{Labels: labels.FromStrings(labels.MetricName, metric, "i", fmt.Sprint(i)), Samples: []remotewrite.Sample{{T: at.UnixMilli(), V: float64(i)}}}
	}
	req, err := http.NewRequest(http.MethodPost, r.url, bytes.NewReader(remotewrite.EncodeV2(series)))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", remotewrite.ContentTypeV2)
	req.Header.Set("Content-Encoding", "snappy")
	res, err := c.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}
