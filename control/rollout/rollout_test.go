package rollout_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/controllers"
	"muster.dev/muster/control/rollout"
	"muster.dev/muster/control/rollout/decide"
	"muster.dev/muster/control/rollout/hold"
	"muster.dev/muster/control/rollout/readings"
	"muster.dev/muster/control/vk8s/sum"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubeapi"
)

const sitesOfAWorld = 8

// world is a tenant with sites that do as they are told, on the real API server: a site
// gets the content that the state says, and is ready with it unless it is bad.
type world struct {
	t      *testing.T
	cfg    *rest.Config
	tenant string
	client client.Client

	mu sync.Mutex
	// had are the images that each site ever had.
	had    map[string]map[string]bool
	events []string
	drop   map[string]float64 // image → points that its sites lose
	space  string             // the namespace of its rollouts; "": the tenant's shop
	most   int                // of a tenant's rollouts in line
	// beside is another tenant's, whose gates nobody can read before hang is closed.
	beside  *world
	hang    chan struct{}
	hanging atomic.Int32
	// disturb is done before each write of a rollout's status; nil: nothing.
	disturb func()
	metrics *prometheus.Registry // of the control that was started last
	// asked is the last question about sites that have changed, badly one that has nobody to
	// compare them with or does not say since when.
	asked, badly atomic.Pointer[readings.Question]
	// unknown are objects of which nobody can say what sites have.
	unknown atomic.Pointer[[]string]
}

func TestMain(m *testing.M) {
	crlog.SetLogger(logr.Discard())
	m.Run()
}

func newWorld(t *testing.T, tenant string) *world {
	t.Helper()
	w := &world{t: t, cfg: kubeapi.Start(t), tenant: tenant, had: map[string]map[string]bool{}, drop: map[string]float64{}}
	scheme := runtime.NewScheme()
	if err := controllers.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := sum.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.client, err = client.New(w.cfg, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	w.create(&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: tenant}})
	for _, ns := range []string{"system", "shared", "shop"} {
		w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant + "-" + ns, Labels: map[string]string{"muster.dev/tenant": tenant}}})
	}
	for i := range sitesOfAWorld {
		w.create(&v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%d", i), Namespace: tenant + "-system", Labels: map[string]string{"in": "all", "n": fmt.Sprint(i)}}, Spec: v1alpha1.SiteSpec{Approved: true}})
	}
	w.create(&v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Name: "all", Namespace: tenant + "-shared"}, Spec: v1alpha1.VirtualSiteSpec{SiteSelector: metav1.LabelSelector{MatchLabels: map[string]string{"in": "all"}}}})
	w.create(&v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Name: "first", Namespace: tenant + "-shared"}, Spec: v1alpha1.VirtualSiteSpec{SiteSelector: metav1.LabelSelector{MatchLabels: map[string]string{"n": "0"}}}})
	return w
}

func (w *world) create(objs ...client.Object) {
	w.t.Helper()
	for _, o := range objs {
		testkit.Eventually(w.t, "create "+o.GetName(), func() error { return w.client.Create(context.Background(), o) })
	}
}

// deployment makes one with a first image.
func (w *world) deployment(name, image string) {
	w.t.Helper()
	labels := map[string]string{"app": name}
	w.create(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.tenant + "-shop", Annotations: map[string]string{"ves.io/virtual-sites": "shared/all"}}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}}}})
}

func (w *world) image(name string) string {
	w.t.Helper()
	var d appsv1.Deployment
	if err := w.client.Get(context.Background(), client.ObjectKey{Namespace: w.tenant + "-shop", Name: name}, &d); err != nil {
		w.t.Fatal(err)
	}
	return d.Spec.Template.Spec.Containers[0].Image
}

// rollout makes one that sets an image.
func (w *world) rollout(name, object, image string, change ...func(*v1alpha1.Rollout)) {
	w.t.Helper()
	r := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.tenant + "-shop"}, Spec: v1alpha1.RolloutSpec{
		Changes: []v1alpha1.RolloutChange{{APIVersion: "apps/v1", Kind: "Deployment", Name: object, Images: map[string]string{"c": image}}}, RolloutPlan: quick()}}
	for _, fn := range change {
		fn(r)
	}
	w.create(r)
}

