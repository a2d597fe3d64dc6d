package defaults

import (
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/teststorage"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/api/validation"
	"muster.dev/muster/health"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/promcost"
)

func TestShippedHealthPolicy(t *testing.T) {
	p := HealthPolicy()
	m := Model()
	if p.Kind != "HealthPolicy" || p.APIVersion != v1alpha1.GroupVersion.String() || p.Name != "default" || p.Namespace != "" {
		t.Errorf("wrong head: %s %s %q %q", p.APIVersion, p.Kind, p.Namespace, p.Name)
	}
	if len(m.Signals) != len(p.Spec.Signals) {
		t.Errorf("the model has %d signals, the policy %d: the policy must name uplink itself", len(m.Signals), len(p.Spec.Signals))
	}
	if len(m.Signals) < 12 {
		t.Errorf("%d signals, want at least 12", len(m.Signals))
	}
	if m.Signals[m.Uplink()].Query != health.UplinkQuery {
		t.Error("the query of uplink differs from health.UplinkQuery")
	}
	count := map[fleet.Dimension]int{}
	for _, s := range p.Spec.Signals {
		count[s.Dimension]++
		if s.Source == "" || s.Text == "" || len(s.Text) > 200 || len(s.Source) > 200 || len(s.Unit) > 20 {
			t.Errorf("signal %s: source and text must be set and short", s.Name)
		}
		if !strings.Contains(s.Query, "by (tenant, site)") {
			t.Errorf("signal %s: its query doesn't aggregate by (tenant, site)", s.Name)
		}
		if _, err := promcost.Rule.Parse(s.Query, promcost.Window{}); err != nil {
			t.Errorf("signal %s: %v", s.Name, err)
		}
	}
	if errs := validation.HealthPolicy(p); len(errs) > 0 {
		t.Errorf("the API server refuses it: %v", errs)
	}
	// What a reason is about is the site itself, its line or its agent; all others name objects.
	ofTheSite := []string{"uplink", "uplink-flapping", "telemetry-age", "telemetry-stopped", "push-delay", "push-errors", "spool-backlog", "series-headroom", "agent-age"}
	for _, s := range p.Spec.Signals {
		if (s.Objects == "") != slices.Contains(ofTheSite, s.Name) {
			t.Errorf("signal %s: its objects are %q", s.Name, s.Objects)
		}
		if s.Objects == "" {
			continue
		}
		if _, err := promcost.Rule.Parse(s.Objects, promcost.Window{}); err != nil {
			t.Errorf("signal %s: objects: %v", s.Name, err)
		}
	}
	for _, d := range fleet.Dimensions {
		if count[d] < 3 {
			t.Errorf("dimension %s: %d signals, want at least 3", d, count[d])
		}
	}
}

// A signal whose metric is filtered out at the edge would be unknown everywhere.
func TestAllowlistHasWhatSignalsNeed(t *testing.T) {
	spec := CollectionPolicy().Spec
	names := map[string]bool{}
	for _, n := range spec.Allow.Names {
		if names[n] {
			t.Errorf("allow.names: %s stands twice", n)
		}
		names[n] = true
	}
	var patterns []*regexp.Regexp
	for _, p := range spec.Allow.Patterns {
		patterns = append(patterns, regexp.MustCompile("^(?:"+p+")$"))
	}
	byGateway := []string{fleet.MetricSiteConnected, fleet.MetricSiteLastPush}
	for _, s := range HealthPolicy().Spec.Signals {
		expr, err := parser.ParseExpr(s.Query)
		if err != nil {
			t.Fatal(err)
		}
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			vs, ok := n.(*parser.VectorSelector)
			if !ok {
				return nil
			}
			if vs.Name == "" {
				t.Errorf("signal %s: selector %s has no metric name", s.Name, vs)
			}
			allowed := names[vs.Name] || slices.Contains(byGateway, vs.Name) || slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(vs.Name) })
			if !allowed {
				t.Errorf("signal %s: metric %s is not in the allowlist", s.Name, vs.Name)
			}
			for _, m := range vs.LabelMatchers {
				if slices.Contains(spec.DropLabels, m.Name) {
					t.Errorf("signal %s: label %s is dropped at the edge", s.Name, m.Name)
				}
			}
			return nil
		})
	}
}

