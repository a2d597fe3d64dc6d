package decide

import (
	"fmt"
	"strings"
	"testing"

	"muster.dev/muster/control/api/v1alpha1"
)

func TestAmounts(t *testing.T) {
	for text, want := range map[string]int{"": 2, "0": 0, "3": 3, "0%": 0, "10%": 3, "100%": 35, "200": 200} {
		if n, err := amount("f", text, "2", 35); n != want || err != nil {
			t.Errorf("%q of 35 is %d, %v; want %d", text, n, err, want)
		}
	}
	for _, text := range []string{"x", "-1", "-1%", "101%", "%", "1.5"} {
		if n, err := amount("spec.budget.maxFailed", text, "2", 35); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("spec.budget.maxFailed: %q", text)) {
			t.Errorf("%q of 35 is %d, %v; want an error that names the field", text, n, err)
		}
	}
}

// Of 22 sites the first ten are a wave, the next ten another, and two are listed for what they
// have alone.
func TestWhatABudgetCounts(t *testing.T) {
	for name, c := range map[string]struct {
		all, wave string
		current   int
		failed    []int
		late      []int // came after their wave had settled
		gone      []int
		forgiven  [2]int // in the wave, in all
		promote   int32
		want      string
	}{
		"none failed":                  {all: "0", wave: "0", current: 2},
		"the wave's first":             {all: "20", wave: "0", current: 2, failed: []int{10}, want: "1 site failed in wave 2, and 0 may: s10 was not ready in time"},
		"the wave's last":              {all: "20", wave: "0", current: 2, failed: []int{19}, want: "1 site failed in wave 2, and 0 may: s19"},
		"the last of the wave before":  {all: "20", wave: "0", current: 2, failed: []int{9}},
		"the first of the wave after":  {all: "20", wave: "0", current: 1, failed: []int{10}},
		"one that came late":           {all: "20", wave: "0", current: 2, failed: []int{3}, late: []int{3}, want: "1 site failed in wave 2"},
		"one that came late, and well": {all: "20", wave: "0", current: 2, late: []int{3}},
		"as many as may, of the wave":  {all: "20", wave: "10%", current: 2, failed: []int{12}},
		"one more, of the wave":        {all: "20", wave: "10%", current: 2, failed: []int{12, 13}, want: "2 sites failed in wave 2, and 1 may: s12 was not ready in time; s13"},
		"as many as may, of all":       {all: "10%", wave: "10", current: 2, failed: []int{1, 2}},
		"one more, of all":             {all: "10%", wave: "10", current: 2, failed: []int{1, 2, 12}, want: "3 sites of 20 failed, and 2 may: s1 was not ready in time; s2"},
		"listed alone":                 {all: "0", wave: "0", current: 2, failed: []int{20, 21}},
		"that hold it no longer":       {all: "0", wave: "0", current: 2, failed: []int{11, 12}, gone: []int{11, 12}},
		"that are gone are not of all": {all: "10%", wave: "10", current: 2, failed: []int{1, 2}, gone: []int{3}, want: "2 sites of 19 failed, and 1 may"},
		"forgiven in the wave":         {all: "20", wave: "0", current: 2, failed: []int{11, 12}, forgiven: [2]int{2, 0}},
		"one after those":              {all: "20", wave: "0", current: 2, failed: []int{11, 12, 13}, forgiven: [2]int{2, 0}, want: "3 sites failed in wave 2, and 2 may"},
		"forgiven in all":              {all: "1", wave: "10", current: 2, failed: []int{1, 2, 3}, forgiven: [2]int{0, 2}},
		"one after those, in all":      {all: "1", wave: "10", current: 2, failed: []int{1, 2, 3, 4}, forgiven: [2]int{0, 2}, want: "4 sites of 20 failed, and 3 may: s1 was not ready in time; s2 was not ready in time; s3 was not ready in time; …"},
		"promoted, in the wave":        {all: "20", wave: "0", current: 2, failed: []int{11, 12}, promote: 2},
		"promoted, in all":             {all: "1", wave: "0", current: 2, failed: []int{11, 12}, promote: 2, want: "2 sites of 20 failed, and 1 may"},
		"promoted, the wave before":    {all: "20", wave: "0", current: 2, failed: []int{11}, promote: 1, want: "1 site failed in wave 2"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &v1alpha1.RolloutSpec{}
			spec.Budget, spec.Control.Promote = v1alpha1.RolloutBudget{MaxFailed: c.all, MaxFailedInWave: c.wave}, c.promote
			r := &run{in: &Input{Spec: spec}, d: &decided{
				Wave: c.current, Waves: []wave{{End: 10, Started: 10, Settled: 20}, {End: 20, Started: 100, Settled: 120}}, rows: make([]row, 22),
				ForgivenInWave: c.forgiven[0], Forgiven: c.forgiven[1],
			}}
			for i := range r.d.rows {
				r.names = append(r.names, fmt.Sprint("s", i))
				r.site = append(r.site, &Site{Name: r.names[i], Online: true})
				r.steps = append(r.steps, byte(v1alpha1.StepPassed))
				if w := min(i/10, 1); w < c.current {
					r.d.rows[i].got = r.d.Waves[w].Started
				}
			}
			for _, i := range c.failed {
				r.steps[i] = byte(v1alpha1.StepFailed)
			}
			for _, i := range c.late {
				r.d.rows[i].got = 130
			}
			for _, i := range c.gone {
				r.site[i] = nil
			}
			if why := r.spent(); (why == "") != (c.want == "") || !strings.HasPrefix(why, c.want) {
				t.Errorf("%q, want %q", why, c.want)
			}
		})
	}
}

