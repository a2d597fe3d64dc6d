package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
)

// golden holds a text to what testdata has.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: -update writes it anew. Have:\n%s\nwant:\n%s", path, got, want)
	}
}

var drawnAt = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func drawn() owned {
	at := func(ago time.Duration) *metav1.Time { t := metav1.NewTime(drawnAt.Add(-ago)); return &t }
	return owned{"acme", "shop", &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-shop", Name: "web-1a2b3c4d"},
		Spec: v1alpha1.RolloutSpec{VirtualSites: []string{"shared/all-eu"}, Changes: []v1alpha1.RolloutChange{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", Images: map[string]string{"web": "shop/web:2"}}}},
		Status: v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutProgressing, Message: "wave 2 of 3 soaks", Progress: "2/3", Wave: 2, WaveCount: 3, Next: "the soak of wave 2 ends", NextAt: at(-9 * time.Minute),
			Waves: []v1alpha1.RolloutWaveStatus{
				{Name: "1%", Number: 1, Sites: v1alpha1.RolloutCounts{Total: 3, Updated: 3, Passed: 3}, StartedAt: at(time.Hour), PassedAt: at(30 * time.Minute)},
				{Name: "10%", Number: 2, Sites: v1alpha1.RolloutCounts{Total: 30, Updated: 20, Updating: 4, Failed: 1, Offline: 5}, StartedAt: at(10 * time.Minute)},
				{Name: "the rest", Number: 3, Sites: v1alpha1.RolloutCounts{Total: 267, Waiting: 267}}},
			Sites: v1alpha1.RolloutCounts{Total: 300, Updated: 23, Updating: 4, Failed: 1, Offline: 5, Waiting: 267},
			Gates: []v1alpha1.GateReading{
				{Name: "ready", Verdict: v1alpha1.GatePass, Text: "20 of 25 sites that are online are ready"},
				{Name: "peers", Verdict: v1alpha1.GateWait, Text: "Site -0.5 points against the peers", Value: "-0.5", Limit: "-10", Sites: 20, OfSites: 25, Seconds: 360, OfSeconds: 900, Worst: []string{"paris-07"}},
				{Name: "errors", Verdict: v1alpha1.GateUnknown, Text: "the query has no value"},
				{Name: "alerts", Verdict: v1alpha1.GateFail, Text: "1 critical alert that did not fire before: DiskFull", Worst: []string{"lyon-02"}}},
			Decisions: []v1alpha1.RolloutDecision{{At: *at(30 * time.Minute), What: "WavePassed", Text: "wave 1 passed"}, {At: *at(10 * time.Minute), What: "WaveStarted", Text: "wave 2 began with 30 sites", By: "alice"}}}}}
}

func TestPictureOfARollout(t *testing.T) {
	time.Local = time.UTC // the picture has the reader's clock
	for name, s := range map[string]style{"rollout-plain.txt": plainStyle, "rollout-terminal.txt": fancyStyle} {
		var b bytes.Buffer
		drawRollout(&b, drawn(), s, drawnAt)
		golden(t, name, b.String())
	}
	var b bytes.Buffer
	state := &v1alpha1.RolloutStateSpec{Policy: "careful", By: "alice", Sites: "paris-07 lyon-02 rome-01", Steps: "ofw"}
	explainRollout(&b, drawn(), state, siteSteps(state), plainStyle, drawnAt)
	golden(t, "rollout-explain.txt", b.String())

	fresh := owned{"acme", "shop", &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Name: "web-2"}}}
	b.Reset()
	drawRollout(&b, fresh, plainStyle, drawnAt)
	if !strings.Contains(b.String(), "Queued") || !strings.Contains(b.String(), "have not begun it") {
		t.Error(b.String())
	}
}

