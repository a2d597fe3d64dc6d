package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/testkit"
)

// testPage runs the console's browser tests against the real thing.
func testPage(t *testing.T, f *fleet) {
	cmd := exec.Command("npm", "run", "--silent", "e2e")
	cmd.Dir = "../dashboards/console/ui"
	cmd.Env = append(os.Environ(), "BASE_URL="+console, "TOKEN="+f.token, "E2E_ROLLOUTS=1", // which the part before has made
		"E2E_BREAK="+bin("muster")+" demo break {site} uplink-down", "E2E_HEAL="+bin("muster")+" demo heal {site}")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", tail(out, 6000))
	if err != nil {
		t.Fatalf("browser tests: %v", err)
	}
}

// testPolicyEdit adds a signal to the health policy with the Kubernetes API and
// sees it count on the next tick; a query that fails is unknown with its error,
// and a bad one is refused with the field named.
func testPolicyEdit(t *testing.T, f *fleet) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("no kubectl on this machine")
	}
	patch := func(json string) (string, error) {
		b, err := exec.Command(kubectl, "--kubeconfig", f.dir+"/admin.kubeconfig", "-n", "demo-system", "patch", "healthpolicy", "default", "--type=json", "-p", json).CombinedOutput()
		return string(b), err
	}
	add := func(query string) string {
		return `[{"op":"add","path":"/spec/signals/-","value":{"name":"e2e","dimension":"performance","good":"0","bad":"1","weight":"1","query":` + strconv.Quote(query) + `}}]`
	}
	if out, err := patch(add("sum by (site (up)")); err == nil || !strings.Contains(out, "query") {
		t.Errorf("a query that does not parse: %v, %s", err, out)
	}
	if out, err := patch(add("count by (tenant, site) (up) * 0")); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	name := greenSites(t, f)[0]
	took := testkit.EventuallyWithin(t, "the new signal counts on "+name, 3*time.Minute, func() error {
		var s struct {
			Signals []struct {
				Name  string
				Known bool
				Value *float64
			}
		}
		if err := f.get("/api/v1/health/sites/"+name+"?tenant="+tenant, &s); err != nil {
			return err
		}
		for _, sig := range s.Signals {
			if sig.Name == "e2e" && sig.Known && sig.Value != nil && *sig.Value == 0 {
				return nil
			}
		}
		return errors.New("signal e2e is not known yet")
	})
	t.Logf("figure: health policy edited → counts: %s", took.Round(100*time.Millisecond))
	var p struct {
		Spec struct {
			Signals []struct{ Name string }
		}
	}
	b, err := exec.Command(kubectl, "--kubeconfig", f.dir+"/admin.kubeconfig", "-n", "demo-system", "get", "healthpolicy", "default", "-o", "json").Output()
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := patch(fmt.Sprintf(`[{"op":"remove","path":"/spec/signals/%d"}]`, len(p.Spec.Signals)-1)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
