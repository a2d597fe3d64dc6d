package simsite

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// clock is a settable time source.
type clock struct{ t time.Time }

func (c *clock) now() time.Time          { return c.t }
func (c *clock) advance(d time.Duration) { c.t = c.t.Add(d) }

func newClock() *clock { return &clock{time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)} }

func newSite(t testing.TB, o Options) *Site {
	t.Helper()
	if o.Name == "" {
		o.Name = "paris-07"
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type reading struct {
	value float64
	typ   model.MetricType
}

// scrape reads all pages with Prometheus' own parser.
func scrape(t testing.TB, s *Site) map[string]reading {
	t.Helper()
	out := map[string]reading{}
	h := s.Handler()
	for _, path := range Pages() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != http.StatusOK {
			continue
		}
		parse(t, path, w.Header().Get("Content-Type"), w.Body.Bytes(), out, nil)
	}
	return out
}

func parse(t testing.TB, path, contentType string, body []byte, out map[string]reading, each func(labels.Labels)) {
	t.Helper()
	p, err := textparse.New(body, contentType, labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]model.MetricType{}
	helps := map[string]bool{}
	for {
		e, err := p.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		switch e {
		case textparse.EntryType:
			name, typ := p.Type()
			if _, twice := types[string(name)]; twice {
				t.Fatalf("%s: %s has two types", path, name)
			}
			types[string(name)] = typ
		case textparse.EntryHelp:
			name, _ := p.Help()
			helps[string(name)] = true
		case textparse.EntrySeries:
			text, _, v := p.Series()
			key := string(text)
			name, _, _ := strings.Cut(key, "{")
			family := name
			if _, ok := types[family]; !ok {
				for _, end := range []string{"_bucket", "_sum", "_count"} {
					family = strings.TrimSuffix(family, end)
				}
			}
			typ, ok := types[family]
			if !ok || !helps[family] {
				t.Fatalf("%s: %s has no TYPE or HELP", path, name)
			}
			if strings.Contains(key, "$") {
				t.Fatalf("%s: %s was not filled in", path, key)
			}
			if _, twice := out[key]; twice {
				t.Fatalf("%s: %s stands there twice", path, key)
			}
			out[key] = reading{v, typ}
			if each != nil {
				var l labels.Labels
				p.Labels(&l)
				each(l)
			}
		}
	}
}

func TestPagesParseAndHaveTheWantedSize(t *testing.T) {
	for _, want := range []int{3000, 5000, 20000} {
		s := newSite(t, Options{Series: want})
		got := len(scrape(t, s))
		if math.Abs(float64(got-want)) > 0.05*float64(want) {
			t.Errorf("want %d series, got %d", want, got)
		}
		if got != s.Series() {
			t.Errorf("Series() = %d, the pages have %d", s.Series(), got)
		}
		for _, path := range Pages() {
			body, err := s.AppendPage(nil, path)
			if err != nil {
				t.Fatal(err)
			}
			same := map[uint64]labels.Labels{}
			parse(t, path, "text/plain; version=0.0.4", body, map[string]reading{}, func(l labels.Labels) {
				l.Range(func(x labels.Label) {
					if !model.LegacyValidation.IsValidLabelName(x.Name) {
						t.Errorf("%s: label %q", l, x.Name)
					}
				})
				if twice, _ := l.HasDuplicateLabelNames(); twice != "" {
					t.Errorf("%s has %s twice", l, twice)
				}
				if other, ok := same[l.Hash()]; ok && labels.Equal(other, l) {
					t.Errorf("%s stands there twice", l)
				}
				same[l.Hash()] = l
			})
		}
		t.Logf("%d: %d nodes, %d pods, %d series", want, s.tmpl.shape.nodes, len(s.tmpl.shape.pods), got)
	}
	if got := len(scrape(t, newSite(t, Options{Nodes: 5, Pods: 40, Series: 12000}))); math.Abs(float64(got-12000)) > 600 {
		t.Errorf("5 nodes with 40 pods: %d series", got)
	}
	for _, bad := range []Options{{}, {Name: "a", Nodes: 3, Pods: 5}, {Name: "a", Nodes: 3, Pods: 100, Series: 5000}, {Name: "a", Nodes: -1}, {Name: "a", Profile: "sad"}, {Name: "a", Series: 10}} {
		if _, err := New(bad); err == nil {
			t.Errorf("%+v accepted", bad)
		}
	}
}

// isCounter also knows the counters that node_exporter exports without a type.
func isCounter(key string, r reading) bool {
	for _, p := range []string{"node_vmstat_", "node_netstat_Tcp_RetransSegs", "node_netstat_Tcp_OutSegs"} {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	return r.typ == model.MetricTypeCounter || r.typ == model.MetricTypeHistogram
}

// TestCountersNeverGoBack breaks and heals every fault, alone and together, with
// all counters watched.
func TestCountersNeverGoBack(t *testing.T) {
	c := newClock()
	s := newSite(t, Options{Now: c.now, Series: 3000})
	last := scrape(t, s)
	grew := map[string]bool{}
	step := func(what string) {
		c.advance(15 * time.Second)
		now := scrape(t, s)
		for key, r := range now {
			before, ok := last[key]
			if !ok || !isCounter(key, r) {
				continue
			}
			if r.value < before.value {
				t.Fatalf("%s: %s went from %v to %v", what, key, before.value, r.value)
			}
			if r.value > before.value {
				grew[key] = true
			}
		}
		for key, r := range now {
			last[key] = r
		}
	}
	for _, f := range Catalogue() {
		if err := s.Break(f.Name); err != nil {
			t.Fatal(err)
		}
		step(f.Name)
		s.Heal()
		step("after " + f.Name)
	}
	for _, f := range Catalogue() {
		if err := s.Break(f.Name); err != nil {
			t.Fatal(err)
		}
		step("together with " + f.Name)
	}
	for _, f := range Catalogue() {
		if err := s.HealFault(f.Name); err != nil {
			t.Fatal(err)
		}
		step("without " + f.Name)
	}
	if len(grew) < 500 {
		t.Errorf("only %d counters moved", len(grew))
	}
}

// sum adds up the values of the series whose text has all parts; NaN if there is
// none.
func sum(m map[string]reading, parts ...string) float64 {
	total, found := 0.0, false
next:
	for key, r := range m {
		for _, p := range parts {
			if !strings.Contains(key, p) {
				continue next
			}
		}
		total, found = total+r.value, true
	}
	if !found {
		return math.NaN()
	}
	return total
}

func name(n string) string { return n + "{" }

// probes say, for each fault, what of which series is between which bounds while
// the site is healthy and while it is broken. rate probes look at the growth in a
// second.
var probes = map[string][]struct {
	series             []string
	rate               bool
	okMin, okMax       float64
	brokenMin, brokenM float64
	// gone: the series is absent while healthy (its bounds then don't matter).
	absentOK, absentBroken bool
}{
	"packet-loss": {
		{series: []string{name("node_network_receive_drop_total"), `device="eth0"`}, rate: true, okMin: 0, okMax: 0, brokenMin: 100, brokenM: 300},
		{series: []string{name("node_netstat_Tcp_RetransSegs")}, rate: true, okMin: 0.5, okMax: 10, brokenMin: 300, brokenM: 500},
	},
	"exporter-down": {{series: []string{name("kube_node_info")}, okMin: 3, okMax: 3, absentBroken: true}},
	"node-not-ready": {
		{series: []string{name("kube_node_status_condition"), `condition="Ready"`, `status="true"`}, okMin: 3, okMax: 3, brokenMin: 2, brokenM: 2},
		{series: []string{name("kube_node_status_condition"), `condition="Ready"`, `status="unknown"`}, okMin: 0, okMax: 0, brokenMin: 1, brokenM: 1},
		{series: []string{name("kube_node_spec_taint")}, absentOK: true, brokenMin: 2, brokenM: 2},
		{series: []string{name("kubelet_node_name")}, okMin: 3, okMax: 3, brokenMin: 2, brokenM: 2},
		{series: []string{name("kube_daemonset_status_number_unavailable")}, okMin: 0, okMax: 0, brokenMin: 2, brokenM: 2},
	},
	"crash-loop": {
		{series: []string{name("kube_pod_container_status_waiting_reason"), `reason="CrashLoopBackOff"`}, absentOK: true, brokenMin: 2, brokenM: 2},
		{series: []string{name("kube_pod_container_status_restarts_total")}, rate: true, okMin: 0, okMax: 0, brokenMin: 0.05, brokenM: 0.15},
		{series: []string{name("kube_deployment_status_replicas_unavailable")}, okMin: 0, okMax: 0, brokenMin: 2, brokenM: 2},
	},
	"pods-pending": {
		{series: []string{name("kube_pod_status_phase"), `phase="Pending"`}, okMin: 0, okMax: 0, brokenMin: 3, brokenM: 3},
		{series: []string{name("kube_pod_status_unschedulable")}, absentOK: true, brokenMin: 3, brokenM: 3},
	},
	"deployment-short": {
		{series: []string{name("kube_deployment_status_replicas_unavailable")}, okMin: 0, okMax: 0, brokenMin: 2, brokenM: 2},
		{series: []string{name("kube_deployment_status_condition"), `condition="Available"`, `status="false"`}, okMin: 0, okMax: 0, brokenMin: 1, brokenM: 1},
	},
	"oom-kills": {
		{series: []string{name("container_oom_events_total")}, rate: true, okMin: 0, okMax: 0, brokenMin: 0.04, brokenM: 0.1},
		{series: []string{name("node_vmstat_oom_kill")}, rate: true, okMin: 0, okMax: 0, brokenMin: 0.04, brokenM: 0.1},
		{series: []string{name("kube_pod_container_status_last_terminated_reason"), "OOMKilled"}, absentOK: true, brokenMin: 1, brokenM: 1},
	},
	"filesystem-readonly": {{series: []string{name("node_filesystem_readonly")}, okMin: 0, okMax: 0, brokenMin: 1, brokenM: 1}},
	"volume-full":         {{series: []string{name("kubelet_volume_stats_available_bytes")}, okMin: 5e9, okMax: 2e10, brokenMin: 1e8, brokenM: 3e8}},
	"disk-full": {
		{series: []string{name("node_filesystem_avail_bytes"), `node="paris-07-n1"`, `mountpoint="/"`}, okMin: 50e9, okMax: 72e9, brokenMin: 1e9, brokenM: 2.5e9},
		{series: []string{name("kube_node_status_condition"), `condition="DiskPressure"`, `status="true"`}, okMin: 0, okMax: 0, brokenMin: 1, brokenM: 1},
	},
	"disk-filling": {{series: []string{name("node_filesystem_avail_bytes"), `node="paris-07-n1"`, `mountpoint="/"`}, okMin: 50e9, okMax: 72e9, brokenMin: 14e9, brokenM: 17e9}},
	"inodes-full":  {{series: []string{name("node_filesystem_files_free"), `node="paris-07-n1"`, `mountpoint="/"`}, okMin: 6e6, okMax: 7e6, brokenMin: 5e4, brokenM: 9e4}},
	"disk-slow":    {{series: []string{name("node_pressure_io_waiting_seconds_total")}, rate: true, okMin: 0, okMax: 0.05, brokenMin: 0.6, brokenM: 0.8}},
	"memory-pressure": {
		{series: []string{name("node_memory_MemAvailable_bytes"), `node="paris-07-n1"`}, okMin: 7e9, okMax: 12e9, brokenMin: 3e8, brokenM: 7e8},
		{series: []string{name("kube_node_status_condition"), `condition="MemoryPressure"`, `status="true"`}, okMin: 0, okMax: 0, brokenMin: 1, brokenM: 1},
		{series: []string{name("node_pressure_memory_waiting_seconds_total")}, rate: true, okMin: 0, okMax: 0.01, brokenMin: 0.4, brokenM: 0.5},
	},
	"memory-tight":  {{series: []string{name("node_memory_MemAvailable_bytes"), `node="paris-07-n1"`}, okMin: 7e9, okMax: 12e9, brokenMin: 1.6e9, brokenM: 2e9}},
	"cpu-saturated": {{series: []string{name("node_cpu_seconds_total"), `mode="idle"`}, rate: true, okMin: 9, okMax: 10.5, brokenMin: 0.01, brokenM: 0.7}},
	"cpu-busy":      {{series: []string{name("node_cpu_seconds_total"), `mode="idle"`}, rate: true, okMin: 9, okMax: 10.5, brokenMin: 1.2, brokenM: 2.1}},
	"cpu-throttled": {{series: []string{name("container_cpu_cfs_throttled_periods_total"), `container="checkout"`}, rate: true, okMin: 0, okMax: 0.4, brokenMin: 26, brokenM: 30}},
	"clock-skew":    {{series: []string{name("node_timex_sync_status")}, okMin: 3, okMax: 3, brokenMin: 2, brokenM: 2}},
	"cert-expiring": {
		{series: []string{name("kubelet_certificate_manager_client_ttl_seconds"), `node="paris-07-n1"`}, okMin: 59 * days, okMax: 301 * days, brokenMin: 19 * 3600, brokenM: 20 * 3600},
		{series: []string{name("kubelet_certificate_manager_client_expiration_renew_errors")}, rate: true, okMin: 0, okMax: 0, brokenMin: 0.01, brokenM: 0.03},
	},
	"cert-ageing":     {{series: []string{name("kubelet_certificate_manager_client_ttl_seconds"), `node="paris-07-n1"`}, okMin: 59 * days, okMax: 301 * days, brokenMin: 10 * days, brokenM: 11 * days}},
	"policy-denied":   {{series: []string{name("cilium_drop_count_total"), "Policy denied"}, rate: true, okMin: 0, okMax: 0.3, brokenMin: 100, brokenM: 110}},
	"policy-probing":  {{series: []string{name("cilium_drop_count_total"), "Policy denied"}, rate: true, okMin: 0, okMax: 0.3, brokenMin: 5, brokenM: 8}},
	"patch-overdue":   {{series: []string{name("apt_upgrades_pending"), "Debian-Security"}, okMin: 0, okMax: 6, brokenMin: 123, brokenM: 123}, {series: []string{name("node_reboot_required")}, okMin: 0, okMax: 0, brokenMin: 3, brokenM: 3}},
	"updates-pending": {{series: []string{name("node_reboot_required")}, okMin: 0, okMax: 0, brokenMin: 1, brokenM: 1}},
}

func TestFaultsChangeTheirMetricsAndHeal(t *testing.T) {
	for _, f := range Catalogue() {
		t.Run(f.Name, func(t *testing.T) {
			c := newClock()
			s := newSite(t, Options{Now: c.now})
			check := func(state string, broken bool) {
				t.Helper()
				before := scrape(t, s)
				const interval = 60
				c.advance(interval * time.Second)
				now := scrape(t, s)
				for _, p := range probes[f.Name] {
					v := sum(now, p.series...)
					if p.rate {
						v = (v - sum(before, p.series...)) / interval
					}
					lo, hi, absent := p.okMin, p.okMax, p.absentOK
					if broken {
						lo, hi, absent = p.brokenMin, p.brokenM, p.absentBroken
					}
					if absent != math.IsNaN(v) || !absent && (v < lo-1e-9 || v > hi+1e-9) {
						t.Errorf("%s: %v = %v, want %v to %v (absent: %v)", state, p.series, v, lo, hi, absent)
					}
				}
			}
			check("healthy", false)
			if err := s.Break(f.Name); err != nil {
				t.Fatal(err)
			}
			if a := s.Faults(); len(a) != 1 || a[0].Name != f.Name || !a[0].Since.Equal(c.t) {
				t.Errorf("Faults() = %+v", a)
			}
			check("broken", true)
			s.Heal()
			if a := s.Faults(); len(a) != 0 {
				t.Errorf("Faults() after Heal = %+v", a)
			}
			switch f.Name {
			case "crash-loop", "oom-kills": // that a container ended badly once stays on record
			default:
				check("healed", false)
			}
			if len(probes[f.Name]) == 0 && f.Name != "uplink-down" {
				t.Error("nothing was looked at")
			}
		})
	}
}

func TestUplinkDownChangesNoMetric(t *testing.T) {
	c := newClock()
	s := newSite(t, Options{Now: c.now})
	before := scrape(t, s)
	if err := s.Break("uplink-down"); err != nil || !s.UplinkDown() {
		t.Errorf("UplinkDown() = %v, %v", s.UplinkDown(), err)
	}
	for key, r := range scrape(t, s) {
		if before[key] != r {
			t.Errorf("%s: %v became %v", key, before[key], r)
		}
	}
	s.Heal()
	if s.UplinkDown() {
		t.Error("still down")
	}
}

func TestUnknownFaultListsThem(t *testing.T) {
	s := newSite(t, Options{})
	for _, err := range []error{s.Break("disk-fulll"), s.HealFault("")} {
		if err == nil {
			t.Fatal("accepted")
		}
		for _, f := range Catalogue() {
			if !strings.Contains(err.Error(), "\n  "+f.Name) || !strings.Contains(err.Error(), f.Text) {
				t.Errorf("%v does not name %s", err, f.Name)
			}
		}
	}
}

func TestProfiles(t *testing.T) {
	tm := NewTemplates()
	for _, p := range Profiles {
		for i := range 20 {
			s := newSite(t, Options{Name: fmt.Sprint("site-", i), Profile: p, Templates: tm})
			severe, mild := 0, 0
			for _, f := range s.Faults() {
				if f.Mild {
					mild++
				} else {
					severe++
				}
			}
			if ok := map[Profile]bool{Healthy: severe+mild == 0, Degraded: severe == 0 && mild >= 3, Failing: severe >= 2, Offline: severe == 1 && s.UplinkDown()}[p]; !ok {
				t.Errorf("%s: %+v", p, s.Faults())
			}
			s.Heal()
			if len(s.Faults()) != 0 || s.UplinkDown() {
				t.Errorf("%s: not healed", p)
			}
		}
	}
}

// TestSitesDiffer: same shape, other names, ids and values; and the same site is
// the same again after a restart.
func TestSitesDiffer(t *testing.T) {
	c := newClock()
	tm := NewTemplates()
	a, b := newSite(t, Options{Name: "a", Now: c.now, Templates: tm}), newSite(t, Options{Name: "b", Now: c.now, Templates: tm})
	ra, rb := scrape(t, a), scrape(t, b)
	for key := range ra {
		if strings.Contains(key, `node="`) || strings.Contains(key, "uid=") {
			if _, same := rb[key]; same {
				t.Fatalf("both have %s", key)
			}
		}
	}
	va, vb := sum(ra, name("node_memory_MemAvailable_bytes")), sum(rb, name("node_memory_MemAvailable_bytes"))
	if va == vb {
		t.Errorf("both have %v bytes of memory available", va)
	}
	c.advance(15 * time.Second)
	again := scrape(t, newSite(t, Options{Name: "a", Now: c.now}))
	for key, r := range scrape(t, a) {
		if strings.Contains(key, "_ttl_seconds") { // counted from the start of the process
			continue
		}
		if again[key] != r {
			t.Fatalf("%s: %v, after a restart %v", key, r, again[key])
		}
	}
	if got := a.Nodes(); len(got) != 3 || got[0] != "a-n1" {
		t.Errorf("nodes = %v", got)
	}
}

// TestBudget: what one more site of the same shape costs, and a render.
func TestBudget(t *testing.T) {
	tm := NewTemplates()
	first := newSite(t, Options{Name: "first", Templates: tm})
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	sites := make([]*Site, 200)
	for i := range sites {
		sites[i] = newSite(t, Options{Name: fmt.Sprint("site-", i), Templates: tm})
	}
	per := (heap() - before) / uint64(len(sites))
	runtime.KeepAlive(sites)
	t.Logf("%d bytes a further site", per)
	if per > 24<<10 {
		t.Errorf("%d bytes a further site", per)
	}
	buf := make([]byte, 0, 4<<20)
	for _, path := range Pages() {
		allocs := testing.AllocsPerRun(20, func() {
			var err error
			if buf, err = first.AppendPage(buf[:0], path); err != nil {
				t.Fatal(err)
			}
		})
		if allocs >= 1 {
			t.Errorf("%s: %v allocations a render", path, allocs)
		}
	}
	if _, err := first.AppendPage(nil, "/metrics"); err == nil {
		t.Error("an unknown page was served")
	}
}

func BenchmarkRender(b *testing.B) {
	for _, series := range []int{5000, 50000} {
		b.Run(fmt.Sprint(series), func(b *testing.B) {
			s := newSite(b, Options{Series: series})
			var buf []byte
			b.ReportAllocs()
			for b.Loop() {
				buf = buf[:0]
				for i := range pages {
					buf = s.appendPage(buf, i, allNodes)
				}
			}
			b.SetBytes(int64(len(buf)))
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(s.Series()), "ns/series")
		})
	}
}

func FuzzParseRow(f *testing.F) {
	f.Add(`@node up{a="b c",d="}"} counter 1 2`)
	f.Add("@pod?scheduled x const")
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := parseRow(text); err == nil && (r.value == "" || !strings.HasPrefix(text, "@")) {
			t.Errorf("%q: %+v", text, r)
		}
	})
}

// TestEffectsLastAsLongAsTheirFault: nobody has to look for time to pass, and no
// time before or after a fault counts.
func TestEffectsLastAsLongAsTheirFault(t *testing.T) {
	c := newClock()
	s := newSite(t, Options{Now: c.now})
	restarts := func() float64 { return sum(scrape(t, s), name("kube_pod_container_status_restarts_total")) }
	before := restarts()
	c.advance(time.Hour)
	if err := s.Break("crash-loop"); err != nil {
		t.Fatal(err)
	}
	if got := restarts(); got != before {
		t.Errorf("%v restarts at the beginning, %v before", got, before)
	}
	c.advance(30 * time.Minute)
	if err := s.Break("crash-loop"); err != nil { // once more changes nothing
		t.Fatal(err)
	}
	c.advance(30 * time.Minute)
	s.Heal()
	c.advance(time.Hour)
	if got, want := restarts()-before, 2*3600/20.; got != want {
		t.Errorf("%v restarts in an hour, want %v", got, want)
	}
}
