package engine

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/notifier"

	"muster.dev/muster/internal/testkit"
)

// inbox is an Alertmanager that counts alerts by name and can be away.
type inbox struct {
	mu   sync.Mutex
	away bool
	got  map[string]map[string]string // alertname → labels of the last one
	ends map[string]time.Time         // by alertname and virtual_sites
	urls map[string]string            // by alertname
	n    int

	first map[string]int // how many came before the first of a name
	hold  chan struct{}  // nil, or what an answer waits for
}

func (b *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if b.hold != nil {
		<-b.hold
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away {
		http.Error(w, "away", http.StatusServiceUnavailable)
		return
	}
	var alerts []struct {
		Labels       map[string]string
		EndsAt       time.Time
		GeneratorURL string
	}
	if json.NewDecoder(r.Body).Decode(&alerts) != nil {
		w.WriteHeader(http.StatusBadRequest)
	}
	for _, a := range alerts {
		b.got[a.Labels["alertname"]] = a.Labels
		b.ends[a.Labels["alertname"]+a.Labels["virtual_sites"]] = a.EndsAt
		if _, ok := b.first[a.Labels["alertname"]]; !ok {
			b.first[a.Labels["alertname"]] = b.n
		}
		b.urls[a.Labels["alertname"]] = a.GeneratorURL
		b.n++
	}
}

// fires tells whether an alert was sent that is not over.
func (b *inbox) fires(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ends[key].After(time.Now())
}

func (b *inbox) labels(name string) map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.got[name]
}

func (b *inbox) link(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.urls[name]
}

func (b *inbox) setAway(away bool) { b.mu.Lock(); b.away = away; b.mu.Unlock() }

func newInbox(t *testing.T) (*inbox, string) {
	b := &inbox{got: map[string]map[string]string{}, ends: map[string]time.Time{}, urls: map[string]string{}, first: map[string]int{}}
	srv := httptest.NewServer(b)
	t.Cleanup(srv.Close)
	return b, srv.URL
}

const alwaysDown = "groups:\n- name: g\n  rules:\n  - alert: Down\n    expr: up == 0\n"

// Every alert passes the hook, whoever raised it.
func TestAlertLabels(t *testing.T) {
	b, url := newInbox(t)
	e := open(t, Options{Alertmanagers: []string{url}, EvaluationInterval: 100 * time.Millisecond, Rules: []RuleGroup{{File: "r", Content: []byte(alwaysDown)}},
		AlertLabels: func(l labels.Labels) labels.Labels {
			return labels.NewBuilder(l).Set("virtual_sites", "|all|").Labels()
		}})
	add(t, e, time.Now(), 0, "__name__", "up", "site", "paris", "tenant", "acme")
	testkit.EventuallyTrue(t, "the alert arrives", func() bool { return b.labels("Down") != nil })
	if got := b.labels("Down"); got["virtual_sites"] != "|all|" || got["site"] != "paris" {
		t.Errorf("%v", got)
	}
}

// An alert that fires gains the virtual site that its site joins, and loses the one
// that it leaves: Alertmanager has one alert at any time, and none in the end.
func TestAlertsFollowTheirSite(t *testing.T) {
	b, url := newInbox(t)
	var virtual atomic.Value
	virtual.Store("|all|")
	e := open(t, Options{Alertmanagers: []string{url}, EvaluationInterval: 50 * time.Millisecond, ResendDelay: 20 * time.Minute, Rules: []RuleGroup{{File: "r", Content: []byte(alwaysDown)}},
		AlertLabels: func(l labels.Labels) labels.Labels {
			return labels.NewBuilder(l).Set("virtual_sites", virtual.Load().(string)).Labels()
		}})
	s := e.sender
	fire := func(ends time.Time) {
		s.Send(&notifier.Alert{Labels: labels.FromStrings("alertname", "Down", "site", "paris"), StartsAt: time.Now().Add(-time.Hour), EndsAt: ends})
	}
	only := func(what, want string) {
		t.Helper()
		testkit.EventuallyTrue(t, what, func() bool {
			n := 0
			for _, v := range []string{"|all|", "|all|shop|", "|shop|"} {
				if b.fires("Down" + v) {
					n++
				}
			}
			return (want == "" && n == 0) || n == 1 && b.fires("Down"+want)
		})
	}
	testkit.EventuallyTrue(t, "Alertmanager is found", func() bool { fire(time.Now().Add(time.Hour)); return b.fires("Down|all|") })
	for _, v := range []string{"|all|", "|all|shop|", "|all|shop|", "|shop|", "|all|"} {
		virtual.Store(v)
		fire(time.Now().Add(time.Hour))
		only(v, v)
	}
	virtual.Store("|shop|") // resolved in the moment that it moves
	fire(time.Now())
	only("the end", "")
	if len(s.sent) != 0 {
		t.Errorf("%d alerts are remembered after their end", len(s.sent))
	}
}

