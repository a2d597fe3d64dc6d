package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/logrule"
	"muster.dev/muster/control/api/v1alpha1"
)

func TestImportElastAlert(t *testing.T) {
	t.Setenv("MUSTER_TENANT", "")
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, twin, bad := file("good.yaml", "{name: many errors, type: frequency, num_events: 5, timeframe: {minutes: 1}, alert: [slack]}"), file("twin.yaml", "{name: Many errors!, type: any}"), file("bad.yaml", "{name: x, type: my.Own}")
	run := func(args ...string) (string, string, error) {
		var out, errOut bytes.Buffer
		cmd := rulesCmd()
		cmd.SetArgs(append([]string{"import", "elastalert"}, args...))
		cmd.SetOut(&out)
		cmd.SetErr(&errOut)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		err := cmd.ExecuteContext(t.Context())
		return out.String(), errOut.String(), err
	}
	out, said, err := run(good, "-T", "acme")
	var rules v1alpha1.LogRules
	if err != nil || yaml.UnmarshalStrict([]byte(out), &rules) != nil || rules.Namespace != "acme-system" || len(logrule.Check(rules.Spec)) > 0 || rules.Spec.Rules[0].Name != "ManyErrors" {
		t.Errorf("%s, %v", out, err)
	}
	if !strings.Contains(said, "good.yaml: ManyErrors: alert: how it is sent") {
		t.Error(said)
	}
	out, said, err = run(good, twin, bad)
	if CodeOf(err) != 1 || !strings.Contains(out, "ManyErrors") || strings.Contains(out, "type: any") {
		t.Errorf("%s, %v", out, err)
	}
	for _, want := range []string{"twin.yaml: not translated: name: becomes ManyErrors, as that of " + good, `bad.yaml: not translated: type: "my.Own"`} {
		if !strings.Contains(said, want) {
			t.Errorf("%s\nwant %s", said, want)
		}
	}
	if out, _, err := run(bad); err == nil || out != "" {
		t.Errorf("%q, %v", out, err)
	}
}
