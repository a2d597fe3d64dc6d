package decide

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkDecide decides in the middle of a wave of half of the sites, with the default
// gates and what ten minutes have left in memory.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{300, 3000, 10000} {
		b.Run(fmt.Sprintf("%d sites", n), func(b *testing.B) {
			w := newWorld(&testing.T{}, n)
			w.spec.Strategy.Waves = percent(50)
			w.spec.Soak.Duration = time.Hour
			w.run(10*time.Minute, func(*world) bool { return false })
			in := Input{Name: "shop-1", Spec: &w.spec, State: w.state.DeepCopy(), Sites: w.sites, Memory: w.memory, Now: w.now}
			b.ReportAllocs()
			for b.Loop() {
				in.Now = in.Now.Add(15 * time.Second)
				Decide(in)
			}
		})
	}
}

// BenchmarkPlan plans the default waves.
func BenchmarkPlan(b *testing.B) {
	w := newWorld(&testing.T{}, 10000)
	for i := range w.sites {
		w.sites[i].Labels["region"] = fmt.Sprint(i % 30)
		w.sites[i].Labels["muster.dev/system-product"] = fmt.Sprint(i % 11)
	}
	for b.Loop() {
		if _, err := Plan("shop-1", &w.spec, w.sites, w.scope, w.member); err != nil {
			b.Fatal(err)
		}
	}
}