// Why a site failed is its own word, cut at a rune's end; that it was not ready in time else.
func TestWhyTheFirstFailed(t *testing.T) {
	long := strings.Repeat("x", 159) + "ü and so on"
	for name, c := range map[string]struct {
		site *Site
		want string
	}{
		"its own word":             {&Site{State: Failed, Why: "CrashLoopBackOff"}, "a CrashLoopBackOff"},
		"it says none":             {&Site{State: Failed}, "a could not apply it"},
		"it was not ready":         {&Site{State: Progressing, Why: "pulls an image"}, "a was not ready in time"},
		"it is not there any more": {nil, "a was not ready in time"},
		"as long as there is room": {&Site{State: Failed, Why: strings.Repeat("x", 160)}, "a " + strings.Repeat("x", 160)},
		"longer":                   {&Site{State: Failed, Why: long}, "a " + strings.Repeat("x", 159) + "…"},
	} {
		r := &run{names: []string{"a", "b"}, steps: []byte("fp"), site: []*Site{c.site, {State: Failed}}}
		if got := r.whyFailed(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// What was forgiven is no credit for others once it is well again.
func TestForgivenIsNoCredit(t *testing.T) {
	spec := &v1alpha1.RolloutSpec{}
	spec.Budget = v1alpha1.RolloutBudget{MaxFailed: "0", MaxFailedInWave: "0"}
	r := &run{in: &Input{Spec: spec}, d: &decided{Wave: 1, Waves: []wave{{End: 4, Started: 10}}, rows: make([]row, 4), Forgiven: 2, ForgivenInWave: 2},
		names: []string{"a", "b", "c", "d"}, steps: []byte("ffpp")}
	for _, name := range r.names {
		r.site = append(r.site, &Site{Name: name, Online: true})
	}
	if why := r.spent(); why != "" {
		t.Errorf("forgiven, and yet %q", why)
	}
	r.steps = []byte("pppp") // the two are well again
	if why := r.spent(); why != "" {
		t.Error(why)
	}
	r.steps = []byte("ppfp")
	if why := r.spent(); !strings.HasPrefix(why, "1 site failed in wave 1, and 0 may") {
		t.Errorf("another one failed: %q", why)
	}
	r.in.Spec.Control.Promote = 1
	if why := r.spent(); !strings.HasPrefix(why, "1 site of 4 failed, and 0 may") {
		t.Errorf("another one failed, of all: %q", why)
	}
}
