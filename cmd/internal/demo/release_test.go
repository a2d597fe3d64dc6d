package demo

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
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

func TestAReleaseWaitsForWhatItNeeds(t *testing.T) {
	sites := make([]v1alpha1.Site, 4)
	var here arrivals
	began := time.Now()
	missing := []error{errors.New("the shop"), errors.New("the shop"), here.missing(nil, began), here.missing(sites[:1], began.Add(steady))}
	sites[0].Status.Phase = fleet.PhaseOnline
	missing = append(missing, here.missing(sites[:1], began.Add(2*steady-1)), here.missing(sites, began.Add(2*steady)), here.missing(sites, began.Add(4*steady)))
	sites[3].Status.Phase = fleet.PhaseOnline
	missing = append(missing, here.missing(sites, began.Add(4*steady)))
	var said bytes.Buffer
	asked := 0
	err := await(t.Context(), &said, time.Millisecond, func(context.Context) error {
		asked++
		return missing[asked-1]
	})
	want := "waiting for the shop\nwaiting for Europe's sites: 0 of 0 that have come are online\nwaiting for Europe's sites: 0 of 1 that have come are online\n" +
		"waiting for Europe's sites: 1 of 1 that have come are online\nwaiting for Europe's sites: 1 of 4 that have come are online\n"
	if err != nil || said.String() != want || asked != len(missing) {
		t.Errorf("asked %d times, %v, said:\n%s", asked, err, said.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := await(ctx, &said, time.Hour, func(ctx context.Context) error { return ctx.Err() }); err == nil || !strings.Contains(err.Error(), "waited in vain for") {
		t.Errorf("%v", err)
	}
}
