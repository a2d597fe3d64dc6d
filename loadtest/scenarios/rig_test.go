package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/osutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/collector"
	"muster.dev/muster/collector/filter"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/health"
	"muster.dev/muster/health/defaults"
	healthengine "muster.dev/muster/health/engine"
	"muster.dev/muster/health/status"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/loadtest/simsite"
	"muster.dev/muster/regional/engine"
)

const (
	tenant       = "acme"
	region       = "eu"
	regionalName = "eu-1"
)

// rig is one regional with the sites of many scenarios, and health above it, in one
// process and in the fake time of a synctest bubble. Real are: each site's collector
// (scrape loop, filter, spool, remote write), the regional's engine (database, PromQL,
// HTTP API) and the health engine with the shipped policy. Not real are the network
// between them, and the gateway and the agent's stream: regional stands for them.
type rig struct {
	t     testing.TB
	dir   string
	reg   *regional
	sites []*simulated
	inv   *shelf
	tmpl  *simsite.Templates

	// readOnly leaves out of the exporters' pages what no signal reads.
	readOnly bool
	// direct has the sites' samples go straight from the exporters to the filter and from there
	// to the regional, see direct: a fifth of the work.
	direct bool
	// hourly, if set, is called each simulated hour with what was seen so far.
	hourly func(at time.Duration, seen map[string]map[string][]observation)

	mu   sync.Mutex
	hour time.Duration                       // of the last call
	seen map[string]map[string][]observation // by model and scenario
}

// observation is what health said of a site, from one moment on.
type observation struct {
	at        time.Duration // since the scenario began
	colour    fleet.Colour
	score     float64
	dimension fleet.Dimension
	signal    string
	text      string
	missing   string // the first signal that the site should have and is unknown
}

func (o observation) String() string {
	return fmt.Sprintf("%6s %-6s %3.0f %-12s %-20s %s", o.at.Round(time.Second), o.colour, o.score, o.dimension, o.signal, o.text)
}

// simulated is one site that runs.
type simulated struct {
	sc    *Scenario
	name  string // as it is registered now; guarded by mu once it runs
	born  time.Time
	lives int // how many machines have had the name
	sim   *simsite.Site
	steps []Step
	rig   *rig
	col   interface {
		Run(context.Context) error
		Status() collector.Status
	}
	rng *rand.Rand

	mu   sync.Mutex
	live wire.SiteLive
	// policy is what selects it instead of the shipped one, if anything; edits are how often that changed.
	policy *inventory.Policy
	edits  int64
	// collection is the policy that sets its interval; nil: none does.
	collection *inventory.Policy
	done       bool
	end        collector.Status // when it was done
	refs       map[uint64]*stamped
	dec        remotewrite.Decoder
	raw        []byte // the last push, to be used again
	hash       maphash.Hash
	app        labels.ScratchBuilder
}

type stamped struct {
	ref    storage.SeriesRef
	labels labels.Labels
}

// shippedPolicy is what the collectors of sites without a policy of their own get.
func shippedPolicy() fleet.CollectionPolicy {
	p := desired.Merge([]v1alpha1.CollectionPolicySpec{defaults.CollectionPolicy().Spec})
	p.Reserve = desired.MetricNames(&defaults.HealthPolicy().Spec)
	return p
}

// run plays the scenarios side by side and returns what health said of each with each
// of the models: there is one health engine for each, above the same regional.
func run(t *testing.T, models map[string]*health.Model, list []*Scenario) map[string]map[string][]observation {
	t.Helper()
	return rigOf(t, models, list).seen
}

// rigOf does what run does, and returns all of it, at its end.
func rigOf(t *testing.T, models map[string]*health.Model, list []*Scenario) *rig {
	t.Helper()
	r := &rig{t: t}
	r.run(t, models, list)
	return r
}