// What there is of a kind is seen in a bar, and a bar is as wide as any other.
func TestBars(t *testing.T) {
	for _, c := range []v1alpha1.RolloutCounts{{}, {Total: 1, Updated: 1}, {Total: 3000, Updated: 2998, Updating: 1, Failed: 1}, {Total: 10, Failed: 10}, {Total: 5, Updating: 5, Failed: 5, Updated: 5}, {Total: 3000, Updated: 1}} {
		bar := plainStyle.bar(c)
		if len(bar) != barWidth {
			t.Errorf("%+v: %q has %d cells, want %d", c, bar, len(bar), barWidth)
		}
		if c.Updated > 0 && c.Updated+c.Failed+c.Updating <= c.Total && !strings.Contains(bar, "#") || c.Failed > 0 && !strings.Contains(bar, "!") {
			t.Errorf("%+v: %q", c, bar)
		}
	}
}

// A status has 50 waves at most, those around the current one.
func TestManyWavesAreShownAroundTheCurrentOne(t *testing.T) {
	for _, c := range []struct{ first, last, current, count, gaps int32 }{{1, 100, 50, 100, 2}, {76, 125, 100, 200, 4}, {151, 200, 190, 200, 3}} {
		st := &v1alpha1.RolloutStatus{Wave: c.current, WaveCount: c.count}
		for n := c.first; n <= c.last; n++ {
			st.Waves = append(st.Waves, v1alpha1.RolloutWaveStatus{Number: n})
		}
		var shown []int32
		gaps := int32(0)
		for w := range shownWaves(st) {
			if w == nil {
				gaps++
			} else {
				shown = append(shown, w.Number)
			}
		}
		if len(shown) != 15 || gaps != c.gaps || shown[0] != c.first || !slices.Contains(shown, c.current) || shown[14] != c.last {
			t.Errorf("%+v: %v with %d gaps", c, shown, gaps)
		}
	}
}

// A file gets a line for each decision and each change, once.
func TestPlainWatch(t *testing.T) {
	var b bytes.Buffer
	v := &watchView{w: &b, style: plainStyle}
	r := drawn()
	v.show(r, drawnAt)
	first := b.String()
	v.show(r, drawnAt.Add(time.Minute))
	if b.String() != first || strings.Count(first, "\n") != 3 || !strings.Contains(first, "wave 2 began") || !strings.Contains(first, "gate alerts fail") {
		t.Errorf("%s", b.String())
	}
	r.Status.Phase, r.Status.Message = v1alpha1.RolloutRolledBack, "peers failed"
	if err := watchEnd(r); CodeOf(err) != 1 || !strings.Contains(err.Error(), "peers failed") {
		t.Error(err)
	}
	r.Status.Phase = v1alpha1.RolloutCompleted
	if err := watchEnd(r); err != nil {
		t.Error(err)
	}
}

// A rollout is followed by what the API server says of it, without a question; by questions
// where it says nothing.
func TestRolloutIsFollowed(t *testing.T) {
	for name, says := range map[string]bool{"it says what changes": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			ro := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "demo-shop", Name: "web-1"}, Status: v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutProgressing}}
			asked, watched := 0, make(chan struct{}, 1000)
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(ro).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					asked++
					return c.Get(ctx, key, o, opts...)
				},
				Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
					defer func() { watched <- struct{}{} }()
					if !says {
						return nil, errors.New("the line is down")
					}
					return c.Watch(ctx, list, opts...)
				},
			}).Build()
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(ro), ro); err != nil {
				t.Fatal(err)
			}
			asked = 0
			every := time.Hour
			if !says {
				every = time.Millisecond
			}
			var out bytes.Buffer
			ended := make(chan error, 1)
			own := owned{tenant: "demo", namespace: "shop", Rollout: ro.DeepCopy()}
			go func() {
				ended <- followRollout(t.Context(), c, c, own, &watchView{w: &out, style: plainStyle}, every)
			}()
			<-watched
			ro.Status.Phase = v1alpha1.RolloutCompleted
			if err := c.Update(t.Context(), ro); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil || (asked == 0) != says {
				t.Errorf("%v, asked %d times: %s", err, asked, out.String())
			}
		})
	}
}

