package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gogo/protobuf/proto"
	"github.com/klauspost/compress/snappy"
	remoteapi "github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/client_golang/prometheus/testutil"
	config_util "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/prometheus/prometheus/storage/remote"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/testkit"
)

const stampedParis = `{__name__="up", region="eu-west", site="paris", tenant="acme"}`

// TestIdentityIsTheCertificates: whatever a site says about who it is, in labels or
// headers, is stamped over.
func TestIdentityIsTheCertificates(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	c := h.client(h.ca.site(t, paris, "eu-west"))
	now := time.Now()
	for name, s := range map[string]remotewrite.Series{
		"honest":       sample(now, 1, "__name__", "up"),
		"forged site":  sample(now.Add(time.Second), 1, "__name__", "up", "site", "berlin"),
		"forged all":   sample(now.Add(2*time.Second), 1, "__name__", "up", "site", "tokyo", "tenant", "umbrella", "region", "asia"),
		"empty labels": sample(now.Add(3*time.Second), 1, "__name__", "up", "site", "", "region", ""),
	} {
		for ct, body := range map[string][]byte{remotewrite.ContentTypeV2: remotewrite.EncodeV2([]remotewrite.Series{s}), remotewrite.ContentTypeV1: remotewrite.EncodeV1([]remotewrite.Series{s})} {
			code, text, _ := h.push(c, ct, body,
				"X-Scope-OrgID", "umbrella", "X-Muster-Tenant", "umbrella", "X-Muster-Tenants", "*", "X-Muster-Site", "tokyo", "X-Forwarded-For", "10.0.0.1", "Authorization", "Bearer x")
			if code != http.StatusNoContent {
				t.Errorf("%s: %d %s", name, code, text)
			}
		}
	}
	if got := h.query("up"); !slices.Equal(got, []string{stampedParis}) {
		t.Errorf("stored: %v", got)
	}
	fwd := h.forwarded()
	for tenant, got := range fwd {
		for _, l := range got {
			if tenant != "acme" || l != stampedParis {
				t.Errorf("forwarded for %s: %s", tenant, l)
			}
		}
	}
	if len(fwd["acme"]) != 8 {
		t.Errorf("forwarded: %v", fwd)
	}
	// The other tenant's certificate writes to the other tenant, whatever it says.
	other := h.client(h.ca.site(t, tokyo, ""))
	if code, text, _ := h.pushSeries(other, sample(now, 1, "__name__", "up", "tenant", "acme", "site", "paris", "region", "eu-west")); code != http.StatusNoContent {
		t.Errorf("%d %s", code, text)
	}
	if got := h.query(`up{tenant="umbrella"}`); !slices.Equal(got, []string{`{__name__="up", site="tokyo", tenant="umbrella"}`}) {
		t.Errorf("stored: %v", got)
	}
	if fwd := h.forwarded(); len(fwd) != 1 || len(fwd["umbrella"]) != 1 {
		t.Errorf("forwarded: %v", fwd)
	}
}