// An alert that fires while Alertmanager is away is sent when it is back.
func TestAlertsComeAfterAlertmanagerIsBack(t *testing.T) {
	b, url := newInbox(t)
	b.setAway(true)
	e := open(t, Options{Alertmanagers: []string{url}, EvaluationInterval: 100 * time.Millisecond, ResendDelay: 200 * time.Millisecond, Rules: []RuleGroup{{File: "r", Content: []byte(alwaysDown)}}})
	add(t, e, time.Now(), 0, "__name__", "up", "site", "paris", "tenant", "acme")
	testkit.EventuallyTrue(t, "the alert fires", func() bool { return len(e.rules.AlertingRules()[0].ActiveAlerts()) == 1 })
	b.setAway(false)
	testkit.EventuallyTrue(t, "the alert arrives", func() bool { return b.labels("Down") != nil })
}

// A rule's `for` goes on where it was, after a restart and when other groups change.
func TestForSurvives(t *testing.T) {
	const rule = "groups:\n- name: g\n  rules:\n  - alert: Down\n    expr: up == 0\n    for: 1h\n"
	dir := t.TempDir()
	start := func() *Engine {
		e, err := New(Options{Name: Edge, Dir: dir, EvaluationInterval: 100 * time.Millisecond, Rules: []RuleGroup{{File: "r", Content: []byte(rule)}}})
		if err != nil {
			t.Fatal(err)
		}
		add(t, e, time.Now(), 0, "__name__", "up", "site", "paris")
		return e
	}
	since := func(e *Engine) (at time.Time) {
		testkit.EventuallyTrue(t, "the alert is pending", func() bool {
			for _, r := range e.rules.AlertingRules() {
				for _, a := range r.ActiveAlerts() {
					if r.Name() == "Down" {
						at = a.ActiveAt
						return true
					}
				}
			}
			return false
		})
		return at
	}
	e := start()
	first := since(e)
	if _, err := e.SetRules([]RuleGroup{{File: "r", Content: []byte(rule)}, {File: "other", Content: []byte(alwaysDown)}}); err != nil {
		t.Fatal(err)
	}
	if again := since(e); !again.Equal(first) {
		t.Errorf("another group changed: pending since %s, before since %s", again, first)
	}
	testkit.EventuallyTrue(t, "the state is in the database", func() bool {
		v, err := e.Query(t.Context(), `ALERTS_FOR_STATE{alertname="Down"}`, time.Now())
		return err == nil && len(v) == 1
	})
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	again := start()
	defer again.Close()
	testkit.EventuallyTrue(t, "the time before the restart counts", func() bool { d := since(again).Sub(first); return d < 2*time.Second && d > -2*time.Second })
}

// A tenant's ten thousand alerts don't keep another's waiting, and what is too much of
// them is its own.
func TestAlertsGoInTurn(t *testing.T) {
	b, url := newInbox(t)
	slow := make(chan struct{})
	b.hold = slow
	e := open(t, Options{Alertmanagers: []string{url}})
	alerts := func(tenant string, n int) []*notifier.Alert {
		out := make([]*notifier.Alert, n)
		for i := range out {
			out[i] = &notifier.Alert{Labels: labels.FromStrings("alertname", tenant, "tenant", tenant, "i", strconv.Itoa(i)), StartsAt: time.Now(), EndsAt: time.Now().Add(time.Hour)}
		}
		return out
	}
	e.sender.Send(alerts("loud", 3*maxWaitingAlerts)...)
	e.sender.Send(alerts("quiet", 10)...)
	close(slow)
	testkit.EventuallyTrue(t, "the quiet one's arrive", func() bool { return b.labels("quiet") != nil })
	b.mu.Lock()
	before := b.first["quiet"]
	b.mu.Unlock()
	t.Logf("%d alerts of another tenant came before", before)
	if before > 2000 {
		t.Errorf("%d alerts of another tenant came before", before)
	}
	if n := testutil.ToFloat64(e.sender.dropped.WithLabelValues("loud")); n < 2*maxWaitingAlerts-queueAlerts-1000 {
		t.Errorf("%v were dropped", n)
	}
	if n := testutil.ToFloat64(e.sender.dropped.WithLabelValues("quiet")); n != 0 {
		t.Errorf("%v of the quiet tenant were dropped", n)
	}
}

// Both engines of a regional register with one registry, and the notifier's metrics are there.
func TestNotifierMetricsOfBothEngines(t *testing.T) {
	reg := prometheus.NewRegistry()
	open(t, Options{Name: Edge, Registerer: reg})
	open(t, Options{Name: Local, Registerer: reg})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range families {
		if f.GetName() == "prometheus_notifications_queue_length" {
			for _, m := range f.GetMetric() {
				seen[m.GetLabel()[0].GetValue()] = true
			}
		}
	}
	if !seen[Edge] || !seen[Local] {
		t.Errorf("%v", seen)
	}
}
