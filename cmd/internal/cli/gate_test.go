package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"muster.dev/muster/control/api/v1alpha1"
)

func TestGatesOnTheCommandLine(t *testing.T) {
	for typed, want := range map[string]v1alpha1.RolloutGate{
		"ready":                   {Name: "ready", Ready: &v1alpha1.GateReady{Percent: 100}},
		"ready:90":                {Name: "ready", Ready: &v1alpha1.GateReady{Percent: 90}},
		"score:75":                {Name: "score", Score: &v1alpha1.GateScore{Dimension: "Site", Minimum: 75}},
		"unhealthy:0":             {Name: "unhealthy", Unhealthy: &v1alpha1.GateUnhealthy{}},
		"before":                  {Name: "before", Before: &v1alpha1.GateChange{MaxDrop: 10}},
		"peers:5":                 {Name: "peers", Peers: &v1alpha1.GateChange{MaxDrop: 5}},
		"alerts:critical,warning": {Name: "alerts", Alerts: &v1alpha1.GateAlerts{Severities: []string{"critical", "warning"}}},
	} {
		if got, err := parseGate(typed); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", typed, got, err)
		}
	}
	for _, typed := range []string{"", "mood", "score", "score:high", "score:101", "unhealthy", "alerts", "alerts:", "ready:x", "peers:-1"} {
		if _, err := parseGate(typed); err == nil || !strings.Contains(err.Error(), "--gates FILE") {
			t.Errorf("%q: %v", typed, err)
		}
	}
}