func TestCertificates(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	stranger := newAuthority(t)
	sited := func(id fleet.SiteID) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.URIs = append(c.URIs, &url.URL{Scheme: "spiffe", Host: "muster.local", Path: "/tenant/" + id.Tenant + "/site/" + id.Name})
		}
	}
	h.up.denied = map[fleet.SiteID]string{berlin: "decommissioned"}
	for name, c := range map[string]struct {
		client *http.Client
		code   int
		want   string
	}{
		"none":      {h.client(nil), 401, "certificate is required"},
		"wrong CA":  {h.client(stranger.site(t, paris, "")), 401, "not one of this fleet"},
		"expired":   {h.client(h.ca.site(t, paris, "", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) })), 401, "expired on"},
		"not yet":   {h.client(h.ca.site(t, paris, "", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) })), 401, "check the clocks"},
		"regional":  {h.client(h.ca.regional(t, "two")), 403, "want one of a site"},
		"two names": {h.client(h.ca.site(t, paris, "", sited(tokyo))), 403, "2 URI names"},
		"no names":  {h.client(h.ca.Issue(t, func(*x509.Certificate) {})), 403, "0 URI names"},
		"server":    {h.client(h.ca.site(t, paris, "", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })), 401, "not one of this fleet"},
		"revoked":   {h.client(h.ca.site(t, berlin, "")), 403, "decommissioned"},
	} {
		code, text, _ := h.pushSeries(c.client, sample(time.Now(), 1, "__name__", "up"))
		if code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %q, want %d and %q", name, code, text, c.code, c.want)
		}
	}
	if got := h.query("up"); len(got) != 0 {
		t.Errorf("stored: %v", got)
	}
	if live := slices.Collect(h.g.Live()); len(live) != 0 {
		t.Errorf("peers without an identity are in the live view: %+v", live)
	}
	// A revocation takes effect on a connection that is open.
	c := h.client(h.ca.site(t, paris, ""))
	if code, text, _ := h.pushSeries(c, sample(time.Now(), 1, "__name__", "up")); code != 204 {
		t.Fatalf("%d %s", code, text)
	}
	h.up.mu.Lock()
	h.up.denied[paris] = "stolen"
	h.up.mu.Unlock()
	if code, text, _ := h.pushSeries(c, sample(time.Now(), 1, "__name__", "up")); code != 403 || !strings.Contains(text, "stolen") {
		t.Errorf("%d %s", code, text)
	}
}

func TestTrustBundleReloads(t *testing.T) {
	next := newAuthority(t)
	var pool *x509.CertPool
	h := newHarness(t, harnessOptions{change: func(o *Options) {
		o.Trust = func() *x509.CertPool { return pool }
		pool = next.Pool()
	}})
	// Trust is read by requests; this test makes them one after the other.
	newClient, oldClient := h.client(next.site(t, paris, "")), h.client(h.ca.site(t, paris, ""))
	push := func(c *http.Client) int {
		code, _, _ := h.pushSeries(c, sample(time.Now(), 1, "__name__", "up"))
		return code
	}
	if a, b := push(newClient), push(oldClient); a != 204 || b != 401 {
		t.Errorf("before: %d %d", a, b)
	}
	pool = h.ca.Pool()
	if a, b := push(newClient), push(oldClient); a != 401 || b != 204 {
		t.Errorf("after, on the same connections: %d %d", a, b)
	}
}

// TestRealClients pushes with Prometheus' own remote write client, both protocols.
func TestRealClients(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	now := time.Now().UnixMilli()
	for name, c := range map[string]struct {
		msg  remoteapi.WriteMessageType
		body func() ([]byte, error)
	}{
		"v1": {remoteapi.WriteV1MessageType, func() ([]byte, error) {
			return proto.Marshal(&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
				Labels: []prompb.Label{{Name: "__name__", Value: "v1"}}, Samples: []prompb.Sample{{Value: 1, Timestamp: now - 1}, {Value: 2, Timestamp: now}},
				Histograms: []prompb.Histogram{}}}})
		}},
		"v2": {remoteapi.WriteV2MessageType, func() ([]byte, error) {
			hist := &histogram.Histogram{Count: 3, Sum: 4, Schema: 1, PositiveSpans: []histogram.Span{{Offset: 0, Length: 2}}, PositiveBuckets: []int64{1, 1}}
			return proto.Marshal(&writev2.Request{Symbols: []string{"", "__name__", "v2", "v2_hist", "help"}, Timeseries: []writev2.TimeSeries{
				{LabelsRefs: []uint32{1, 2}, Samples: []writev2.Sample{{Value: 1, Timestamp: now - 1}, {Value: 2, Timestamp: now}}, Metadata: writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_GAUGE, HelpRef: 4}},
				{LabelsRefs: []uint32{1, 3}, Histograms: []writev2.Histogram{writev2.FromIntHistogram(now, hist)}},
			}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			u, _ := url.Parse(h.url())
			wc, err := remote.NewWriteClient(name, &remote.ClientConfig{URL: &config_util.URL{URL: u}, Timeout: model.Duration(10 * time.Second), WriteProtoMsg: c.msg})
			if err != nil {
				t.Fatal(err)
			}
			wc.(*remote.Client).Client = h.client(h.ca.site(t, paris, "eu-west"))
			raw, err := c.body()
			if err != nil {
				t.Fatal(err)
			}
			stats, err := wc.Store(context.Background(), snappy.Encode(nil, raw), 0)
			if err != nil {
				t.Fatal(err)
			}
			if name == "v2" && (stats.Samples != 2 || stats.Histograms != 1) {
				t.Errorf("confirmed %+v", stats)
			}
			if got := h.query(name); len(got) != 1 {
				t.Error("nothing stored")
			}
		})
	}
	if got := h.query("histogram_count(v2_hist)"); len(got) != 1 {
		t.Errorf("histogram: %v", got)
	}
	rec, err := h.fwd.Next(t.Context())
	for err == nil {
		_, series, derr := remotewrite.Decode(rec.Data)
		if derr != nil {
			t.Fatal(derr)
		}
		if series[0].Labels.Get("__name__") == "v2" {
			if series[0].Metadata.Type != model.MetricTypeGauge || series[0].Metadata.Help != "help" || len(series[0].Samples) != 2 || len(series[1].Histograms) != 1 {
				t.Errorf("forwarded %+v", series)
			}
			break
		}
		rec, err = h.fwd.Next(t.Context())
	}
}

