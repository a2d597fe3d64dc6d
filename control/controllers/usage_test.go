package controllers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
)

// A figure that moves a little is not written again; one that moves a step, crosses a
// level or gets another limit is.
func TestUsageMovesInSteps(t *testing.T) {
	limits := v1alpha1.TenantQuotas{Series: 1000, Sites: 100}
	var told []v1alpha1.QuotaUsage
	writes := 0
	for used := int64(0); used <= 1000; used++ {
		now := usage(told, map[string]int64{v1alpha1.QuotaSeries: used}, limits)
		if !cmp.Equal(now, told) {
			writes++
		}
		told = now
	}
	if writes > 25 || told[0].Used != 1000 {
		t.Errorf("%d writes, at last %+v", writes, told)
	}
	for _, c := range []struct {
		before, now int64
		quota       string
		limits      v1alpha1.TenantQuotas
		want        int64
	}{
		{500, 540, v1alpha1.QuotaSeries, limits, 500},
		{500, 550, v1alpha1.QuotaSeries, limits, 550},
		{890, 905, v1alpha1.QuotaSeries, limits, 905}, // nearly
		{980, 1000, v1alpha1.QuotaSeries, limits, 1000},
		{1000, 999, v1alpha1.QuotaSeries, limits, 999},
		{7, 8, v1alpha1.QuotaSites, limits, 8},
		{1000, 1050, v1alpha1.QuotaObjects, limits, 1000}, // no limit: a tenth
		{1000, 1200, v1alpha1.QuotaObjects, limits, 1200},
		{500, 501, v1alpha1.QuotaSeries, v1alpha1.TenantQuotas{Series: 2000}, 501},
	} {
		before := []v1alpha1.QuotaUsage{{Quota: c.quota, Used: c.before, Limit: limits.Limit(c.quota)}}
		if got := usage(before, map[string]int64{c.quota: c.now}, c.limits); got[0].Used != c.want {
			t.Errorf("%+v: told %d", c, got[0].Used)
		}
	}
	for used, want := range map[int64]string{0: "WithinQuotas", 899: "WithinQuotas", 900: "NearlyUsedUp", 1000: "QuotaReached", 1100: "QuotaReached"} {
		got := withinQuotas([]v1alpha1.QuotaUsage{{Quota: "series", Used: used, Limit: 1000}, {Quota: "objects", Used: 1 << 40}})
		if got.Reason != want || (got.Status == metav1.ConditionFalse) != (want == "QuotaReached") {
			t.Errorf("%d: %+v", used, got)
		}
	}
}
