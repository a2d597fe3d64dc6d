package defaults_test

import (
	"testing"

	"muster.dev/muster/health/defaults"
	"muster.dev/muster/health/policytest"
)

func TestCases(t *testing.T) {
	f, err := policytest.Parse(defaults.CasesYAML)
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.Cases {
		t.Run(f.Cases[i].Name, func(t *testing.T) {
			wrong, err := policytest.Run(defaults.Model(), f.Tick.Duration, &f.Cases[i])
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range wrong {
				t.Error(w)
			}
		})
	}
}
