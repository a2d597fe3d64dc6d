package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster.dev/muster/loadtest/scenarios"
	"muster.dev/muster/loadtest/simsite"
)

// played are the scenarios of loadtest/scenarios that run through real processes: a tenth of
// them, of each dimension some, and normal days.
var played = []string{
	"shop-scaled-to-nothing", "dns-crashes", "one-node-of-three-dies", "disk-nearly-full", "inodes-used-up", "cpu-saturated-on-one-node-of-three",
	"throttled", "certificate-of-five-days", "clock-ten-minutes-ahead", "killed-for-memory", "image-can-not-be-pulled", "crash-loop-while-a-disk-fills",
	"rolling-update", "one-slow-pod", "reboot",
}

// TestScenarios plays scenarios in real time: each on a muster-edge process of its own that
// scrapes a simulated site over HTTP, through the demo's regionals, health and console. What
// they must come to is what the accelerated run holds them to; how soon is left to that
// one, because here the machine has other work.
func TestScenarios(t *testing.T) {
	if os.Getenv("MUSTER_SCENARIOS") == "" {
		t.Skip("run make test-scenarios: it takes the product's own ports and a quarter of an hour")
	}
	all, err := scenarios.Load()
	if err != nil {
		t.Fatal(err)
	}
	f := start(t, t.TempDir())
	if !t.Run("start", func(t *testing.T) { testStart(t, f) }) {
		return
	}
	join := f.joinFlags(t, "--max-uses", "0")
	var wg sync.WaitGroup
	for i, name := range played {
		n := slices.IndexFunc(all, func(s *scenarios.Scenario) bool { return s.Name == name })
		if n < 0 {
			t.Errorf("there is no scenario %s", name)
			continue
		}
		wg.Go(func() {
			if err := play(t, f, all[n], join, fmt.Sprintf("127.0.0.1:%d", 9210+i)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	wg.Wait()
}

// settles is how long a new site has until it is green.
const settles = 5 * time.Minute

// play runs one scenario from the join to its verdict.
func play(t *testing.T, f *fleet, sc *scenarios.Scenario, join map[string]string, ops string) error {
	sim, err := sc.NewSite(time.Now, simsite.NewTemplates(), nil)
	if err != nil {
		return err
	}
	steps, err := sc.Steps()
	if err != nil {
		return err
	}
	stop, err := runEdge(t, sc, sim, join, ops)
	if err != nil {
		return err
	}
	defer stop()
	for began := time.Now(); ; time.Sleep(time.Second) {
		s, err := f.site(sc.Name)
		if err == nil && (s.Colour == "green" || s.Colour == string(sc.Tolerates)) {
			break
		}
		if time.Since(began) > settles {
			return fmt.Errorf("%s after %s: %+v, %v", s.Colour, settles, s.Reasons, err)
		}
	}
	began := time.Now()
	go func() {
		for _, st := range steps {
			time.Sleep(time.Until(began.Add(st.At)))
			if err := st.Do(sim); err != nil {
				t.Errorf("%s: %v", sc.Name, err)
			}
		}
	}()
	if sc.Normal {
		return staysCalm(f, sc, began)
	}
	e := sc.Expect
	limit := e.From.D() + 2*e.Within.D() + 2*time.Minute
	for {
		// On a machine that is busy an answer may be late, which is no verdict.
		s, why := f.site(sc.Name)
		if why == nil {
			if e.Never != "" && s.Colour == string(e.Never) {
				return fmt.Errorf("%s: %+v", s.Colour, s.Reasons)
			}
			why = wrong(e, s)
		}
		if why == nil && time.Since(began) > e.From.D() {
			t.Logf("figure: %s: right %s after it began", sc.Name, (time.Since(began) - e.From.D()).Round(time.Second))
			return nil
		}
		if time.Since(began) > limit {
			return fmt.Errorf("after %s: %w", limit, why)
		}
		time.Sleep(time.Second)
	}
}

// staysCalm: a normal day costs the site nothing.
func staysCalm(f *fleet, sc *scenarios.Scenario, began time.Time) error {
	looks, late := 0, 0
	for ; time.Since(began) < sc.For.D(); looks++ {
		s, err := f.site(sc.Name)
		if err != nil {
			late++
			continue
		}
		if s.Colour != "green" && s.Colour != string(sc.Tolerates) {
			return fmt.Errorf("%s on a normal day after %s: %+v", s.Colour, time.Since(began).Round(time.Second), s.Reasons)
		}
		time.Sleep(time.Second)
	}
	if late > looks/10 {
		return fmt.Errorf("%d of %d looks at it were not answered", late, looks)
	}
	return nil
}

// wrong says in what a site is not what an operator would call it.
func wrong(e *scenarios.Expect, s site) error {
	if len(s.Reasons) == 0 {
		return fmt.Errorf("%s without a reason", s.Colour)
	}
	first := s.Reasons[0]
	if !slices.Contains(strings.Split(e.Colour, "|"), s.Colour) || (e.Dimension != "" && first.Dimension != string(e.Dimension)) || !e.Says(first.Text) {
		return fmt.Errorf("want %s %s %q; got %s %s %q", e.Dimension, e.Colour, e.Words, s.Colour, first.Dimension, first.Text)
	}
	return nil
}

// runEdge joins a site and runs its muster-edge, which scrapes what is simulated.
func runEdge(t *testing.T, sc *scenarios.Scenario, sim *simsite.Site, join map[string]string, ops string) (stop func(), err error) {
	mux := http.NewServeMux()
	var groups strings.Builder
	srv := httptest.NewServer(mux)
	nodes := sim.Nodes()
	for i, p := range sim.NodePages() {
		if len(sc.Site.Exporters) > 0 && !slices.Contains(sc.Site.Exporters, p.Exporter) {
			continue
		}
		instance := p.Exporter
		if p.Node >= 0 {
			instance = nodes[p.Node]
		}
		path := fmt.Sprintf("/page-%d", i)
		mux.Handle(path, p.Handler)
		fmt.Fprintf(&groups, "  - {targets: [%q], labels: {__metrics_path__: %s, job: %s, instance: %s}}\n", strings.TrimPrefix(srv.URL, "http://"), path, p.Exporter, instance)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "edge.yaml")
	yaml := fmt.Sprintf("stateDir: %s\nopsListen: %s\nhostMetrics: false\nscrapeConfigs:\n- job_name: simulated\n  static_configs:\n%s", dir, ops, groups.String())
	if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
		return nil, err
	}
	args := []string{"join", "--config", config, "--site", sc.Name}
	for flag, value := range join {
		args = append(args, flag, value)
	}
	if out, err := exec.Command(bin("muster-edge"), args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("join: %w\n%s", err, out)
	}
	edge := exec.Command(bin("muster-edge"), "run", "--config", config)
	log := &syncBuffer{}
	edge.Stdout, edge.Stderr = log, log
	if err := edge.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = edge.Process.Signal(syscall.SIGTERM)
		_ = edge.Wait()
		srv.Close()
		if t.Failed() {
			t.Logf("%s: muster-edge:\n%s", sc.Name, tail([]byte(log.String()), 3000))
		}
	}, nil
}
