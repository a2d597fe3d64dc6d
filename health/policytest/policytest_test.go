package policytest_test

import (
	"strings"
	"testing"

	"muster.dev/muster/health"
	"muster.dev/muster/health/defaults"
	"muster.dev/muster/health/policytest"
)

func run(t *testing.T, text string) []string {
	t.Helper()
	f, err := policytest.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := policytest.Run(defaults.Model(), f.Tick.Duration, &f.Cases[0])
	if err != nil {
		t.Fatal(err)
	}
	return wrong
}

func TestSaysWhatIsWrong(t *testing.T) {
	const text = `cases: [{name: a, readings: {disk-used: "96"}, expect: [{at: 0s, until: 30s, colour: COLOUR, dimension: performance, signal: disk-used, reason: fullest, below: 40}]}]`
	if wrong := run(t, strings.Replace(text, "COLOUR", "red", 1)); len(wrong) != 0 {
		t.Errorf("%q", wrong)
	}
	wrong := run(t, strings.Replace(text, "COLOUR", "green", 1))
	if len(wrong) != 3 || !strings.Contains(wrong[0], "want green; it is 39 red, first performance disk-used: the fullest filesystem is 96% full") {
		t.Errorf("%q", wrong)
	}
}

func TestRefuses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"cases: []", "at least one"},
		{"cases: [{name: a}]", "something to expect"},
		{"case: []", "unknown field"},
		{"tick: 1ms\ncases: [{name: a, expect: [{at: 0s}]}]", "tick"},
	} {
		if _, err := policytest.Parse([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
	for _, c := range []struct{ text, want string }{
		{`{readings: {nosuch: "1"}}`, "no signal"}, {`{packs: [nosuch]}`, "no pack"}, {`{readings: {disk-used: "one"}}`, "readings.disk-used"}, {`{expect: [{at: 10000h}]}`, "ticks"},
	} {
		f, err := policytest.Parse([]byte(`cases: [` + strings.Replace(strings.Replace(c.text, "{", "{name: a, ", 1), "expect", "expect", 1) + `]`))
		if err != nil && strings.Contains(err.Error(), "something to expect") {
			f, err = policytest.Parse([]byte(`cases: [` + strings.Replace(c.text, "{", "{name: a, expect: [{at: 0s}], ", 1) + `]`))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := policytest.Run(defaults.Model(), f.Tick.Duration, &f.Cases[0]); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}

func FuzzCases(f *testing.F) {
	f.Add(defaults.CasesYAML)
	m, err := health.NewModel(health.Options{Weights: [4]float64{1, 1, 1, 1}, Signals: []health.Signal{{Name: "a", Dimension: "security", Good: 0, Bad: 1, Weight: 1, Cap: 100}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := policytest.Parse(data)
		if err != nil {
			return
		}
		for i := range file.Cases {
			for _, x := range file.Cases[i].Expect {
				if max(x.At.Duration, x.Until.Duration) > 1000*file.Tick.Duration {
					return
				}
			}
			_, _ = policytest.Run(m, file.Tick.Duration, &file.Cases[i])
		}
	})
}
