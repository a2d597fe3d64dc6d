package apiserver

import (
	"encoding/json"
	"testing"

	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/v1alpha1"
)

func TestWhatFallsShortOfAPolicy(t *testing.T) {
	parse := func(doc string) v1alpha1.RolloutSpec {
		out, b := v1alpha1.RolloutSpec{}, []byte(nil)
		b, err := yaml.YAMLToJSON([]byte(doc))
		if err == nil {
			err = json.Unmarshal(b, &out)
		}
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	const waves = "strategy: {waves: [{percent: 10}, {percent: 50, approval: true}, {percent: 100, soak: 1h}]}"
	for _, c := range []struct{ policy, rollout, want string }{
		{"{}", "{}", ""},
		{"{}", "{windows: [{from: '22:00', to: '04:00'}], freezes: [{from: 2026-12-20, to: 2027-01-02}], soak: 1h}", ""},
		{"{windows: [{from: '22:00', to: '04:00'}, {from: '12:00', to: '13:00'}]}", "{windows: [{from: '12:00', to: '13:00'}]}", ""},
		{"{windows: [{from: '22:00', to: '04:00'}]}", "{}", "spec.windows"},
		{"{windows: [{from: '22:00', to: '04:00'}]}", "{windows: [{from: '22:00', to: '04:00'}, {from: '05:00', to: '06:00'}]}", "spec.windows"},
		{"{freezes: [{from: 2026-12-20, to: 2027-01-02}]}", "{freezes: [{from: 2026-12-01, to: 2027-01-02, reason: longer}]}", ""},
		{"{freezes: [{from: 2026-12-20, to: 2027-01-02}]}", "{freezes: [{from: 2026-12-21, to: 2027-01-02}]}", "spec.freezes"},
		{"{}", "{virtualSites: [eu]}", "spec.virtualSites"},
		{"{}", "{strategy: {maxInFlight: 5}}", ""},
		{"{strategy: {maxInFlight: 5}}", "{strategy: {maxInFlight: 2}}", ""},
		{"{strategy: {maxInFlight: 5}}", "{strategy: {maxInFlight: 6}}", "spec.strategy.maxInFlight"},
		{"{strategy: {maxInFlight: 5}}", "{}", "spec.strategy.maxInFlight"},
		{"{strategy: {type: Rolling, group: '10'}}", "{strategy: {type: Rolling, group: '5'}}", ""},
		{"{strategy: {type: Rolling, group: '10'}}", "{strategy: {type: Rolling, group: '11'}}", "spec.strategy"},
		{"{strategy: {type: Rolling, group: '10'}}", "{strategy: {type: Rolling, group: '5%'}}", "spec.strategy"},
		{"{strategy: {type: Rolling, group: '10'}}", "{strategy: {type: Canary, group: '10'}}", "spec.strategy"},
		{"{" + waves + "}", "{" + waves + "}", ""},
		{"{strategy: {type: Canary, waves: [{percent: 10}, {percent: 50, approval: true}, {percent: 100, soak: 1h}]}}", "{strategy: {type: Canary, waves: [{percent: 1, name: one}, {percent: 10, approval: true}, {percent: 30}, {percent: 50, approval: true}, {percent: 100, soak: 2h}]}}", ""},
		{"{strategy: {type: Canary, waves: [{percent: 10}, {percent: 50, approval: true}]}}", "{strategy: {type: Canary, waves: [{percent: 10}, {percent: 50}]}}", "spec.strategy"},
		{"{strategy: {type: Canary, waves: [{percent: 10}, {percent: 50}]}}", "{strategy: {type: Canary, waves: [{percent: 11}, {percent: 50}]}}", "spec.strategy"},
		{"{strategy: {type: Canary, waves: [{percent: 10, soak: 1h}]}}", "{strategy: {type: Canary, waves: [{percent: 10, soak: 1m}]}}", "spec.strategy"},
		{"{strategy: {type: Canary, waves: [{percent: 10, soak: 1h}]}}", "{strategy: {type: Canary, waves: [{percent: 10}]}}", "spec.strategy"},
		{"{strategy: {type: Canary, waves: [{percent: 10}]}}", "{strategy: {type: Canary, waves: [{percent: 10, soak: 1m}]}}", "spec.strategy"},
		{"{strategy: {type: Canary, waves: [{percent: 10}]}}", "{strategy: {type: Canary, waves: [{count: 900}, {percent: 10}]}}", "spec.strategy"},
		{"{strategy: {type: Canary, waves: [{virtualSite: canary}]}}", "{strategy: {type: Canary, waves: [{count: 900}, {virtualSite: canary}]}}", "spec.strategy"},
		{"{strategy: {type: Canary, waves: [{percent: 10}]}}", "{strategy: {type: Canary, spreadBy: [a], waves: [{percent: 1}, {percent: 10}]}}", "spec.strategy"},
		{"{strategy: {type: Canary}}", "{strategy: {type: Canary, waves: [{percent: 100}]}}", "spec.strategy"},
	} {
		spec, policy := parse(c.rollout), parse(c.policy)
		if got := short(&spec, &policy.RolloutPlan); got != c.want {
			t.Errorf("%s by the policy %s: %q, want %q", c.rollout, c.policy, got, c.want)
		}
	}
}
