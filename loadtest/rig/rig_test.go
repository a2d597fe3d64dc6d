package rig

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.yaml.in/yaml/v3"

	"muster.dev/muster/loadtest/fleetload"
)

func TestStatFields(t *testing.T) {
	f := statFields([]byte("4711 (a name) with (R 12) S 42 4711 4711 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 9 0 77 1000 2000 18446744073709551615\n"))
	if len(f) < 22 || f[1] != "42" || f[11] != "150" || f[12] != "50" || f[21] != "2000" {
		t.Errorf("fields %q", f)
	}
	if f := statFields(nil); f != nil {
		t.Errorf("of nothing: %q", f)
	}
}

func TestUsageOfThisProcess(t *testing.T) {
	if u := own(); u.pid != os.Getpid() || u.RSS < 1<<20 {
		t.Errorf("%+v", u)
	}
	if u := usageOf(1 << 30); u.pid != 0 {
		t.Errorf("of no process: %+v", u)
	}
}

const page = `# TYPE muster_spool_oldest_age_seconds gauge
muster_spool_oldest_age_seconds{spool="forward",tenant="main"} 3
muster_spool_oldest_age_seconds{spool="forward",tenant="other"} 17.5
muster_spool_oldest_age_seconds{spool="logs",tenant="other"} 99
# TYPE muster_gateway_samples_total counter
muster_gateway_samples_total 1200
# TYPE muster_health_tick_duration_seconds histogram
muster_health_tick_duration_seconds_bucket{le="+Inf"} %COUNT%
muster_health_tick_duration_seconds_sum %SUM%
muster_health_tick_duration_seconds_count %COUNT%
`

func TestMetrics(t *testing.T) {
	parse := func(sum, count string) metrics {
		m, err := parseMetrics([]byte(strings.NewReplacer("%SUM%", sum, "%COUNT%", count).Replace(page)))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	before, after := parse("10", "4"), parse("16", "7")
	if v := after.max("muster_spool_oldest_age_seconds", "spool", "forward"); v != 17.5 {
		t.Errorf("largest age %g", v)
	}
	if v := after.sum("muster_gateway_samples_total"); v != 1200 {
		t.Errorf("samples %g", v)
	}
	if v := after.meanSince(before, "muster_health_tick_duration_seconds"); v != 2 {
		t.Errorf("mean %g, want 2", v)
	}
	if v := after.meanSince(after, "muster_health_tick_duration_seconds"); v != 0 {
		t.Errorf("mean of no tick %g", v)
	}
	if v := after.sum("no_such_metric"); v != 0 {
		t.Errorf("no such metric: %g", v)
	}
}

// A process that is started again in a phase begins at nothing, and what the one before
// used counts.
func TestMeterAcrossARestart(t *testing.T) {
	first := usage{pid: 1, CPU: 10 * time.Second, RSS: 100, Written: 1000}
	m := &meter{begin: map[string]usage{"regional": first}, last: map[string]usage{"regional": first}, use: map[string]*RoleUse{"regional": {}}}
	for _, u := range []usage{{1, 12 * time.Second, 300, 1500}, {2, time.Second, 50, 10}, {2, 4 * time.Second, 80, 40}} {
		m.note(map[string]usage{"regional": u})
	}
	use := *m.use["regional"]
	cpu := use.CPUSeconds + (m.last["regional"].CPU - m.begin["regional"].CPU).Seconds()
	written := use.Written + m.last["regional"].Written - m.begin["regional"].Written
	if cpu != 6 || written != 540 || use.RSSMax != 300 || !use.Restarted {
		t.Errorf("%g s, %d bytes, %+v", cpu, written, use)
	}
}

// The course of a phase is what was counted in each of its seconds, and a graph of it has no
// more columns than fit.
func TestCourse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		end := follow(func() fleetload.Counts {
			n := int(time.Since(began) / time.Second)
			return fleetload.Counts{Pushes: n * n, TooMany: n, Timeouts: n, Unavailable: n, Failed: n}
		}, func() int { return int(time.Since(began) / time.Second) })
		time.Sleep(150*time.Second + time.Millisecond)
		course := end()
		if len(course) != 150 || course[0] != (Moment{Taken: 1, Later: 1, Lost: 3, Fresh: 1}) || course[149] != (Moment{Taken: 299, Later: 1, Lost: 3, Fresh: 150}) {
			t.Fatalf("%d seconds, %+v to %+v", len(course), course[0], course[len(course)-1])
		}
		var b strings.Builder
		graph(&b, "cold", course, 300)
		if got := b.String(); !strings.HasPrefix(got, "\ncold, 150 s, 3 s a column:\n  pushes taken         |▁▁") || !strings.Contains(got, "█| most 297 a second\n") || !strings.Contains(got, "▅| most 300 of 300\n") {
			t.Error(got)
		}
	})
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := until(ctx, "the moon", time.Second, func(context.Context) (bool, string, error) { return false, "3 of 4", nil })
		if !errors.Is(err, errStalled) || !strings.Contains(err.Error(), "waited 1m0s for the moon: 3 of 4") {
			t.Errorf("%v", err)
		}
		wrong := &answerError{400, "want something else"}
		if err := until(ctx, "", time.Second, func(context.Context) (bool, string, error) { return false, "", final(wrong) }); !errors.Is(err, wrong) {
			t.Errorf("a wrong question is asked again: %v", err)
		}
		if final(&answerError{503, ""}) != nil {
			t.Error("503 ends the wait")
		}
	})
}

