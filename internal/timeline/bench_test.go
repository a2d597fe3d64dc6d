package timeline

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"muster.dev/muster/internal/wire"
)

// BenchmarkMillion measures pages of a million events: five tenants with 400 sites each, of
// which each belongs to four virtual sites.
func BenchmarkMillion(b *testing.B) {
	file := filepath.Join(b.TempDir(), "timeline.db")
	s := openAt(b, file, func(o *Options) { o.SiteBurst, o.TenantBurst = 1<<30, 1<<30; o.Bytes = 1 << 40 })
	const n, batch = 1_000_000, 10_000
	began := time.Now()
	for i := 0; i < n; i += batch {
		events := make([]wire.TimelineEvent, batch)
		for j := range events {
			k := i + j
			tenant, site := fmt.Sprintf("tenant-%d", k%5), fmt.Sprintf("site-%04d", k/5%400)
			events[j] = wire.TimelineEvent{Time: begin.Add(time.Duration(k) * time.Millisecond), Kind: wire.TimelineKinds[k/2000%10], Severity: wire.EventWarning, Tenant: tenant, Site: site, VirtualSites: []string{"shared/all", fmt.Sprintf("shared/region-%d", k/5%8), fmt.Sprintf("shared/hardware-%d", k/5%3), fmt.Sprintf("shop/wave-%d", k/5%20)},
				Before: "green", After: "orange", Text: "green → orange, score 61: the fullest filesystem is 86% full: / on n1 (86%)", Link: wire.SiteLink(tenant, site)}
		}
		if err := s.Add(events...); err != nil {
			b.Fatal(err)
		}
	}
	took := time.Since(began)
	info, err := os.Stat(file)
	if err != nil {
		b.Fatal(err)
	}
	for name, q := range map[string]Query{
		"site": {Tenants: []string{"tenant-3"}, Sites: []string{"site-0123"}}, "virtual-site": {Tenants: []string{"tenant-3"}, VirtualSites: []string{"shop/wave-7"}},
		"fleet": {AllTenants: true}, "kind-of-a-tenant": {Tenants: []string{"tenant-3"}, Kinds: []string{wire.EventPolicy}},
	} {
		b.Run(name, func(b *testing.B) {
			q.Limit = 100
			for b.Loop() {
				events, _, err := s.Page(b.Context(), q)
				if err != nil || len(events) != 100 {
					b.Fatal(len(events), err)
				}
			}
			b.ReportMetric(float64(info.Size())/n, "disk-B/event")
			b.ReportMetric(float64(took.Microseconds())/n, "µs-to-write/event")
		})
	}
}
