package aggregator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"muster.dev/muster/aggregator/cortex"
	"muster.dev/muster/collector/filter"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/health/defaults"
	healthengine "muster.dev/muster/health/engine"
	"muster.dev/muster/health/status"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/loadtest/simsite"
)

var (
	replaySites = flag.Int("replay.sites", 2, "how many sites TestReplayOnCortex replays")
	replayFor   = flag.Duration("replay.for", time.Hour, "and how long a history they have")
	replayEvery = flag.Duration("replay.every", 15*time.Second, "how far apart their samples are")
	replayNodes = flag.Int("replay.nodes", 3, "and how many nodes each has")
)

// TestReplayOnCortex asks a real Cortex how a policy would have done with the history of sites with every
// exporter, of which each had a full disk for a while.
func TestReplayOnCortex(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Cortex")
	}
	store, err := cortex.New(cortex.Options{DataDir: t.TempDir(), Listen: "127.0.0.1:0", Limits: cortex.Limits{SeriesPerTenant: 1e6, SamplesPerSecond: 1e9}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- store.Run(ctx) }()
	defer func() { cancel(); <-done }()
	testkit.Eventually(t, "Cortex is ready", store.Ready)

	h := &history{t: t, url: store.URL() + "/api/v1/push", end: time.Now().Truncate(time.Minute)}
	began := time.Now()
	for i := range *replaySites {
		h.begin(fmt.Sprintf("paris-%03d", i))
	}
	h.write()
	t.Logf("figure: %d samples of %d series written in %s", h.samples, h.series, time.Since(began).Round(time.Second))

	e, err := healthengine.New(healthengine.Options{
		Inventory: h, Status: h, Shipped: defaults.Model(), Dir: t.TempDir(), StoreQueryURL: store.URL() + "/prometheus/api/v1",
		Regionals: []healthengine.Regional{{Name: "one", URL: "http://one.invalid"}}, Client: &http.Client{Transport: h}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = e.Run(ctx) }()
	candidate := defaults.HealthPolicy()
	candidate.Name, candidate.Namespace = "tried", "acme-system"
	took, tried, after := time.Duration(0), 0, ""
	for {
		var x *healthengine.Replay
		testkit.Eventually(t, "the policy is tried", func() (err error) {
			at := time.Now()
			x, err = e.TryHistory(t.Context(), "acme", candidate, *replayFor, after)
			if err == nil && x.Total < *replaySites {
				return fmt.Errorf("%d sites are evaluated", x.Total)
			} else if err == nil {
				took += time.Since(at)
			} else if !errors.Is(err, healthengine.ErrNotEvaluated) {
				t.Fatal(err)
			}
			return err
		})
		for _, s := range x.Signals {
			if s.Err != "" {
				t.Errorf("signal %s: %s", s.Name, s.Err)
			}
		}
		for _, s := range x.Sites {
			tried++
			full := false
			for _, c := range s.Would {
				full = full || c.To == fleet.Red && strings.Contains(c.Reason, "fullest filesystem")
			}
			if !full || len(s.Would) > 5 {
				t.Errorf("%s would have: %+v", s.Site.ID, s.Would)
			}
			if len(s.Did) != 2 || s.Did[0].To != fleet.Orange || s.Did[1].To != fleet.Green {
				t.Errorf("%s did: %+v", s.Site.ID, s.Did)
			}
		}
		if after = x.Next; after == "" {
			break
		}
	}
	if tried != *replaySites {
		t.Errorf("%d sites, want %d", tried, *replaySites)
	}
	t.Logf("figure: replay of %d sites over %s: %s", tried, *replayFor, took.Round(10*time.Millisecond))
}

// history is sites with a past in the store; it is health's inventory, and the one regional, which knows
// nothing but that they are there.
type history struct {
	t               *testing.T
	url             string
	end, now        time.Time
	sites           []*remembered
	tmpl            *simsite.Templates
	series, samples int
	once            sync.Once
	snap            *inventory.Snapshot
}

type remembered struct {
	name string
	sim  *simsite.Site
	rows map[string]*remotewrite.Series
}

func (h *history) begin(name string) {
	h.t.Helper()
	if h.tmpl == nil {
		h.tmpl, h.now = simsite.NewTemplates(), h.end.Add(-*replayFor)
	}
	policy := desired.Merge([]v1alpha1.CollectionPolicySpec{defaults.CollectionPolicy().Spec})
	policy.Reserve = desired.MetricNames(&defaults.HealthPolicy().Spec)
	compiled, err := filter.Compile(policy)
	if err != nil {
		h.t.Fatal(err)
	}
	sim, err := simsite.New(simsite.Options{Name: name, Nodes: *replayNodes, Pods: 2**replayNodes + 14, Series: 4000**replayNodes + 2000, Spares: 3, Now: func() time.Time { return h.now }, Templates: h.tmpl, Families: compiled.Allows})
	if err != nil {
		h.t.Fatal(err)
	}
	h.sites = append(h.sites, &remembered{name: name, sim: sim, rows: map[string]*remotewrite.Series{}})
}

// write plays the past.
func (h *history) write() {
	h.t.Helper()
	const batch = 20 * time.Minute
	begin := h.now
	for from := begin; from.Before(h.end); from = from.Add(batch) {
		for _, s := range h.sites {
			for h.now = from; h.now.Before(from.Add(batch)) && !h.now.After(h.end); h.now = h.now.Add(*replayEvery) {
				gone := float64(h.now.Sub(begin)) / float64(h.end.Sub(begin))
				used := ""
				if gone > 0.4 && gone < 0.6 {
					used = "98%"
				}
				if err := s.sim.Set("filesystem/n1:/", "used", used); err != nil {
					h.t.Fatal(err)
				}
				h.scrape(s)
				colour := fleet.Green
				if gone > 0.7 && gone < 0.8 {
					colour = fleet.Orange
				}
				h.add(s, fleet.MetricSiteColour, labels.EmptyLabels(), float64(colour.Number()))
				h.add(s, fleet.MetricSiteConnected, labels.EmptyLabels(), 1)
				h.add(s, fleet.MetricSiteLastPush, labels.EmptyLabels(), float64(h.now.Unix()))
			}
			h.push(s)
		}
	}
}

func (h *history) scrape(s *remembered) {
	for _, path := range simsite.Pages() {
		page, err := s.sim.AppendPage(nil, path)
		if err != nil {
			h.t.Fatal(err)
		}
		p := textparse.NewPromParser(page, labels.NewSymbolTable(), false)
		for {
			et, err := p.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				h.t.Fatal(err)
			}
			if et == textparse.EntrySeries {
				raw, _, v := p.Series()
				row := s.rows[string(raw)]
				if row == nil {
					var ls labels.Labels
					p.Labels(&ls)
					row = h.row(s, string(raw), ls)
				}
				row.Samples = append(row.Samples, remotewrite.Sample{T: h.now.UnixMilli(), V: v})
			}
		}
		h.add(s, "up", labels.FromStrings("job", strings.Split(path, "/")[1]), 1)
	}
}

