package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/promqltest"

	"muster.dev/muster/internal/promcost"
)

// TestShippedRulesAtSlowSites: a site that is scraped every 10 minutes and broken has each alert at any moment, one that
// is well has none, and a quick one has what it has where there are no slow ones.
func TestShippedRulesAtSlowSites(t *testing.T) {
	const minutes = 240
	var load strings.Builder
	load.WriteString("load 1m\n")
	site := func(name string, pace int, bad bool) {
		l := fmt.Sprintf(`tenant="acme",site=%q,region="eu"`, name)
		add := func(series string, well, broken func(minute int) float64) {
			f := well
			if bad {
				f = broken
			}
			load.WriteString("  " + strings.ReplaceAll(series, "SITE", l))
			for m := range minutes {
				if m%pace == 3%pace {
					fmt.Fprintf(&load, " %v", f(m))
				} else {
					load.WriteString(" _")
				}
			}
			load.WriteString("\n")
		}
		is := func(v float64) func(int) float64 { return func(int) float64 { return v } }
		grows := func(v float64) func(int) float64 { return func(m int) float64 { return v * float64(m) } }
		add(`node_netstat_Tcp_RetransSegs{SITE}`, grows(1), grows(20))
		add(`node_netstat_Tcp_OutSegs{SITE}`, grows(100), grows(100))
		add(`muster_collector_spool_bytes{SITE}`, is(1e6), is(4e8))
		add(`muster_collector_spool_sync_errors_total{SITE}`, is(0), grows(1))
		add(`muster_collector_spool_dropped_batches_total{SITE,reason="size"}`, is(0), grows(1))
		add(`muster_collector_series_refused{SITE}`, is(0), is(7))
		add(`up{SITE,job="a"}`, is(1), is(0))
		add(`kube_node_status_condition{SITE,node="n1",condition="Ready",status="true"}`, is(1), is(0))
		add(`node_memory_MemAvailable_bytes{SITE,node="n1"}`, is(50), is(3))
		add(`node_memory_MemTotal_bytes{SITE,node="n1"}`, is(100), is(100))
		// Of the gateway, each minute here.
		every := pace
		pace = 1
		last := func(m int) float64 { return 60 * float64(m-m%every) }
		add(`muster_site_connected{SITE}`, is(1), is(1))
		add(`muster_site_last_push_timestamp_seconds{SITE}`, last, is(0))
		if every > 1 {
			add(`muster_site_scrape_pace_seconds{SITE}`, is(60*float64(every)), is(60*float64(every)))
		}
	}
	site("quick-well", 1, false)
	site("quick-broken", 1, true)
	site("slow-well", 10, false)
	site("slow-broken", 10, true)
	want := []string{"SiteTelemetryStale", "SiteUplinkLossy", "SiteSpoolFilling", "SiteDiskNotSyncing", "SiteSamplesLost", "SiteSeriesBudgetExceeded", "SiteTargetsDown", "SiteNodeNotReady", "SiteMemoryLow"}
	st := promqltest.LoadedStorage(t, load.String())
	defer st.Close()
	files, errs := (&Compiler{Paces: []time.Duration{5 * time.Minute, 10 * time.Minute}}).Compile(Edge, nil, true)
	if len(errs) > 0 || len(files) != 1 {
		t.Fatal(files, errs)
	}
	groups, bad := rulefmt.Parse(files[0].Content, false, model.UTF8Validation)
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	e := newEngine()
	for minute := 100; minute < minutes-10; minute++ {
		got := map[string][]string{}
		for _, g := range groups.Groups {
			for _, r := range g.Rules {
				if _, err := promcost.Rule.Parse(r.Expr, promcost.Window{}); err != nil {
					t.Fatalf("%s: %v", r.Alert, err)
				}
				q, err := e.NewInstantQuery(t.Context(), st, nil, r.Expr, time.Unix(int64(60*minute+59), 0))
				if err != nil {
					t.Fatal(err)
				}
				v, err := q.Exec(t.Context()).Vector()
				if err != nil {
					t.Fatalf("%s: %v", r.Alert, err)
				}
				for _, s := range v {
					got[r.Alert] = append(got[r.Alert], s.Metric.Get("site"))
				}
				q.Close()
			}
		}
		for _, alert := range want {
			if s := slices.Sorted(slices.Values(got[alert])); !slices.Equal(s, []string{"quick-broken", "slow-broken"}) {
				t.Fatalf("minute %d: %s holds for %v", minute, alert, s)
			}
			delete(got, alert)
		}
		if len(got) > 0 {
			t.Fatalf("minute %d: %v", minute, got)
		}
	}
}

// Where no site is slow, what ships is evaluated as it ships.
func TestShippedRulesOfOnePace(t *testing.T) {
	files, _ := (&Compiler{}).Compile(Edge, nil, true)
	if string(files[0].Content) != string(Shipped(Edge).Content) {
		t.Error("the file is another one")
	}
}
