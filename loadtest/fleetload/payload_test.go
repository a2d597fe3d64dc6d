package fleetload

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"

	"muster.dev/muster/health/defaults"
	"muster.dev/muster/internal/remotewrite"
)

// decoded is what a receiver reads out of one payload: series → sample.
func decoded(t *testing.T, p *payload, site string, at time.Time) map[string]remotewrite.Sample {
	t.Helper()
	raw := slices.Clone(p.raw)
	n := p.fill(raw, seedOf(site), at)
	d := remotewrite.Decoder{}
	d.Reset(raw, true, remotewrite.Limits{})
	out := map[string]remotewrite.Sample{}
	for d.Next() {
		if d.Bad != nil {
			t.Fatal(d.Bad)
		}
		ls := labels.FromStrings(d.Pairs()...).String()
		if len(d.Samples) != 1 {
			t.Fatalf("%s has %d samples", ls, len(d.Samples))
		}
		out[ls] = d.Samples[0]
	}
	if err := d.Err(); err != nil {
		t.Fatal(err)
	}
	if len(out) != n {
		t.Fatalf("%d different series, fill says %d", len(out), n)
	}
	return out
}

func onePayload(t *testing.T, series int, churn float64) *payload {
	t.Helper()
	ps, err := newPayloads(series, 1, 15*time.Second, churn)
	if err != nil {
		t.Fatal(err)
	}
	return ps[0]
}

func TestFill(t *testing.T) {
	p := onePayload(t, 500, 0.01)
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	paris, later, berlin := decoded(t, p, "paris", at), decoded(t, p, "paris", at.Add(15*time.Second)), decoded(t, p, "berlin", at)
	if len(paris) != 500 {
		t.Fatalf("%d series, want 500", len(paris))
	}
	ups, shared := 0, 0
	for name, s := range paris {
		if s.T != at.UnixMilli() {
			t.Fatalf("%s: time %d, want %d", name, s.T, at.UnixMilli())
		}
		if next, ok := later[name]; ok && strings.Contains(name, "_total") && !value.IsStaleNaN(s.V) && !value.IsStaleNaN(next.V) && next.V < s.V {
			t.Errorf("%s fell from %g to %g", name, s.V, next.V)
		}
		if strings.Contains(name, `__name__="up"`) {
			ups++
			if s.V != 1 {
				t.Errorf("%s = %g", name, s.V)
			}
		}
		if _, both := berlin[name]; both {
			shared++
		}
	}
	if ups != 6 {
		t.Errorf("%d of up", ups)
	}
	// Nodes and pods have names of their own, and the rest is the same everywhere.
	if shared == 0 || shared > 150 {
		t.Errorf("%d of 500 series have the same labels on another site, want some and at most 150", shared)
	}
	again := decoded(t, p, "paris", at)
	for name, s := range paris {
		if a := again[name]; a.T != s.T || math.Float64bits(a.V) != math.Float64bits(s.V) {
			t.Fatalf("%s differs when it is sent again", name)
		}
	}
}

func TestPartsAreTheWhole(t *testing.T) {
	at := time.Now()
	whole := decoded(t, onePayload(t, 333, 0.01), "paris", at)
	ps, err := newPayloads(333, 5, 15*time.Second, 0.01)
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string]bool{}
	for _, p := range ps {
		for name := range decoded(t, p, "paris", at) {
			parts[name] = true
		}
	}
	if len(parts) != len(whole) {
		t.Errorf("%d series in five pushes, %d in one", len(parts), len(whole))
	}
	for name := range whole {
		if !parts[name] {
			t.Errorf("%s is in no part", name)
		}
	}
}