func TestPartialWrites(t *testing.T) {
	h := newHarness(t, harnessOptions{limits: Limits{Labels: 6}})
	c := h.client(h.ca.site(t, paris, "eu-west"))
	now := time.Now()
	raw, err := proto.Marshal(&writev2.Request{
		Symbols: []string{"", "__name__", "good", "a", "\xff", "up"},
		Timeseries: []writev2.TimeSeries{
			{LabelsRefs: []uint32{1, 2}, Samples: []writev2.Sample{{Value: 1, Timestamp: now.UnixMilli()}}},
			{LabelsRefs: []uint32{1, 99}, Samples: []writev2.Sample{{Value: 1, Timestamp: now.UnixMilli()}}},                                              // outside of the symbols
			{LabelsRefs: []uint32{3, 2}, Samples: []writev2.Sample{{Value: 1, Timestamp: now.UnixMilli()}}},                                               // no name
			{LabelsRefs: []uint32{1}, Samples: []writev2.Sample{{Value: 1, Timestamp: now.UnixMilli()}}},                                                  // odd
			{LabelsRefs: []uint32{1, 4}, Samples: []writev2.Sample{{Value: 1, Timestamp: now.UnixMilli()}}},                                               // no UTF-8
			{LabelsRefs: []uint32{1, 5, 3, 2, 3, 2}, Samples: []writev2.Sample{{Value: 1, Timestamp: now.UnixMilli()}}},                                   // twice
			{LabelsRefs: []uint32{1, 2, 3, 2}, Samples: []writev2.Sample{{Value: 1, Timestamp: now.UnixMilli()}, {Value: 1, Timestamp: 1 << 60}}},         // one in the future
			{LabelsRefs: []uint32{1, 5}, Samples: []writev2.Sample{{Value: 1, Timestamp: -1 << 60}}},                                                      // one of the year -36 million
			{LabelsRefs: []uint32{1, 2, 2, 2, 3, 2, 4, 2, 5, 2}, Samples: []writev2.Sample{{Value: 1, Timestamp: now.UnixMilli()}}},                       // too many labels
			{LabelsRefs: []uint32{1, 5}, Histograms: []writev2.Histogram{{Schema: 99, Timestamp: now.UnixMilli(), Count: &writev2.Histogram_CountInt{}}}}, // no such schema
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	code, text, hdr := h.push(c, remotewrite.ContentTypeV2, snappy.Encode(nil, raw))
	if code != 400 || hdr.Get("X-Prometheus-Remote-Write-Samples-Written") != "2" || !strings.Contains(text, "accepted 2 of 11 samples; refused 9") {
		t.Errorf("%d %s %v", code, text, hdr)
	}
	if got := h.query(`{__name__=~".+"}`); len(got) != 2 {
		t.Errorf("stored %v", got)
	}
	if fwd := h.forwarded(); len(fwd["acme"]) != 2 {
		t.Errorf("forwarded %v", fwd)
	}
	// A site's own series about health would be believed elsewhere.
	for _, name := range []string{fleet.MetricVirtualSite, fleet.MetricSiteConnected} {
		if code, text, _ := h.pushSeries(c, sample(now, 1, "__name__", name, "virtual_site", "all")); code != 400 || !strings.Contains(text, "reserved") {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	// The same sample again is fine, another value for it is not.
	if code, text, _ := h.pushSeries(c, sample(now, 1, "__name__", "good")); code != 204 {
		t.Errorf("again: %d %s", code, text)
	}
	if code, text, _ := h.pushSeries(c, sample(now, 2, "__name__", "good")); code != 400 || !strings.Contains(text, "duplicate sample") {
		t.Errorf("another value: %d %s", code, text)
	}
}

// TestLongHelpIsCut: it is shared by all series of a request, and worth no more than its
// beginning.
func TestLongHelpIsCut(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	c := h.client(h.ca.site(t, paris, ""))
	s := sample(time.Now(), 1, "__name__", "up")
	s.Metadata = remotewrite.Metadata{Type: "gauge", Help: "h" + strings.Repeat("é", 1<<20)}
	if code, text, _ := h.pushSeries(c, s); code != 204 {
		t.Fatalf("%d %s", code, text)
	}
	rec, err := h.fwd.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, series, err := remotewrite.Decode(rec.Data)
	if err != nil || len(series) != 1 || len(series[0].Metadata.Help) != maxHelp-1 || !utf8.ValidString(series[0].Metadata.Help) {
		t.Errorf("%d bytes of help, %v", len(series[0].Metadata.Help), err)
	}
}

func TestMalformed(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	c := h.client(h.ca.site(t, paris, ""))
	good := remotewrite.EncodeV2([]remotewrite.Series{sample(time.Now(), 1, "__name__", "up"), sample(time.Now(), 1, "__name__", "up", "second", "one")})
	raw, _ := snappy.Decode(nil, good)
	for name, k := range map[string]struct {
		ct   string
		body []byte
		hdr  []string
		code int
	}{
		"no snappy":     {remotewrite.ContentTypeV2, raw, nil, 400},
		"cut off":       {remotewrite.ContentTypeV2, snappy.Encode(nil, raw[:len(raw)-3]), nil, 400},
		"torn series":   {remotewrite.ContentTypeV2, snappy.Encode(nil, append(slices.Clone(raw), 0x2a, 0x02, 0x12, 0x05)), nil, 400},
		"content type":  {"application/json", good, nil, 415},
		"message":       {"application/x-protobuf;proto=nonsense", good, nil, 415},
		"gzip":          {remotewrite.ContentTypeV2, good, []string{"Content-Encoding", "gzip"}, 415},
		"empty":         {remotewrite.ContentTypeV2, nil, nil, 400},
		"empty request": {remotewrite.ContentTypeV2, snappy.Encode(nil, nil), nil, 204},
	} {
		if code, text, _ := h.push(c, k.ct, k.body, k.hdr...); code != k.code {
			t.Errorf("%s: %d %s, want %d", name, code, text, k.code)
		}
	}
	// What came before the torn end of a request must not stay.
	if got := h.query("up"); len(got) != 0 {
		t.Errorf("stored %v", got)
	}
	resp, err := c.Get(h.url())
	if err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %v %v", resp, err)
	}
}

func many(n int, at time.Time, metric string) []remotewrite.Series {
	out := make([]remotewrite.Series, n)
	for i := range out {
		out[i] = sample(at, float64(i), "__name__", metric, "i", fmt.Sprint(i))
	}
	return out
}

func TestSeriesLimit(t *testing.T) {
	now := time.Now()
	h := newHarness(t, harnessOptions{limits: Limits{Series: 100}, tenantSeries: 150})
	a, b, o := h.client(h.ca.site(t, paris, "")), h.client(h.ca.site(t, berlin, "")), h.client(h.ca.site(t, tokyo, ""))
	code, text, hdr := h.pushSeries(a, many(120, now, "x")...)
	if code != 400 || hdr.Get("X-Prometheus-Remote-Write-Samples-Written") != "100" || !strings.Contains(text, "100 series here, its limit is 100 (limits.series)") {
		t.Errorf("%d %s", code, text)
	}
	// Known series go on.
	if code, text, _ := h.pushSeries(a, many(100, now.Add(time.Second), "x")...); code != 204 {
		t.Errorf("%d %s", code, text)
	}
	code, text, hdr = h.pushSeries(b, many(60, now, "x")...)
	if code != 400 || hdr.Get("X-Prometheus-Remote-Write-Samples-Written") != "50" || !strings.Contains(text, "tenant acme has 150 series here, its limit is 150") {
		t.Errorf("%d %s", code, text)
	}
	if code, text, _ := h.pushSeries(b, many(50, now.Add(time.Second), "x")...); code != 204 {
		t.Errorf("known series at the tenant's limit: %d %s", code, text)
	}
	if code, text, _ := h.pushSeries(o, many(60, now, "x")...); code != 204 {
		t.Errorf("another tenant: %d %s", code, text)
	}
	live := slices.Collect(h.g.Live())
	if len(live) != 3 || live[0].Limited != "TenantSeriesLimit" || live[1].Limited != "SeriesLimit" || live[2].Limited != "" {
		t.Errorf("live %+v", live)
	}
	if got := h.series.TenantSeries(); !maps.Equal(got, map[string]int{"acme": 150, "umbrella": 60}) {
		t.Errorf("tenants' series %v", got)
	}
}

// A stock sender reads its files when it connects: it is made to, before its certificate is over,
// and not at each push.
func TestOldCertificatesConnectAnew(t *testing.T) {
	clock := newClock()
	began := clock.now()
	h := newHarness(t, harnessOptions{change: func(o *Options) { o.Now = clock.now }})
	cert := h.ca.site(t, paris, "", func(c *x509.Certificate) { c.NotBefore, c.NotAfter = began, began.Add(24*time.Hour) })
	for protocol, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		var handshakes atomic.Int32
		cfg := h.tls(nil)
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			handshakes.Add(1)
			return cert, nil
		}
		tr := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: h2}
		c := &http.Client{Transport: tr}
		push := func(at time.Duration) int32 {
			t.Helper()
			clock.add(began.Add(at).Sub(clock.now()))
			if code, text, _ := h.pushSeries(c, sample(time.Now(), 1, "__name__", "up")); code != 204 {
				t.Fatalf("%s: %d %s", protocol, code, text)
			}
			return handshakes.Load()
		}
		stays := func(at time.Duration, want int32) {
			t.Helper()
			if got := push(at); got != want {
				t.Errorf("%s: %d handshakes after %s, want %d", protocol, got, at, want)
			}
		}
		anew := func(at time.Duration, want int32) { // a push or two may still go over the old one
			t.Helper()
			testkit.EventuallyTrue(t, protocol+": a new connection", func() bool { return push(at) == want })
		}
		stays(0, 1)
		stays(17*time.Hour, 1)
		anew(19*time.Hour, 2)
		stays(19*time.Hour+9*time.Minute, 2)
		anew(19*time.Hour+10*time.Minute, 3)
		tr.CloseIdleConnections()
	}
}

func TestRateLimit(t *testing.T) {
	clock := newClock()
	now := clock.now()
	h := newHarness(t, harnessOptions{limits: Limits{SamplesPerSecond: 10}, change: func(o *Options) { o.Now = clock.now }})
	c, other := h.client(h.ca.site(t, paris, "")), h.client(h.ca.site(t, berlin, ""))
	// The bucket holds 300; a batch of 600 still passes, and is paid for afterwards.
	if code, text, _ := h.pushSeries(c, many(600, now, "x")...); code != 204 {
		t.Fatalf("%d %s", code, text)
	}
	code, text, hdr := h.pushSeries(c, many(1, now, "y")...)
	if code != 429 || hdr.Get("Retry-After") != "30" || !strings.Contains(text, "limits.samplesPerSecond") {
		t.Errorf("%d %s, Retry-After %s", code, text, hdr.Get("Retry-After"))
	}
	if code, _, _ := h.pushSeries(other, many(1, now, "y")...); code != 204 {
		t.Errorf("another site: %d", code)
	}
	now = clock.add(30 * time.Second)
	if code, text, _ := h.pushSeries(c, many(1, now, "y")...); code != 204 {
		t.Errorf("after Retry-After: %d %s", code, text)
	}
}

// All sites of a tenant share its rate; another tenant goes on.
func TestRateLimitOfATenant(t *testing.T) {
	clock := newClock()
	now := clock.now()
	h := newHarness(t, harnessOptions{limits: Limits{TenantSamplesPerSecond: 10}, change: func(o *Options) { o.Now = clock.now }})
	c, sibling := h.client(h.ca.site(t, paris, "")), h.client(h.ca.site(t, berlin, ""))
	other := h.client(h.ca.site(t, fleet.SiteID{Tenant: "globex", Name: "oslo"}, ""))
	if code, text, _ := h.pushSeries(c, many(600, now, "x")...); code != 204 {
		t.Fatalf("%d %s", code, text)
	}
	code, text, hdr := h.pushSeries(sibling, many(1, now, "y")...)
	if after, _ := strconv.Atoi(hdr.Get("Retry-After")); code != 429 || after < 30 || after > 35 || !strings.Contains(text, "tenant "+berlin.Tenant+" is over its limit of 10 samples a second (limits.tenantSamplesPerSecond)") {
		t.Errorf("%d %s, Retry-After %s", code, text, hdr.Get("Retry-After"))
	}
	if n := testutil.ToFloat64(h.g.metrics.limited.WithLabelValues(reasonTenantRate)); n != 1 {
		t.Errorf("%v counted", n)
	}
	if code, text, _ := h.pushSeries(other, many(1, now, "y")...); code != 204 {
		t.Errorf("another tenant: %d %s", code, text)
	}
	now = clock.add(36 * time.Second)
	if code, text, _ := h.pushSeries(sibling, many(1, now, "y")...); code != 204 {
		t.Errorf("after Retry-After: %d %s", code, text)
	}
}

func TestBodyLimits(t *testing.T) {
	h := newHarness(t, harnessOptions{limits: Limits{BodyBytes: 100_000, RawBytes: 1 << 20}})
	c := h.client(h.ca.site(t, paris, ""))
	if code, text, _ := h.push(c, remotewrite.ContentTypeV2, make([]byte, 100_001)); code != 413 || !strings.Contains(text, "limits.bodyBytes") {
		t.Errorf("%d %s", code, text)
	}
	// The length may be hidden.
	req, _ := http.NewRequest(http.MethodPost, h.url(), struct{ *bytes.Reader }{bytes.NewReader(make([]byte, 200_000))})
	req.ContentLength = -1
	resp, err := c.Do(req)
	if err != nil || resp.StatusCode != 413 {
		t.Errorf("%v %v", resp, err)
	}
	// A bomb: 1.5 MiB of zeros.
	bomb := snappy.Encode(nil, make([]byte, 3<<19))
	if code, text, _ := h.push(c, remotewrite.ContentTypeV2, bomb); code != 413 || !strings.Contains(text, "uncompressed") {
		t.Errorf("%d bytes: %d %s", len(bomb), code, text)
	}
	// A liar: it claims 4 GiB.
	if code, text, _ := h.push(c, remotewrite.ContentTypeV2, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0}); code != 413 && code != 400 {
		t.Errorf("%d %s", code, text)
	}
}

