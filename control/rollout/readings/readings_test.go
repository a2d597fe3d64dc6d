package readings_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"k8s.io/apimachinery/pkg/api/resource"

	"muster.dev/muster/aggregator/query"
	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/alerting/state"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/decide"
	"muster.dev/muster/control/rollout/readings"
	"muster.dev/muster/health"
	"muster.dev/muster/health/api"
	healthengine "muster.dev/muster/health/engine"
	"muster.dev/muster/internal/egress"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/engine"
)

const tenant = "acme"

// world is what the roles know: their real APIs, over what a test says.
type world struct {
	t       *testing.T
	view    atomic.Pointer[healthengine.View]
	firing  atomic.Pointer[[]wire.Alert]
	prom    *engine.Engine
	asked   sync.Map // path → *atomic.Int64
	hang    sync.Map // path → chan struct{} to wait for
	lines   func(wire.LogQuery) (*wire.LogPage, *wire.Problem)
	options readings.Options
	*readings.Readings
}

type source struct {
	api.Source
	w *world
}

func (s source) View() *healthengine.View { return s.w.view.Load() }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newWorld(t *testing.T) *world {
	w := &world{t: t}
	quiet := slog.New(slog.DiscardHandler)
	w.firing.Store(&[]wire.Alert{})
	healthAPI, err := api.New(api.Options{Source: source{w: w}, Logger: quiet})
	must(t, err)
	mux := http.NewServeMux()
	healthAPI.Register(mux)
	index, err := state.New(state.Options{Source: state.SourceFunc(func(context.Context) ([]wire.Alert, error) {
		if a := w.firing.Load(); a != nil {
			return *a, nil
		}
		return nil, errors.New("away")
	}), Silences: &amclient.Client{}, File: filepath.Join(t.TempDir(), "history.db"), Every: time.Millisecond, Settle: -1, Logger: quiet})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = index.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done; _ = index.Close() })
	index.Register(mux)
	testkit.EventuallyTrue(t, "the index", func() bool { return index.Ready() == nil })
	w.prom, err = engine.New(engine.Options{Name: engine.Edge, Dir: t.TempDir(), Logger: quiet, Registerer: prometheus.NewRegistry()})
	must(t, err)
	t.Cleanup(func() { _ = w.prom.Close() })
	w.prom.Register(mux, prometheus.NewRegistry())
	testkit.EventuallyTrue(t, "the engine", func() bool { return w.prom.Ready() == nil })
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		n, _ := w.asked.LoadOrStore(r.URL.Path, &atomic.Int64{})
		n.(*atomic.Int64).Add(1)
		if c, hangs := w.hang.Load(r.URL.Path); hangs {
			select {
			case <-c.(chan struct{}):
			case <-r.Context().Done():
			}
			return
		}
		mux.ServeHTTP(rw, r)
	}))
	t.Cleanup(srv.Close)
	base, err := url.Parse(srv.URL)
	must(t, err)
	store, err := query.New(query.Options{URL: srv.URL, PathPrefix: "/edge"})
	must(t, err)
	door, err := egress.New(egress.Options{Allow: []string{"127.0.0.1"}, Own: []string{srv.Listener.Addr().String()}})
	must(t, err)
	w.options = readings.Options{Health: base, Alerting: base, Client: srv.Client(), Metrics: metrics{store}, Logs: w, Dial: door.DialContext,
		Token: func(_ context.Context, namespace, name string) (string, error) {
			if namespace == "acme-shop" && name == "hook" {
				return "s3cret", nil
			}
			return "", errors.New(`secrets "` + name + `" not found`)
		}, Timeout: 10 * time.Second}
	w.Readings, err = readings.New(w.options)
	must(t, err)
	return w
}

type metrics struct{ *query.Client }

func (m metrics) Value(ctx context.Context, tenant, expr string, at time.Time, lookback time.Duration) (int, []byte) {
	return m.Ask(ctx, tenant, query.Request{Expr: expr, Time: at, Lookback: lookback})
}

// Search implements readings.Logs.
func (w *world) Search(_ context.Context, of string, q wire.LogQuery) (*wire.LogPage, *wire.Problem) {
	if of != tenant {
		w.t.Errorf("logs of %q", of)
	}
	return w.lines(q)
}

