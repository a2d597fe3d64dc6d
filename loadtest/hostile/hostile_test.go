package hostile

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/api/alertroute"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/api/validation"
	"muster.dev/muster/internal/logquery"
)

func TestWall(t *testing.T) {
	for name, c := range map[string]struct {
		wall Wall
		came Tally
		ok   bool
	}{
		"nothing is asked":    {Wall{}, Tally{"200": 1}, true},
		"refused":             {refused, Tally{"422": 5, "no answer": 1}, true},
		"one is let in":       {refused, Tally{"422": 5, "200": 1}, false},
		"never refused":       {refused, Tally{"no answer": 6}, false},
		"bounded":             {bounded, Tally{"204": 6, "429": 1}, true},
		"all of it is let in": {bounded, Tally{"204": 6}, false},
	} {
		if err := c.wall.Check(c.came); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every attack has a name of its own, a pace, and something to try.
func TestAttacks(t *testing.T) {
	names := map[string]bool{}
	for _, list := range [][]Attack{(&Site{}).Attacks(), (&Tenant{}).Attacks(), (&Anyone{}).Attacks()} {
		for _, a := range list {
			if names[a.Name] || a.Every <= 0 || a.Try == nil {
				t.Errorf("%+v", a)
			}
			names[a.Name] = true
		}
	}
}

// Attacks with regular expressions are what the checks of Muster are for, and no other mistake: those say that
// the expression is too large.
func TestRegularExpressionsAreTooLarge(t *testing.T) {
	var said string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said = "taken"
		switch {
		case strings.HasPrefix(r.URL.Path, "/api/v1/logs/"):
			if _, err := logquery.Parse(r.FormValue("query"), logquery.LogFields(), time.Unix(0, 0)); err != nil {
				said = err.Error()
			}
		case strings.Contains(r.URL.Path, "/alertroutes/"):
			var o v1alpha1.AlertRoute
			if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
				said = err.Error()
			} else if _, errs := alertroute.Parse(&o.Spec); len(errs) > 0 {
				said = errs.ToAggregate().Error()
			}
		case strings.Contains(r.URL.Path, "/collectionpolicies/"):
			var o v1alpha1.CollectionPolicy
			if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
				said = err.Error()
			} else if errs := validation.CollectionPolicy(&o); len(errs) > 0 {
				said = errs.ToAggregate().Error()
			}
		}
	}))
	defer srv.Close()
	tn := &Tenant{Name: "umbrella", Kube: srv.URL, Console: srv.URL, Client: srv.Client()}
	tried := 0
	for _, a := range tn.Attacks() {
		if !strings.Contains(a.Name, "regular expressions of") && !strings.Contains(a.Name, "regular expression of") && !strings.Contains(a.Name, "regular expressions that are let in") || strings.HasPrefix(a.Name, "silences") {
			continue
		}
		for n := range 2 {
			tried++
			a.Try(context.Background(), n)
			if letIn := strings.Contains(a.Name, "let in"); letIn != (said == "taken") || !letIn && !strings.Contains(said, "instructions") && !strings.Contains(said, "steps") && !strings.Contains(said, "longer than") {
				t.Errorf("%s: %.300s", a.Name, said)
			}
		}
	}
	if tried != 10 {
		t.Errorf("%d tries, want two of each of five attacks", tried)
	}
}
