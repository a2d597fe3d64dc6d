package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster.dev/muster/health/defaults"
)

func TestHealthTest(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var out bytes.Buffer
	if err := testPolicies(&out, []string{write("shipped.yaml", defaults.CasesYAML)}, ""); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	// A policy of its own beside the cases, in which a full disk is no matter.
	policy := bytes.Replace(defaults.HealthPolicyYAML, []byte(`    good: "70"
    bad: "95"
`), []byte(`    good: "98"
    bad: "99"
`), 1)
	write("policy.yaml", policy)
	cases := write("cases.yaml", []byte(`policy: policy.yaml
cases: [{name: a full disk, readings: {disk-used: "97"}, expect: [{at: 1m, colour: red}]}]
`))
	out.Reset()
	err := testPolicies(&out, []string{cases}, "")
	if err == nil || err.Error() != "1 of 1 cases failed" || !strings.Contains(out.String(), "FAIL  a full disk\n      at 1m0s: want red; it is 100 green") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := testPolicies(&out, []string{cases}, cases); err == nil || !strings.Contains(err.Error(), "cases.yaml") {
		t.Errorf("a file of cases is taken for a policy: %v", err)
	}
}