func (r *rig) run(t *testing.T, models map[string]*health.Model, list []*Scenario) {
	t.Helper()
	percent := 800
	if r.direct { // most of it lives: series in memory
		percent = 200
	}
	defer debug.SetGCPercent(debug.SetGCPercent(percent))
	r.dir, r.seen, r.tmpl = scratch(t), map[string]map[string][]observation{}, simsite.NewTemplates()
	synctest.Test(t, func(t *testing.T) { r.play(t, models, list) })
}

// scratch is a directory in memory where there is one: the disk is not what is tested.
func scratch(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "muster-scenarios-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (r *rig) play(t *testing.T, models map[string]*health.Model, list []*Scenario) {
	began := time.Now()
	var wg sync.WaitGroup
	r.reg = r.startRegional(t)
	ctx := r.reg.over
	for _, sc := range list {
		r.sites = append(r.sites, r.newSite(t, sc))
	}
	r.inv = newShelf(r.sites)
	for name, m := range models {
		e, err := healthengine.New(healthengine.Options{
			Inventory: r.inv, Status: r.inv, Shipped: m, Dir: filepath.Join(r.dir, "health", strings.ReplaceAll(name, " ", "-")), Logger: slog.New(slog.DiscardHandler),
			Regionals: []healthengine.Regional{{Name: regionalName, URL: "http://regional"}}, Client: &http.Client{Transport: r.reg},
			Offset: func(time.Duration) time.Duration { return 2 * time.Second },
		})
		if err != nil {
			t.Fatal(err)
		}
		r.seen[name] = map[string][]observation{}
		sub := e.Subscribe(4096)
		wg.Go(func() { _ = e.Run(ctx) })
		wg.Go(func() { r.watch(t, name, sub, began) })
	}
	wg.Go(func() { r.reg.writeSelf(ctx, r) })
	for _, s := range r.sites {
		wg.Go(func() { s.run(ctx) })
	}
	wg.Wait()
	if err := r.reg.eng.Close(); err != nil {
		t.Error(err)
	}
}

// run is the life of one site.
func (s *simulated) run(ctx context.Context) {
	var wg sync.WaitGroup
	var cancel context.CancelFunc
	start := func() {
		var life context.Context
		life, cancel = context.WithCancel(ctx)
		col, sim := s.col, s.sim
		wg.Go(func() { _ = col.Run(life) })
		wg.Go(func() { s.stream(life, sim) })
	}
	start()
	begin := time.Now().Add(s.sc.Warm())
	for _, st := range s.steps {
		time.Sleep(time.Until(begin.Add(st.At)))
		if err := st.Do(s.sim); err != nil {
			s.rig.t.Errorf("%s: %v", s.sc.Name, err)
		}
		switch st.Property {
		case deleted:
			cancel()
			wg.Wait()
			s.mu.Lock()
			s.name = ""
			s.live.Connected, s.live.ConnectedSince = false, time.Time{}
			s.mu.Unlock()
			s.rig.inv.set(s.rig.sites)
		case registered:
			if err := s.begin(s.sc.Name); err != nil {
				s.rig.t.Errorf("%s: %v", s.sc.Name, err)
				continue
			}
			s.rig.inv.set(s.rig.sites)
			start()
		case governed:
			shipped := defaults.HealthPolicy()
			spec, err := st.Policy(&shipped.Spec)
			if err != nil {
				s.rig.t.Errorf("%s: %v", s.sc.Name, err)
				continue
			}
			s.mu.Lock()
			s.policy = s.governedBy(*spec)
			s.mu.Unlock()
			s.rig.inv.set(s.rig.sites)
		case renamed:
			s.mu.Lock()
			s.name, s.born, s.refs = s.sc.Name, time.Now(), map[uint64]*stamped{}
			s.live.Connected, s.live.ConnectedSince, s.live.LastHeartbeat, s.live.LastPush = false, time.Time{}, time.Time{}, time.Time{}
			s.live.Site = s.name
			s.mu.Unlock()
			s.rig.inv.set(s.rig.sites)
		}
	}
	time.Sleep(time.Until(begin.Add(s.sc.For.D())))
	st := s.col.Status()
	s.rig.t.Logf("%s: %d nodes, %d pods, %d of %d places for series taken, %d refused", s.sc.Name, s.sc.Site.Nodes, s.sc.Site.Pods, st.Series, st.Budget, st.Refused)
	s.mu.Lock()
	s.done, s.end = true, st
	s.mu.Unlock()
	cancel()
	wg.Wait()
	s.rig.ended()
}

