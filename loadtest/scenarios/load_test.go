package scenarios

import "testing"

func TestFiles(t *testing.T) {
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	faults, normal := 0, 0
	for _, sc := range all {
		if sc.Normal {
			normal++
		} else {
			faults++
		}
	}
	if faults < 40 || normal < 20 {
		t.Errorf("%d faults and %d normal days, want 40 and 20 at least", faults, normal)
	}
	byName := map[string]bool{}
	for _, sc := range all {
		byName[sc.Name] = true
	}
	for name := range known(t) {
		if !byName[name] {
			t.Errorf("known-failures.yaml: no scenario %s", name)
		}
	}
}