func TestSlowBody(t *testing.T) {
	h := newHarness(t, harnessOptions{change: func(o *Options) { o.BodyTimeout = 2 * time.Second; o.MaxInFlight = 1 }})
	c := h.client(h.ca.site(t, paris, ""))
	body, stop := newStuckBody()
	defer stop()
	req, _ := http.NewRequest(http.MethodPost, h.url(), body)
	req.Header.Set("Content-Type", remotewrite.ContentTypeV2)
	done := make(chan int, 1)
	go func() {
		resp, err := c.Do(req)
		if err != nil {
			done <- -1 // the connection was cut: just as good
			return
		}
		done <- resp.StatusCode
	}()
	testkit.EventuallyTrue(t, "the slow request is in flight", func() bool {
		s := h.g.acquire(paris)
		defer s.release()
		return s.inFlight.Load() == 1
	})
	if code, text, hdr := h.pushSeries(h.client(h.ca.site(t, paris, "")), sample(time.Now(), 1, "__name__", "up")); code != 429 || hdr.Get("Retry-After") == "" {
		t.Errorf("a second one meanwhile: %d %s", code, text)
	}
	if code := <-done; code != http.StatusRequestTimeout && code != -1 {
		t.Errorf("slow body: %d", code)
	}
	testkit.EventuallyTrue(t, "the place is free again", func() bool {
		code, _, _ := h.pushSeries(c, sample(time.Now(), 1, "__name__", "up"))
		return code == 204
	})
}