func TestChurn(t *testing.T) {
	const series, hours = 500, 4
	p := onePayload(t, series, 0.01)
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	before := decoded(t, p, "paris", at)
	began, stale := 0, 0
	for i := range int(hours * time.Hour / p.interval) {
		now := decoded(t, p, "paris", at.Add(time.Duration(i+1)*p.interval))
		for name, s := range now {
			if _, was := before[name]; !was {
				began++
			}
			if value.IsStaleNaN(s.V) {
				stale++
			}
		}
		for name, s := range before {
			if _, is := now[name]; !is && !value.IsStaleNaN(s.V) {
				t.Fatalf("%s ends without a staleness marker", name)
			}
		}
		before = now
	}
	want := 0.01 * series * hours * 60
	if got := float64(began); got < 0.9*want || got > 1.1*want {
		t.Errorf("%g new series in %d hours, want about %g", got, hours, want)
	}
	if stale < began*9/10 || stale > began*11/10 {
		t.Errorf("%d staleness markers for %d new series", stale, began)
	}
}

// What the default HealthPolicy reads is what a fleet of this kind must send, or its
// health would cost less here than in the field. A signal that was just added may lack
// its series for a while; that most do is a failure.
func TestSignalsHaveSeries(t *testing.T) {
	all, _ := seriesOf(500)
	sent := map[string]bool{
		// written by the gateway itself
		"muster_site_connected": true, "muster_site_last_push_timestamp_seconds": true,
		// told only of pods and containers that wait, or were killed
		"kube_pod_container_status_waiting_reason": true, "kube_pod_status_unschedulable": true, "kube_pod_container_status_last_terminated_reason": true,
		// of hardware and add-ons that a small site does not have
		"node_md_disks": true, "felix_int_dataplane_failures": true, "longhorn_volume_robustness": true, "diskpool_status": true, "diskpool_used_size_bytes": true, "diskpool_total_size_bytes": true,
		"disk_pool_status": true, "disk_pool_used_size_bytes": true, "disk_pool_total_size_bytes": true, "k3s_certificate_expiration_seconds": true, "DCGM_FI_DEV_XID_ERRORS": true, "DCGM_FI_DEV_GPU_TEMP": true,
		"DCGM_FI_DEV_ROW_REMAP_FAILURE": true, "etcd_server_id": true,
		"envoy_cluster_upstream_rq_xx": true, "envoy_cluster_upstream_rq_time_sum": true, "envoy_cluster_upstream_rq_time_count": true,
		"traefik_service_requests_total": true, "traefik_service_request_duration_seconds_sum": true, "traefik_service_request_duration_seconds_count": true,
		"nginx_ingress_controller_requests": true, "nginx_ingress_controller_request_duration_seconds_sum": true, "nginx_ingress_controller_request_duration_seconds_count": true,
		"response_total": true, "response_latency_ms_sum": true, "response_latency_ms_count": true,
	}
	for _, s := range all {
		sent[s.labels[1]] = true
	}
	reads, missing := map[string]bool{}, map[string]string{}
	for _, sig := range defaults.Model().Signals {
		expr, err := parser.ParseExpr(sig.Query)
		if err != nil {
			t.Fatal(err)
		}
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			if v, ok := n.(*parser.VectorSelector); ok {
				reads[v.Name] = true
				if !sent[v.Name] {
					missing[v.Name] = sig.Name
				}
			}
			return nil
		})
	}
	for name, signal := range missing {
		t.Logf("signal %s reads %s, which no site sends: add it to names.go", signal, name)
	}
	if len(missing) > len(reads)/20 {
		t.Errorf("no site sends %d of the %d metrics that signals read", len(missing), len(reads))
	}
}

func TestFewSeries(t *testing.T) {
	for _, n := range []int{1, 7, len(fixedSeries()), len(fixedSeries()) + 1, len(fixedSeries()) + perPod, 200} {
		if got := len(decoded(t, onePayload(t, n, 0.01), "paris", time.Now())); got != n {
			t.Errorf("%d series, want %d", got, n)
		}
	}
}

func BenchmarkFill(b *testing.B) {
	ps, err := newPayloads(500, 1, 15*time.Second, 0.01)
	if err != nil {
		b.Fatal(err)
	}
	p, seed, at := ps[0], seedOf("paris"), time.Now()
	var buf buffer
	for b.Loop() {
		buf.raw = append(buf.raw[:0], p.raw...)
		p.fill(buf.raw, seed, at)
		buf.packed = snappy.Encode(buf.packed[:cap(buf.packed)], buf.raw)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/500, "ns/sample")
}
