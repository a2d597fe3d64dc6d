package e2e

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/testkit"
)

type rolloutView struct {
	Phase     string
	Message   string
	Waves     []struct{ Sites struct{ Total int } }
	Sites     struct{ Total, Waiting, Updated, Failed, RolledBack int }
	Decisions []struct{ What, Text string }
}

type rolloutSite struct {
	Site string
	Wave int
	Step string
	Has  int
}

// testRollouts takes a bad version and then a good one over Europe, as people of the demo do.
func testRollouts(t *testing.T, f *fleet) {
	bad, sites := f.release(t, "bad", "RolledBack")
	first := 0
	var touched []string
	for _, s := range sites {
		switch {
		case s.Wave == 1:
			first++
			touched = append(touched, s.Site)
			if s.Step != "rolledBack" && s.Step != "offline" || s.Has != 0 {
				t.Errorf("%s of the first wave of a bad version: %+v", s.Site, s)
			}
		case s.Step != "waiting" && s.Step != "offline" && s.Step != "held" || s.Has != 0:
			t.Errorf("%s is outside of the first wave, and was touched: %+v", s.Site, s)
		}
	}
	if first == 0 || first == len(sites) {
		t.Errorf("%d of %d sites are in the first wave", first, len(sites))
	}
	for _, d := range bad.Decisions {
		if d.What == "WavePassed" {
			t.Errorf("a wave of a bad version passed: %s", d.Text)
		}
	}
	testkit.Eventually(t, "the sites of the first wave are well again", func() error {
		var faults struct{ Broken map[string][]string }
		if err := getJSON("http://127.0.0.1:9105/faults", nil, &faults); err != nil {
			return err
		}
		for _, s := range touched {
			if slices.Contains(faults.Broken[s], "cpu-saturated") {
				return fmt.Errorf("%s still suffers: %v", s, faults.Broken[s])
			}
		}
		return nil
	})

	good, sites := f.release(t, "good", "Completed")
	if i := slices.IndexFunc(sites, func(s rolloutSite) bool { return s.Step == "passed" }); i >= 0 {
		testDataSource(t, f, "rollout", sites[i].Site)
	}
	for _, s := range sites {
		if s.Step != "passed" && s.Step != "offline" {
			t.Errorf("after a good version %+v", s)
		}
	}
	if good.Sites.Updated == 0 || good.Sites.Failed > 0 {
		t.Errorf("a good version: %+v", good.Sites)
	}
	testPlainWrite(t, f)
}

// testPlainWrite changes a workload as anybody would: the policy makes a rollout of it.
func testPlainWrite(t *testing.T, f *fleet) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Log("no kubectl on this machine; a plain write is not checked")
		return
	}
	b, err := exec.Command(kubectl, "--kubeconfig", f.dir+"/admin.kubeconfig", "-n", "demo-shop", "set", "image", "deployment/web", "web=registry.example/shop/web:9.0.0").CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl set image: %v\n%s", err, b)
	}
	testkit.Eventually(t, "a plain write is a rollout of the policy's, in its first wave", func() error {
		var list struct{ Rollouts []struct{ Name string } }
		if err := f.get("/api/v1/rollouts?tenant=demo&namespace=shop&object=Deployment.apps/web&state=active", &list); err != nil {
			return err
		}
		if len(list.Rollouts) != 1 {
			return fmt.Errorf("%d rollouts are under way", len(list.Rollouts))
		}
		var r struct {
			Policy string
			Wave   int
			Sites  struct{ Total, Waiting int }
		}
		if err := f.get("/api/v1/rollouts/shop/"+list.Rollouts[0].Name+"?tenant=demo", &r); err != nil {
			return err
		}
		if r.Policy != "carefully" || r.Wave != 1 || r.Sites.Waiting == 0 {
			return fmt.Errorf("%s: %+v", list.Rollouts[0].Name, r)
		}
		return nil
	})
}

// release starts one, and waits for its end.
func (f *fleet) release(t *testing.T, kind, end string) (rolloutView, []rolloutSite) {
	t.Helper()
	said := f.muster("demo", "release", kind)
	name := said[max(0, strings.Index(said, "shop/")):] // after what it may have waited for
	name, _, _ = strings.Cut(name, "\n")
	began := time.Now()
	var r rolloutView
	defer func() {
		if t.Failed() {
			f.whatHappened(name, r)
		}
	}()
	testkit.EventuallyWithin(t, "the "+kind+" version "+name+" is "+end, 15*time.Minute, func() error {
		r = rolloutView{}
		if err := f.get("/api/v1/rollouts/"+name+"?tenant=demo", &r); err != nil {
			return err
		}
		if r.Phase != end {
			return fmt.Errorf("%s: %s", r.Phase, r.Message)
		}
		return nil
	})
	t.Logf("figure: a %s version over %d sites: %s after %s", kind, r.Sites.Total, end, time.Since(began).Round(time.Second))
	changed, err := f.rolloutSites(name)
	if err != nil {
		t.Fatal(err)
	}
	// By its name alone too.
	_, short, _ := strings.Cut(name, "/")
	if err := f.get("/api/v1/rollouts/"+short, &struct{}{}); err != nil {
		t.Errorf("by its name alone: %v", err)
	}
	return r, changed
}

// rolloutSites are the sites of a rollout, with what it did there.
func (f *fleet) rolloutSites(name string) ([]rolloutSite, error) {
	var page struct{ Sites []rolloutSite }
	err := f.get("/api/v1/rollouts/"+name+"/sites?tenant=demo&limit=10000", &page)
	return page.Sites, err
}

// whatHappened tells what a rollout decided, and what is wrong at the sites that it changed.
func (f *fleet) whatHappened(name string, r rolloutView) {
	say := func(format string, args ...any) { f.last = append(f.last, fmt.Sprintf(format, args...)) }
	say("%s is %s: %s", name, r.Phase, r.Message)
	for _, d := range r.Decisions {
		say("%s decided %s: %s", name, d.What, d.Text)
	}
	changed, err := f.rolloutSites(name)
	if err != nil {
		say("its sites: %v", err)
	}
	for _, s := range changed {
		if s.Step == "waiting" || s.Step == "passed" {
			continue
		}
		if health, err := f.site(s.Site); err != nil {
			say("%s: %v", s.Site, err)
		} else {
			say("%+v is %s: %v", s, health.Colour, health.Reasons)
		}
	}
}
