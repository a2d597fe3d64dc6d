package dashboards

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/promqltest"

	"muster.dev/muster/internal/fleet"
)

// The Connectivity board has steady figures of a link whose site is scraped as seldom as a policy may say, though a scrape is
// lost, and none of a site that is silent for longer than the next slower one may be.
func TestConnectivityOfSitesScrapedSeldom(t *testing.T) {
	counters := []string{"segments_retransmitted_total", "segments_sent_total", "request_errors_total", "request_seconds_count", "request_seconds_sum", "received_bytes_total", "sent_bytes_total", "connects_total"}
	for _, interval := range []time.Duration{fleet.DefaultInterval, 45 * time.Second, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute} {
		for _, silent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s silent=%t", interval, silent), func(t *testing.T) {
				until := 4 * time.Hour
				n := int(until / interval)
				if silent {
					n = int(2 * time.Hour / interval)
				}
				lost := n / 2
				var load strings.Builder
				fmt.Fprintf(&load, "load %s\n", model.Duration(interval))
				for i, name := range counters {
					fmt.Fprintf(&load, "  muster_agent_link_%s{site=\"paris\",target=\"gateway\",connection=\"stream\"} 0+%dx%d _ %d+%dx%d\n", name, i+1, lost-2, lost*(i+1), i+1, n-lost-1)
				}
				fmt.Fprintf(&load, "  muster_agent_link_round_trip_seconds{site=\"paris\",connection=\"stream\"} 0.1+0x%d _ 0.1+0x%d\n", lost-2, n-lost-1)
				load.WriteString("\nload 1m\n  muster_virtual_site_member{site=\"paris\",virtual_site=\"shared/all\"} 1+0x240\n")
				st := promqltest.LoadedStorage(t, load.String())
				defer st.Close()
				eng := promqltest.NewTestEngine(t, false, 5*time.Minute, 5e6)
				from := 50 * time.Minute
				if silent {
					slower := fleet.Pace(fleet.Pace(interval) + 1)
					from = 2*time.Hour + max(5*time.Minute, fleet.RateWindow(slower))
				}
				for _, q := range linkQueriesOf(t) {
					if silent && strings.Contains(q.Expr, "[1h]") {
						continue // reconnects in an hour: as long ago as that
					}
					query, err := eng.NewRangeQuery(context.Background(), st, nil, q.Expr, time.Unix(0, 0).Add(from), time.Unix(0, 0).Add(until-time.Second), 30*time.Second)
					if err != nil {
						t.Fatal(err)
					}
					res := query.Exec(context.Background())
					m, err := res.Matrix()
					if err != nil {
						t.Fatal(err)
					}
					points, want := 0, int((until-time.Second-from)/(30*time.Second))+1
					if silent {
						want = 0
					}
					for _, s := range m {
						points += len(s.Floats)
					}
					if points != want {
						t.Errorf("%s: figures at %d of %d moments: %s", q.Panel, points, want, q.Expr)
					}
					query.Close()
				}
			})
		}
	}
}

func linkQueriesOf(t *testing.T) (out []Query) {
	t.Helper()
	for _, d := range all(t) {
		if d.UID != "muster-connectivity" {
			continue
		}
		qs, err := d.Queries(testVars)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range qs {
			if strings.Contains(q.Expr, "muster_agent_link_") {
				out = append(out, q)
			}
		}
	}
	if len(out) < 10 {
		t.Fatalf("%d queries about links", len(out))
	}
	return out
}