func TestStartFlags(t *testing.T) {
	for typed, want := range map[string]string{"1%": "percent 1", "100%": "percent 100", "5": "count 5", "shared/canary": "vs shared/canary", "canary": "vs canary", "model=x": "label model=x", "7eleven/a": "vs 7eleven/a"} {
		w, err := parseWave(typed)
		got := "vs " + w.VirtualSite
		switch {
		case w.Percent != nil:
			got = "percent " + strings.TrimSuffix(typed, "%")
		case w.Count != nil:
			got = "count " + typed
		case w.Label != "":
			got = "label " + w.Label
		}
		if err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", typed, got, err, want)
		}
	}
	for _, typed := range []string{"0%", "101%", "0", "x%", ""} {
		if _, err := parseWave(typed); err == nil {
			t.Errorf("%q is no wave", typed)
		}
	}
	ok := func() startFlags { return startFlags{strategy: "canary", onFailure: "rollback", soak: time.Minute} }
	for want, change := range map[string]func(*startFlags){
		"--strategy":     func(f *startFlags) { f.strategy = "big-bang" },
		"--on-failure":   func(f *startFlags) { f.onFailure = "cry" },
		"--waves":        func(f *startFlags) { f.strategy, f.waves = "rolling", []string{"1%"} },
		"--group":        func(f *startFlags) { f.group = "5" },
		"--blue":         func(f *startFlags) { f.strategy = "bluegreen" },
		"--approve-wave": func(f *startFlags) { f.approve = []int{9} },
		"--soak":         func(f *startFlags) { f.soak = -1 },
		"--gate":         func(f *startFlags) { f.gates.short = []string{"mood:5"} },
		"--gates":        func(f *startFlags) { f.gates.file = "testdata/none.yaml" },
	} {
		f := ok()
		change(&f)
		if err := f.plan(&v1alpha1.RolloutSpec{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	f := ok()
	f.approve = []int{2}
	var spec v1alpha1.RolloutSpec
	if err := f.plan(&spec); err != nil || len(spec.Strategy.Waves) != 4 || !spec.Strategy.Waves[1].Approval || spec.OnFailure != v1alpha1.OnFailureRollBackAll {
		t.Errorf("%+v, %v", spec, err)
	}
}

// Of a policy's plan a flag replaces what it is about, and nothing else.
func TestFlagsAndThePolicy(t *testing.T) {
	plan := v1alpha1.RolloutPlan{
		Strategy: v1alpha1.RolloutStrategy{Type: v1alpha1.StrategyRolling, Group: "5", MaxInFlight: 3, SpreadBy: []string{"region"}}, Gates: []v1alpha1.RolloutGate{{Name: "own"}},
		Soak: metav1.Duration{Duration: time.Hour}, Settle: &metav1.Duration{Duration: time.Minute}, OnFailure: v1alpha1.OnFailurePause,
		Budget:  v1alpha1.RolloutBudget{MaxFailed: "1", MaxFailedInWave: "2", ReadyWithin: metav1.Duration{Duration: time.Second}},
		Windows: []v1alpha1.RolloutWindow{{From: "22:00", To: "04:00"}}, Freezes: []v1alpha1.RolloutFreeze{{From: "2026-12-20", To: "2026-12-31"}},
	}
	asTyped := func() v1alpha1.RolloutPlan {
		f := startFlags{strategy: "canary", waves: []string{"7%"}, inFlight: 9, soak: 2 * time.Hour, settle: 3 * time.Hour, onFailure: "rollback", maxFailed: "50%", readyWithin: 4 * time.Hour}
		f.gates.short = []string{"ready"}
		var spec v1alpha1.RolloutSpec
		if err := f.plan(&spec); err != nil {
			t.Fatal(err)
		}
		return spec.RolloutPlan
	}
	for flag, change := range map[string]func(out *v1alpha1.RolloutPlan, typed v1alpha1.RolloutPlan){
		"":           func(*v1alpha1.RolloutPlan, v1alpha1.RolloutPlan) {},
		"soak":       func(out *v1alpha1.RolloutPlan, typed v1alpha1.RolloutPlan) { out.Soak = typed.Soak },
		"settle":     func(out *v1alpha1.RolloutPlan, typed v1alpha1.RolloutPlan) { out.Settle = typed.Settle },
		"gate":       func(out *v1alpha1.RolloutPlan, typed v1alpha1.RolloutPlan) { out.Gates = typed.Gates },
		"gates":      func(out *v1alpha1.RolloutPlan, typed v1alpha1.RolloutPlan) { out.Gates = typed.Gates },
		"on-failure": func(out *v1alpha1.RolloutPlan, typed v1alpha1.RolloutPlan) { out.OnFailure = typed.OnFailure },
		"max-failed": func(out *v1alpha1.RolloutPlan, typed v1alpha1.RolloutPlan) { out.Budget.MaxFailed = "50%" },
		"ready-within": func(out *v1alpha1.RolloutPlan, typed v1alpha1.RolloutPlan) {
			out.Budget.ReadyWithin = typed.Budget.ReadyWithin
		},
		"max-in-flight": func(out *v1alpha1.RolloutPlan, _ v1alpha1.RolloutPlan) { out.Strategy.MaxInFlight = 9 },
		"waves": func(out *v1alpha1.RolloutPlan, typed v1alpha1.RolloutPlan) {
			out.Strategy = typed.Strategy
			out.Strategy.MaxInFlight, out.Strategy.SpreadBy = 3, []string{"region"}
		},
	} {
		typed, want := asTyped(), plan
		change(&want, typed)
		got := v1alpha1.RolloutSpec{RolloutPlan: typed}
		followPlan(&got, &plan, func(name string) bool { return name == flag })
		if !reflect.DeepEqual(got.RolloutPlan, want) {
			t.Errorf("--%s: %+v, want %+v", flag, got.RolloutPlan, want)
		}
	}
}

func TestWhatBecomesOfAnObject(t *testing.T) {
	deployment := offered.NewSet().Kinds()[0]
	o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "web"}, "spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "web"}}}}}}}
	if ch, err := (&startFlags{images: []string{"shop/web:2"}}).change(deployment, o); err != nil || ch.Images["web"] != "shop/web:2" || ch.APIVersion != "apps/v1" {
		t.Errorf("the only container needs no name: %+v, %v", ch, err)
	}
	if _, err := (&startFlags{images: []string{"api=x"}}).change(deployment, o); err == nil || !strings.Contains(err.Error(), "it has web") {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "f.yaml")
	write := func(s string) {
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("kind: Deployment\nspec: {replicas: 3, template: {spec: {containers: []}}}\n")
	if ch, err := (&startFlags{file: file}).change(deployment, o); err != nil || string(ch.Content.Raw) != `{"spec":{"containers":[]}}` {
		t.Errorf("%+v, %v: want the template alone", ch, err)
	}
	for _, s := range []string{"kind: Service\nspec: {}\n", "kind: Deployment\nspec: {}\n", "a: [", ""} {
		write(s)
		if _, err := (&startFlags{file: file}).change(deployment, o); err == nil || !strings.Contains(err.Error(), "--file") {
			t.Errorf("%q: %v", s, err)
		}
	}
	if _, err := (&startFlags{revision: 2}).change(offered.Kind{Kind: "ConfigMap"}, o); err == nil {
		t.Error("a ConfigMap has revisions")
	}
}

// Of several objects each gets what is its own, and nothing that was typed is lost.
func TestSeveralObjects(t *testing.T) {
	deployment := offered.NewSet().Kinds()[0]
	object := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": name}}}}}}}
	}
	f := &startFlags{images: []string{"web=web:2", "api=api:2"}, several: true, used: map[string]bool{}}
	for _, name := range []string{"web", "api"} {
		if ch, err := f.change(deployment, object(name)); err != nil || len(ch.Images) != 1 || ch.Images[name] != name+":2" {
			t.Errorf("%s: %+v, %v", name, ch, err)
		}
	}
	if len(f.used) != 2 {
		t.Errorf("%v", f.used)
	}
	if _, err := f.change(deployment, object("db")); err == nil || !strings.Contains(err.Error(), "it has db") {
		t.Error(err)
	}
	f = &startFlags{file: filepath.Join(t.TempDir(), "f.yaml"), several: true}
	if err := os.WriteFile(f.file, []byte("kind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {hostname: a}}}\n---\nkind: Deployment\nmetadata: {name: api}\nspec: {template: {spec: {hostname: b}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if ch, err := f.change(deployment, object("api")); err != nil || string(ch.Content.Raw) != `{"spec":{"hostname":"b"}}` {
		t.Errorf("%+v, %v", ch, err)
	}
	if _, err := f.change(deployment, object("db")); err == nil || !strings.Contains(err.Error(), "has no Deployment db") {
		t.Error(err)
	}
}

// A version goes into the policy of its component: the one of its name, the only one, or a
// new one without a version, which is what a rollout puts back to.
func TestSoftwareTarget(t *testing.T) {
	policy := func(name, version string) v1alpha1.SoftwarePolicy {
		return v1alpha1.SoftwarePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: name}, Spec: v1alpha1.SoftwarePolicySpec{Component: "agent", Version: version, Priority: 7}}
	}
	for want, list := range map[string][]v1alpha1.SoftwarePolicy{
		"agent fresh": nil, "stores": {policy("stores", "1.4.1")}, "agent": {policy("stores", "1.4.1"), policy("agent", "")},
		"error named agent": {policy("a", ""), policy("b", "")}, "error already": {policy("agent", "1.4.2")},
	} {
		x, err := softwareTarget(list, "acme", "agent", "1.4.2")
		if text, bad := strings.CutPrefix(want, "error "); bad {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v", want, err)
			}
			continue
		}
		name, fresh := strings.CutSuffix(want, " fresh")
		if err != nil || x.change.Name != name || (x.fresh != nil) != fresh || fresh && (x.fresh.Spec.Version != "" || x.fresh.Namespace != "acme-system") {
			t.Fatalf("%s: %+v, %v", want, x, err)
		}
		if c := string(x.change.Content.Raw); !strings.Contains(c, `"version":"1.4.2"`) || !strings.Contains(c, `"component":"agent"`) || !fresh && !strings.Contains(c, `"priority":7`) {
			t.Errorf("%s: %s", want, c)
		}
	}
}