func (w *world) times(path string) int64 {
	n, ok := w.asked.Load(path)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

// sees sets what health knows: by site the readings, evaluated at their time.
func (w *world) sees(asOf time.Time, sites map[string]func(m *health.Model) health.State) {
	m, err := health.NewModel(health.Options{Weights: [4]float64{1, 1, 1, 1}, Evaluations: 1, Recovery: 1, Signals: []health.Signal{
		{Name: "cpu", Dimension: fleet.Performance, Query: "cpu", Good: 0, Bad: 100, Weight: 1, Cap: health.NoCap, Unit: "percent", Text: "{value} of the CPU is in use", Source: "node_exporter"},
	}})
	must(w.t, err)
	var known []*inventory.Site
	for name := range sites {
		known = append(known, &inventory.Site{ID: fleet.SiteID{Tenant: tenant, Name: name}, Phase: fleet.PhaseOnline})
	}
	known = append(known, &inventory.Site{ID: fleet.SiteID{Tenant: "zeta", Name: "paris"}, Phase: fleet.PhaseOnline})
	v := &healthengine.View{AsOf: asOf, Snapshot: inventory.NewSnapshot(1, known, nil, nil)}
	for _, s := range v.Snapshot.Sites {
		x := &healthengine.Site{Site: s, Phase: s.Phase}
		if f := sites[s.ID.Name]; f != nil && s.ID.Tenant == tenant {
			st := f(m)
			x.State = &st
		}
		v.Sites = append(v.Sites, x)
	}
	w.view.Store(v)
}

// cpu is a site with so much of its CPU in use: performance is 100 less that.
func cpu(percent float64, at time.Time) func(m *health.Model) health.State {
	return func(m *health.Model) health.State {
		return health.Evaluate(m, health.Readings{Link: health.LinkUp, Signals: []health.Reading{{Value: percent, Known: true}}}, nil, at)
	}
}

func (w *world) fires(alerts ...wire.Alert) { w.firing.Store(&alerts) }

func alert(name, of, site, severity string) wire.Alert {
	return wire.Alert{Labels: map[string]string{"alertname": name, "tenant": of, "site": site, "severity": severity}, Fingerprint: "0123456789abcdef"[:16-len(name)] + strings.Repeat("0", len(name)), StartsAt: time.Now().Add(-time.Minute), Status: wire.AlertStatus{State: wire.AlertActive}}
}

func (w *world) put(name, site string, value float64, at time.Time, rest ...string) {
	app := w.prom.Storage().Appender(w.t.Context())
	_, err := app.Append(0, labels.FromStrings(append([]string{"__name__", name, "tenant", tenant, "site", site}, rest...)...), at.UnixMilli(), value)
	must(w.t, err)
	must(w.t, app.Commit())
}

func (w *world) read(changed, peers []string, gates ...v1alpha1.RolloutGate) readings.Answer {
	return w.Read(w.t.Context(), readings.Question{Tenant: tenant, Namespace: "acme-shop", Rollout: "web-1", Gates: gates, Changed: changed, Peers: peers, Since: time.Now().Add(-5 * time.Minute)})
}

func measuresOf(s readings.Site) string {
	b, _ := json.Marshal(s.Measures)
	return string(b)
}

func TestScoresAndAlerts(t *testing.T) {
	w := newWorld(t)
	now := time.Now()
	offline := func(m *health.Model) health.State {
		before := health.Evaluate(m, health.Readings{Link: health.LinkUp, Signals: []health.Reading{{Value: 10, Known: true}}}, nil, now.Add(-20*time.Second))
		return health.Evaluate(m, health.Readings{Link: health.LinkDown}, &before, now)
	}
	w.sees(now, map[string]func(*health.Model) health.State{
		"paris": cpu(40, now), "oslo": cpu(20, now), "rome": offline, "old": cpu(10, now.Add(-2*time.Minute)),
		"lima": func(m *health.Model) health.State {
			return health.Evaluate(m, health.Readings{Link: health.LinkNever}, nil, now)
		},
		"other": cpu(99, now),
	})
	w.fires(alert("DiskFull", tenant, "paris", "critical"), alert("Slow", tenant, "paris", "warning"), alert("Down", "zeta", "oslo", "critical"))
	var a readings.Answer
	testkit.EventuallyTrue(t, "the alerts", func() bool {
		r, err := readings.New(w.options)
		must(t, err)
		w.Readings = r
		a = w.read([]string{"paris", "rome", "old", "lima", "nowhere"}, []string{"oslo"})
		return len(a.Sites["paris"].Alerts) == 2
	})
	for site, want := range map[string]string{
		"paris": `{"Connectivity":100,"Performance":60,"Site":80}`,
		"oslo":  `{"Connectivity":100,"Performance":80,"Site":90}`,
		"rome":  `{"Connectivity":0}`, // its performance is what it was
		"old":   `{"Connectivity":100}`,
		"lima":  `{}`, "nowhere": `{}`,
	} {
		if got := measuresOf(a.Sites[site]); got != want {
			t.Errorf("%s: %s, want %s", site, got, want)
		}
		if !a.Sites[site].AlertsKnown {
			t.Errorf("%s: alerts are not known", site)
		}
	}
	if got := a.Sites["paris"].Alerts; !slices.Equal(got, []string{"critical/DiskFull", "warning/Slow"}) || len(a.Sites["oslo"].Alerts) != 0 {
		t.Errorf("alerts %q, %q", got, a.Sites["oslo"].Alerts)
	}
	if !a.Sites["rome"].Red || a.Sites["paris"].Red || len(a.Sites) != 6 || len(a.Outside) != 0 {
		t.Errorf("%+v", a)
	}
	if at := a.Sites["paris"].At; now.Sub(at) > time.Second || a.Sites["nowhere"].At.IsZero() {
		t.Errorf("as of %s, %s", at, a.Sites["nowhere"].At)
	}
	// What a caller does with an answer is its own.
	a.Sites["paris"].Alerts[0] = "x"
	if b := w.read([]string{"paris"}, nil); b.Sites["paris"].Alerts[0] != "critical/DiskFull" {
		t.Error("answers share their alerts")
	}
}

// One request serves all rollouts of a tenant.
func TestRolloutsShareWhatIsAsked(t *testing.T) {
	w := newWorld(t)
	w.sees(time.Now(), map[string]func(*health.Model) health.State{"paris": cpu(40, time.Now())})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if a := w.read([]string{"paris"}, nil); a.Sites["paris"].Measures["Site"] != 80 {
				t.Errorf("%+v", a)
			}
		})
	}
	wg.Wait()
	if h, f := w.times(wire.ScoresPath), w.times(wire.FiringPath); h != 1 || f != 1 {
		t.Errorf("asked %d and %d times", h, f)
	}
}

