package routes

import (
	"fmt"
	"testing"
)

// BenchmarkMerge is the cost of a change when there are many tenants.
func BenchmarkMerge(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var objects []Object
			for i := range n {
				objects = append(objects, object(b, fmt.Sprintf("tenant-%d", i), "route", team))
			}
			for b.Loop() {
				if _, _, err := Merge(objects, noSecrets, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