func TestGatesInAFile(t *testing.T) {
	for _, text := range []string{"- {name: peers, peers: {maxDrop: 5}}\n", "gates:\n- {name: peers, peers: {maxDrop: 5}}\n", `[{"name":"peers","peers":{"maxDrop":5}}]`} {
		if got, err := parseGates([]byte(text)); err != nil || len(got) != 1 || got[0].Peers.MaxDrop != 5 {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "gates: []", "- {name: x, mood: {}}", "x: [", "just words"} {
		if got, err := parseGates([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func FuzzGates(f *testing.F) {
	f.Add("- {name: peers, peers: {maxDrop: 5}}", "alerts:critical")
	f.Fuzz(func(t *testing.T, file, short string) {
		if got, err := parseGates([]byte(file)); err == nil && len(got) == 0 {
			t.Error("no gates and no error")
		}
		if got, err := parseGate(short); err == nil && got.Name == "" {
			t.Error("a gate without a name")
		}
	})
}

func TestWhatAGateCheckAsks(t *testing.T) {
	ns, spec, err := (&checkFlags{virtualSite: "canary", peers: "eu/all", since: 10 * time.Minute}).spec(drawnAt)
	if err != nil || ns != "shared" || spec.VirtualSite != "shared/canary" || spec.Peers != "eu/all" || !spec.Since.Time.Equal(drawnAt.Add(-10*time.Minute)) {
		t.Errorf("%s, %+v, %v", ns, spec, err)
	}
	if ns, _, err := (&checkFlags{virtualSite: "shared/canary", namespace: "shop"}).spec(drawnAt); ns != "shop" {
		t.Errorf("%s, %v", ns, err)
	}
	for _, f := range []checkFlags{{}, {virtualSite: "a/b", sites: []string{"x"}}, {sites: []string{"x"}}, {virtualSite: "a/b", since: -1}} {
		if _, _, err := f.spec(drawnAt); err == nil {
			t.Errorf("%+v is taken", f)
		}
	}
}

// What the sample for Jenkins and the guide have people type is taken.
func TestGateChecksOfTheSamples(t *testing.T) {
	for _, file := range []string{"../../../deploy/samples/gates/Jenkinsfile", "../../../docs/rollouts.md"} {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		typed := regexp.MustCompile(`muster gate check (--[^'&\n]+)`).FindAllStringSubmatch(string(raw), -1)
		if len(typed) == 0 {
			t.Errorf("%s has no check", file)
		}
		for _, m := range typed {
			var f checkFlags
			cmd := gateCheckCmd(&Globals{})
			err := cmd.ParseFlags(strings.Fields(m[1]))
			if err == nil {
				f.virtualSite = cmd.Flag("virtual-site").Value.String()
				_, _, err = f.spec(drawnAt)
			}
			if err != nil || cmd.Flags().NArg() > 0 {
				t.Errorf("%s: %s: %v, %q", file, m[0], err, cmd.Flags().Args())
			}
		}
	}
}

// A control plane that is away for a while is asked again while --wait lasts; what it refuses is not.
func TestAWaitOutlastsTheControlPlane(t *testing.T) {
	away := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	busy := apierrors.NewServiceUnavailable("starting")
	no := apierrors.NewForbidden(schema.GroupResource{Group: "muster.dev", Resource: "gatechecks"}, "", errors.New("no"))
	for name, c := range map[string]struct {
		wait  time.Duration
		fails []error // of the first checks
		asked int
		err   error
		said  int // lines of progress
	}{
		"away, then an answer":     {time.Hour, []error{away, away, busy, nil}, 4, nil, 2},
		"refused":                  {time.Hour, []error{away, no}, 2, no, 1},
		"no time to ask again":     {0, []error{away}, 1, away, 0},
		"an answer, and no time":   {0, []error{nil}, 1, nil, 0},
		"too many requests":        {time.Hour, []error{apierrors.NewTooManyRequests("later", 1), nil}, 2, nil, 1},
		"a check that is lost":     {time.Hour, []error{apierrors.NewTimeoutError("lost", 1), nil}, 2, nil, 1},
		"a wrong check is refused": {time.Hour, []error{apierrors.NewBadRequest("no gates")}, 1, apierrors.NewBadRequest("no gates"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			cl := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				if asked++; asked > len(c.fails) {
					t.Fatal("asks too often")
				}
				o.(*v1alpha1.GateCheck).Status = v1alpha1.GateCheckStatus{Verdict: v1alpha1.GatePass}
				return c.fails[asked-1]
			}})
			var progress strings.Builder
			check, err := waitForVerdict(t.Context(), cl, &v1alpha1.GateCheck{}, c.wait, time.Millisecond, &progress)
			if asked != c.asked || (err == nil) != (c.err == nil) || err != nil && !strings.Contains(err.Error(), c.err.Error()) || strings.Count(progress.String(), "no answer: ") != c.said {
				t.Errorf("asked %d times, %v: %s", asked, err, progress.String())
			}
			if err == nil && check.Status.Verdict != v1alpha1.GatePass {
				t.Errorf("%+v", check.Status)
			}
		})
	}
}

// Whatever keeps a check from being asked has an exit code of its own: a script must not
// take it for a verdict.
func TestErrorsAreNoVerdict(t *testing.T) {
	g := &Globals{DataDir: t.TempDir()}
	for _, args := range [][]string{{"--virtual-site", "a/b"}, {"--bogus"}, {"--since", "soon"}, {"stray"}, {}, {"--virtual-site", "a/b", "-o", "xml"}} {
		cmd := gateCheckCmd(g)
		g.explain(cmd)
		cmd.SetArgs(args)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		t.Setenv("KUBECONFIG", "")
		t.Setenv("HOME", t.TempDir())
		if err := cmd.Execute(); CodeOf(err) != exitError || err.Error() == "" {
			t.Errorf("%q: exit code %d, %v", args, CodeOf(err), err)
		}
	}
	if err := g.wayOut(orError(apierrors.NewUnauthorized("no"))); CodeOf(err) != exitError {
		t.Errorf("exit code %d after the way out", CodeOf(err))
	}
	// What RBAC refuses takes another role; what admission refuses says itself what to do.
	rollouts := schema.GroupResource{Group: "muster.dev", Resource: "rollouts"}
	role := apierrors.NewForbidden(rollouts, "web", errors.New(`User "oidc:ben" cannot create resource "rollouts" in API group "muster.dev"`))
	for err, want := range map[error]bool{role: true, apierrors.NewForbidden(rollouts, "web", errors.New("spec.soak: the policy asks for more: take it from there")): false} {
		if got := strings.Contains(g.wayOut(err).Error(), "add you to a group"); got != want {
			t.Errorf("%v: %v, want %v", g.wayOut(err), got, want)
		}
	}
	if CodeOf(nil) != 0 || CodeOf(errors.New("x")) != 1 || CodeOf(&Exit{Code: 3}) != 3 {
		t.Error("exit codes")
	}
}
