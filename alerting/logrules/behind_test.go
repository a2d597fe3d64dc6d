package logrules

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gauges returns what a registry has, by name without muster_logrules_.
func gauges(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if g := f.Metric[0].Gauge; g != nil {
			out[strings.TrimPrefix(f.GetName(), "muster_logrules_")] = g.GetValue()
		} else {
			out[strings.TrimPrefix(f.GetName(), "muster_logrules_")] = f.Metric[0].Counter.GetValue()
		}
	}
	return out
}

func measured(name string) (*prometheus.Registry, func(*Options)) {
	reg := prometheus.NewRegistry()
	return reg, func(o *Options) { o.Name, o.Registerer = name, reg }
}

func away(string, string) (before, after error) { return errInjected, nil }

// However the store fails, the rules are behind by as long as it does.
func TestBehindGrows(t *testing.T) {
	for name, fail := range map[string]func(w *world){
		"all of it":  func(w *world) { w.state.fail, w.src.err = away, errInjected },
		"its state":  func(w *world) { w.state.fail = away },
		"its time":   func(w *world) { w.src.err = errInjected },
		"one rule's": func(w *world) { w.state.fail = func(_, key string) (error, error) { return failRule(key), nil } },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "paris")
			w.use("acme", "{name: A, type: flatline, threshold: 1, timeframe: 1m}", "{name: B, type: any}")
			reg, with := measured("one")
			r := w.runner(with)
			round1(r)
			w.run(2*time.Minute, r)
			if b := gauges(t, reg)["behind_seconds"]; b > 15 {
				t.Errorf("%g s behind when all is well", b)
			}
			fail(w)
			if name == "one rule's" {
				for _, u := range r.units {
					u.st = nil
				}
			}
			w.run(10*time.Minute, r)
			if b := gauges(t, reg)["behind_seconds"]; b < 570 || b > 615 { // the lease is good for a round more
				t.Errorf("%g s behind after 10 minutes", b)
			}
			if s := r.Status().(Status); s.BehindSeconds < 570 {
				t.Errorf("%+v", s)
			}
			w.state.fail, w.src.err = nil, nil
			w.run(2*time.Minute, r)
			if b := gauges(t, reg)["behind_seconds"]; b > 15 {
				t.Errorf("%g s behind when it is back", b)
			}
		})
	}
}

func failRule(key string) error {
	if strings.HasSuffix(key, "/A/acme") {
		return errInjected
	}
	return nil
}

func TestBehindSinceTheStart(t *testing.T) {
	w := newWorld(t, "paris")
	w.state.fail, w.src.err = away, errInjected
	regs := make([]*prometheus.Registry, 2)
	for i, rules := range [][]string{{"{type: any}"}, nil} {
		w.now = t0
		w.use("acme", rules...)
		reg, with := measured("one")
		r := w.runner(with)
		round1(r)
		w.run(10*time.Minute, r)
		regs[i] = reg
	}
	if b := gauges(t, regs[0])["behind_seconds"]; b != 600 {
		t.Errorf("%g s behind, want 600", b)
	}
	if b := gauges(t, regs[1])["behind_seconds"]; b != 0 {
		t.Errorf("%g s behind with no rules", b)
	}
}

// What another process does is not told by this one.
func TestBehindIsTheOwners(t *testing.T) {
	w := newWorld(t, "paris")
	w.use("acme", "{type: any}")
	reg1, with1 := measured("one")
	reg2, with2 := measured("two")
	one, two := w.runner(with1), w.runner(with2)
	round1(one)
	w.src.err = errInjected
	w.run(10*time.Minute, one, two)
	if g := gauges(t, reg1); g["behind_seconds"] < 590 || g["rules"] != 1 {
		t.Errorf("the owner: %v", g)
	}
	if g := gauges(t, reg2); g["behind_seconds"] != 0 || g["rules"] != 0 {
		t.Errorf("the other: %v", g)
	}
	w.src.err = nil
	w.run(time.Minute, two) // one hangs
	w.run(time.Minute, one, two)
	if g := gauges(t, reg1); g["behind_seconds"] != 0 || g["rules"] != 0 || g["owner"] != 0 {
		t.Errorf("who was the owner: %v", g)
	}
	if g := gauges(t, reg2); g["behind_seconds"] > 15 || g["rules"] != 1 {
		t.Errorf("the new owner: %v", g)
	}
	w.state.fail = away // nobody has the lease now
	w.run(10*time.Minute, one, two)
	for i, reg := range []*prometheus.Registry{reg1, reg2} {
		if g := gauges(t, reg); g["behind_seconds"] < 570 {
			t.Errorf("process %d: %v", i+1, g)
		}
	}
}

// What lasts fires through an outage of the store, during which nothing is sent.
func TestLastingThroughAnOutage(t *testing.T) {
	w := newWorld(t, "paris")
	w.use("acme", "{type: flatline, threshold: 1, timeframe: 1m}")
	r := w.runner()
	round1(r)
	w.run(2*time.Minute, r)
	w.state.fail, w.src.err = away, errInjected
	for range 20 {
		w.run(time.Minute, r)
		w.expect("during the outage", w.sink.firing(), "R{site=paris}")
	}
	w.state.fail, w.src.err = nil, nil
	w.run(5*time.Minute, r)
	w.expect("after it", w.sink.firing(), "R{site=paris}")
	w.expect("raised", w.sink.raised(), "R{site=paris}@60")
	w.log("paris", "x", w.now.Sub(t0).Seconds())
	w.run(30*time.Second, r)
	w.expect("when lines come", w.sink.firing())
}
