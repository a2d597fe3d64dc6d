package aggregator

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"

	"muster.dev/muster/aggregator/cortex"
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/forward"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/spool"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/regional"
	"muster.dev/muster/regional/engine"
	"muster.dev/muster/regional/gateway"
)

// chain is the way of a sample: a real gateway with a real engine, the forward queue, a
// real Cortex.
type chain struct {
	t      *testing.T
	client *http.Client
	push   string
	store  string
	queue  *forward.Queues
	edge   *engine.Engine
}

// noControl is a gateway's upstream without a control behind it.
type noControl struct{ regional.Upstream }

func (noControl) Denied(fleet.SiteID, *x509.Certificate) (string, bool) { return "", false }

func newChain(t *testing.T, conf config.Config) *chain {
	t.Helper()
	c := &chain{t: t}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	run := func(what string, fn func(context.Context) error) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- fn(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	store, err := cortex.New(cortex.Options{DataDir: t.TempDir(), Listen: "127.0.0.1:0", Limits: storeLimits(conf)})
	must(err)
	run("cortex", store.Run)
	c.store = store.URL()
	c.await("cortex is ready", func() bool { return store.Ready() == nil })

	c.queue, err = forward.Open(forward.Options{Dir: t.TempDir(), URL: c.store + "/api/v1/push", OnFull: spool.RefuseNew, Concurrency: 1, UserAgent: "test",
		Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))})
	must(err)
	t.Cleanup(func() { _ = c.queue.Close() })
	series := gateway.NewHeadSeries(func(string) int { return conf.Regionals[0].Limits.TenantSeries })
	series.Enforce()
	c.edge, err = engine.New(engine.Options{Name: engine.Edge, Dir: t.TempDir(), OutOfOrderWindow: 48 * time.Hour, SeriesLifecycle: series})
	must(err)
	t.Cleanup(func() { _ = c.edge.Close() })

	ca, err := pki.Open(pki.Options{Dir: t.TempDir()})
	must(err)
	dir := t.TempDir()
	_, err = ca.EnsureRegional(dir, "one", []string{"127.0.0.1"})
	must(err)
	files, err := identity.LoadFiles(filepath.Join(dir, pki.PairFile), filepath.Join(dir, pki.TrustFile))
	must(err)
	pool := identity.PoolOf(ca.Bundle())
	gw, err := gateway.New(gateway.Options{Name: "one", Listen: "127.0.0.1:0", TLS: files.ServerConfig(tls.RequestClientCert), Trust: func() *x509.CertPool { return pool },
		Edge: c.edge.Storage(), Series: series, Forward: c.queue.Put, ForwardRaw: c.queue.PutRaw, Upstream: noControl{}})
	must(err)
	run("gateway", gw.Run)
	c.push = "https://" + gw.Addr().String() + "/api/v1/push"

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	issued, err := ca.IssueSite(key.Public(), fleet.SiteID{Tenant: "acme", Name: "paris"}, "eu")
	must(err)
	cert := tls.Certificate{Certificate: [][]byte{issued.Leaf.Raw}, PrivateKey: key}
	c.client = &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}}}}
	return c
}

func (c *chain) await(what string, ok func() bool) {
	c.t.Helper()
	testkit.EventuallyTrue(c.t, what, ok)
}

