package scenarios

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/health"
	"muster.dev/muster/health/defaults"
)

// mutations break the shipped policy, each in one way that somebody might by mistake.
var mutations = map[string]func(*v1alpha1.HealthPolicySpec){
	"mean of the dimensions alone": func(p *v1alpha1.HealthPolicySpec) { p.WorstShare = quantity("0") },
	"reliability weighs nothing": func(p *v1alpha1.HealthPolicySpec) {
		p.Weights.Reliability, p.WorstShare = quantity("0"), quantity("0")
	},
	"no caps": func(p *v1alpha1.HealthPolicySpec) {
		each(p, func(s *v1alpha1.Signal) { s.Critical, s.Cap = false, nil })
	},
	"colours change after twelve evaluations": func(p *v1alpha1.HealthPolicySpec) { p.Evaluations = 12 },
	"windows of ten minutes are one": func(p *v1alpha1.HealthPolicySpec) {
		each(p, func(s *v1alpha1.Signal) { s.Query = strings.ReplaceAll(s.Query, "[10m]", "[1m]") })
	},
	"crash loops are not looked at": func(p *v1alpha1.HealthPolicySpec) { without(p, "crash") },
	"disks are bad at 99.9 %": func(p *v1alpha1.HealthPolicySpec) {
		named(p, "disk-used", func(s *v1alpha1.Signal) { s.Good, s.Bad = resource.MustParse("99.5"), resource.MustParse("99.9") })
	},
	"consequences rank as causes": func(p *v1alpha1.HealthPolicySpec) { each(p, func(s *v1alpha1.Signal) { s.Causes = nil }) },
	"nobody is to blame":          func(p *v1alpha1.HealthPolicySpec) { each(p, func(s *v1alpha1.Signal) { s.Objects = "" }) },
	"the mean of the nodes' memory": func(p *v1alpha1.HealthPolicySpec) {
		named(p, "memory-available", func(s *v1alpha1.Signal) { s.Query = strings.Replace(s.Query, "min by", "avg by", 1) })
	},
	"every pack everywhere":                        func(p *v1alpha1.HealthPolicySpec) { each(p, func(s *v1alpha1.Signal) { s.Pack = "" }) },
	"exporters that come and go are not looked at": func(p *v1alpha1.HealthPolicySpec) { without(p, "targets-flapping") },
	"certificates are bad at an hour": func(p *v1alpha1.HealthPolicySpec) {
		named(p, "certificate-days", func(s *v1alpha1.Signal) { s.Good, s.Bad = resource.MustParse("100m"), resource.MustParse("40m") })
	},
}

// unnoticed mutations wait for a scenario. Their number may not grow.
var unnoticed = map[string]string{}

func quantity(s string) *resource.Quantity {
	q := resource.MustParse(s)
	return &q
}

func each(p *v1alpha1.HealthPolicySpec, fn func(*v1alpha1.Signal)) {
	for i := range p.Signals {
		fn(&p.Signals[i])
	}
}

func named(p *v1alpha1.HealthPolicySpec, name string, fn func(*v1alpha1.Signal)) {
	for i := range p.Signals {
		if p.Signals[i].Name == name {
			fn(&p.Signals[i])
			return
		}
	}
	panic("no signal " + name)
}

// without takes signals away, and what others say of them.
func without(p *v1alpha1.HealthPolicySpec, prefix string) {
	p.Signals = slices.DeleteFunc(p.Signals, func(s v1alpha1.Signal) bool { return strings.HasPrefix(s.Name, prefix) })
	each(p, func(s *v1alpha1.Signal) {
		s.Causes = slices.DeleteFunc(s.Causes, func(c string) bool { return strings.HasPrefix(c, prefix) })
	})
}

// ofMutations are the scenarios that the broken policies are tried on: short ones, of
// every dimension.
var ofMutations = strings.Fields(`certificate-of-five-days certificate-expires-today crash-loop-two-pods-out-of-step configuration-missing
	disk-nearly-full dns-crashes inodes-used-up killed-for-memory kube-state-metrics-down memory-runs-out one-node-of-five-dies
	one-node-of-three-dies one-pod-crash-loops throttled volume-full half-of-the-exporters bare-host one-restart rolling-update uplink-cut
	neglected let-slide everything-is-slow at-its-limits exporter-crashes-over-and-over disk-pressure-evicts`)

// TestMutations breaks the policy in each of these ways: the scenarios must notice each but the unnoticed.
func TestMutations(t *testing.T) {
	if testing.Short() {
		t.Skip("two minutes")
	}
	models := map[string]*health.Model{shipped: defaults.Model()}
	for name, change := range mutations {
		spec := defaults.HealthPolicy().Spec
		before := fmt.Sprintf("%+v", spec)
		change(&spec)
		if fmt.Sprintf("%+v", spec) == before {
			t.Errorf("%s: changes nothing", name)
		}
		m, err := health.FromPolicy(&spec)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		models[name] = m
	}
	failing := known(t)
	var list []*Scenario
	for _, sc := range chosen(t) {
		if slices.Contains(ofMutations, sc.Name) && failing[sc.Name] == "" {
			list = append(list, sc)
		}
	}
	seen := run(t, models, list)
	for _, name := range slices.SortedFunc(maps.Keys(mutations), cmp.Compare) {
		var noticed []string
		for _, sc := range list {
			right, broken := judge(sc, seen[shipped][sc.Name]), judge(sc, seen[name][sc.Name])
			if right.ok() && !broken.ok() {
				noticed = append(noticed, sc.Name)
			}
		}
		t.Logf("%s: noticed by %d of %d: %s", name, len(noticed), len(list), strings.Join(noticed, " "))
		switch why := unnoticed[name]; {
		case why != "" && len(noticed) > 0:
			t.Errorf("%s: is noticed: take it off unnoticed (%s)", name, why)
		case why == "" && len(noticed) == 0:
			t.Errorf("%s: no scenario notices", name)
		}
	}
}