type stuckBody struct{ stop chan struct{} }

func newStuckBody() (*stuckBody, func()) {
	b := &stuckBody{make(chan struct{})}
	return b, func() { close(b.stop) }
}

func (b *stuckBody) Read([]byte) (int, error) { <-b.stop; return 0, fmt.Errorf("stopped") }

// TestFullForwardQueue: a site is told to wait, and its samples are not in the
// engine alone for ever.
func TestFullForwardQueue(t *testing.T) {
	h := newHarness(t, harnessOptions{forward: 64 << 10})
	c := h.client(h.ca.site(t, paris, ""))
	now, n := time.Now(), 0
	code, text, hdr := 0, "", http.Header{}
	for ; n < 1000; n++ {
		if code, text, hdr = h.pushSeries(c, many(200, now.Add(time.Duration(n)*time.Second), "x")...); code != 204 {
			break
		}
	}
	if code != 503 || hdr.Get("Retry-After") == "" || hdr.Get("X-Prometheus-Remote-Write-Samples-Written") != "" {
		t.Fatalf("after %d: %d %s %v", n, code, text, hdr)
	}
	last := now.Add(time.Duration(n) * time.Second)
	for h.fwd.Stats().Pending > 0 {
		rec, err := h.fwd.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h.fwd.Ack(rec.Seq)
	}
	// The same request again, as a sender does: it must get through, and be forwarded.
	if code, text, _ := h.pushSeries(c, many(200, last, "x")...); code != 204 {
		t.Errorf("again: %d %s", code, text)
	}
	if fwd := h.forwarded(); len(fwd["acme"]) != 200 {
		t.Errorf("forwarded %d series", len(fwd["acme"]))
	}
}