// send pushes series and returns the gateway's answer.
func (c *chain) send(s ...remotewrite.Series) (int, string) {
	c.t.Helper()
	resp, err := c.client.Post(c.push, remotewrite.ContentTypeV2, bytes.NewReader(remotewrite.EncodeV2(s)))
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// found asks Cortex for the series with the label n of this value.
func (c *chain) found(n string, at time.Time) (metric map[string]string, ok bool) {
	c.t.Helper()
	q := url.Values{"query": {fmt.Sprintf("last_over_time({n=%q}[5m])", n)}, "time": {fmt.Sprint(at.Unix() + 60)}}
	req, err := http.NewRequest(http.MethodGet, c.store+"/prometheus/api/v1/query?"+q.Encode(), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("X-Scope-OrgID", "acme")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	var body struct {
		Data struct {
			Result []struct {
				Metric map[string]string `json:"metric"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || len(body.Data.Result) != 1 {
		return nil, false
	}
	return body.Data.Result[0].Metric, true
}

// TestTheStoreTakesWhatTheGatewayTakes: a tenant's series up to the very limit of the
// gateway, all of one name, are in the store; there is no second, smaller limit.
func TestTheStoreTakesWhatTheGatewayTakes(t *testing.T) {
	conf := config.Default()
	conf.Regionals[0].Limits.TenantSeries = 40
	c := newChain(t, conf)
	now := time.Now().Truncate(time.Second)
	var all []remotewrite.Series
	for i := range 50 {
		all = append(all, remotewrite.Series{Labels: labels.FromStrings("__name__", "many", "n", fmt.Sprint(i)), Samples: []remotewrite.Sample{{T: now.UnixMilli(), V: 1}}})
	}
	if code, text := c.send(all...); code != http.StatusBadRequest || !strings.Contains(text, "accepted 40 of 50") {
		t.Fatalf("%d %s", code, text)
	}
	c.await("the 40 are in the store", func() bool {
		_, last := c.found("39", now)
		return last
	})
	for i := range 40 {
		if _, ok := c.found(fmt.Sprint(i), now); !ok {
			t.Errorf("series %d is not in the store", i)
		}
	}
	conf.Regionals = append(conf.Regionals, config.DefaultRegional("two", 1))
	conf.Regionals[1].Limits.TenantSeries = 1000
	if got := storeLimits(conf); got.SeriesPerTenant < 1040 || got.SeriesPerMetric != 0 || got.SamplesPerSecond != 0 {
		t.Errorf("two regionals take 1040 series, the store %+v", got)
	}
}

// TestAcknowledgedIsGoodInTheStore: what the gateway takes from a site, Cortex takes
// too, and gives back as it was; or the gateway refuses it with the reason.
func TestAcknowledgedIsGoodInTheStore(t *testing.T) {
	c := newChain(t, config.Default())
	now := time.Now().Truncate(time.Second)
	h := func(change func(*histogram.Histogram)) *histogram.Histogram {
		h := &histogram.Histogram{Schema: 3, Count: 3, Sum: 4, PositiveSpans: []histogram.Span{{Length: 2}}, PositiveBuckets: []int64{1, 1}}
		change(h)
		return h
	}
	wide := h(func(h *histogram.Histogram) {
		h.PositiveSpans, h.PositiveBuckets, h.Count = []histogram.Span{{Length: remotewrite.DefaultBuckets}}, make([]int64, remotewrite.DefaultBuckets), remotewrite.DefaultBuckets
		h.PositiveBuckets[0] = 1
	})
	many := []string{}
	for i := range 60 - 5 { // with __name__, n and the three that are stamped
		many = append(many, fmt.Sprintf("label_%02d", i), strings.Repeat("v", 200))
	}
	cases := map[string]struct {
		kv    []string
		meta  remotewrite.Metadata
		hist  *histogram.Histogram
		float bool
		at    time.Time
		v     float64
	}{
		"plain":             {kv: []string{"__name__", "up"}},
		"dots":              {kv: []string{"__name__", "http.server.duration", "k8s.pod.name", "a"}},
		"colon":             {kv: []string{"__name__", "a:b:rate5m"}},
		"colon in a label":  {kv: []string{"__name__", "up", "a:b", "x"}},
		"umlaut":            {kv: []string{"__name__", "température", "région", "Île-de-France"}},
		"emoji":             {kv: []string{"__name__", "🌡", "🏭", "🚗"}},
		"spaces and quotes": {kv: []string{"__name__", `with "quotes" and \`, "a b", "new\nline"}},
		"digit first":       {kv: []string{"__name__", "2xx", "1", "one"}},
		"U__ as it is":      {kv: []string{"__name__", "U__a_2e_b", "U__c_2e_d", "x"}},
		"two underscores":   {kv: []string{"__name__", "up", "__internal__", "x"}},
		"long name":         {kv: []string{"__name__", strings.Repeat("n", 1024), strings.Repeat("l", 1024), "x"}},
		"long value":        {kv: []string{"__name__", "up", "l", strings.Repeat("v", 2048)}},
		"many labels":       {kv: append([]string{"__name__", "up"}, many...)},
		"long help":         {kv: []string{"__name__", "helped"}, meta: remotewrite.Metadata{Type: "gauge", Help: strings.Repeat("h", 5000), Unit: strings.Repeat("u", 2000)}},
		"no UTF-8 in help":  {kv: []string{"__name__", "helped2"}, meta: remotewrite.Metadata{Type: "gauge", Help: "\xff"}},
		"old":               {kv: []string{"__name__", "up"}, at: now.Add(-47 * time.Hour)},
		"in the future":     {kv: []string{"__name__", "up"}, at: now.Add(9 * time.Minute)},
		"infinite":          {kv: []string{"__name__", "up"}, v: math.Inf(-1)},
		"histogram":         {kv: []string{"__name__", "hist.o.gram"}, hist: h(func(*histogram.Histogram) {})},
		"float histogram":   {kv: []string{"__name__", "fhist"}, hist: h(func(*histogram.Histogram) {}), float: true},
		"wide histogram":    {kv: []string{"__name__", "whist"}, hist: wide},
		"coarse histogram":  {kv: []string{"__name__", "chist"}, hist: h(func(h *histogram.Histogram) { h.Schema = -4 })},
		"fine histogram":    {kv: []string{"__name__", "xhist"}, hist: h(func(h *histogram.Histogram) { h.Schema = 8 })},
		"gauge histogram":   {kv: []string{"__name__", "ghist"}, hist: h(func(h *histogram.Histogram) { h.CounterResetHint = histogram.GaugeType })},
		"custom boundaries": {kv: []string{"__name__", "nhcb"}, hist: h(func(h *histogram.Histogram) {
			h.Schema, h.CustomValues = histogram.CustomBucketsSchema, []float64{1, 2}
		})},
		"custom, as floats": {kv: []string{"__name__", "fnhcb"}, float: true, hist: h(func(h *histogram.Histogram) {
			h.Schema, h.CustomValues = histogram.CustomBucketsSchema, []float64{1, 2}
		})},
		"name of only a dot": {kv: []string{"__name__", "."}},
	}
	sent := map[string]time.Time{}
	for name, k := range cases {
		if k.at.IsZero() {
			k.at = now
		}
		s := remotewrite.Series{Labels: labels.FromStrings(append(k.kv, "n", name)...), Metadata: k.meta}
		switch {
		case k.hist != nil && k.float:
			s.Histograms = []remotewrite.Histogram{{T: k.at.UnixMilli(), FH: k.hist.ToFloat(nil)}}
		case k.hist != nil:
			s.Histograms = []remotewrite.Histogram{{T: k.at.UnixMilli(), H: k.hist}}
		default:
			s.Samples = []remotewrite.Sample{{T: k.at.UnixMilli(), V: k.v}}
		}
		switch code, text := c.send(s); {
		case code == http.StatusNoContent:
			sent[name] = k.at
		case code/100 == 4 && text != "":
			t.Logf("%s is refused: %d %s", name, code, text)
		default:
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	if len(sent) < len(cases)-2 {
		t.Errorf("only %d of %d are taken", len(sent), len(cases))
	}
	c.await("the queue is empty", func() bool {
		b, err := json.Marshal(c.queue.Status())
		return err == nil && strings.Contains(string(b), `"Pending":0`)
	})
	for name, at := range sent {
		got, ok := c.found(name, at)
		if !ok {
			t.Errorf("%s was acknowledged, and is not in Cortex", name)
			continue
		}
		for i, kv := 0, cases[name].kv; i < len(kv); i += 2 {
			if cases[name].hist == nil && kv[i] == "__name__" {
				continue // last_over_time keeps it, but that is PromQL's affair
			}
			if kv[i] != "__name__" && got[kv[i]] != kv[i+1] {
				t.Errorf("%s: label %.40q is %.40q", name, kv[i], got[kv[i]])
			}
		}
		if got["tenant"] != "acme" || got["site"] != "paris" {
			t.Errorf("%s: %v", name, got)
		}
	}
}
