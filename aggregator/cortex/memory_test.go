package cortex

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
)

// TestMemory holds a demo's fleet, 60 sites of 900 series, to its budget.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("pushes a million samples")
	}
	const sites, series, scrapes, budgetMiB = 60, 900, 20, 350
	cmd, base := runChild(t, t.TempDir())
	begin := time.Now().Add(-scrapes * 15 * time.Second)
	began := time.Now()
	for n := range scrapes {
		at := begin.Add(time.Duration(n) * 15 * time.Second).UnixMilli()
		for site := range sites {
			var req prompb.WriteRequest
			for s := range series {
				req.Timeseries = append(req.Timeseries, prompb.TimeSeries{
					Labels: []prompb.Label{
						{Name: "__name__", Value: fmt.Sprintf("metric_of_some_length_%d_total", s/10)},
						{Name: "container", Value: "checkout"}, {Name: "namespace", Value: "shop"},
						{Name: "node", Value: fmt.Sprintf("site-%d-n%d", site, s%3)},
						{Name: "pod", Value: fmt.Sprintf("checkout-7d9f8c6b5d-x2x%d", s%10)},
						{Name: "region", Value: "eu"}, {Name: "site", Value: fmt.Sprintf("site-%d", site)}, {Name: "tenant", Value: "acme"},
					},
					Samples: []prompb.Sample{{Timestamp: at, Value: float64(n * s)}},
				})
			}
			body, err := req.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := push(base, "acme", "application/x-protobuf", "0.1.0", body); err != nil {
				t.Fatal(err)
			}
		}
	}
	took := time.Since(began)
	for range 5 {
		if _, err := query(base, "acme", "count by (site) ({__name__=~\"metric.*\"})", time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	rss, peak := residentMiB(t, cmd.Process.Pid)
	t.Logf("%d series, %d samples in %s: RSS %d MiB, highest %d MiB", sites*series, sites*series*scrapes, took.Round(time.Millisecond), rss, peak)
	if rss > budgetMiB {
		t.Errorf("RSS %d MiB, the budget is %d", rss, budgetMiB)
	}
}

func residentMiB(t *testing.T, pid int) (now, peak int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip(err)
	}
	get := func(field string) int {
		m := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(b)
		if m == nil {
			t.Fatalf("no %s in %s", field, b)
		}
		kb, _ := strconv.Atoi(string(m[1]))
		return kb / 1024
	}
	return get("VmRSS"), get("VmHWM")
}
