package demo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
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

func TestAReleaseWaitsForScores(t *testing.T) {
	var grey, green int
	console := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		list := slices.Concat(slices.Repeat([]string{`{"colour":"grey"}`}, grey), slices.Repeat([]string{`{"colour":"green"}`}, green))
		_, _ = io.WriteString(w, `{"sites":[`+strings.Join(list, ",")+`]}`)
	}))
	defer console.Close()
	c := Config(t.TempDir())
	c.Console.Listen = strings.TrimPrefix(console.URL, "http://")
	if err := scored(t.Context(), c); err == nil {
		t.Error("there is no token, and nothing is missing")
	}
	if err := os.WriteFile(c.Path("admin.token"), []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		grey, green int
		want        string
	}{{0, 0, "0 of 0 have one"}, {4, 0, "0 of 4 have one"}, {2, 5, "5 of 7 have one"}, {2, 6, ""}} {
		grey, green = x.grey, x.green
		if err := scored(t.Context(), c); (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%d grey and %d green: %v, want %q", x.grey, x.green, err, x.want)
		}
	}
}
