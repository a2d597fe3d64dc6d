package controllers

import (
	"fmt"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
)

// One pass over 100 virtual sites of 10,000 sites.
func BenchmarkVirtualSites(b *testing.B) {
	var sites []*inventory.Site
	for i := range 10_000 {
		s := &inventory.Site{ID: fleet.SiteID{Tenant: "t", Name: fmt.Sprintf("site-%05d", i)}, Phase: fleet.PhaseOnline}
		for v := i % 20; v < 100; v += 20 { // as many as region and model choose
			if i%7 != 1 && i%7 != 2 {
				s.VirtualSites = append(s.VirtualSites, fmt.Sprintf("shared/v%02d", v))
			}
		}
		sites = append(sites, s)
	}
	var virtual []*inventory.VirtualSite
	for i := range 100 {
		virtual = append(virtual, &inventory.VirtualSite{Tenant: "t", Namespace: "shared", Name: fmt.Sprintf("v%02d", i)})
	}
	known := inventory.NewSnapshot(1, sites, virtual, nil)
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		for _, v := range known.VirtualSitesOf("t") {
			if st, _ := virtualSiteStatus(known, v, now); st.Sites == 0 {
				b.Fatal("no members")
			}
		}
	}
}