// quick is a plan that does not soak: one site, then all.
func quick() v1alpha1.RolloutPlan {
	one, all := int32(1), int32(100)
	return v1alpha1.RolloutPlan{Strategy: v1alpha1.RolloutStrategy{Type: v1alpha1.StrategyCanary, Waves: []v1alpha1.RolloutWave{{Count: &one}, {Percent: &all}}},
		Gates: []v1alpha1.RolloutGate{{Name: "ready", Ready: &v1alpha1.GateReady{Percent: 100}}}, Soak: metav1.Duration{Duration: time.Second},
		Budget: v1alpha1.RolloutBudget{MaxFailed: "0", MaxFailedInWave: "0", ReadyWithin: metav1.Duration{Duration: time.Minute}}, OnFailure: v1alpha1.OnFailureRollBackAll}
}

func (w *world) in() string { return cmp.Or(w.space, w.tenant+"-shop") }

func (w *world) get(name string) (*v1alpha1.Rollout, error) {
	var r v1alpha1.Rollout
	err := w.client.Get(context.Background(), client.ObjectKey{Namespace: w.in(), Name: name}, &r)
	return &r, err
}

func (w *world) state(name string) (*v1alpha1.RolloutState, error) {
	var st v1alpha1.RolloutState
	err := w.client.Get(context.Background(), client.ObjectKey{Namespace: w.in(), Name: name}, &st)
	return &st, err
}

// becomes waits for a phase, and a message with these words.
func (w *world) becomes(name string, phase v1alpha1.RolloutPhase, words ...string) *v1alpha1.Rollout {
	w.t.Helper()
	var r *v1alpha1.Rollout
	testkit.Eventually(w.t, fmt.Sprintf("rollout %s is %s", name, phase), func() (err error) {
		if r, err = w.get(name); err != nil {
			return err
		}
		if r.Status.Phase != phase || slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(r.Status.Message, word) }) {
			return fmt.Errorf("%s: %s, %+v, %+v", r.Status.Phase, r.Status.Message, r.Status.Sites, r.Status.Gates)
		}
		return nil
	})
	return r
}

// Event implements rollout.Recorder.
func (w *world) Event(o runtime.Object, kind, reason, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, fmt.Sprintf("%T %s %s %s", o, o.(client.Object).GetName(), reason, message))
}

func (w *world) told(words ...string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.events, func(e string) bool {
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(e, word) })
	})
}