// Every listener of the product's sample has a port of its own, and every role of it is watched; so
// has a role that nobody told this package of.
func TestListenersOfTheSample(t *testing.T) {
	sample, err := os.ReadFile("../../cmd/internal/config/muster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	l, err := listenersOf(append(sample, "\nweather:\n  opsListen: 127.0.0.1:9999\n  rain: 3\n"...))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"control", "regional", "aggregator", "health", "alerting", "console", "weather"}; !slices.Equal(l.roles, want) {
		t.Errorf("roles %v, want %v", l.roles, want)
	}
	b, err := l.config("/software", "http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	var conf struct {
		Control struct {
			OpsListen string
			Software  struct{ Dir string }
		}
		Regionals []struct {
			Name, QueryListen string
			Logs              map[string]string
		}
		Aggregator struct{ Cortex map[string]string }
		Weather    map[string]any
	}
	if err := yaml.Unmarshal([]byte(strings.NewReplacer("opsListen", "opslisten", "queryListen", "querylisten").Replace(string(b))), &conf); err != nil {
		t.Fatal(err)
	}
	if conf.Control.OpsListen != l.ops["control"] || conf.Control.Software.Dir != "/software" || conf.Aggregator.Cortex["url"] != "http://127.0.0.1:1" || len(conf.Weather) != 1 ||
		len(conf.Regionals) != 1 || conf.Regionals[0].Name != regionalName || conf.Regionals[0].QueryListen != l.ops["regional"] || conf.Regionals[0].Logs["forwardListen"] != "" {
		t.Errorf("%+v of\n%s", conf, b)
	}
	seen := map[string]bool{}
	for at, addr := range l.addr {
		if seen[addr] || !strings.HasPrefix(addr, "127.0.0.1:") || strings.Count(string(b), addr) != 1 {
			t.Errorf("%s: %q", at, addr)
		}
		seen[addr] = true
	}
	if len(l.addr) != 13 || l.addr["console.listen"] == "" || l.addr["regionals.listen"] == "" {
		t.Errorf("listeners %v", l.addr)
	}
	if _, err := listenersOf([]byte("weather: {listen: '127.0.0.1:1'}")); err == nil {
		t.Error("a role that has no ops pages is taken")
	}
}

func TestResultIsWritten(t *testing.T) {
	r := &run{o: Options{Dir: t.TempDir()}, res: &Result{Sites: 3, Series: 4, Commit: "abc", Phases: []Phase{{
		Name: PhaseCold, Seconds: 2, Course: []Moment{{Later: 2}, {Taken: 9, Fresh: 3}}, Fleet: fleetload.Counts{Pushes: 9, TooMany: 1, P99: 7}, Use: map[string]RoleUse{"regional": {CPUSeconds: 1, RSSMax: 2e9}}, Error: "phase cold: stalled"}}}}
	r.row("registrations a second", 70, "%.0f")
	r.phaseRows()
	if err := r.write(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(r.o.Dir, "table.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"3 sites × 4 series", "abc", "registrations a second", "9 / 1 / 0 / 0 / 0", "0.50 / 0.00", "2.00", "phase cold: stalled", "pushes taken         | █| most 9 a second", "429                  |█ | most 2", "sites up to date     | █| most 3 of 3"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	b, err := os.ReadFile(filepath.Join(r.o.Dir, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	var back Result
	if err := json.Unmarshal(b, &back); err != nil || len(back.Rows) != len(r.res.Rows) || back.Phases[0].Fleet.TooMany != 1 {
		t.Errorf("%v: %+v", err, back)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := Options{Muster: os.Args[0], Dir: t.TempDir(), Steady: time.Minute, Interval: time.Second, Cut: 0.01}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Options){
		"--muster":       func(o *Options) { o.Muster = "/no/such/file" },
		"--phases":       func(o *Options) { o.Phases = []string{"steddy"} },
		"--cut":          func(o *Options) { o.Cut = 1.5 },
		"--software-bad": func(o *Options) { o.SoftwareBad = -1 },
		"--steady":       func(o *Options) { o.Steady = time.Second },
	} {
		o := good
		change(&o)
		if err := o.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestPhasesThatRun(t *testing.T) {
	for want, wanted := range map[string][]string{
		"registration cold steady policy workloads rollout software cut restart": nil,
		"registration":             {PhaseRegistration},
		"registration cold":        {PhaseCold},
		"registration cold policy": {PhasePolicy},
		"registration workloads":   {PhaseWorkloads},
		"registration rollout":     {PhaseRollout},
		"registration software":    {PhaseSoftware},
	} {
		var got []string
		for _, p := range Phases {
			if o := (Options{Phases: wanted}); o.runs(p) {
				got = append(got, p)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("of %q run %q", wanted, got)
		}
	}
}