var (
	scoreGate = v1alpha1.RolloutGate{Name: "score", Score: &v1alpha1.GateScore{Minimum: 50}}
	alertGate = v1alpha1.RolloutGate{Name: "alerts", Alerts: &v1alpha1.GateAlerts{Severities: []string{"critical"}}}
)

func TestOldScoresAreNone(t *testing.T) {
	w := newWorld(t)
	w.sees(time.Now().Add(-61*time.Second), map[string]func(*health.Model) health.State{"paris": cpu(40, time.Now())})
	a := w.read([]string{"paris"}, nil, scoreGate, alertGate)
	if got := a.Sites["paris"]; len(got.Measures) != 0 || got.Red || !got.AlertsKnown {
		t.Errorf("%+v", got)
	}
	if o := a.Outside["score"]; o.Verdict != v1alpha1.GateUnknown || !strings.Contains(o.Text, "health: the scores are 1m1s old") && !strings.Contains(o.Text, "health: the scores are 1m2s old") {
		t.Errorf("%+v", o)
	}
	if _, has := a.Outside["alerts"]; has {
		t.Error("the gate on alerts could be read")
	}
}

// A source that hangs holds up none of the others, and one that fails says so.
func TestASourceThatHangs(t *testing.T) {
	for path, gate := range map[string]v1alpha1.RolloutGate{wire.ScoresPath: scoreGate, wire.FiringPath: alertGate} {
		w := newWorld(t)
		w.sees(time.Now(), map[string]func(*health.Model) health.State{"paris": cpu(40, time.Now())})
		w.hang.Store(path, make(chan struct{}))
		w.options.Timeout = 300 * time.Millisecond
		var err error
		w.Readings, err = readings.New(w.options)
		must(t, err)
		for range 3 {
			a := w.read([]string{"paris"}, nil, scoreGate, alertGate)
			if o := a.Outside[gate.Name]; len(a.Outside) != 1 || o.Verdict != v1alpha1.GateUnknown || !strings.Contains(o.Text, "answer") {
				t.Errorf("%s: %+v", path, a.Outside)
			}
			s := a.Sites["paris"]
			if known := path == wire.FiringPath; (s.Measures["Site"] == 80) != known || s.AlertsKnown == known {
				t.Errorf("%s: %+v", path, s)
			}
		}
		if n := w.times(path); n != 1 {
			t.Errorf("%s: asked %d times within its time", path, n)
		}
	}
}

