package console

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/api/validation"
)

// The pipelines of deploy/samples/gates ask at the route that there is, with a body that is
// taken, and read fields that the answer has.
func TestGateSamples(t *testing.T) {
	const dir = "../../deploy/samples/gates"
	files, err := filepath.Glob(dir + "/*")
	if err != nil || len(files) != 5 {
		t.Fatalf("%v, %v", files, err)
	}
	var routes []string
	for _, r := range (&Console{}).apiRoutes() {
		routes = append(routes, r.method+" "+r.path)
	}
	if !slices.Contains(routes, "POST /api/v1/gates:evaluate") {
		t.Error("the route has another name")
	}
	answer, err := json.Marshal(checkView{})
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{`"pass":`, `"verdict":`, `"message":`} {
		if !strings.Contains(string(answer), field) {
			t.Errorf("answers have no %s any more: %s", field, answer)
		}
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		if name == "Jenkinsfile" {
			if !strings.Contains(string(b), "muster gate check --virtual-site ") {
				t.Errorf("%s does not ask", name)
			}
			continue
		}
		var doc any
		if err := yaml.Unmarshal(b, &doc); err != nil { // JSON too
			t.Errorf("%s: %v", name, err)
		}
		bodies := asked(doc)
		if len(bodies) != 1 || !strings.Contains(string(b), "https://muster.example.com/api/v1/gates:evaluate") {
			t.Errorf("%s: %d questions", name, len(bodies))
		}
		for _, body := range bodies {
			checkQuestion(t, name, body)
		}
	}
}

// asked finds the questions in a document: objects, and texts of them, with a virtual site.
func asked(doc any) (out []map[string]any) {
	switch x := doc.(type) {
	case map[string]any:
		if x["virtualSite"] != nil {
			return []map[string]any{x}
		}
		for _, v := range x {
			out = append(out, asked(v)...)
		}
	case []any:
		for _, v := range x {
			out = append(out, asked(v)...)
		}
	case string:
		var m map[string]any
		if json.Unmarshal([]byte(x), &m) == nil && m["virtualSite"] != nil {
			out = append(out, m)
		}
	}
	return out
}

func checkQuestion(t *testing.T, name string, body map[string]any) {
	t.Helper()
	for k, v := range body { // what Argo Rollouts puts in
		if s, ok := v.(string); ok && strings.HasPrefix(s, "{{ args.") {
			body[k] = map[string]string{"virtualSite": "shared/canary", "since": "10m"}[k]
		}
	}
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	var in gateRequest
	if err := yaml.UnmarshalStrict(raw, &in); err != nil {
		t.Errorf("%s: %s: %v", name, raw, err)
		return
	}
	spec, err := in.spec(time.Now())
	if err != nil {
		t.Errorf("%s: %s: %v", name, raw, err)
		return
	}
	if raw, err = json.Marshal(map[string]any{"spec": spec}); err != nil {
		t.Fatal(err)
	}
	var check v1alpha1.GateCheck
	if err := yaml.UnmarshalStrict(raw, &check); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if errs := validation.GateCheck(&check); len(errs) > 0 {
		t.Errorf("%s: %v", name, errs.ToAggregate())
	}
}