// governedBy is a policy of the site alone. Ends of overrides count from now on.
func (s *simulated) governedBy(spec v1alpha1.HealthPolicySpec) *inventory.Policy {
	s.edits++
	spec.Overrides = slices.Clone(spec.Overrides)
	for i := range spec.Overrides {
		o := &spec.Overrides[i]
		o.Sites, o.Until.Time = []string{s.name}, time.Now().Add(o.Until.Sub(time.Unix(0, 0)))
	}
	return &inventory.Policy{Kind: inventory.HealthPolicies().Kind, Tenant: tenant, Name: s.name, Generation: s.edits, Object: &v1alpha1.HealthPolicy{Spec: spec}}
}

// ended stops the rig after the last site.
func (r *rig) ended() {
	for _, s := range r.sites {
		s.mu.Lock()
		done := s.done
		s.mu.Unlock()
		if !done {
			return
		}
	}
	r.reg.stop()
}

func (r *rig) newSite(t *testing.T, sc *Scenario) *simulated {
	s := &simulated{sc: sc, rig: r, rng: rand.New(rand.NewPCG(1, uint64(len(sc.Name))))}
	var err error
	if s.steps, err = sc.Steps(); err != nil {
		t.Fatal(err)
	}
	if i := sc.Site.Interval; i > 0 {
		s.collection = &inventory.Policy{Kind: fleet.KindCollectionPolicy, Tenant: tenant, Name: sc.Name, Object: &v1alpha1.CollectionPolicy{Spec: v1alpha1.CollectionPolicySpec{Interval: &metav1.Duration{Duration: i.D()}}}}
	}
	name := sc.Name
	for _, st := range s.steps {
		if st.Property == renamed {
			name += "-before"
		}
	}
	if err := s.begin(name); err != nil {
		t.Fatal(err)
	}
	return s
}

// begin registers a machine, with its collector.
func (s *simulated) begin(name string) error {
	sc, r := s.sc, s.rig
	policy := shippedPolicy()
	if sc.Site.Budget > 0 {
		policy.SeriesBudget = sc.Site.Budget
	}
	if sc.Site.Interval > 0 {
		policy.Interval = sc.Site.Interval.D()
	}
	compiled, err := filter.Compile(policy)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	families := compiled.Allows
	if r.readOnly {
		families = func(name string) bool { return compiled.Allows(name) && compiled.Reserves(name) }
	}
	if s.sim, err = sc.newSite(uint64(s.lives), time.Now, r.tmpl, families); err != nil {
		return err
	}
	nodes := s.sim.Nodes()
	if r.direct {
		s.col, err = newDirect(s, policy, compiled)
		if err != nil {
			return err
		}
		s.registered(name)
		return nil
	}
	var targets []collector.Target
	for _, p := range s.sim.NodePages() {
		if len(sc.Site.Exporters) > 0 && !contains(sc.Site.Exporters, p.Exporter) {
			continue
		}
		instance := p.Exporter
		if p.Node >= 0 {
			instance = nodes[p.Node]
		}
		targets = append(targets, collector.Target{Job: p.Exporter, Instance: instance, Handler: p.Handler})
	}
	s.col, err = collector.New(collector.Options{
		Dir: filepath.Join(r.dir, "sites", sc.Name, strconv.Itoa(s.lives)), Site: fleet.SiteID{Tenant: tenant, Name: name}, Targets: targets, Policy: policy,
		Endpoint: func() string { return "http://gateway/api/v1/push" }, Client: func() *http.Client { return &http.Client{Transport: s} },
		SpoolSync: 24 * time.Hour, Version: "v1.0.0", BuildTime: time.Now().Add(-30 * 24 * time.Hour),
	})
	if err != nil {
		return err
	}
	s.registered(name)
	return nil
}