func TestRolesThatRefuse(t *testing.T) {
	w := newWorld(t) // health has no view yet
	a := w.read([]string{"paris"}, nil, scoreGate)
	if o := a.Outside["score"]; !strings.Contains(o.Text, "503") || !strings.Contains(o.Text, "first evaluation") {
		t.Errorf("%+v", o)
	}
}

func quantity(s string) *resource.Quantity {
	q := resource.MustParse(s)
	return &q
}

func TestQueries(t *testing.T) {
	w := newWorld(t)
	now := time.Now()
	w.put("errors", "paris", 0.25, now)
	w.put("errors", "oslo", 0.5, now)
	w.put("errors", "rome", 9, now.Add(-90*time.Second)) // too old
	w.put("twice", "paris", 1, now, "pod", "a")
	w.put("twice", "paris", 1, now, "pod", "b")
	query := func(name, expr string, low, high *resource.Quantity) v1alpha1.RolloutGate {
		return v1alpha1.RolloutGate{Name: name, Query: &v1alpha1.GateQuery{Query: expr, Min: low, Max: high}}
	}
	a := w.read([]string{"paris", "rome"}, []string{"oslo"},
		query("per-site", "errors", nil, quantity("1")),
		v1alpha1.RolloutGate{Name: "rise", Peers: &v1alpha1.GateChange{Query: "sum by (site) (errors) * 2"}},
		v1alpha1.RolloutGate{Name: "no-site", Before: &v1alpha1.GateChange{Query: "sum(errors)"}},
		query("fine", "sum(errors)", quantity("500m"), quantity("1")),
		query("over", "sum(errors)", nil, quantity("0.5")),
		query("under", "scalar(sum(errors))", quantity("1"), nil),
		query("none", "nothing", nil, quantity("1")),
		query("nan", "sum(errors) * NaN", nil, quantity("1")),
		query("twice", "twice", nil, nil),
		query("shape", "sum by (pod) (twice)", nil, nil),
		query("matrix", "errors[1m]", nil, nil),
		query("dear", "sum_over_time(sum_over_time(errors[1d:1s])[1d:1s])", nil, nil),
		query("syntax", "sum(", nil, nil))
	for site, want := range map[string]string{"paris": `{"per-site":0.25,"rise":0.5}`, "oslo": `{"per-site":0.5,"rise":1}`, "rome": `{}`} {
		if got := measuresOf(a.Sites[site]); got != want {
			t.Errorf("%s: %s, want %s", site, got, want)
		}
	}
	for name, want := range map[string]decide.Outside{
		"fine":    {Verdict: v1alpha1.GatePass, Text: "the query's value is 0.75, wanted at least 0.5 and at most 1", Value: "0.75"},
		"over":    {Verdict: v1alpha1.GateFail, Text: "the query's value is 0.75, wanted at most 0.5", Value: "0.75"},
		"under":   {Verdict: v1alpha1.GateFail, Text: "the query's value is 0.75, wanted at least 1", Value: "0.75"},
		"none":    {Verdict: v1alpha1.GateUnknown, Text: "no value"},
		"nan":     {Verdict: v1alpha1.GateUnknown, Text: "no value"},
		"no-site": {Verdict: v1alpha1.GateUnknown, Text: "without a site"},
		"twice":   {Verdict: v1alpha1.GateUnknown, Text: "several values for site paris"},
		"shape":   {Verdict: v1alpha1.GateUnknown, Text: "without a site"},
		"matrix":  {Verdict: v1alpha1.GateUnknown, Text: "matrix"},
		"dear":    {Verdict: v1alpha1.GateUnknown, Text: "cost"},
		"syntax":  {Verdict: v1alpha1.GateUnknown, Text: "parse error"},
	} {
		if got := a.Outside[name]; got.Verdict != want.Verdict || got.Value != want.Value || !strings.Contains(got.Text, want.Text) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if len(a.Outside) != 11 {
		t.Errorf("%d outside", len(a.Outside))
	}
}

func TestLogs(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	var asked []wire.LogQuery
	w.lines = func(q wire.LogQuery) (*wire.LogPage, *wire.Problem) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, q)
		switch q.Text {
		case "bad(":
			return nil, wire.Invalid(wire.FieldError{Field: "query", Detail: "a bracket is open"})
		case "partial":
			return &wire.LogPage{Total: 1, MissingRegions: []wire.MissingRegion{{Region: "asia", Reason: "timeout"}}}, nil
		}
		return &wire.LogPage{Total: int64(len(q.Sites))}, nil
	}
	gate := func(name, text string, most int64) v1alpha1.RolloutGate {
		return v1alpha1.RolloutGate{Name: name, Logs: &v1alpha1.GateLogs{Query: text, MaxCount: most}}
	}
	var sites []string
	for i := range 1200 {
		sites = append(sites, "site-"+string(rune('a'+i%26))+strings.Repeat("x", i/26))
	}
	gates := []v1alpha1.RolloutGate{gate("few", "panic", 1200), gate("many", "oops", 1199), gate("partial", "partial", 10), gate("enough", "partial ", 0), gate("bad", "bad(", 0)}
	gates[3].Logs.Query = "partial"
	gates[3].Logs.MaxCount = 2
	a := w.read(sites, nil, gates...)
	for name, want := range map[string]decide.Outside{
		"few":     {Verdict: v1alpha1.GatePass, Text: "1200 lines match, of at most 1200", Value: "1200"},
		"many":    {Verdict: v1alpha1.GateFail, Text: "1200 lines match, of at most 1199", Value: "1200"},
		"partial": {Verdict: v1alpha1.GateUnknown, Text: "3 lines match, of at most 10; without the logs of asia", Value: "3"},
		"enough":  {Verdict: v1alpha1.GateFail, Text: "3 lines match, of at most 2", Value: "3"},
		"bad":     {Verdict: v1alpha1.GateUnknown, Text: "the logs: query: a bracket is open"},
	} {
		if got := a.Outside[name]; got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	for _, q := range asked {
		from, err := time.Parse(time.RFC3339Nano, q.From)
		if len(q.Sites) > 500 || err != nil || time.Since(from) < 5*time.Minute || q.Limit != 1 {
			t.Errorf("%d sites, from %s", len(q.Sites), q.From)
		}
	}
	if a := w.read(nil, nil, gate("none", "panic", 1)); a.Outside["none"].Verdict != v1alpha1.GateUnknown {
		t.Errorf("no site: %+v", a.Outside)
	}
}

