package cli

import (
	"errors"
	"io"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