// registered notes what a regional knows of a site that is new.
func (s *simulated) registered(name string) {
	// What a gateway knows of a name it keeps for a day.
	s.live.Tenant, s.live.Site, s.live.Region = tenant, name, region
	if !s.sc.Site.Agentless {
		s.live.AgentVersion = "v1.0.0"
	}
	s.name, s.born, s.refs = name, time.Now(), map[uint64]*stamped{}
	s.lives++
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// stream stands for the agent's stream and the gateway's end of it: it breaks with the
// line, and is tried again as the agent does, after 1, 2, 4, … 30 s.
func (s *simulated) stream(ctx context.Context, sim *simsite.Site) {
	if s.sc.Site.Agentless {
		return
	}
	failed, next := 0, time.Now()
	for ; ctx.Err() == nil; time.Sleep(time.Second) {
		u := sim.Uplink()
		cut := u.Down || u.Stream
		now := time.Now()
		s.mu.Lock()
		switch {
		case s.live.Connected && cut:
			s.live.Connected, s.live.ConnectedSince = false, time.Time{}
			failed, next = 1, now.Add(time.Second)
		case s.live.Connected:
			if now.Sub(s.live.LastHeartbeat) >= 5*time.Second {
				s.live.LastHeartbeat = now
			}
		case now.Before(next):
		case cut:
			next = now.Add(min(30*time.Second, time.Second<<failed))
			failed++
		default:
			s.live.Connected, s.live.ConnectedSince, s.live.LastHeartbeat = true, now, now
		}
		s.mu.Unlock()
	}
}

// RoundTrip carries a push over the site's line, and stands for the gateway at its end.
func (s *simulated) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	if err := s.carry(req.Context()); err != nil {
		return nil, err
	}
	code, text, n := s.push(req, body)
	h := http.Header{}
	if code/100 == 2 { // 2.0's confirmation, without which senders fall back to 1.0
		h.Set("X-Prometheus-Remote-Write-Samples-Written", strconv.Itoa(n))
	}
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(text)), Header: h, Request: req}, nil
}

// carry takes as long as the line takes for a push, and fails if that is lost.
func (s *simulated) carry(ctx context.Context) error {
	s.mu.Lock()
	u := s.sim.Uplink()
	lost := u.Down || u.Push || s.rng.Float64() < u.Loss
	s.mu.Unlock()
	wait := u.Delay
	if lost {
		wait = 5 * time.Second
	}
	if wait > 0 && !sleep(ctx, wait) {
		return ctx.Err()
	}
	if lost {
		return errors.New("connect: no route to host")
	}
	return nil
}

