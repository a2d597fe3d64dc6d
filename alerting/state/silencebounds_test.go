package state

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"muster.dev/muster/internal/wire"
)

// A tenant's silences take little of an Alertmanager that it shares with others: of regular
// expressions that grow when they are compiled there are none, and there are not too many.
func TestSilencesAreBounded(t *testing.T) {
	m, c, _ := alertmanager(t, dropAll)
	h := serve(t, Options{Source: m, Silences: c})
	body := func(values ...string) string {
		in := wire.SilenceRequest{Duration: "1h", Comment: "why"}
		for i, v := range values {
			in.Matchers = append(in.Matchers, wire.Matcher{Name: fmt.Sprintf("l%d", i), Value: v, IsRegex: true, IsEqual: true})
		}
		b, err := json.Marshal(in)
		must(t, err)
		return string(b)
	}
	post := func(tenant, body string) (int, string) {
		return h.do(tenant, "POST", "/api/v1/silences?tenant="+tenant, body)
	}
	for name, values := range map[string][]string{
		"a matcher of 3 KiB that is 25 MB compiled": {strings.Repeat(".{999}", 500)},
		"several that are large together":           {".{999}", ".{999}", ".{999}", ".{999}", ".{999}", ".{999}"},
		"long text":                                 {strings.Repeat("x", wire.MaxMatcherBytes+1)},
	} {
		if code, out := post("acme", body(values...)); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, code, out)
		}
	}
	if code, out := post("acme", body("paris|rome|berlin-[0-9]{2}", ".*")); code != http.StatusCreated {
		t.Errorf("an ordinary one: %d %s", code, out)
	}
	h.s.maxSilences = 3
	var made struct{ ID string }
	for i := range 2 {
		code, out := post("acme", body(fmt.Sprint("site-", i)))
		if code != http.StatusCreated || json.Unmarshal([]byte(out), &made) != nil {
			t.Errorf("silence %d: %d %s", i, code, out)
		}
	}
	// One that ended is kept for days, and counts.
	if code, out := h.do("acme", "DELETE", "/api/v1/silences/"+made.ID, ""); code != http.StatusNoContent {
		t.Errorf("%d %s", code, out)
	}
	if code, out := post("acme", body("one more")); code != http.StatusTooManyRequests || !strings.Contains(out, "tenant acme has 3 silences") {
		t.Errorf("a fourth: %d %s", code, out)
	}
	if code, out := post("zeta", body("a neighbour's")); code != http.StatusCreated {
		t.Errorf("a neighbour's: %d %s", code, out)
	}
}