// Sites are tried again that failed, and a name that is mistyped is none of them.
func TestWhichSitesAreTriedAgain(t *testing.T) {
	r := owned{"demo", "shop", &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "demo-shop", Name: "web-1"}}}
	state := &v1alpha1.RolloutState{ObjectMeta: r.ObjectMeta, Spec: v1alpha1.RolloutStateSpec{Sites: "paris lyon nice", Steps: "pff"}}
	for _, x := range []struct {
		named  []string
		want   string
		states []client.Object
	}{
		{nil, "lyon nice", []client.Object{state}},
		{[]string{"nice"}, "nice", []client.Object{state}},
		{[]string{"nice", "nicee"}, "--site nicee: rollout shop/web-1 has no such site", []client.Object{state}},
		{nil, "no site has failed", nil},
	} {
		names, err := retried(t.Context(), fakeClient(t, x.states...), r, x.named)
		said := strings.Join(names, " ")
		if err != nil {
			said = err.Error()
		}
		if !strings.HasPrefix(said, x.want) {
			t.Errorf("--site %v: %q, want %q", x.named, said, x.want)
		}
	}
}

// What one that paused by itself waits for is said with the command for it.
func TestWhatHelpsARolloutThatPausedByItself(t *testing.T) {
	r := drawn()
	r.Status.Phase = v1alpha1.RolloutPaused
	if got := strings.Join(whatToDo(r, nil), "\n"); !strings.Contains(got, "muster rollout resume shop/web-1a2b3c4d") || !strings.Contains(got, "muster rollout promote shop/web-1a2b3c4d") {
		t.Error(got)
	}
}
