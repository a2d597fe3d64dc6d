package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/loadtest/simsite"
)

// testEdgeProcess joins one more site, a real muster-edge process as `muster token
// create` tells, that scrapes 50,000 series every 15 s and may send 2,000; and
// reports what that costs.
func testEdgeProcess(t *testing.T, f *fleet) {
	sim, err := simsite.New(simsite.Options{Name: "big", Series: 50_000})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(sim.Handler())
	defer srv.Close()
	dir := t.TempDir()
	var scrapes strings.Builder
	for _, page := range simsite.Pages() {
		fmt.Fprintf(&scrapes, "- {job_name: %s, metrics_path: %s, static_configs: [{targets: [%q]}]}\n", strings.Split(page, "/")[1], page, strings.TrimPrefix(srv.URL, "http://"))
	}
	ops := "127.0.0.1:9108"
	config := filepath.Join(dir, "edge.yaml")
	if err := os.WriteFile(config, []byte(fmt.Sprintf("stateDir: %s\nopsListen: %s\nhostMetrics: false\nscrapeConfigs:\n%s", dir, ops, indent(scrapes.String()))), 0o600); err != nil {
		t.Fatal(err)
	}

	// The command that `muster token create` prints is the one that joins.
	var join []string
	for flag, value := range f.joinFlags(t) {
		join = append(join, flag, value)
	}
	joined, err := exec.Command(bin("muster-edge"), append([]string{"join", "--config", config, "--site", "big"}, join...)...).CombinedOutput()
	if err != nil || !strings.Contains(string(joined), "This machine is site big of tenant demo in region eu") {
		t.Fatalf("join: %v\n%s", err, joined)
	}
	t.Cleanup(func() {
		// The later parts of the story count the demo's own sites.
		if err := deleteSite(f.dir+"/admin.kubeconfig", tenant, "big"); err != nil {
			t.Errorf("delete the site: %v", err)
		}
		testkit.Eventually(t, "the deleted site is gone", func() error {
			list, err := f.sites()
			if _, still := list["big"]; err == nil && still {
				err = fmt.Errorf("still listed")
			}
			return err
		})
	})
	edge := exec.Command(bin("muster-edge"), "run", "--config", config)
	log := &syncBuffer{}
	edge.Stdout, edge.Stderr = log, log
	if err := edge.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = edge.Process.Signal(syscall.SIGTERM)
		_ = edge.Wait()
		if t.Failed() {
			t.Logf("muster-edge:\n%s", log)
		}
	}()
	metric := func(name string) float64 {
		resp, err := http.Get("http://" + ops + "/metrics")
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		b := make([]byte, 1<<20)
		n, total := 0, 0
		for err == nil && total < len(b) {
			n, err = resp.Body.Read(b[total:])
			total += n
		}
		m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(b[:total])
		if m == nil {
			return 0
		}
		v, _ := strconv.ParseFloat(string(m[1]), 64)
		return v
	}
	testkit.EventuallyWithin(t, "the budget is used up and samples are acknowledged", 4*time.Minute, func() error {
		if s, sent := metric("muster_collector_series"), metric("muster_collector_samples_sent_total"); s < 1990 || s > 2000 || sent < 4000 {
			return fmt.Errorf("%v series, %v samples acknowledged", s, sent)
		}
		return nil
	})
	const minute = 60 * time.Second
	cpu, sent, bytes := cpuSeconds(edge.Process.Pid), metric("muster_collector_samples_sent_total"), metric("muster_collector_push_bytes_total")
	time.Sleep(minute) // a figure over a stretch of time, not a wait for something
	cpu, sent, bytes = cpuSeconds(edge.Process.Pid)-cpu, metric("muster_collector_samples_sent_total")-sent, metric("muster_collector_push_bytes_total")-bytes
	t.Logf("figure: muster-edge at %d raw → %.0f kept series every 15 s: RSS %.0f MiB, %.2f%% of a core, %.1f bytes on the wire per sample",
		sim.Series(), metric("muster_collector_series"), rss(edge.Process.Pid), 100*cpu/minute.Seconds(), bytes/sent)
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n  ") + "\n"
}

// cpuSeconds is the processor time that a process has used.
func cpuSeconds(pid int) float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100 // USER_HZ is 100 on Linux
}

func deleteSite(kubeconfig, tenant, name string) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	sites := schema.GroupVersionResource{Group: "muster.dev", Version: "v1alpha1", Resource: "sites"}
	return c.Resource(sites).Namespace(tenant+"-system").Delete(context.Background(), name, metav1.DeleteOptions{})
}
