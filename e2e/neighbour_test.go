package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/loadtest/hostile"
)

// neighbourTime is how long each half takes: quiet, then under attack. make
// test-neighbour sets five minutes.
func neighbourTime(t *testing.T) time.Duration {
	s := os.Getenv("MUSTER_NEIGHBOUR")
	if s == "" {
		return time.Minute
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("MUSTER_NEIGHBOUR: %v", err)
	}
	return d
}

// TestNeighbour runs the neighbour test alone, on a demo of its own.
func TestNeighbour(t *testing.T) {
	if os.Getenv("MUSTER_NEIGHBOUR") == "" {
		t.Skip("a part of TestFleet; run make test-neighbour for five minutes of it alone")
	}
	f := start(t, t.TempDir())
	if t.Run("start", func(t *testing.T) { testStart(t, f) }) {
		t.Run("neighbour", func(t *testing.T) { testNeighbour(t, f) })
	}
}

// testNeighbour lets one tenant and its one site do their worst, and somebody without
// a certificate too, and compares what the demo's tenant sees meanwhile with what it
// saw before: scores, queries, logs and alerts.
//
// The figures are a ratio to the quiet half of the same run. What fails the test is
// not slowness but a victim who is refused, stands still or loses something.
func testNeighbour(t *testing.T, f *fleet) {
	d := neighbourTime(t)
	evil := makeEvilTenant(t, f)
	site := joinEvilSite(t, f)
	anyone := &hostile.Anyone{Server: "127.0.0.1:7443"}
	defer anyone.Close()

	assertKept := startBystander(t, f)
	before := time.Now()
	calm := f.cores(t, "quiet")
	quiet := f.probe(t, d)
	calm()
	_, blamed := f.blamed(t)
	ctx, stop := context.WithCancel(t.Context())
	attacks := slices.Concat(site.Attacks(), evil.Attacks(), anyone.Attacks())
	answers := make(chan map[string]hostile.Tally, 1)
	go func() { answers <- hostile.Run(ctx, attacks) }()
	busy := f.cores(t, "attacked")
	attacked := f.probe(t, d)
	busy()
	stop()
	came := <-answers
	for _, attack := range attacks {
		a := came[attack.Name]
		t.Logf("figure: attack %-50s %s", attack.Name+":", a)
		if a.All() == 0 {
			t.Errorf("attack %q was never tried", attack.Name)
		} else if err := attack.Wall.Check(a); err != nil {
			t.Errorf("attack %q: the wall did not hold: %v", attack.Name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(quiet)) {
		q, a := quiet[name], attacked[name]
		t.Logf("figure: neighbour, %-40s quiet p50 %6.3f s, p95 %6.3f s; attacked p50 %6.3f s, p95 %6.3f s, worst %6.3f s; p95 × %.1f",
			name+":", q.at(0.5), q.at(0.95), a.at(0.5), a.at(0.95), a.at(1), a.at(0.95)/max(q.at(0.95), 1e-3))
		if len(a.errs) > 0 {
			t.Logf("%s: %d of %d tries failed under attack (%d when quiet), the first with: %v", name, len(a.errs), len(a.errs)+len(a.took), len(q.errs), a.errs[0])
		}
		if i := slices.IndexFunc(a.errs, refusal); i >= 0 {
			t.Errorf("%s: refused under attack: %v", name, a.errs[i])
		}
		// An answer may take longer than its 15 s on a machine that is all attacked; most may not.
		if 3*len(a.errs) > len(a.errs)+len(a.took) {
			t.Errorf("%s: %d of %d tries failed under attack (%d when quiet), the first with: %v", name, len(a.errs), len(a.errs)+len(a.took), len(q.errs), a.errs[0])
		}
		if a.at(1) > 60 {
			t.Errorf("%s stood still under attack: %.0f s", name, a.at(1))
		}
	}
	for name, pid := range f.roles() {
		t.Logf("figure: RSS of %-20s %4.0f MiB after the attack", name, rss(pid))
		if rss(pid) > 2048 {
			t.Errorf("%s took %.0f MiB", name, rss(pid))
		}
	}
	assertNoGaps(t, f, before)
	assertBlameless(t, f, blamed)
	assertKept()
}

// cores begins to count what each role takes of the processors, and this test, which is
// the attackers and who watches their neighbour; what it returns says so.
func (f *fleet) cores(t *testing.T, when string) func() {
	roles := f.roles()
	roles["the attackers and the probes"] = os.Getpid()
	began, before := time.Now(), map[string]float64{}
	for name, pid := range roles {
		before[name] = cpuSeconds(pid)
	}
	return func() {
		var all float64
		for _, name := range slices.Sorted(maps.Keys(roles)) {
			share := (cpuSeconds(roles[name]) - before[name]) / time.Since(began).Seconds()
			all += share
			t.Logf("figure: cores, %-8s %-30s %5.2f", when, name, share)
		}
		t.Logf("figure: cores, %-8s %-30s %5.2f", when, "all", all)
	}
}

// observed is what one probe saw: seconds, and what went wrong.
type observed struct {
	took []float64
	errs []error
}

func (o observed) at(q float64) float64 {
	if len(o.took) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(o.took))
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

// probe looks at the fleet as the demo's tenant does, for a while.
func (f *fleet) probe(t *testing.T, d time.Duration) map[string]observed {
	t.Helper()
	since := func(at time.Time) float64 { return max(0, time.Since(at).Seconds()) }
	timed := func(path string) func() (float64, error) {
		return func() (float64, error) {
			began := time.Now()
			var ignored any
			err := f.get(path, &ignored)
			return since(began), err
		}
	}
	query := "/api/v1/metrics/query?" + url.Values{"tenant": {tenant}, "query": {`sum by (site) (rate(node_cpu_seconds_total[5m]))`}}.Encode()
	probes := map[string]func() (float64, error){
		"list of sites, answer":    timed("/api/v1/health/sites?limit=1000&tenant=" + tenant),
		"query of metrics, answer": timed(query),
		"log search, answer":       timed("/api/v1/logs/search?" + url.Values{"tenant": {tenant}, "query": {"severity:error"}, "from": {"now-15m"}}.Encode()),
		"state of alerts, answer":  timed("/api/v1/alerts/state?tenant=" + tenant),
		"scores, age": func() (float64, error) {
			var list struct {
				AsOf time.Time `json:"asOf"`
			}
			err := f.get("/api/v1/health/sites?limit=1&tenant="+tenant, &list)
			return since(list.AsOf), err
		},
		"newest sample in Cortex, age": func() (float64, error) {
			var r promResult
			err := f.get("/api/v1/metrics/query?"+url.Values{"tenant": {tenant}, "query": {`time() - max(timestamp(up{tenant="demo"}))`}}.Encode(), &r)
			if err == nil && len(r.Data.Result) != 1 {
				err = errors.New("no sample in the last five minutes")
			}
			if err != nil {
				return 0, err
			}
			return strconv.ParseFloat(r.Data.Result[0].Value[1].(string), 64)
		},
		"newest log line found, age": func() (float64, error) {
			q := url.Values{"tenant": {tenant}, "query": {""}, "from": {"now-10m"}, "limit": {"1"}}
			var p struct {
				Hits []struct {
					Timestamp time.Time `json:"timestamp"`
				} `json:"hits"`
			}
			err := f.get("/api/v1/logs/search?"+q.Encode(), &p)
			if err == nil && len(p.Hits) == 0 {
				err = errors.New("no line in the last ten minutes")
			}
			if err != nil {
				return 0, err
			}
			return since(p.Hits[0].Timestamp), nil
		},
		"rules of the tenant, last evaluation": func() (float64, error) { return f.oldestEvaluation() },
	}
	out := map[string]observed{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	end := time.Now().Add(d)
	for name, p := range probes {
		wg.Go(func() {
			var o observed
			for time.Now().Before(end) {
				took, err := p()
				if err != nil {
					o.errs = append(o.errs, err)
				} else {
					o.took = append(o.took, took)
				}
				time.Sleep(time.Second) // the pace of the probe
			}
			mu.Lock()
			defer mu.Unlock()
			out[name] = o
		})
	}
	wg.Go(func() {
		o := f.faultToPhone()
		mu.Lock()
		defer mu.Unlock()
		out["fault → notification of a metric rule"] = o
	})
	wg.Wait()
	return out
}

// oldestEvaluation is how long ago the tenant's rule that waits longest was evaluated,
// in seconds, beyond its interval.
func (f *fleet) oldestEvaluation() (float64, error) {
	worst, n := 0.0, 0
	for _, port := range []string{"9091", "9092"} {
		b, err := f.asOperator("https://127.0.0.1:"+port+"/edge/api/v1/rules", nil)
		if err != nil {
			return 0, err
		}
		var answer struct {
			Data struct {
				Groups []struct {
					File           string    `json:"file"`
					Interval       float64   `json:"interval"` // seconds
					LastEvaluation time.Time `json:"lastEvaluation"`
				} `json:"groups"`
			} `json:"data"`
		}
		if err := json.Unmarshal(b, &answer); err != nil {
			return 0, err
		}
		for _, g := range answer.Data.Groups {
			if strings.Contains(g.File, tenant) && !g.LastEvaluation.IsZero() {
				worst, n = max(worst, time.Since(g.LastEvaluation).Seconds()-g.Interval), n+1
			}
		}
	}
	if n == 0 {
		return 0, errors.New("no rule group of the tenant was evaluated")
	}
	return worst, nil
}

// faultToPhone breaks a site and waits for the notification. Each time it is another one: of a
// site that is broken again before its alert ended nobody is told twice.
func (f *fleet) faultToPhone() observed {
	list, err := f.sites()
	if err != nil {
		return observed{errs: []error{err}}
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if list[name].Colour != "green" || name == "this-machine" || slices.Contains(f.rang, name) {
			continue
		}
		f.rang = append(f.rang, name)
		broke := time.Now()
		f.muster("demo", "break", name, "deployment-short")
		defer f.muster("demo", "heal", name)
		for time.Since(broke) < 3*time.Minute {
			if _, err = notified(broke, "firing", "ShopDeploymentShort", name); err == nil {
				return observed{took: []float64{time.Since(broke).Seconds()}}
			}
			time.Sleep(time.Second)
		}
		return observed{errs: []error{err}}
	}
	return observed{errs: []error{errors.New("no green site to break")}}
}

// evil is the hostile tenant, and the name of its one site.
const evil = "evil"

// makeEvilTenant makes a tenant with an admin of its own, as the operator of the fleet
// would, and returns that admin.
func makeEvilTenant(t *testing.T, f *fleet) *hostile.Tenant {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", f.dir+"/admin.kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	dyn := f.dynamic(t)
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	makeTenant(t, f, evil)
	for _, ns := range []string{evil + "-system", evil + "-shared"} {
		testkit.Eventually(t, "namespace "+ns, func() error {
			b := &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "mallory"},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "muster:tenant-admin"},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "mallory", Namespace: "default"}},
			}
			_, err := kube.RbacV1().RoleBindings(ns).Create(ctx, b, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
	}
	if _, err := kube.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "mallory"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := kube.CoreV1().ServiceAccounts("default").CreateToken(ctx, "mallory", &authnv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(cfg))
	if err != nil {
		t.Fatal(err)
	}
	tn := &hostile.Tenant{
		Name: evil, Token: token.Status.Token, Kube: cfg.Host, Console: console, Client: &http.Client{Transport: transport},
		Own: []string{"127.0.0.1:9009", "127.0.0.1:9091", "127.0.0.1:9093", "127.0.0.1:9101", "127.0.0.1:9107", "0.0.0.0:9009", "[::1]:9093"},
	}
	t.Cleanup(func() {
		tn.Close()
		// The later parts of the story count objects and sites of the demo's tenant only,
		// but evil's rules would go on.
		bg := context.Background()
		for _, r := range []string{"alertrules", "alertroutes", "logrules"} {
			if err := dyn.Resource(gvr(r)).Namespace(evil+"-system").DeleteCollection(bg, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
				t.Errorf("delete %s: %v", r, err)
			}
		}
	})
	return tn
}

func joinEvilSite(t *testing.T, f *fleet) *hostile.Site {
	t.Helper()
	a, server := joinSite(t, f, evil)
	s := &hostile.Site{Identity: a, Server: server}
	t.Cleanup(s.Close)
	return s
}
