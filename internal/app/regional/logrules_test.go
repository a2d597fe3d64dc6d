package regional

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/alerting/logrules"
	"muster.dev/muster/control/api/region"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/testkit/elasticsearch"
	"muster.dev/muster/regional/logs/store"
	"muster.dev/muster/regional/logs/store/elastic"
	"muster.dev/muster/regional/logs/store/embedded"
)

// outbox is where alerts go: which alerts there were, by labels and start.
type outbox struct {
	mu   sync.Mutex
	seen map[string]map[time.Time]bool
}

func (o *outbox) Send(_ context.Context, alerts []logrules.Alert) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, a := range alerts {
		k := a.Labels["alertname"] + " " + a.Labels["site"] + " " + a.Labels["virtual_sites"]
		if o.seen[k] == nil {
			o.seen[k] = map[time.Time]bool{}
		}
		o.seen[k][a.StartsAt] = true
	}
	return nil
}

func (o *outbox) list() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []string
	for k, starts := range o.seen {
		out = append(out, fmt.Sprintf("%s ×%d", k, len(starts)))
	}
	slices.Sort(out)
	return out
}

func sharedRules() []region.Rules {
	d := func(s time.Duration) *metav1.Duration { return &metav1.Duration{Duration: s} }
	return []region.Rules{{Tenant: "acme", Logs: []region.LogRuleSet{{Name: "r", Spec: v1alpha1.LogRulesSpec{Rules: []v1alpha1.LogRule{
		{Name: "Errors", Type: "frequency", Filter: "severity:error", NumEvents: 10, Timeframe: d(time.Minute), Realert: d(time.Hour)},
		{Name: "Silent", Type: "flatline", Threshold: 1, Timeframe: d(5 * time.Second)},
	}}}}}}
}

// Two regionals share an Elasticsearch and each takes half of a site's lines: together
// the lines are enough, and the alert is raised once, by one of them. A site that has
// never sent a line is told of too, and when the owner ends the other goes on.
func TestRegionalsThatShareAStoreAlertOnce(t *testing.T) {
	node := elasticsearch.Start(t, elasticsearch.Options{})
	out := &outbox{seen: map[string]map[time.Time]bool{}}
	sites := func() []logrules.Site {
		return []logrules.Site{{Tenant: "acme", Name: "paris", Region: "eu", VirtualSites: []string{"shared/all"}}, {Tenant: "acme", Name: "never", Region: "eu"}}
	}
	var stores []store.Store
	var stops []func()
	for _, name := range []string{"one", "two"} {
		st, err := elastic.Open(elastic.Options{URLs: []string{node.URL}, Prefix: "rules", Writer: name, Registerer: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, st)
		r, err := logrules.New(logrules.Options{Name: name, Source: ruleSource{st}, State: ruleState{st}, Sink: out, Sites: sites, Interval: 300 * time.Millisecond, LeaseTTL: 3 * time.Second,
			Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		if errs := r.SetRules(sharedRules()); len(errs) > 0 {
			t.Fatal(errs)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); r.Run(ctx) }()
		stop := sync.OnceFunc(func() { cancel(); <-done })
		stops = append(stops, stop)
		t.Cleanup(func() { stop(); _ = st.Close() })
	}
	lines := func(st store.Store, from, n int) {
		t.Helper()
		var records []store.Record
		for i := range n {
			records = append(records, store.Record{Timestamp: time.Now(), Tenant: "acme", Site: "paris", Severity: "error", Message: "boom", ID: fmt.Sprint("l", from+i)})
		}
		if res, err := st.Write(t.Context(), records); err != nil || res.Stored != n {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	wait := func(what string, want ...string) {
		t.Helper()
		deadline := time.Now().Add(time.Minute)
		for tick := time.NewTicker(50 * time.Millisecond); ; <-tick.C {
			got := out.list()
			missing := slices.ContainsFunc(want, func(w string) bool {
				return !slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, w) })
			})
			if !missing {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: alerts %v, want %v", what, got, want)
			}
		}
	}
	wait("a site never heard of", "Silent never")
	lines(stores[0], 0, 5)
	lines(stores[1], 5, 5)
	wait("ten lines, five at each", "Errors paris |shared/all|")
	stops[0]()
	lines(stores[1], 10, 20)
	wait("after one has ended", "Errors paris |shared/all|")
	for _, got := range out.list() {
		if strings.HasPrefix(got, "Errors") && !strings.HasSuffix(got, "×1") || strings.HasPrefix(got, "Silent never") && !strings.HasSuffix(got, "×1") {
			t.Errorf("raised more than once: %s", got)
		}
	}
}

// Regionals on one store know of each other; one that was not heard of for long is out.
func TestSharing(t *testing.T) {
	st, err := embedded.Open(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if _, err := st.PutState(t.Context(), sharingKey, []byte(`{"gone":"2020-01-01T00:00:00Z"}`), ""); err != nil {
		t.Fatal(err)
	}
	one := &sharing{name: "one", state: ruleState{st}}
	two := &sharing{name: "two", state: ruleState{st}}
	for _, s := range []*sharing{one, two, one} {
		if err := s.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []*sharing{one, two} {
		if !s.has("one") || !s.has("two") || s.has("gone") || s.has("") {
			t.Errorf("%s knows of %v", s.name, s.names)
		}
	}
	inv := newInventory()
	if one.sites(inv) != nil {
		t.Error("sites are known before control has told of any")
	}
	inv.set([]region.Inventory{{Tenant: "acme", Sites: []region.Site{{Name: "a", Regional: "one"}, {Name: "b", Regional: "three"}, {Name: "c", Regional: "two", Region: "eu", VirtualSites: []string{"shared/all"}}}}})
	var names []string
	for _, s := range one.sites(inv) {
		names = append(names, s.Tenant+"/"+s.Name)
	}
	if !slices.Equal(names, []string{"acme/a", "acme/c"}) {
		t.Errorf("sites %v", names)
	}
	fresh := &sharing{name: "one", state: ruleState{awayStore{st}}}
	if err := fresh.enter(t.Context()); err == nil {
		t.Error("it entered a store that is away")
	}
	if got := fresh.sites(inv); got != nil {
		t.Errorf("sites %v, before it is known who shares the store", got)
	}
	fresh.state = ruleState{st}
	if err := fresh.enter(t.Context()); err != nil || len(fresh.sites(inv)) != 2 {
		t.Errorf("%v: sites %v", err, fresh.sites(inv))
	}
}

// awayStore has no state to give.
type awayStore struct{ store.Store }

func (awayStore) GetState(context.Context, string) ([]byte, string, error) {
	return nil, "", errors.New("away")
}