func TestWebhooks(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	got := map[string]readings.WebhookBody{}
	hook := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var b readings.WebhookBody
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(&b); err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v", r.Method, err)
		}
		mu.Lock()
		got[b.Gate] = b
		mu.Unlock()
		switch r.URL.Path {
		case "/empty":
			rw.WriteHeader(http.StatusNoContent)
		case "/token":
			if r.Header.Get("Authorization") != "Bearer s3cret" {
				rw.WriteHeader(http.StatusUnauthorized)
				return
			}
			_, _ = io.WriteString(rw, `{"verdict":"fail","message":"two\ncustomers"}`)
		case "/away":
			http.Redirect(rw, r, "/empty", http.StatusTemporaryRedirect)
		case "/large":
			_, _ = io.WriteString(rw, `{"verdict":"pass","x":"`+strings.Repeat("x", 1<<17)+`"}`)
		default:
			_, _ = io.WriteString(rw, `{"verdict":"wait"}`)
		}
	}))
	defer hook.Close()
	var gates []v1alpha1.RolloutGate
	add := func(name, url, secret string) {
		gates = append(gates, v1alpha1.RolloutGate{Name: name, Webhook: &v1alpha1.GateWebhook{URL: url, TokenSecret: secret}})
	}
	add("empty", hook.URL+"/empty", "")
	add("wait", hook.URL+"/x", "")
	add("token", hook.URL+"/token", "hook")
	add("no-token", hook.URL+"/token", "")
	add("no-secret", hook.URL+"/token", "other")
	add("away", hook.URL+"/away", "")
	add("large", hook.URL+"/large", "")
	add("own", w.options.Health.String()+"/x", "")
	a := w.read([]string{"paris"}, []string{"oslo"}, gates...)
	for name, want := range map[string]decide.Outside{
		"empty":     {Verdict: v1alpha1.GatePass, Text: "the webhook answers 204"},
		"wait":      {Verdict: v1alpha1.GateWait, Text: "the webhook says wait"},
		"token":     {Verdict: v1alpha1.GateFail, Text: "the webhook says fail: two customers"},
		"no-token":  {Verdict: v1alpha1.GateUnknown, Text: "the webhook: answers 401, want 2xx"},
		"no-secret": {Verdict: v1alpha1.GateUnknown, Text: `the webhook: tokenSecret: secrets "other" not found`},
		"away":      {Verdict: v1alpha1.GateUnknown, Text: "the webhook: answers 307, want 2xx"},
		"large":     {Verdict: v1alpha1.GateUnknown, Text: "the webhook: answers with more than 64 KiB"},
		"own":       {Verdict: v1alpha1.GateUnknown, Text: "the webhook: " + egress.ErrRefused.Error()},
	} {
		if got := a.Outside[name]; got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	since := got["wait"].Since
	if b := got["wait"]; since == nil || time.Since(*since) < 5*time.Minute || !reflect.DeepEqual(b, readings.WebhookBody{Tenant: tenant, Namespace: "acme-shop", Rollout: "web-1", Gate: "wait", Since: since, Sites: []string{"paris"}}) {
		t.Errorf("%+v", b)
	}
}