func TestShippedCollectionPolicy(t *testing.T) {
	spec := CollectionPolicy().Spec
	p := fleet.CollectionPolicy{
		AllowNames: spec.Allow.Names, AllowPatterns: spec.Allow.Patterns, DropLabels: spec.DropLabels, Aggregations: map[string]string{},
		SeriesBudget: int(*spec.SeriesBudget), Interval: spec.Interval.Duration, SpoolMaxBytes: spec.Spool.MaxBytes.Value(), SpoolMaxAge: spec.Spool.MaxAge.Duration,
	}
	for _, a := range spec.Aggregations {
		p.Aggregations[a.Metric] = a.Op
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
}

// ---- the queries against a real PromQL engine

const (
	scrape = 15 * time.Second
	end    = 20 * time.Minute
)

// series is one series of a site: its value at a second since the start. A NaN is
// no sample.
type series struct {
	labels string // a="b",c="d"
	at     func(s float64) float64
}

func flat(v float64) func(float64) float64 { return func(float64) float64 { return v } }

func rate(perSecond float64) func(float64) float64 {
	return func(s float64) float64 { return 1000 + perSecond*s }
}

// from switches to f in the last sample before the end.
func from(before, f func(float64) float64) func(float64) float64 {
	return func(s float64) float64 {
		if s >= (end - scrape).Seconds() {
			return f(s)
		}
		return before(s)
	}
}

// last switches to f for a while before the end.
func last(d time.Duration, before, f func(float64) float64) func(float64) float64 {
	return func(s float64) float64 {
		if s >= (end - d).Seconds() {
			return f(s)
		}
		return before(s)
	}
}

func whole(f func(float64) float64) func(float64) float64 {
	return func(s float64) float64 { return math.Floor(f(s)) }
}

type site map[string][]series

func (s site) set(name, labels string, f func(float64) float64) {
	for i := range s[name] {
		if s[name][i].labels == labels {
			s[name][i].at = f
			return
		}
	}
	s[name] = append(s[name], series{labels, f})
}

// collectorOnly is what any connected site sends, with what the gateway writes.
func collectorOnly() site {
	s := site{}
	s.set("muster_site_connected", "", flat(1))
	s.set("muster_site_last_push_timestamp_seconds", "", func(t float64) float64 { return t })
	s.set("muster_collector_push_delay_seconds", "", flat(2))
	s.set("muster_collector_push_errors_total", "", rate(0))
	s.set("muster_collector_spool_bytes", "", flat(1e5))
	s.set("muster_edge_build_timestamp_seconds", "", flat(0))
	s.set("muster_collector_series", "", flat(1400))
	s.set("muster_collector_series_budget", "", flat(2000))
	s.set("muster_collector_series_refused", "", flat(0))
	s.set("muster_collector_health_series_refused", "", flat(0))
	s.set("muster_collector_samples_dropped_total", `reason="future"`, flat(3))
	s.set("muster_collector_samples_dropped_total", `reason="allowlist"`, rate(4000))
	return s
}

// bare is a machine with node_exporter alone, without a node label.
func bare() site {
	s := collectorOnly()
	s.set("up", `job="node"`, flat(1))
	addNode(s, "")
	return s
}

func addNode(s site, node string) {
	l := func(rest string) string {
		if node == "" {
			return rest
		}
		return strings.Trim(`node="`+node+`",`+rest, ",")
	}
	for _, cpu := range []string{"0", "1"} {
		s.set("node_cpu_seconds_total", l(`cpu="`+cpu+`",mode="idle"`), rate(0.8))
		s.set("node_cpu_seconds_total", l(`cpu="`+cpu+`",mode="user"`), rate(0.2))
	}
	s.set("node_memory_MemTotal_bytes", l(""), flat(8e9))
	s.set("node_vmstat_oom_kill", l(""), flat(2))
	s.set("node_boot_time_seconds", l(""), flat(-1e6))
	s.set("node_time_seconds", l(""), func(t float64) float64 { return t })
	s.set("node_timex_sync_status", l(""), flat(1))
	s.set("node_nf_conntrack_entries", l(""), flat(3000))
	s.set("node_nf_conntrack_entries_limit", l(""), flat(262144))
	s.set("node_memory_MemAvailable_bytes", l(""), flat(4.5e9))
	for _, fs := range []string{`device="/dev/vda1",fstype="ext4",mountpoint="/"`, `device="/dev/vda15",fstype="vfat",mountpoint="/boot/efi"`, `device="tmpfs",fstype="tmpfs",mountpoint="/run"`, `device="/dev/loop0",fstype="squashfs",mountpoint="/snap/core"`} {
		avail, files := 50e9, 1e6
		if strings.Contains(fs, "squashfs") {
			avail = 0
		}
		if strings.Contains(fs, "vfat") {
			files = 0
		}
		s.set("node_filesystem_size_bytes", l(fs), flat(100e9))
		s.set("node_filesystem_avail_bytes", l(fs), flat(avail))
		s.set("node_filesystem_device_error", l(fs), flat(0))
		s.set("node_filesystem_files", l(fs), flat(files))
		s.set("node_filesystem_files_free", l(fs), flat(files*0.9))
		s.set("node_filesystem_readonly", l(fs), flat(0))
	}
	s.set("node_netstat_Tcp_RetransSegs", l(""), rate(1))
	s.set("node_netstat_Tcp_OutSegs", l(""), rate(1000))
	s.set("node_timex_offset_seconds", l(""), flat(-0.0001))
	s.set("node_pressure_io_stalled_seconds_total", l(""), rate(0.01))
}

// cluster is a site of three nodes with every exporter.
func cluster() site {
	s := collectorOnly()
	for _, job := range []string{"node", "ksm", "kubelet", "cadvisor", "cilium"} {
		s.set("up", `job="`+job+`"`, flat(1))
	}
	for i := range 3 {
		n := fmt.Sprintf("n%d", i)
		l := `node="` + n + `"`
		addNode(s, n)
		s.set("apt_upgrades_pending", l+`,arch="amd64",origin="Debian-Security:12/oldstable-security"`, flat(1))
		s.set("apt_upgrades_pending", l+`,arch="amd64",origin="Debian:12/oldstable"`, flat(30))
		s.set("node_reboot_required", l, flat(0))
		for _, c := range []string{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure"} {
			yes, no := 0.0, 1.0
			if c == "Ready" {
				yes, no = 1, 0
			}
			s.set("kube_node_status_condition", l+`,condition="`+c+`",status="true"`, flat(yes))
			s.set("kube_node_status_condition", l+`,condition="`+c+`",status="false"`, flat(no))
			s.set("kube_node_status_condition", l+`,condition="`+c+`",status="unknown"`, flat(0))
		}
		s.set("kube_node_info", l+`,os_image="Talos (v1.12.7)"`, flat(1))
		s.set("diskpool_status", l, flat(1))
		s.set("diskpool_used_size_bytes", l, flat(4e10))
		s.set("diskpool_total_size_bytes", l, flat(1e11))
		s.set("k3s_certificate_expiration_seconds", l+`,subject="CN=etcd-client",usages="ClientAuth"`, flat(200*86400))
		s.set("k3s_certificate_expiration_seconds", l+`,subject="CN=k3s-server-ca@1713205134",usages="CertSign"`, flat(10*86400))
		s.set("kube_node_spec_unschedulable", l, flat(0))
		s.set("kubelet_running_pods", l, flat(12))
		s.set("kubelet_evictions", l+`,eviction_signal="memory.available"`, flat(4))
		s.set("node_md_disks", l+`,device="md0",state="failed"`, flat(0))
		s.set("node_edac_uncorrectable_errors_total", l+`,controller="0"`, flat(0))
		s.set("cilium_unreachable_nodes", l, flat(0))
		s.set("felix_int_dataplane_failures", l, flat(2))
		s.set("etcd_server_has_leader", l, flat(1))
		s.set("etcd_server_id", l, flat(1))
		s.set("etcd_server_has_leader", `instance="links-etcd-and-runs-none"`, flat(0))
		// As the exporter has them, on a GPU that two pods share: the last error was an
		// application's, and what the driver can't read is a huge number.
		for _, pod := range []string{"train-0", "train-1"} {
			gpu := l + `,gpu="0",device="nvidia0",modelName="NVIDIA L4",namespace="ml",pod="` + pod + `"`
			s.set("DCGM_FI_DEV_GPU_TEMP", gpu, flat(60))
			s.set("DCGM_FI_DEV_XID_ERRORS", gpu+`,err_code="31"`, flat(31))
			s.set("DCGM_FI_DEV_ROW_REMAP_FAILURE", gpu, flat(0))
		}
		old := l + `,gpu="1",device="nvidia1",modelName="Quadro P400"`
		s.set("DCGM_FI_DEV_GPU_TEMP", old, flat(9223372036854775794))
		s.set("DCGM_FI_DEV_XID_ERRORS", old, flat(9223372036854775794))
		ttl := 100 * 86400.0
		if i == 2 {
			ttl = math.Inf(1)
		}
		s.set("kubelet_certificate_manager_client_ttl_seconds", l, flat(ttl))
		s.set("cilium_drop_count_total", l+`,reason="Policy denied",direction="INGRESS"`, rate(0.02))
		s.set("cilium_drop_count_total", l+`,reason="Stale or unroutable IP",direction="INGRESS"`, rate(50))
	}
	for i := range 6 {
		pod := fmt.Sprintf(`namespace="shop",pod="p%d",uid="u%d"`, i, i)
		for _, ph := range []string{"Pending", "Running", "Failed"} {
			s.set("kube_pod_status_phase", pod+`,phase="`+ph+`"`, flat(map[string]float64{"Running": 1}[ph]))
		}
		s.set("kube_pod_container_status_waiting", pod+`,container="app"`, flat(0))
		s.set("kube_pod_container_status_restarts_total", pod+`,container="app"`, rate(0))
		c := fmt.Sprintf(`namespace="shop",pod="p%d",container="app",id="/kubepods/x%d",image="shop:1",name="abc%d",node="n0"`, i, i, i)
		s.set("container_cpu_cfs_periods_total", c, rate(10))
		s.set("container_cpu_cfs_throttled_periods_total", c, rate(0.05))
	}
	for _, d := range []string{"web", "api"} {
		s.set("kube_deployment_spec_replicas", `namespace="shop",deployment="`+d+`"`, flat(3))
		s.set("kube_deployment_status_replicas_available", `namespace="shop",deployment="`+d+`"`, flat(3))
	}
	for _, phase := range []string{"Bound", "Pending", "Lost"} {
		s.set("kube_persistentvolumeclaim_status_phase", `namespace="shop",persistentvolumeclaim="data",phase="`+phase+`"`, flat(map[string]float64{"Bound": 1}[phase]))
	}
	s.set("longhorn_volume_robustness", `volume="pvc-1"`, flat(1))
	for _, state := range []string{"healthy", "degraded", "faulted", "unknown"} { // Longhorn 1.11
		s.set("longhorn_volume_robustness", `volume="pvc-2",state="`+state+`"`, flat(map[string]float64{"healthy": 1}[state]))
		s.set("longhorn_volume_robustness", `volume="detached",state="`+state+`"`, flat(map[string]float64{"unknown": 1}[state]))
	}
	s.set("traefik_service_requests_total", `service="web",code="2xx"`, rate(20))
	s.set("traefik_service_requests_total", `service="web",code="5xx"`, rate(0.02))
	s.set("traefik_service_request_duration_seconds_sum", `service="web",code="2xx"`, rate(4))
	s.set("traefik_service_request_duration_seconds_count", `service="web",code="2xx"`, rate(20))
	s.set("coredns_dns_responses_total", `rcode="NOERROR"`, rate(20))
	s.set("coredns_dns_responses_total", `rcode="SERVFAIL"`, rate(0.02))
	s.set("kubelet_volume_stats_capacity_bytes", `namespace="shop",persistentvolumeclaim="data"`, flat(1e10))
	s.set("kubelet_volume_stats_available_bytes", `namespace="shop",persistentvolumeclaim="data"`, flat(4e9))
	s.set("kube_deployment_spec_replicas", `namespace="shop",deployment="off"`, flat(0))
	s.set("kube_deployment_status_replicas_available", `namespace="shop",deployment="off"`, flat(0))
	s.set("kube_statefulset_replicas", `namespace="shop",statefulset="db"`, flat(2))
	s.set("kube_statefulset_status_replicas_ready", `namespace="shop",statefulset="db"`, flat(2))
	s.set("kube_daemonset_status_desired_number_scheduled", `namespace="kube-system",daemonset="cilium"`, flat(3))
	s.set("kube_daemonset_status_number_ready", `namespace="kube-system",daemonset="cilium"`, flat(3))
	return s
}

// run loads the sites into a TSDB and returns each signal's value for each site at
// the end, after the edge's label drops if drop is set.
func run(t testing.TB, sites map[fleet.SiteID]site, drop bool) map[fleet.SiteID]map[string]float64 {
	t.Helper()
	st := teststorage.New(t)
	defer st.Close()
	dropped := CollectionPolicy().Spec.DropLabels
	app := st.Appender(context.Background())
	for id, s := range sites {
		for name, all := range s {
			for _, one := range all {
				b := labels.NewBuilder(labels.EmptyLabels())
				for _, kv := range strings.Split(one.labels, `",`) {
					if k, v, ok := strings.Cut(kv, `="`); ok {
						b.Set(k, strings.TrimSuffix(v, `"`))
					}
				}
				if drop {
					b.Del(dropped...)
				}
				b.Set("__name__", name).Set("tenant", id.Tenant).Set("site", id.Name).Set("region", "eu")
				for ts := time.Duration(0); ts < end; ts += scrape {
					if v := one.at(ts.Seconds()); !math.IsNaN(v) {
						if _, err := app.Append(0, b.Labels(), ts.Milliseconds(), v); err != nil {
							t.Fatalf("%s %s: %v", id, b.Labels(), err)
						}
					}
				}
			}
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	eng := promql.NewEngine(promql.EngineOpts{MaxSamples: 5e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
	defer eng.Close()
	out := map[fleet.SiteID]map[string]float64{}
	spec := HealthPolicy().Spec
	asked, m := slices.Clone(spec.Signals), Model()
	for _, p := range spec.Packs {
		asked = append(asked, v1alpha1.Signal{Name: "pack " + p.Name, Query: p.When})
	}
	for _, s := range spec.Signals {
		if s.Objects != "" {
			asked = append(asked, v1alpha1.Signal{Name: objectsOf + s.Name, Query: s.Objects})
		}
	}
	for _, s := range asked {
		q, err := eng.NewInstantQuery(context.Background(), st, nil, s.Query, time.UnixMilli((end - 5*time.Second).Milliseconds()))
		if err != nil {
			t.Fatalf("signal %s: %v", s.Name, err)
		}
		res := q.Exec(context.Background())
		vec, err := res.Vector()
		if err != nil {
			t.Fatalf("signal %s: %v", s.Name, err)
		}
		of, objects := strings.CutPrefix(s.Name, objectsOf)
		for _, x := range vec {
			if objects { // how many there are to blame
				if i, _ := m.Index(of); m.Signals[i].Score(x.F) < 1 {
					id := fleet.SiteID{Tenant: x.Metric.Get("tenant"), Name: x.Metric.Get("site")}
					out[id][s.Name]++
				}
				continue
			}
			if x.Metric.Len() != 2 {
				t.Errorf("signal %s: labels %s, want tenant and site alone", s.Name, x.Metric)
			}
			id := fleet.SiteID{Tenant: x.Metric.Get("tenant"), Name: x.Metric.Get("site")}
			if out[id] == nil {
				out[id] = map[string]float64{}
			}
			if _, dup := out[id][s.Name]; dup {
				t.Errorf("signal %s: more than one value for %s", s.Name, id)
			}
			out[id][s.Name] = x.F
		}
		q.Close()
	}
	return out
}

// objectsOf stands before a signal's name for how many objects its query for them blames.
const objectsOf = "objects of "

// evaluate gives the state of a site with these values, and the packs that they tell of.
func evaluate(values map[string]float64) health.State {
	m := Model()
	r := health.Readings{Link: health.LinkUp, Signals: make([]health.Reading, len(m.Signals)), Packs: make([]bool, len(m.Packs))}
	for i, s := range m.Signals {
		v, ok := values[s.Name]
		r.Signals[i] = health.Reading{Value: v, Known: ok}
	}
	for i, p := range m.Packs {
		r.Packs[i] = values["pack "+p.Name] > 0
	}
	var st *health.State
	for i := range m.Recovery { // a site of which something is unknown is waited for
		x := health.Evaluate(m, r, st, time.UnixMilli(int64(i)))
		st = &x
	}
	return *st
}

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func TestHealthySites(t *testing.T) {
	for _, drop := range []bool{false, true} {
		full, machine, silent := fleet.SiteID{Tenant: "a", Name: "full"}, fleet.SiteID{Tenant: "b", Name: "machine"}, fleet.SiteID{Tenant: "b", Name: "silent"}
		got := run(t, map[fleet.SiteID]site{full: cluster(), machine: bare(), silent: collectorOnly()}, drop)
		m := Model()
		for _, s := range m.Signals {
			v, ok := got[full][s.Name]
			if !ok || s.Score(v) != 1 {
				t.Errorf("drop=%v: healthy cluster: signal %s = %v, known %v: want a score of 1", drop, s.Name, v, ok)
			}
			if v, ok := got[machine][s.Name]; ok && s.Score(v) != 1 {
				t.Errorf("drop=%v: healthy machine: signal %s = %v: want a score of 1", drop, s.Name, v)
			}
		}
		for _, s := range []string{"nodes-not-ready", "crash-looping", "workloads-short", "pods-pending", "restarts", "certificate-days", "policy-denied", "cpu-throttled", "security-updates"} {
			if v, ok := got[machine][s]; ok {
				t.Errorf("drop=%v: signal %s = %v on a machine without that exporter: want unknown", drop, s, v)
			}
		}
		if st := evaluate(got[full]); st.Colour != fleet.Green || st.Score != 100 {
			t.Errorf("healthy cluster: %v %s", st.Score, st.Colour)
		}
		if st := evaluate(got[machine]); st.Colour != fleet.Green || !st.Dimensions[1].Known || !st.Dimensions[3].Known {
			t.Errorf("healthy machine: %v %s %+v", st.Score, st.Colour, st.Dimensions)
		}
		if st := evaluate(got[silent]); st.Colour != fleet.Grey {
			t.Errorf("a site of which only the collector is known must be grey, is %s %v", st.Colour, st.Score)
		}
		if st := evaluate(nil); st.Colour != fleet.Grey {
			t.Errorf("an online site without any metrics must be grey, is %s %v", st.Colour, st.Score)
		}
	}
}

type fault struct {
	name   string
	signal string
	score  float64 // at most
	colour fleet.Colour
	break_ func(s site)
}

func faults() []fault {
	nodes := []string{"n0", "n1", "n2"}
	root := `node="n0",device="/dev/vda1",fstype="ext4",mountpoint="/"`
	each := func(s site, name, rest string, f func(float64) float64) {
		for _, n := range nodes {
			s.set(name, strings.Trim(`node="`+n+`",`+rest, ","), f)
		}
	}
	none := func(float64) float64 { return math.NaN() }
	pvc := `namespace="shop",persistentvolumeclaim="data",phase=`
	return []fault{
		{"restarted-twice", "restarts", 0.8, fleet.Green, func(s site) {
			s.set("kube_pod_container_status_restarts_total", `namespace="shop",pod="p0",uid="u0",container="app"`, func(t float64) float64 { return 5 + min(3, max(0, math.Floor((t-end.Seconds()+600)/40))) })
		}},
		{"budget-used-up", "series-refused", 0, fleet.Orange, func(s site) {
			s.set("muster_collector_series_refused", "", flat(40))
			s.set("muster_collector_metric_series_refused", `metric="app_requests"`, flat(40))
		}},
		{"budget-of-health", "health-series-refused", 0, fleet.Orange, func(s site) {
			s.set("muster_collector_health_series_refused", "", flat(4))
			s.set("muster_collector_metric_series_refused", `metric="kube_pod_info"`, flat(4))
		}},
		{"doubtful", "samples-doubtful", 0, fleet.Orange, func(s site) {
			s.set("muster_collector_doubtful_samples", `target_job="node",target="n1:9100",metric="node_load1",problem="NaN"`, flat(1))
		}},
		{"budget-nearly", "series-headroom", 0.4, fleet.Green, func(s site) { s.set("muster_collector_series", "", flat(1940)) }},
		{"garbage", "samples-dropped", 0, fleet.Orange, func(s site) {
			s.set("muster_collector_samples_dropped_total", `reason="future"`, last(5*time.Minute, flat(3), func(t float64) float64 { return 3 + t }))
		}},
		{"one-of-ten", "nodes-not-ready", 0.6, fleet.Orange, func(s site) {
			for i := 3; i < 10; i++ {
				s.set("kube_node_status_condition", fmt.Sprintf(`node="n%d",condition="Ready",status="true"`, i), flat(yes(i < 9)))
			}
		}},
		{"images", "image-pulls", 0, fleet.Orange, func(s site) {
			for i, reason := range []string{"ErrImagePull", "ImagePullBackOff"} {
				s.set("kube_pod_container_status_waiting_reason", fmt.Sprintf(`namespace="shop",pod="p%d",uid="u%d",container="app",reason="%s"`, i, i, reason), from(none, flat(1)))
			}
		}},
		{"oom", "oom-kills", 0, fleet.Orange, func(s site) { s.set("node_vmstat_oom_kill", `node="n1"`, last(5*time.Minute, flat(2), flat(7))) }},
		{"evicting", "evictions", 0, fleet.Orange, func(s site) {
			s.set("kubelet_evictions", `node="n1",eviction_signal="memory.available"`, last(5*time.Minute, flat(4), flat(8)))
		}},
		{"no-room", "pods-unschedulable", 0, fleet.Orange, func(s site) {
			for i := range 3 {
				s.set("kube_pod_status_unschedulable", fmt.Sprintf(`namespace="shop",pod="p%d",uid="u%d"`, i, i), flat(1))
			}
		}},
		{"claims", "volumes-failing", 0.4, fleet.Green, func(s site) {
			s.set("kube_persistentvolumeclaim_status_phase", pvc+`"Bound"`, flat(0))
			s.set("kube_persistentvolumeclaim_status_phase", pvc+`"Pending"`, flat(1))
		}},
		{"all-down", "workloads-down", 0, fleet.Red, func(s site) {
			for _, d := range []string{"web", "api"} {
				s.set("kube_deployment_status_replicas_available", `namespace="shop",deployment="`+d+`"`, last(3*time.Minute, flat(3), flat(0)))
			}
		}},
		{"replicas-come-and-go", "workloads-flapping", 0, fleet.Orange, func(s site) {
			s.set("kube_deployment_status_replicas_available", `namespace="shop",deployment="web"`, func(t float64) float64 { return 2 + math.Mod(math.Floor(t/30), 2) })
		}},
		{"configuration", "containers-not-starting", 0, fleet.Orange, func(s site) {
			for i := range 2 {
				s.set("kube_pod_container_status_waiting_reason", fmt.Sprintf(`namespace="shop",pod="p%d",uid="u%d",container="app",reason="CreateContainerConfigError"`, i, i), from(none, flat(1)))
			}
		}},
		{"boot-loop", "reboots", 0, fleet.Orange, func(s site) {
			s.set("node_boot_time_seconds", `node="n1"`, func(t float64) float64 { return math.Floor(t / 200) })
		}},
		{"unreadable", "filesystem-errors", 0, fleet.Orange, func(s site) { s.set("node_filesystem_device_error", root, flat(1)) }},
		{"raid", "disks-failed", 0, fleet.Orange, func(s site) { s.set("node_md_disks", `node="n1",device="md0",state="failed"`, flat(1)) }},
		{"ecc", "memory-errors", 0, fleet.Orange, func(s site) {
			s.set("node_edac_uncorrectable_errors_total", `node="n1",controller="0"`, last(5*time.Minute, flat(0), flat(2)))
		}},
		{"requests", "requests-failing", 0, fleet.Orange, func(s site) { s.set("traefik_service_requests_total", `service="web",code="5xx"`, rate(20)) }},
		{"requests-of-a-mesh", "requests-failing", 0, fleet.Orange, func(s site) {
			s.set("envoy_cluster_upstream_rq_xx", `envoy_cluster_name="api",envoy_response_code_class="5"`, rate(20))
			s.set("response_total", `pod="p0",classification="failure"`, rate(2))
			s.set("nginx_ingress_controller_requests", `service="web",status="5xx"`, rate(2))
		}},
		{"slow-services", "requests-slow", 0, fleet.Orange, func(s site) {
			s.set("traefik_service_request_duration_seconds_sum", `service="web",code="2xx"`, rate(300))
		}},
		{"slow-services-of-a-mesh", "requests-slow", 0, fleet.Orange, func(s site) {
			s.set("envoy_cluster_upstream_rq_time_sum", `envoy_cluster_name="api"`, rate(600_000))
			s.set("envoy_cluster_upstream_rq_time_count", `envoy_cluster_name="api"`, rate(20))
		}},
		{"dns", "dns-failing", 0, fleet.Orange, func(s site) { s.set("coredns_dns_responses_total", `rcode="SERVFAIL"`, rate(20)) }},
		{"pod-network", "network-unreachable", 0, fleet.Orange, func(s site) { s.set("cilium_unreachable_nodes", `node="n1"`, flat(2)) }},
		{"felix", "dataplane-failures", 0, fleet.Orange, func(s site) { s.set("felix_int_dataplane_failures", `node="n1"`, whole(rate(1))) }},
		{"etcd", "etcd-leaderless", 0, fleet.Red, func(s site) { s.set("etcd_server_has_leader", `node="n1"`, flat(0)) }},
		{"longhorn", "storage-degraded", 0, fleet.Orange, func(s site) { s.set("longhorn_volume_robustness", `volume="pvc-1"`, flat(3)) }},
		{"longhorn-1.11", "storage-degraded", 0, fleet.Orange, func(s site) {
			s.set("longhorn_volume_robustness", `volume="pvc-2",state="healthy"`, flat(0))
			s.set("longhorn_volume_robustness", `volume="pvc-2",state="faulted"`, flat(1))
		}},
		{"longhorn-rebuilds", "storage-degraded", 0.5, fleet.Green, func(s site) {
			s.set("longhorn_volume_robustness", `volume="pvc-2",state="healthy"`, flat(0))
			s.set("longhorn_volume_robustness", `volume="pvc-2",state="degraded"`, flat(1))
		}},
		{"mayastor", "pools-degraded", 0, fleet.Orange, func(s site) { s.set("diskpool_status", `node="n1"`, flat(3)) }},
		{"mayastor-suspected", "pools-degraded", 0, fleet.Orange, func(s site) { s.set("diskpool_status", `node="n1"`, flat(4)) }},
		{"mayastor-by-the-manual", "pools-degraded", 0, fleet.Orange, func(s site) { s.set("disk_pool_status", `node="n9"`, flat(3)) }},
		{"pool-full", "pool-used", 0.06, fleet.Orange, func(s site) { s.set("diskpool_used_size_bytes", `node="n1"`, flat(9.7e10)) }},
		{"k3s-certificates", "k3s-certificate-days", 0, fleet.Red, func(s site) {
			s.set("k3s_certificate_expiration_seconds", `node="n1",subject="CN=etcd-client",usages="ClientAuth"`, from(flat(86400*30), flat(86400*0.4)))
		}},
		{"talos-upgrade-stopped", "talos-versions", 0, fleet.Orange, func(s site) {
			s.set("kube_node_info", `node="n1",os_image="Talos (v1.12.7)"`, none)
			s.set("kube_node_info", `node="n1",os_image="Talos (v1.13.0)"`, flat(1))
		}},
		{"xid", "gpu-errors", 0, fleet.Orange, func(s site) {
			s.set("DCGM_FI_DEV_XID_ERRORS", `node="n1",gpu="0",device="nvidia0",err_code="79"`, flat(79))
		}},
		{"row remap", "gpu-memory-worn", 0, fleet.Orange, func(s site) { s.set("DCGM_FI_DEV_ROW_REMAP_FAILURE", `node="n1",gpu="0",device="nvidia0"`, flat(1)) }},
		{"gpu-hot", "gpu-hot", 0, fleet.Orange, func(s site) { s.set("DCGM_FI_DEV_GPU_TEMP", `node="n1",gpu="0",device="nvidia0"`, flat(99)) }},
		{"clock-wrong", "clock-difference", 0, fleet.Orange, func(s site) { s.set("node_time_seconds", `node="n1"`, func(t float64) float64 { return t + 600 }) }},
		{"no-ntp", "clock-unsynchronised", 0, fleet.Green, func(s site) { s.set("node_timex_sync_status", `node="n1"`, flat(0)) }},
		{"conntrack", "connections-full", 0, fleet.Orange, func(s site) { s.set("node_nf_conntrack_entries", `node="n1"`, flat(262000)) }},
		{"pushes-stop", "telemetry-stopped", 0, fleet.Red, func(s site) {
			s.set("muster_site_last_push_timestamp_seconds", "", func(t float64) float64 { return min(t, 600) })
		}},
		{"push-late", "push-delay", 0, fleet.Green, func(s site) { s.set("muster_collector_push_delay_seconds", "", flat(400)) }},
		{"push-fails", "push-errors", 0.6, fleet.Green, func(s site) { s.set("muster_collector_push_errors_total", "", rate(0.1)) }},
		{"spool-fills", "spool-backlog", 0.5, fleet.Green, func(s site) { s.set("muster_collector_spool_bytes", "", flat(300<<20)) }},
		{"packet-loss", "packet-loss", 0, fleet.Orange, func(s site) { each(s, "node_netstat_Tcp_RetransSegs", "", rate(120)) }},
		{"exporter-down", "targets-down", 0.61, fleet.Green, func(s site) { s.set("up", `job="cilium"`, flat(0)) }},
		{"exporter-flaps", "targets-flapping", 0.61, fleet.Green, func(s site) {
			s.set("up", `job="cilium"`, func(t float64) float64 { return float64(int(t) / 30 % 2) })
		}},
		{"node-not-ready", "nodes-not-ready", 0, fleet.Red, func(s site) {
			s.set("kube_node_status_condition", `node="n1",condition="Ready",status="true"`, last(time.Minute, flat(1), flat(0)))
			s.set("kube_node_status_condition", `node="n1",condition="Ready",status="unknown"`, last(time.Minute, flat(0), flat(1)))
		}},
		{"crash-loop", "crash-looping", 0, fleet.Red, func(s site) {
			for i := range 2 {
				s.set("kube_pod_container_status_waiting_reason", fmt.Sprintf(`namespace="shop",pod="p%d",uid="u%d",container="app",reason="CrashLoopBackOff"`, i, i), from(none, flat(1)))
			}
		}},
		{"deployment-short", "workloads-short", 0, fleet.Orange, func(s site) {
			s.set("kube_deployment_status_replicas_available", `namespace="shop",deployment="web"`, flat(1))
		}},
		{"statefulset-short", "workloads-short", 0.25, fleet.Green, func(s site) {
			s.set("kube_statefulset_status_replicas_ready", `namespace="shop",statefulset="db"`, flat(1))
		}},
		{"daemonset-short", "workloads-short", 0.5, fleet.Green, func(s site) {
			s.set("kube_daemonset_status_number_ready", `namespace="kube-system",daemonset="cilium"`, flat(2))
		}},
		{"pods-pending", "pods-pending", 0, fleet.Orange, func(s site) {
			for i := range 3 {
				s.set("kube_pod_status_phase", fmt.Sprintf(`namespace="shop",pod="p%d",uid="u%d",phase="Pending"`, i, i), flat(1))
			}
		}},
		{"restarting", "crash-looping", 0.17, fleet.Orange, func(s site) {
			s.set("kube_pod_container_status_restarts_total", `namespace="shop",pod="p0",uid="u0",container="app"`, whole(rate(0.05)))
		}},
		{"filesystem-readonly", "filesystem-readonly", 0, fleet.Orange, func(s site) { s.set("node_filesystem_readonly", root, flat(1)) }},
		{"volume-full", "volume-used", 0, fleet.Orange, func(s site) {
			s.set("kubelet_volume_stats_available_bytes", `namespace="shop",persistentvolumeclaim="data"`, flat(1e8))
		}},
		{"cert-expiring", "certificate-days", 0, fleet.Red, func(s site) {
			s.set("kubelet_certificate_manager_client_ttl_seconds", `node="n0"`, from(flat(100*86400), flat(20*3600)))
		}},
		{"cert-ageing", "certificate-days", 0.4, fleet.Green, func(s site) {
			s.set("kubelet_certificate_manager_client_ttl_seconds", `node="n0"`, flat(11*86400))
		}},
		{"policy-denied", "policy-denied", 0, fleet.Orange, func(s site) {
			each(s, "cilium_drop_count_total", `reason="Policy denied",direction="INGRESS"`, rate(25))
		}},
		{"patch-overdue", "security-updates", 0, fleet.Green, func(s site) {
			each(s, "apt_upgrades_pending", `arch="amd64",origin="Debian-Security:12/oldstable-security"`, flat(41))
			each(s, "node_reboot_required", "", flat(1))
		}},
		{"reboot", "reboot-required", 0, fleet.Green, func(s site) { s.set("node_reboot_required", `node="n2"`, flat(1)) }},
		{"clock-skew", "clock-offset", 0, fleet.Orange, func(s site) { s.set("node_timex_offset_seconds", `node="n0"`, flat(-2.5)) }},
		{"agent-old", "agent-age", 0, fleet.Green, func(s site) { s.set("muster_edge_build_timestamp_seconds", "", flat(-400*86400)) }},
		{"memory-pressure", "memory-available", 0, fleet.Red, func(s site) {
			s.set("node_memory_MemAvailable_bytes", `node="n0"`, from(flat(4e9), flat(0.03*8e9)))
		}},
		{"kubelet-pressure", "node-pressure", 0, fleet.Orange, func(s site) {
			s.set("kube_node_status_condition", `node="n1",condition="MemoryPressure",status="true"`, flat(1))
		}},
		{"disk-full", "disk-used", 0, fleet.Red, func(s site) { s.set("node_filesystem_avail_bytes", root, from(flat(50e9), flat(1.5e9))) }},
		{"inodes-full", "inodes-used", 0, fleet.Red, func(s site) { s.set("node_filesystem_files_free", root, from(flat(9e5), flat(1e4))) }},
		{"cpu-saturated", "cpu-used", 0, fleet.Orange, func(s site) {
			for _, c := range []string{"0", "1"} {
				each(s, "node_cpu_seconds_total", `cpu="`+c+`",mode="idle"`, rate(0.02))
				each(s, "node_cpu_seconds_total", `cpu="`+c+`",mode="user"`, rate(0.98))
			}
		}},
		{"cpu-throttled", "cpu-throttled", 0, fleet.Orange, func(s site) {
			s.set("container_cpu_cfs_throttled_periods_total", `namespace="shop",pod="p0",container="app",id="/kubepods/x0",image="shop:1",name="abc0",node="n0"`, rate(9))
		}},
		{"disk-slow", "io-stalled", 0, fleet.Orange, func(s site) {
			s.set("node_pressure_io_stalled_seconds_total", `node="n0"`, rate(0.55))
		}},
	}
}

// TestFaults breaks one thing at a time: its signal must fall as far as it should,
// be the first reason, and no other site may notice. The critical ones change only
// in the last scrape, so they show within one interval.
func TestFaults(t *testing.T) {
	sites := map[fleet.SiteID]site{{Tenant: "a", Name: "healthy"}: cluster()}
	covered := map[string]bool{"uplink": true, "uplink-flapping": true, "node-lost": true, "telemetry-age": true, "cpu-busiest-node": true}
	for _, f := range faults() {
		s := cluster()
		f.break_(s)
		sites[fleet.SiteID{Tenant: "b", Name: f.name}] = s
		covered[f.signal] = true
	}
	m := Model()
	for _, s := range m.Signals {
		if !covered[s.Name] {
			t.Errorf("signal %s: no fault in this test makes it bad", s.Name)
		}
	}
	got := run(t, sites, true)
	for _, f := range faults() {
		st := evaluate(got[fleet.SiteID{Tenant: "b", Name: f.name}])
		i, _ := m.Index(f.signal)
		if !st.Signals[i].Known || st.Signals[i].Score > f.score+1e-9 {
			t.Errorf("%s: signal %s = %v (known %v) scores %.3f, want at most %v", f.name, f.signal, st.Signals[i].Value, st.Signals[i].Known, st.Signals[i].Score, f.score)
		}
		if len(st.Reasons) == 0 || st.Reasons[0].Signal != f.signal {
			t.Errorf("%s: reasons %+v, want %s first", f.name, st.Reasons, f.signal)
		}
		if values := got[fleet.SiteID{Tenant: "b", Name: f.name}]; m.Signals[i].Objects != "" && values[objectsOf+f.signal] == 0 {
			t.Errorf("%s: nothing is to blame for %s", f.name, f.signal)
		}
		if st.Colour != f.colour {
			t.Errorf("%s: %v %s, want %s", f.name, st.Score, st.Colour, f.colour)
		}
		for j, s := range m.Signals {
			if j != i && st.Signals[j].Score < 1 && f.name != "patch-overdue" && !(f.name == "budget-of-health" && s.Sparse) && !slices.Contains(m.Signals[i].Causes, s.Name) && !slices.Contains(s.Causes, m.Signals[i].Name) {
				t.Errorf("%s: signal %s moved too: %+v", f.name, s.Name, st.Signals[j])
			}
		}
	}
	if st := evaluate(got[fleet.SiteID{Tenant: "a", Name: "healthy"}]); st.Score != 100 {
		t.Errorf("the healthy site scores %v among the broken: %+v", st.Score, st.Reasons)
	}
}

// The mixtures that the demo calls degraded must be orange, with room to spare.
func TestDegradedIsOrange(t *testing.T) {
	healthy := run(t, map[fleet.SiteID]site{{Tenant: "a", Name: "x"}: cluster()}, true)[fleet.SiteID{Tenant: "a", Name: "x"}]
	for _, perf := range []map[string]float64{{"disk-used": 87}, {"memory-available": 11}} {
		for _, sec := range []map[string]float64{{"security-updates": 12, "reboot-required": 1}, {"certificate-days": 11}} {
			v := maps.Clone(healthy)
			maps.Copy(v, map[string]float64{"cpu-used": 86, "workloads-short": 100 * 2 / 3.0, "policy-denied": 4.5})
			maps.Copy(v, perf)
			maps.Copy(v, sec)
			st := evaluate(v)
			if st.Colour != fleet.Orange || st.Score > 74 {
				t.Errorf("%v %v: %.1f %s", perf, sec, st.Score, st.Colour)
			}
			t.Logf("%v %v: %.1f %s, dimensions %.0f %.0f %.0f %.0f", perf, sec, st.Score, st.Colour, st.Dimensions[0].Score, st.Dimensions[1].Score, st.Dimensions[2].Score, st.Dimensions[3].Score)
		}
	}
}
