package simsite

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestCrashesBackOff(t *testing.T) {
	c := crashes{on: true, since: 100, runs: 5, first: 10, most: 40}
	for _, w := range []struct {
		at, restarts float64
		waits        bool
	}{
		{99, 0, false}, {100, 0, false}, {105, 0, true}, {114, 0, true}, {115, 1, false}, {120, 1, true}, {139, 1, true}, {140, 2, false},
		{145, 2, true}, {184, 2, true}, {185, 3, false}, {190, 3, true}, {230, 4, false}, {230 + 45*100, 104, false},
	} {
		if n, waits := c.state(w.at); n != w.restarts || waits != w.waits {
			t.Errorf("at %v: %v restarts, waits %v; want %v, %v", w.at, n, waits, w.restarts, w.waits)
		}
	}
}

// TestSet says of each property what series it changes, and to what.
func TestSet(t *testing.T) {
	n := func(metric string, rest ...string) []string { return append([]string{name(metric)}, rest...) }
	n2 := `node="paris-07-n2"`
	for _, c := range []struct {
		object, property, value string
		series                  []string
		rate                    bool
		lo, hi                  float64
	}{
		{"node/n2", "power", "off", n("kube_node_status_condition", n2, `condition="Ready"`, `status="true"`), false, 0, 0},
		{"node/n2", "cordoned", "yes", n("kube_node_spec_unschedulable"), false, 1, 1},
		{"node/n2", "diskpressure", "yes", n("kube_node_status_condition", n2, `condition="DiskPressure"`, `status="true"`), false, 1, 1},
		{"node/n2", "cpu", "0.5", n("node_cpu_seconds_total", n2, `mode="idle"`), true, 1.2, 1.4},
		{"node/*", "cpu", "50%", n("node_cpu_seconds_total", `mode="idle"`), true, 3.6, 4.2},
		{"node/n2", "memory", "20%..10% in 2m", n("node_memory_MemAvailable_bytes", n2), false, 0.09 * memTotal, 0.11 * memTotal},
		{"node/n2", "clock", "600", n("node_time_seconds", n2), false, 1.7e9, 1e10},
		{"node/n2", "zone", "3600", n("node_time_zone_offset_seconds", n2), false, 3600, 3600},
		{"node/n2", "certificate", "48h", n("kubelet_certificate_manager_client_ttl_seconds", n2), false, 47.9 * 3600, 48 * 3600},
		{"node/n2", "denied", "35", n("cilium_drop_count_total", n2, "Policy denied"), true, 34, 36},
		{"node/n2", "network", "down", n("node_network_up", n2, `"eth0"`), false, 0, 0},
		{"filesystem/n2:/", "used", "90%", n("node_filesystem_avail_bytes", n2, `mountpoint="/"`), false, 0.09 * 118e9, 0.11 * 118e9},
		{"filesystem/n2:/", "readonly", "yes", n("node_filesystem_readonly"), false, 1, 1},
		{"filesystem/n2:/", "device-error", "yes", n("node_filesystem_device_error"), false, 1, 1},
		{"deployment/checkout", "replicas", "5", n("kube_deployment_spec_replicas", `"checkout"`), false, 5, 5},
		{"pod/checkout-0", "waiting", "ImagePullBackOff", n("kube_pod_container_status_waiting_reason", "ImagePullBackOff"), false, 1, 1},
		{"pod/checkout-*", "pending", "yes", n("kube_pod_status_unschedulable"), false, 3, 3},
		{"pod/checkout-0", "failed", "Evicted", n("kube_pod_status_reason", "Evicted"), false, 1, 1},
		{"pod/checkout-3", "gone", "no", n("kube_pod_info", `"shop"`, "checkout"), false, 4, 4},
		{"pod/checkout-0", "throttled", "0.9", n("container_cpu_cfs_throttled_periods_total", `container="checkout"`), true, 9, 9.4},
		{"pod/payments-0", "oom", "0.1", n("container_oom_events_total"), true, 0.09, 0.11},
		{"volume/database", "used", "99%", n("kubelet_volume_stats_available_bytes"), false, 2e8, 2.3e8},
		{"exporter/node-exporter", "garbage", "node_load1=NaN", n("node_load1"), false, math.NaN(), math.NaN()},
		{"exporter/node-exporter", "skip", "node_load1", n("node_load1"), false, math.NaN(), math.NaN()},
	} {
		t.Run(c.object+" "+c.property, func(t *testing.T) {
			clock := newClock()
			s := newSite(t, Options{Now: clock.now, Spares: 1, Nodes: 3, Pods: 20, Series: 12000})
			at := func() float64 {
				before := scrape(t, s)
				clock.advance(4 * time.Minute)
				now := scrape(t, s)
				v := sum(now, c.series...)
				if c.rate {
					v = (v - sum(before, c.series...)) / 240
				}
				return v
			}
			in := func(v float64) bool { return v >= c.lo && v <= c.hi || math.IsNaN(v) && math.IsNaN(c.lo) }
			if v := at(); in(v) && c.property != "clock" {
				t.Errorf("%v as usual", v)
			}
			if err := s.Set(c.object, c.property, c.value); err != nil {
				t.Fatal(err)
			}
			if v := at(); !in(v) {
				t.Errorf("%v, want %v to %v", v, c.lo, c.hi)
			}
			if err := s.Set(c.object, c.property, ""); err != nil {
				t.Fatal(err)
			}
			if v := at(); in(v) && c.property != "clock" {
				t.Errorf("%v when it is as usual again", v)
			}
		})
	}
}

