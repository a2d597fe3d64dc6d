package demo

import (
	"slices"
	"testing"

	"muster.dev/muster/loadtest/simsite"
)

func faultsOf(s *simsite.Site) []string {
	var out []string
	for _, f := range s.Faults() {
		out = append(out, f.Name)
	}
	slices.Sort(out)
	return out
}

func TestABadReleaseBreaksItsSiteUntilItIsPutBack(t *testing.T) {
	sim, err := simsite.New(simsite.Options{Name: "paris"})
	if err != nil {
		t.Fatal(err)
	}
	if err := sim.Break("crash-loop"); err != nil {
		t.Fatal(err)
	}
	want := func(when string, faults ...string) {
		t.Helper()
		if got := faultsOf(sim); !slices.Equal(got, faults) {
			t.Errorf("%s: %v, want %v", when, got, faults)
		}
	}
	var r release
	r.runs(sim, []string{webImage + ":2.4.1"})
	want("a good one", "crash-loop")
	r.runs(sim, []string{webImage + ":2.4.2-hot"})
	want("a bad one", "cpu-saturated", "crash-loop")
	r.runs(sim, []string{webImage + ":2.4.1"})
	want("put back, what is not its own stays", "crash-loop")
	r.runs(sim, []string{webImage + ":2.4.2-hot"})
	sim.Heal()
	r.again(sim)
	want("healing does not help against a bad version", "cpu-saturated", "crash-loop")
	r.runs(sim, nil)
	want("put back after that")
}

func TestVersionsGoUp(t *testing.T) {
	for from, want := range map[string][2]string{
		webImage + ":2.4.1":      {webImage + ":2.4.2", webImage + ":2.4.2-hot"},
		webImage + ":2.4.10-hot": {webImage + ":2.4.11", webImage + ":2.4.11-hot"},
		"elsewhere/web:latest":   {webImage + ":2.4.2", webImage + ":2.4.2-hot"},
	} {
		if good, bad := nextImage(from, false), nextImage(from, true); good != want[0] || bad != want[1] {
			t.Errorf("after %s: %s and %s, want %v", from, good, bad, want)
		}
	}
}
