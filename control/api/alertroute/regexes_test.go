package alertroute

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"muster.dev/muster/control/api/v1alpha1"
)

// Regular expressions that are large once they are compiled are refused, wherever they stand,
// and before anything compiles them; ordinary lists are not.
func TestRegexesAreBounded(t *testing.T) {
	bomb := strings.Repeat(".{999}", 500)
	list := strings.Repeat("namespace-of-somebody|", 200)
	one := func(m string) string { return fmt.Sprintf(`{"receiver": "r", "routes": [{"matchers": [%q]}]}`, m) }
	for name, c := range map[string]struct {
		route, inhibit string
		ok             bool
	}{
		"a list":                   {one(`namespace=~"` + list + `"`), "", true},
		"digits":                   {one(`pod!~"web-[0-9a-f]{8,10}-[0-9a-z]{5}"`), "", true},
		"a matcher":                {one(`site=~"` + bomb + `"`), "", false},
		"one of the former syntax": {`{"receiver": "r", "routes": [{"match_re": {"site": "` + bomb + `"}}]}`, "", false},
		"deep down":                {`{"receiver": "r", "routes": [{"routes": [{"matchers": ["site=~\"` + bomb + `\""]}]}]}`, "", false},
		"many":                     {`{"receiver": "r", "routes": [` + strings.Repeat(`{"matchers": ["site=~\".{999}\""]},`, 30) + `{"matchers": ["a=b"]}]}`, "", false},
		"an inhibit rule":          {`{"receiver": "r"}`, `{"source_matchers": ["site=~\"` + bomb + `\""], "target_matchers": ["a=b"]}`, false},
		"its former syntax":        {`{"receiver": "r"}`, `{"source_match_re": {"site": "` + bomb + `"}, "target_matchers": ["a=b"]}`, false},
	} {
		spec := &v1alpha1.AlertRouteSpec{}
		in := fmt.Sprintf(`{"route": %s, "receivers": [{"name": "r"}]}`, c.route)
		if err := json.Unmarshal([]byte(in), spec); err != nil {
			t.Fatal(name, err)
		}
		if c.inhibit != "" {
			spec.InhibitRules = append(spec.InhibitRules, apiextensionsv1.JSON{Raw: []byte(c.inhibit)})
		}
		_, errs := Parse(spec)
		if (len(errs) == 0) != c.ok || !c.ok && !strings.Contains(errs.ToAggregate().Error(), "instructions") {
			t.Errorf("%s: %.300v", name, errs.ToAggregate())
		}
	}
}
