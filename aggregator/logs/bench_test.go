package logs

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkSearch is the whole way of a page of 1000: ask all regions over HTTP, check,
// merge. The hits all come from the newest records of every region.
func BenchmarkSearch(b *testing.B) {
	for _, n := range []int{1, 5} {
		b.Run(fmt.Sprintf("regions=%d", n), func(b *testing.B) {
			var regions []*region
			for i := range n {
				r := newRegion(b, fmt.Sprintf("r%d", i))
				for j := range 1000 {
					r.mem.put(record("s1", time.Duration(j)*time.Second, fmt.Sprintf("%d-%04d", i, j)))
				}
				regions = append(regions, r)
			}
			c := newClient(b, regions)
			for b.Loop() {
				if a := mustAsk(b, c, "limit=1000"); len(a.Hits) != 1000 {
					b.Fatal(len(a.Hits))
				}
			}
		})
	}
}
