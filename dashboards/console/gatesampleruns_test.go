package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/v1alpha1"
)

// pipelineAnswer is what a pipeline gets when it asks.
type pipelineAnswer struct {
	code int // 0: nobody answered
	body string
}

// What a pipeline has to make of an answer.
const (
	passes = "go on"
	stops  = "stops" // asking again changes nothing
	holds  = "holds" // it asks again, and does not go on meanwhile
)

// pipelineAnswers are the console's own, and what stands in its place when it is out of reach.
func pipelineAnswers(t *testing.T) (answers map[string]pipelineAnswer, want map[string]string) {
	t.Helper()
	h := newHarness(t, func(_ *Options, tm *timing) { tm.request = 500 * time.Millisecond })
	answers = map[string]pipelineAnswer{"no answer": {}, "a proxy's error": {502, "<html>\"pass\":true</html"}, "a proxy's empty page": {200, ""}}
	want = map[string]string{"Pass": passes, "Fail": stops, "Wait": holds, "Unknown": holds, "nobody has looked": holds, "no token": stops, "no right": stops, "a wrong question": stops,
		"no answer": holds, "a proxy's error": holds, "a proxy's empty page": holds}
	ask := func(name, user string, code int, body string) {
		answers[name] = pipelineAnswer{code, string(h.want(code, user, "POST", "/api/v1/gates:evaluate", body).body)}
	}
	const question = `{"virtualSite":"shop/canary","since":"10m"}`
	for _, v := range []v1alpha1.GateVerdict{v1alpha1.GatePass, v1alpha1.GateFail, v1alpha1.GateWait, v1alpha1.GateUnknown} {
		// A message that quotes another answer is no answer.
		h.api.rollouts.verdict = &v1alpha1.GateCheckStatus{Verdict: v, Message: `query: "pass":true "verdict":"Pass" "status":403`, Gates: []v1alpha1.GateReading{{Name: "peers", Verdict: v, Text: `"pass": true`}}}
		ask(string(v), "alice", 200, question)
	}
	h.api.rollouts.verdict = nil
	ask("nobody has looked", "alice", 202, question)
	ask("no token", "", 401, question)
	ask("no right", "both", 403, question)
	ask("a wrong question", "alice", 400, `{}`)
	return answers, want
}

// sample reads a file of deploy/samples/gates.
func sample(t *testing.T, name string, into any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("../../deploy/samples/gates", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(raw, into); err != nil { // JSON too
		t.Fatal(err)
	}
}

// The scripts of Argo CD's hook and of the workflow go on with Pass alone, end when asking
// again changes nothing, and go on asking else.
func TestGateSamplesThatAreScripts(t *testing.T) {
	var job struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct{ Command, Args []string }
				}
			}
		}
	}
	sample(t, "argo-cd-presync.yaml", &job)
	var flow struct {
		Jobs map[string]struct {
			Steps []struct{ Run string }
		}
	}
	sample(t, "workflow.yaml", &flow)
	hook := job.Spec.Template.Spec.Containers[0]
	scripts := map[string][]string{
		"argo-cd-presync.yaml": append(hook.Command, hook.Args...),
		"workflow.yaml":        {"bash", "-e", "-c", flow.Jobs["gates"].Steps[0].Run}, // as runners run a step that names no shell
	}
	answers, want := pipelineAnswers(t)
	for name, script := range scripts {
		for what, answer := range answers {
			code, asked := runScript(t, script, answer, answer)
			if got := verdictOf(code, asked); got != want[what] {
				t.Errorf("%s: %s: exit code %d after asking %d times: %s, want %s", name, what, code, asked, got, want[what])
			}
			if want[what] != holds {
				continue
			}
			if code, asked := runScript(t, script, answer, answers["Pass"]); code != 0 || asked != 2 {
				t.Errorf("%s: %s, and then Pass: exit code %d after asking %d times", name, what, code, asked)
			}
		}
	}
}

func verdictOf(code, asked int) string {
	switch {
	case code == 0:
		return passes
	case asked == 1:
		return stops
	}
	return holds
}

// runScript runs a script whose curl gets these answers, the first once.
func runScript(t *testing.T, script []string, first, then pipelineAnswer) (code, asked int) {
	t.Helper()
	for _, need := range append([]string{"jq"}, script[0]) {
		if _, err := exec.LookPath(need); err != nil {
			t.Skipf("%s: %v", script[0], err)
		}
	}
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for i, a := range []pipelineAnswer{first, then} {
		write(fmt.Sprint("body", i), a.body, 0o600)
		exit := "0" // curl without --fail
		if a.code == 0 {
			exit = "7"
		}
		write(fmt.Sprint("exit", i), exit, 0o600)
	}
	write("curl", `#!/bin/sh
cd "$ANSWERS"
n=0; [ ! -e asked ] || n=1
echo >>asked
cat body$n
exit "$(cat exit$n)"
`, 0o700)
	write("sleep", "#!/bin/sh\n", 0o700)
	write("seq", "#!/bin/sh\necho 1 2 3\n", 0o700)
	cmd := exec.CommandContext(t.Context(), script[0], script[1:]...)
	cmd.Env = append(os.Environ(), "ANSWERS="+dir, "PATH="+dir+":"+os.Getenv("PATH"), "ASK={}", "TOKEN=t", "MUSTER_TOKEN=t")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || !cmd.ProcessState.Exited() {
		t.Fatalf("%v: %s", err, out)
	}
	if first.code >= 400 && strings.HasPrefix(first.body, "{") {
		var p struct{ Detail string }
		whole := strings.TrimSpace(first.body)
		if err := json.Unmarshal([]byte(first.body), &p); err != nil || !strings.Contains(string(out), p.Detail) && !strings.Contains(string(out), whole) {
			t.Errorf("it does not say why it was refused (%s): %s", first.body, out)
		}
	}
	raw, _ := os.ReadFile(filepath.Join(dir, "asked"))
	return cmd.ProcessState.ExitCode(), bytes.Count(raw, []byte("\n"))
}