func TestSetRefuses(t *testing.T) {
	s := newSite(t, Options{})
	for _, bad := range [][3]string{
		{"planet/x", "power", "off"}, {"node/n9", "power", "off"}, {"node/n1", "power", "half"}, {"node/n1", "speed", "1"}, {"filesystem/n1:/home", "used", "1%"},
		{"pod/nobody-0", "gone", "yes"}, {"pod/checkout-0", "crash", "soon"}, {"exporter/none", "down", "yes"}, {"node/n1", "memory", "10%..20%"}, {"node/n1", "memory", "many"},
	} {
		if err := s.Set(bad[0], bad[1], bad[2]); err == nil || !strings.Contains(err.Error(), bad[0]) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// TestRebootTurnsCountersBack, and no other node's.
func TestRebootTurnsCountersBack(t *testing.T) {
	clock := newClock()
	s := newSite(t, Options{Now: clock.now})
	idle := func(node string) float64 {
		return sum(scrape(t, s), name("node_cpu_seconds_total"), `node="paris-07-`+node+`"`, `mode="idle"`)
	}
	one, two := idle("n1"), idle("n2")
	if err := s.Set("node/n2", "boot", "now"); err != nil {
		t.Fatal(err)
	}
	clock.advance(time.Minute)
	if got := idle("n2"); got < 0 || got > 4*60 {
		t.Errorf("n2 has idled %v s in the minute since it booted; %v before", got, two)
	}
	if got := idle("n1"); got < one {
		t.Errorf("n1 went from %v to %v", one, got)
	}
}

// TestCountersOfAnExporterBeginAnew, of that node alone, and go on as fast as before; a
// reboot ends what containers had come to as well.
func TestCountersOfAnExporterBeginAnew(t *testing.T) {
	clock := newClock()
	s := newSite(t, Options{Now: clock.now, Nodes: 2, Pods: 20})
	set := func(object, property, value string) {
		t.Helper()
		if err := s.Set(object, property, value); err != nil {
			t.Fatal(err)
		}
	}
	of := func(metric, node string) float64 {
		return sum(scrape(t, s), name(metric), `node="paris-07-`+node+`"`)
	}
	const periods, throttled = "container_cpu_cfs_periods_total", "container_cpu_cfs_throttled_periods_total"
	set("pod/checkout-*", "throttled", "0.9")
	clock.advance(10 * time.Minute)
	before := map[string]float64{}
	for _, node := range []string{"n1", "n2"} {
		before[node] = of(periods, node)
	}
	clock.advance(time.Minute)
	speed := of(periods, "n1") - before["n1"]
	for _, how := range [][3]string{{"exporter/cadvisor@n1", "restarted", "now"}, {"node/n1", "boot", "now"}} {
		set(how[0], how[1], how[2])
		if p, th := of(periods, "n1"), of(throttled, "n1"); p != 0 || th != 0 {
			t.Errorf("%v: %v periods and %v throttled, want none", how, p, th)
		}
		clock.advance(time.Minute)
		p, th := of(periods, "n1"), of(throttled, "n1")
		if p < speed-2 || p > speed+2 || th > p || th == 0 {
			t.Errorf("%v: a minute later %v periods and %v throttled, as usual %v", how, p, th, speed)
		}
		if got := of(periods, "n2"); got < before["n2"] {
			t.Errorf("%v: n2 went from %v to %v", how, before["n2"], got)
		}
	}
	if err := s.Set("exporter/kube-state-metrics", "restarted", "now"); err == nil {
		t.Error("the cluster's counters begin anew with kube-state-metrics")
	}
}

func FuzzSet(f *testing.F) {
	f.Add("node/n1", "memory", "60%..5% in 4m")
	f.Add("filesystem/n1:/", "used", "1e400")
	f.Add("pod/checkout-0", "crash", "5s,10s,20s")
	f.Add("exporter/node-exporter@n1", "garbage", "node_load1=at+1h,node_load5=twice")
	s, err := New(Options{Name: "fuzz", Spares: 1, Nodes: 1, Pods: 15, Series: 8000})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, object, property, value string) {
		if s.Set(object, property, value) != nil {
			return
		}
		for _, p := range Pages() {
			_, _ = s.AppendPage(nil, p)
		}
		s.Heal()
	})
}