// TestBeforeIsNotAPredecessors: what a name had before a site was registered under it is
// another's.
func TestBeforeIsNotAPredecessors(t *testing.T) {
	w := newWorld(t)
	now := time.Now().Truncate(time.Second)
	born := now.Add(-5 * time.Minute)
	for at := now.Add(-25 * time.Minute); at.Before(now); at = at.Add(15 * time.Second) {
		for _, site := range []string{"paris", "oslo", "rome", "bern"} {
			score := 20.0 // of the predecessor
			if at.After(born) {
				score = 90
			}
			w.put(fleet.MetricSiteScore, site, score, at)
			w.put("load", site, score, at)
		}
	}
	sites := []readings.Subject{{Name: "paris", Born: born}, {Name: "oslo", Born: now.Add(-time.Hour)}, {Name: "rome", Born: now.Add(-30 * time.Second)},
		{Name: "bern", Born: now.Add(-13 * time.Minute)}}
	got := w.Before(t.Context(), tenant, sites, now.Add(-20*time.Minute), now)
	if got["paris"]["Site"] != 90 || len(got["rome"]) != 0 {
		t.Errorf("%v, want 90 for paris and nothing for rome", got)
	}
	if x := got["oslo"]["Site"]; x < 36 || x > 39 {
		t.Errorf("oslo: %v, want its whole history", x)
	}
	// Three minutes before that moment, bern was registered.
	gates := []v1alpha1.RolloutGate{
		{Name: "load", Before: &v1alpha1.GateChange{Query: "load"}},
		{Name: "mean", Before: &v1alpha1.GateChange{Query: "avg_over_time(load[5m])"}},
	}
	w.QueriesAt(t.Context(), tenant, gates, sites, now.Add(-10*time.Minute), got)
	if _, has := got["bern"]["mean"]; has || got["bern"]["load"] != 20 || got["oslo"]["mean"] != 20 {
		t.Errorf("%v", got)
	}
	if _, has := got["paris"]["load"]; has || got["oslo"]["load"] != 20 || len(got["rome"]) != 0 {
		t.Errorf("%v", got)
	}
}

func TestBefore(t *testing.T) {
	w := newWorld(t)
	now := time.Now().Truncate(time.Second)
	for i, score := range []float64{80, 90, 20} { // the last one is after
		at := now.Add(time.Duration(i-2) * time.Minute)
		w.put(fleet.MetricSiteScore, "paris", score, at)
		w.put(fleet.MetricDimensionScore, "paris", score-10, at, "dimension", string(fleet.Performance))
		w.put(fleet.MetricDimensionScore, "paris", 1, at, "dimension", "taste")
		w.put(fleet.MetricSiteScore, "oslo", score, at)
		w.put("load", "paris", score, at)
	}
	since := now.Add(-30 * time.Second)
	got := w.Before(t.Context(), tenant, []readings.Subject{{Name: "paris"}, {Name: "nowhere"}}, since.Add(-time.Hour), since)
	if want := (map[string]map[string]float64{"paris": {"Site": 85, "Performance": 75}}); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	w.QueriesAt(t.Context(), tenant, []v1alpha1.RolloutGate{
		{Name: "load", Before: &v1alpha1.GateChange{Query: "load"}}, {Name: "total", Query: &v1alpha1.GateQuery{Query: "load"}}, scoreGate,
	}, []readings.Subject{{Name: "paris"}}, since, got)
	if got["paris"]["load"] != 90 || len(got["paris"]) != 3 {
		t.Errorf("%v", got)
	}
	if got := w.Before(t.Context(), tenant, []readings.Subject{{Name: "paris"}}, since, since); got != nil {
		t.Errorf("no time at all: %v", got)
	}
}
