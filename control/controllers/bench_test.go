package controllers_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/controllers"
)

// One pass over 100 virtual sites of 10,000 sites.
func BenchmarkVirtualSites(b *testing.B) {
	var sites []v1alpha1.Site
	for i := range 10_000 {
		sites = append(sites, *site("t", fmt.Sprintf("site-%05d", i), map[string]string{"region": fmt.Sprint(i % 20), "model": fmt.Sprint(i % 7), "city": fmt.Sprint(i % 300)}))
	}
	var specs []v1alpha1.VirtualSiteSpec
	for i := range 100 {
		specs = append(specs, v1alpha1.VirtualSiteSpec{SiteSelector: metav1.LabelSelector{MatchLabels: map[string]string{"region": fmt.Sprint(i % 20)},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "model", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"1", "2"}}}}})
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, spec := range specs {
			if st, _ := controllers.VirtualSiteStatus(spec, sites); st.Sites == 0 {
				b.Fatal("no members")
			}
		}
	}
}