// TestAncientFirstSample: an empty engine would take any age, and then cut the time
// since into blocks.
func TestAncientFirstSample(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	c := h.client(h.ca.site(t, paris, ""))
	if code, text, _ := h.pushSeries(c, sample(time.Now().Add(-49*time.Hour), 1, "__name__", "up")); code != 400 || !strings.Contains(text, "old") {
		t.Errorf("%d %s", code, text)
	}
	if code, text, _ := h.pushSeries(c, sample(time.Now().Add(-47*time.Hour), 1, "__name__", "up")); code != 204 {
		t.Errorf("%d %s", code, text)
	}
}

func TestRegionChange(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	now := time.Now()
	for i, region := range []string{"eu-west", "eu-north"} {
		if code, text, _ := h.pushSeries(h.client(h.ca.site(t, paris, region)), sample(now.Add(time.Duration(i)), 1, "__name__", "up")); code != 204 {
			t.Fatalf("%d %s", code, text)
		}
	}
	if got := h.query(`up{region="eu-north"}`); len(got) != 1 {
		t.Errorf("stored %v", got)
	}
	if n := h.series.Site(paris); n != 2 {
		t.Errorf("%d series", n)
	}
}

func TestSeriesCache(t *testing.T) {
	var c seriesCache
	for i := range uint64(5000) {
		c.add(cached{hash: i, ref: 1, labels: labels.FromStrings("i", fmt.Sprint(i))})
	}
	c.sweep(func(s *cached) bool { return s.hash < 4000 })
	if c.len() != 1000 || len(c.slots) != 1000 {
		t.Errorf("%d left in %d slots", c.len(), len(c.slots))
	}
	for i := uint64(4000); i < 5000; i++ {
		if s := c.get(i); s == nil || s.labels.Get("i") != fmt.Sprint(i) {
			t.Fatalf("series %d: %+v", i, s)
		}
	}
	c.sweep(func(s *cached) bool { return s.hash < 4500 })
	c.add(cached{hash: 1, ref: 1})
	if c.len() != 501 || len(c.slots) != 1000 || c.get(1) == nil || c.get(4400) != nil {
		t.Errorf("%d in %d slots", c.len(), len(c.slots))
	}
}