// analysis is what Argo Rollouts does with a metric: it counts what was measured, by
// assessMetricStatus of its package analysis.
type analysis struct {
	Count, FailureLimit, InconclusiveLimit int
	SuccessCondition, FailureCondition     string
	Provider                               struct{ Web struct{ JSONPath string } }
}

var isVerdict = regexp.MustCompile(`^result == "(\w+)"$`)

func (a analysis) measure(t *testing.T, answer pipelineAnswer) string {
	t.Helper()
	if answer.code < 200 || answer.code >= 300 {
		return "Error"
	}
	var doc any
	path := jsonpath.New("metrics")
	if err := path.Parse(a.Provider.Web.JSONPath); err != nil {
		t.Fatal(err)
	}
	var result bytes.Buffer
	if json.Unmarshal([]byte(answer.body), &doc) != nil || path.Execute(&result, doc) != nil {
		return "Error"
	}
	is := func(condition string) bool {
		m := isVerdict.FindStringSubmatch(condition)
		if m == nil {
			t.Fatalf("condition %q", condition)
		}
		return m[1] == result.String()
	}
	switch {
	case is(a.FailureCondition):
		return "Failed"
	case is(a.SuccessCondition):
		return "Successful"
	}
	return "Inconclusive"
}

func (a analysis) assess(measured []string) string {
	n := map[string]int{}
	for _, m := range measured {
		n[m]++
		switch {
		case n["Failed"] > a.FailureLimit:
			return "Failed"
		case n["Inconclusive"] > a.InconclusiveLimit:
			return "Inconclusive"
		case n["Failed"]+n["Inconclusive"]+n["Successful"] >= a.Count:
			return "Successful"
		}
	}
	return "Running"
}

// Argo Rollouts' analysis succeeds if all answers are Pass, and not with any other among them.
func TestGateSampleOfArgoRollouts(t *testing.T) {
	var template struct{ Spec struct{ Metrics []analysis } }
	sample(t, "argo-rollouts.yaml", &template)
	a := template.Spec.Metrics[0]
	answers, want := pipelineAnswers(t)
	all := make([]string, a.Count)
	for i := range all {
		all[i] = a.measure(t, answers["Pass"])
	}
	if got := a.assess(all); got != "Successful" {
		t.Errorf("Pass, %d times: %s", a.Count, got)
	}
	for what, answer := range answers {
		m := a.measure(t, answer)
		if (m == "Successful") != (want[what] == passes) || (m == "Failed") != (what == "Fail") {
			t.Errorf("%s: %s", what, m)
		}
		for i := range all {
			mixed := append(append(append([]string{}, all[:i]...), m), all[i+1:]...)
			if got := a.assess(mixed); (got == "Successful") != (want[what] == passes) {
				t.Errorf("Pass, but %s at the %d. time: %s", what, i+1, got)
			}
		}
		// It may not outlast answers that aren't any, either.
		many := make([]string, 2*a.Count)
		for i := range many {
			many[i] = m
		}
		if got := a.assess(append(many, all...)); m == "Inconclusive" && got == "Successful" {
			t.Errorf("%s for long, and then Pass: %s", what, got)
		}
	}
}

// Spinnaker's precondition holds for Pass alone.
func TestGateSampleOfSpinnaker(t *testing.T) {
	var pipeline struct {
		Stages []struct {
			Name, Type         string
			FailPipeline       bool
			RequisiteStageRefs []string `json:"requisiteStageRefIds"`
			Preconditions      []struct {
				FailPipeline bool
				Context      struct{ Expression, FailureMessage string }
			}
		}
	}
	sample(t, "spinnaker.json", &pipeline)
	asks, last := pipeline.Stages[len(pipeline.Stages)-2], pipeline.Stages[len(pipeline.Stages)-1]
	if asks.Type != "webhook" || !asks.FailPipeline || len(last.Preconditions) != 1 || !last.Preconditions[0].FailPipeline {
		t.Fatalf("%+v", pipeline.Stages)
	}
	read := regexp.MustCompile(`^\$\{#stage\('` + regexp.QuoteMeta(asks.Name) + `'\)\['context'\]\['webhook'\]\['body'\]\['(\w+)'\]( == true)?\}$`)
	condition, message := read.FindStringSubmatch(last.Preconditions[0].Context.Expression), read.FindStringSubmatch(last.Preconditions[0].Context.FailureMessage)
	if condition == nil || condition[2] == "" || message == nil {
		t.Fatalf("%+v", last.Preconditions)
	}
	answers, want := pipelineAnswers(t)
	for what, answer := range answers {
		goes := false
		if answer.code >= 200 && answer.code < 300 { // else the stage that asks fails
			var body map[string]any
			_ = json.Unmarshal([]byte(answer.body), &body)
			goes = body[condition[1]] == true
			if _, says := body[message[1]].(string); !says && body != nil {
				t.Errorf("%s: there is no %s in %s", what, message[1], answer.body)
			}
		}
		if goes != (want[what] == passes) {
			t.Errorf("%s: it goes on: %v", what, goes)
		}
	}
}