// push takes a request; n is how many samples of it.
func (s *simulated) push(req *http.Request, body []byte) (code int, text string, n int) {
	v2, err := remotewrite.IsV2(req.Header.Get("Content-Type"))
	if err != nil {
		return http.StatusUnsupportedMediaType, err.Error(), 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	raw, err := snappy.Decode(s.raw[:cap(s.raw)], body)
	if err != nil {
		return http.StatusBadRequest, err.Error(), 0
	}
	s.raw = raw
	app := s.rig.reg.eng.Storage().Appender(req.Context())
	var bad error
	d := &s.dec
	for d.Reset(raw, v2, remotewrite.Limits{}); d.Next(); {
		if d.Bad != nil {
			bad = d.Bad
			continue
		}
		st := s.resolve(d.Pairs())
		for _, v := range d.Samples {
			ref, err := app.Append(st.ref, st.labels, v.T, v.V)
			if err != nil {
				bad = fmt.Errorf("%w for %s", err, st.labels)
				continue
			}
			st.ref = ref
			n++
		}
	}
	if d.Err() != nil {
		_ = app.Rollback()
		return http.StatusBadRequest, d.Err().Error(), 0
	}
	if err := app.Commit(); err != nil {
		return http.StatusServiceUnavailable, err.Error(), 0
	}
	s.live.LastPush = time.Now()
	if bad != nil {
		return http.StatusBadRequest, bad.Error(), n
	}
	return http.StatusNoContent, "", n
}

// resolve stamps the site's identity on a series, as the gateway does, and remembers it.
func (s *simulated) resolve(pairs []string) *stamped {
	s.hash.Reset()
	for _, p := range pairs {
		_, _ = s.hash.WriteString(p)
		_ = s.hash.WriteByte(0)
	}
	key := s.hash.Sum64()
	if st := s.refs[key]; st != nil {
		return st
	}
	st := s.stamp(pairs)
	s.refs[key] = st
	return st
}

// stamp makes a series of the site.
func (s *simulated) stamp(pairs []string) *stamped {
	s.app.Reset()
	for i := 0; i+1 < len(pairs); i += 2 {
		s.app.Add(strings.Clone(pairs[i]), strings.Clone(pairs[i+1]))
	}
	s.app.Add(fleet.SeriesTenant, tenant)
	s.app.Add(fleet.SeriesSite, s.name)
	s.app.Add(fleet.SeriesRegion, region)
	s.app.Sort()
	return &stamped{labels: s.app.Labels()}
}

// regional is the regional's own engine, and its listener without a network.
type regional struct {
	eng  *engine.Engine
	mux  *http.ServeMux
	stop context.CancelFunc
	over context.Context
}

func (r *rig) startRegional(t *testing.T) *regional {
	eng, err := engine.New(engine.Options{Name: engine.Edge, Dir: filepath.Join(r.dir, "edge"), OutOfOrderWindow: time.Hour, Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	g := &regional{eng: eng, mux: http.NewServeMux()}
	g.over, g.stop = context.WithCancel(t.Context())
	eng.Register(g.mux, prometheus.NewRegistry())
	g.mux.HandleFunc("GET "+wire.LivePath, func(w http.ResponseWriter, _ *http.Request) {
		v := wire.LiveView{Regional: regionalName, Region: region, AsOf: time.Now(), Sites: []wire.SiteLive{}}
		for _, s := range r.sites {
			s.mu.Lock()
			if !s.live.LastPush.IsZero() || !s.live.LastHeartbeat.IsZero() {
				v.Sites = append(v.Sites, s.live)
			}
			s.mu.Unlock()
		}
		_ = json.NewEncoder(w).Encode(v)
	})
	return g
}

// RoundTrip answers health's requests.
func (g *regional) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	req = req.Clone(req.Context())
	if req.URL.Path != wire.LivePath {
		req.URL.Path = "/edge/api/v1" + strings.TrimPrefix(req.URL.Path, "/edge/api/v1")
	}
	if req.Body == nil {
		req.Body = http.NoBody
	}
	g.mux.ServeHTTP(w, req)
	return w.Result(), nil
}

// writeSelf writes what the gateway does of each site.
func (g *regional) writeSelf(ctx context.Context, r *rig) {
	for ; ctx.Err() == nil && g.over.Err() == nil; time.Sleep(15 * time.Second) {
		now := time.Now()
		app := g.eng.Storage().Appender(ctx)
		for _, s := range r.sites {
			s.mu.Lock()
			live, done, site := s.live, s.done, s.name
			s.mu.Unlock()
			if done || site == "" {
				continue
			}
			add := func(name string, v float64) {
				ls := labels.FromStrings(labels.MetricName, name, "regional", regionalName, fleet.SeriesRegion, region, fleet.SeriesSite, site, fleet.SeriesTenant, tenant)
				if _, err := app.Append(0, ls, now.UnixMilli(), v); err != nil {
					r.t.Errorf("%s: %v", name, err)
				}
			}
			connected := 0.0
			if live.Connected {
				connected = 1
			}
			add(fleet.MetricSiteConnected, connected)
			if !live.LastPush.IsZero() {
				add(fleet.MetricSiteLastPush, float64(live.LastPush.UnixMilli())/1000)
			}
		}
		if err := app.Commit(); err != nil {
			r.t.Error(err)
		}
	}
}

// watch notes what health says.
func (r *rig) watch(t testing.TB, model string, sub *healthengine.Subscription, began time.Time) {
	defer sub.Close()
	for {
		select {
		case <-r.reg.over.Done():
			return
		case u, ok := <-sub.C:
			if !ok {
				t.Error("the watcher fell behind")
				return
			}
			r.note(model, u.View, began)
		}
	}
}

// digits are left out when two texts are compared: a number that moves is no news.
var digits = regexp.MustCompile(`[0-9.]+`)

func (r *rig) note(model string, v *healthengine.View, began time.Time) {
	now := v.AsOf.Sub(began)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sites {
		at := now - s.sc.Warm()
		site := v.Find(tenant, s.sc.Name)
		if site == nil || at > s.sc.For.D() {
			continue
		}
		o := observation{at: at, colour: site.Colour()}
		o.score, _ = site.Score()
		if st := site.State; st != nil {
			i := slices.IndexFunc(st.Signals, func(s health.SignalState) bool { return s.Applies && !s.Known })
			if i >= 0 {
				o.missing = st.Model.Signals[i].Name
			}
		}
		if st := site.State; st != nil && len(st.Reasons) > 0 {
			first := &st.Reasons[0]
			o.dimension, o.signal, o.text = first.Dimension, first.Signal, first.Text
		}
		list := r.seen[model][s.sc.Name]
		if n := len(list); n > 0 && list[n-1].colour == o.colour && list[n-1].signal == o.signal && list[n-1].missing == o.missing && (list[n-1].text == o.text || digits.ReplaceAllString(list[n-1].text, "") == digits.ReplaceAllString(o.text, "")) {
			list[n-1].text, list[n-1].score = o.text, o.score
			continue
		}
		r.seen[model][s.sc.Name] = append(list, o)
	}
	if hour := (now - 3*time.Minute).Truncate(time.Hour); r.hourly != nil && hour > r.hour {
		r.hour = hour
		r.hourly(hour, r.seen)
	}
}

// shelf is the inventory.
type shelf struct {
	mu      sync.Mutex
	snap    *inventory.Snapshot
	version uint64
	changed chan struct{}
}

func newShelf(sites []*simulated) *shelf {
	s := &shelf{changed: make(chan struct{}, 1)}
	s.set(sites)
	return s
}

// set makes it hold those of the sites that are registered.
func (s *shelf) set(sites []*simulated) {
	var list []*inventory.Site
	var policies []*inventory.Policy
	for _, x := range sites {
		x.mu.Lock()
		if x.name != "" {
			site := &inventory.Site{ID: fleet.SiteID{Tenant: tenant, Name: x.name}, Region: region, Phase: fleet.PhaseApproved, CreatedAt: x.born.UTC().Truncate(time.Second)}
			if p := x.collection; p != nil { // kinds in order
				site.Policies, policies = append(site.Policies, p), append(policies, p)
			}
			if x.policy != nil {
				site.Policies, policies = append(site.Policies, x.policy), append(policies, x.policy)
			}
			list = append(list, site)
		}
		x.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.snap = inventory.NewSnapshot(s.version, list, nil, policies)
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *shelf) Ready() error { return nil }
func (s *shelf) Snapshot() *inventory.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snap
}
func (s *shelf) Changed() <-chan struct{}             { return s.changed }
func (s *shelf) ForgetSites([]fleet.SiteID)           {}
func (s *shelf) ReportSites([]status.SiteReport)      {}
func (s *shelf) ReportPolicies([]status.PolicyReport) {}

// TestMain looks this machine's name up before any bubble of testing/synctest: the scrape
// manager does so in each, and the channels that package net makes for its first look-up,
// by Go and by the C library, must not belong to one of them.
func TestMain(m *testing.M) {
	_, _ = osutil.GetFQDN()
	_, _ = net.LookupIP("localhost")
	_, _ = net.LookupAddr("127.0.0.1")
	os.Exit(m.Run())
}