// TestRotatingFiles: with the files that control keeps for a regional, a new
// certificate is served to the next connection, and HTTP/2 is negotiated.
func TestRotatingFiles(t *testing.T) {
	dir := t.TempDir()
	pair, bundle := filepath.Join(dir, "tls.pem"), filepath.Join(dir, "ca.pem")
	write := func(ca *authority) {
		cert := ca.regional(t, "one")
		key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		caPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Cert.Raw})
		chain := slices.Concat(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), caPEM, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
		if err := errors.Join(atomicfile.Write(pair, chain, 0o600), atomicfile.Write(bundle, caPEM, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	first := newAuthority(t)
	write(first)
	files, err := identity.LoadFiles(pair, bundle)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, harnessOptions{change: func(o *Options) {
		o.TLS = files.ServerConfig(tls.RequireAndVerifyClientCert)
		o.Trust = func() *x509.CertPool { _, pool, _ := files.Current(); return pool }
	}})
	for _, ca := range []*authority{first, h.ca} {
		write(ca)
		testkit.EventuallyTrue(t, "the new certificate is served", func() bool {
			c := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: ca.Pool(),
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return ca.site(t, paris, ""), nil }}}}
			defer c.CloseIdleConnections()
			resp, err := c.Post(h.url(), remotewrite.ContentTypeV2, bytes.NewReader(remotewrite.EncodeV2([]remotewrite.Series{sample(time.Now(), 1, "__name__", "up")})))
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			return resp.StatusCode == 204 && resp.ProtoMajor == 2
		})
	}
	// A machine that joins knows the CA's hash only.
	conn, err := tls.Dial("tcp", h.g.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := identity.VerifyPinned(conn.ConnectionState().PeerCertificates, identity.CAHash(h.ca.Cert), "127.0.0.1", time.Now()); err != nil {
		t.Error(err)
	}
}

// Names in UTF-8, as OpenTelemetry's are, are stored as they are.
func TestNamesInUTF8(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	if code, text, _ := h.pushSeries(h.client(h.ca.site(t, paris, "")), sample(time.Now(), 7, "__name__", "http.server.requêtes", "k8s.pod.name", "web-1")); code != http.StatusNoContent {
		t.Fatalf("%d %s", code, text)
	}
	if got := h.query(`{"http.server.requêtes", "k8s.pod.name"="web-1"}`); len(got) != 1 {
		t.Errorf("stored %v", got)
	}
}
