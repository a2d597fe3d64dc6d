package engine

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/forward"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/spool"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/testca"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional"
	"muster.dev/muster/regional/gateway"
)

// overloaded is a regional whose parts are taken away one after the other.
type overloaded struct {
	t      *testing.T
	e      *Engine
	gw     *gateway.Gateway
	srv    *httptest.Server
	site   *http.Client
	queues *forward.Queues
	store  atomic.Bool // takes what comes
	n      int64
}

// noUpstream is asked whether a site may push, and nothing else.
type noUpstream struct{ regional.Upstream }

func (noUpstream) Denied(fleet.SiteID, *x509.Certificate) (string, bool) { return "", false }

func newOverloaded(t *testing.T) *overloaded {
	o := &overloaded{t: t}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	o.store.Store(true)
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if !o.store.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("X-Prometheus-Remote-Write-Samples-Written", "1000000")
	}))
	t.Cleanup(store.Close)
	var err error
	o.queues, err = forward.Open(forward.Options{Dir: t.TempDir(), URL: store.URL, OnFull: spool.RefuseNew, Concurrency: 1, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	must(err)
	t.Cleanup(func() { _ = o.queues.Close() })
	series := gateway.NewHeadSeries(nil)
	series.Enforce()
	o.e = open(t, Options{QueryConcurrency: 4, TenantSlots: 2, QueryTimeout: 500 * time.Millisecond, SeriesLifecycle: series, Forward: o.queues.Append})
	o.srv = serve(t, o.e)
	ca := testca.New(t)
	pool := ca.Pool()
	o.gw, err = gateway.New(gateway.Options{Name: "one", Listen: "127.0.0.1:0", TLS: &tls.Config{Certificates: []tls.Certificate{*ca.Regional(t, "one")}}, Trust: func() *x509.CertPool { return pool },
		Edge: o.e.Storage(), Series: series, Forward: o.queues.Put, ForwardRaw: o.queues.PutRaw, Upstream: noUpstream{}})
	must(err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.gw.Run(ctx) }()
	t.Cleanup(func() { cancel(); must(<-done) })
	cert := ca.Site(t, fleet.SiteID{Tenant: "acme", Name: "paris"}, "eu")
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{*cert}}}
	t.Cleanup(tr.CloseIdleConnections)
	o.site = &http.Client{Transport: tr}
	return o
}

// pending is how much waits for the store.
func (o *overloaded) pending() uint64 {
	return o.queues.Status().(map[string]any)["acme"].(map[string]any)["queue"].(spool.Stats).Pending
}

// push pushes a sample and tells whether it was taken.
func (o *overloaded) push() bool {
	o.t.Helper()
	o.n++
	body := remotewrite.EncodeV2([]remotewrite.Series{{Labels: labels.FromStrings("__name__", "up"), Samples: []remotewrite.Sample{{T: time.Now().UnixMilli() - 100_000 + o.n, V: 1}}}})
	resp, err := o.site.Post("https://"+o.gw.Addr().String()+"/api/v1/push", remotewrite.ContentTypeV2, bytes.NewReader(body))
	if err != nil {
		o.t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusNoContent
}

// live tells whether the live view, by which the dead-man and health know of links, has a push
// that came just now.
func (o *overloaded) live(since time.Time) bool {
	o.t.Helper()
	w := httptest.NewRecorder()
	o.gw.LiveHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, wire.LivePath, nil))
	v, err := wire.DecodeLiveView(w.Body.Bytes(), "one")
	if err != nil {
		o.t.Fatal(err)
	}
	return len(v.Sites) == 1 && !v.Sites[0].LastPush.Before(since.Truncate(time.Millisecond))
}

func (o *overloaded) ask(q string, health bool) bool {
	o.t.Helper()
	req, err := http.NewRequest(http.MethodGet, o.srv.URL+"/edge/api/v1/query?query="+url.QueryEscape(q), nil)
	if err != nil {
		o.t.Fatal(err)
	}
	if health {
		req.Header.Set(wire.HeaderPurpose, wire.PurposeHealth)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		o.t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// take has all evaluation slots of the class in use; the returned function gives them back.
func (o *overloaded) take(n int, class func(i int) turns.Class) (giveBack func()) {
	o.t.Helper()
	var all []func()
	for i := range n {
		release, err := o.e.guard.slots.Acquire(o.t.Context(), class(i))
		if err != nil {
			o.t.Fatal(err)
		}
		all = append(all, release)
	}
	return func() {
		for _, release := range all {
			release()
		}
	}
}

// What a regional gives up when there is too much to do, in its order, is history, then what
// tenants evaluate, then signals of health; what sites push and the live view it never does.
// docs/operations.md says so to people.
func TestWhatIsGivenUpFirst(t *testing.T) {
	o := newOverloaded(t)
	stage := func(name string, history, tenants, signals bool) {
		t.Helper()
		since := time.Now()
		if !o.push() {
			t.Errorf("%s: a push is not taken", name)
		}
		if !o.live(since) {
			t.Errorf("%s: the live view does not know of it", name)
		}
		if history {
			testkit.EventuallyTrue(t, name+": the store has all", func() bool { return o.pending() == 0 })
		} else if o.pending() == 0 {
			t.Errorf("%s: the store has all", name)
		}
		if got := o.ask(`up{tenant="acme"}`, false); got != tenants {
			t.Errorf("%s: a tenant's query is answered: %t", name, got)
		}
		if got := o.ask("max by (tenant, site) (up)", true); got != signals {
			t.Errorf("%s: a signal is answered: %t", name, got)
		}
	}
	stage("at rest", true, true, true)
	o.store.Store(false)
	stage("the store takes nothing", false, true, true)
	tenants := o.take(2, func(i int) turns.Class { return turns.Class{Tenant: string(rune('a' + i))} })
	stage("tenants ask for too much", false, false, true)
	platform := o.take(2, func(int) turns.Class { return turns.Class{Platform: true} })
	stage("all ask for too much", false, false, false)
	platform()
	stage("health has its slots again", false, false, true)
	tenants()
	o.store.Store(true)
	stage("at rest again", true, true, true)
}