func (h *history) row(s *remembered, key string, ls labels.Labels) *remotewrite.Series {
	b := labels.NewBuilder(ls)
	b.Set(fleet.SeriesTenant, "acme").Set(fleet.SeriesSite, s.name).Set(fleet.SeriesRegion, "eu")
	row := &remotewrite.Series{Labels: b.Labels()}
	s.rows[key] = row
	h.series++
	return row
}

func (h *history) add(s *remembered, name string, ls labels.Labels, v float64) {
	key := name + ls.String()
	row := s.rows[key]
	if row == nil {
		row = h.row(s, key, labels.NewBuilder(ls).Set(labels.MetricName, name).Labels())
	}
	row.Samples = append(row.Samples, remotewrite.Sample{T: h.now.UnixMilli(), V: v})
}

func (h *history) push(s *remembered) {
	h.t.Helper()
	var some []remotewrite.Series
	for _, row := range s.rows {
		if len(row.Samples) > 0 {
			some = append(some, *row)
			h.samples += len(row.Samples)
		}
	}
	req, err := http.NewRequest(http.MethodPost, h.url, bytes.NewReader(remotewrite.EncodeV1(some)))
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Content-Type", remotewrite.ContentTypeV1)
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("X-Prometheus-Remote-Write-Version", "0.1.0")
	req.Header.Set(wire.OrgHeader, "acme")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode/100 != 2 {
		h.t.Fatalf("push: %s: %s", resp.Status, b)
	}
	for _, row := range s.rows {
		row.Samples = row.Samples[:0]
	}
}

// RoundTrip is the regional.
func (h *history) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != "one.invalid" {
		return http.DefaultTransport.RoundTrip(req)
	}
	var answer any = json.RawMessage(`{"status":"success","data":{"resultType":"vector","result":[]}}`)
	if req.URL.Path == wire.LivePath {
		v := wire.LiveView{Regional: "one", Region: "eu", AsOf: time.Now(), Sites: []wire.SiteLive{}}
		for _, s := range h.sites {
			v.Sites = append(v.Sites, wire.SiteLive{Tenant: "acme", Site: s.name, Region: "eu", Connected: true, ConnectedSince: h.end, LastHeartbeat: time.Now(), LastPush: time.Now(), AgentVersion: "v1"})
		}
		answer = v
	}
	b, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(b)), Request: req}, nil
}

func (h *history) Ready() error { return nil }
func (h *history) Snapshot() *inventory.Snapshot {
	h.once.Do(func() {
		var list []*inventory.Site
		for _, s := range h.sites {
			list = append(list, &inventory.Site{ID: fleet.SiteID{Tenant: "acme", Name: s.name}, Region: "eu", Phase: fleet.PhaseApproved})
		}
		h.snap = inventory.NewSnapshot(1, list, nil, nil)
	})
	return h.snap
}
func (h *history) Changed() <-chan struct{}             { return nil }
func (h *history) ForgetSites([]fleet.SiteID)           {}
func (h *history) ReportSites([]status.SiteReport)      {}
func (h *history) ReportPolicies([]status.PolicyReport) {}