// Of implements rollout.Sites.
func (w *world) Of(kind offered.Kind, namespace, name string, st *v1alpha1.RolloutState) ([]rollout.Site, bool) {
	if w.beside != nil && namespace == w.beside.in() {
		return w.beside.Of(kind, namespace, name, st)
	}
	if namespace != w.in() || name == "nowhere" {
		return nil, true
	}
	if names := w.unknown.Load(); names != nil && slices.Contains(*names, name) {
		return nil, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []rollout.Site
	for i := range sitesOfAWorld {
		s := rollout.Site{Name: fmt.Sprintf("s%d", i), State: decide.Ready}
		if st != nil && st.Spec.Held {
			image := string(hold.Find(&st.Spec, kind, name).Contents[st.Spec.Assigned()[s.Name]].Raw)
			if w.had[s.Name] == nil {
				w.had[s.Name] = map[string]bool{}
			}
			for _, word := range strings.Split(image, `"`) {
				if strings.HasPrefix(word, name+":") {
					w.had[s.Name][word] = true
				}
			}
			if _, version, ok := strings.Cut(image, `"version":"`); ok {
				version, _, _ = strings.Cut(version, `"`)
				w.had[s.Name][name+":"+version] = true
			}
			if strings.Contains(image, ":bad") || strings.Contains(image, "-bad") {
				s.State, s.Why = decide.Failed, "the container exits with 1"
			}
		}
		out = append(out, s)
	}
	return out, true
}

// sitesThatHad are those that ever had an image.
func (w *world) sitesThatHad(image string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, site := range slices.Sorted(maps.Keys(w.had)) {
		if w.had[site][image] {
			out = append(out, site)
		}
	}
	return out
}

// Read implements readings.Reader: all sites are well.
func (w *world) Read(ctx context.Context, q readings.Question) readings.Answer {
	if w.beside != nil && q.Tenant == w.beside.tenant {
		w.hanging.Add(1)
		select {
		case <-w.hang:
		case <-ctx.Done():
		}
	}
	if len(q.Changed) > 0 {
		w.asked.Store(&q)
	}
	if len(q.Changed) > 0 && len(q.Changed) < sitesOfAWorld && len(q.Peers) == 0 || len(q.Changed) > 0 && q.Since.IsZero() {
		w.badly.Store(&q)
	}
	a := readings.Answer{Sites: map[string]readings.Site{}}
	for _, s := range slices.Concat(q.Changed, q.Peers) {
		a.Sites[s] = readings.Site{Measures: map[string]float64{"Site": 95}, AlertsKnown: true, At: time.Now()}
	}
	return a
}

// Before implements readings.Reader.
func (w *world) Before(context.Context, string, []readings.Subject, time.Time, time.Time) map[string]map[string]float64 {
	return nil
}

// control starts a controller; stop ends it and waits until it has.
func (w *world) control() (stop func()) {
	w.t.Helper()
	stop, _ = w.controlThat(0, false)
	return stop
}

// controlThat starts one that dies at its nth write: before it is sent, or after it was,
// and before it knows. 0: it lives.
func (w *world) controlThat(nth int, sent bool) (stop func(), died <-chan struct{}) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cfg := kubeapi.Server(w.t).ConfigOf("muster:control")
	cfg.QPS = -1
	life := &mortal{left: nth, sent: sent, die: cancel}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return testkit.RoundTripper(func(req *http.Request) (*http.Response, error) { return life.do(next, req) })
	})
	if w.disturb != nil {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return testkit.RoundTripper(func(req *http.Request) (*http.Response, error) {
				if req.Method == http.MethodPut && strings.Contains(req.URL.Path, "/rollouts/") && strings.HasSuffix(req.URL.Path, "/status") {
					w.disturb()
				}
				return next.RoundTrip(req)
			})
		})
	}
	w.metrics = prometheus.NewRegistry()
	scheme := w.client.Scheme()
	own, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		w.t.Fatal(err)
	}
	ca, err := cache.New(cfg, cache.Options{Scheme: scheme})
	if err != nil {
		w.t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(w.t.Output(), nil))
	}
	inv, err := inventory.New(inventory.Options{Cache: ca, Settle: 20 * time.Millisecond, Policies: []inventory.PolicyKind{inventory.CollectionPolicies(), inventory.HealthPolicies(), inventory.SoftwarePolicies(), inventory.HostConfigurations()}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.t.Fatal(err)
	}
	c := rollout.New(rollout.Options{Client: own, Cache: ca, Dynamic: objects, Inventory: inv, Offered: func() *offered.Set { return offered.NewSet() }, Sites: w, Readings: w, Recorder: w,
		Online: func(string, string) bool { return true }, Logger: log, Registerer: w.metrics, Tick: 100 * time.Millisecond, Most: w.most})
	var wg sync.WaitGroup
	wg.Go(func() { _ = ca.Start(ctx) })
	wg.Go(func() { _ = inv.Run(ctx) })
	wg.Go(func() { _ = c.Run(ctx) })
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); wg.Wait() }) }
	w.t.Cleanup(stop)
	return stop, ctx.Done()
}

// mortal is all that a control which dies at a write has to do with the API server, through
// whichever of its clients.
type mortal struct {
	die func()

	mu   sync.Mutex
	left int
	sent bool
}

func (m *mortal) do(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet {
		return next.RoundTrip(req)
	}
	m.mu.Lock() // one write after the other: none comes after the last
	defer m.mu.Unlock()
	if m.left < 0 {
		return nil, errors.New("dead")
	}
	if m.left > 0 {
		if m.left--; m.left == 0 {
			m.left = -1
			defer m.die()
			if m.sent {
				if resp, err := next.RoundTrip(req); err == nil {
					_ = resp.Body.Close()
				}
			}
			return nil, errors.New("dead")
		}
	}
	return next.RoundTrip(req)
}
