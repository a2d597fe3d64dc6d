package regional

import (
	"context"
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
	"muster.dev/muster/alerting/logrules/members"
	"muster.dev/muster/control/api/region"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/elasticsearch"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional/logs/store"
	"muster.dev/muster/regional/logs/store/elastic"
	"muster.dev/muster/regional/logs/store/embedded"
)

// outbox is where alerts go: which alerts there were, by labels and start.
type outbox struct {
	mu   sync.Mutex
	seen map[string]map[time.Time]bool
}

func (o *outbox) Send(_ context.Context, alerts []wire.Alert) error {
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
		testkit.Eventually(t, what, func() error {
			got := out.list()
			for _, w := range want {
				if !slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, w) }) {
					return fmt.Errorf("alerts %v, want %v", got, want)
				}
			}
			return nil
		})
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

// A regional looks at the sites of all who share its store, and at none before it knows
// who they are.
func TestSitesOfTheStore(t *testing.T) {
	st, err := embedded.Open(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	inv := newInventory("one")
	one, two := members.New("one", ruleState{st}), members.New("two", ruleState{st})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	run := func(l *members.List) {
		wg.Go(func() { _ = l.Run(ctx, func(err error) { t.Error(err) }) })
		for !l.Known() {
			time.Sleep(time.Millisecond)
		}
	}
	run(one)
	if inv.sitesOf(one) != nil {
		t.Error("sites are known before control has told of any")
	}
	inv.set([]region.Inventory{{Tenant: "acme", Sites: []region.Site{{Name: "a", Regional: "one"}, {Name: "b", Regional: "three"}, {Name: "c", Regional: "two", Region: "eu", VirtualSites: []string{"shared/all"}}}}})
	if got := inv.sitesOf(two); got != nil {
		t.Errorf("sites %v, before it is known who shares the store", got)
	}
	run(two)
	var names []string
	for _, s := range inv.sitesOf(two) {
		names = append(names, s.Tenant+"/"+s.Name)
	}
	if !slices.Equal(names, []string{"acme/a", "acme/c"}) {
		t.Errorf("sites %v", names)
	}
}
