package controllers

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
)

// Parts of a quota: what a figure has to move by before it is written, and from where
// on a tenant is told that a quota is nearly used up.
const (
	usageSteps = 20
	nearlyNum  = 9
	nearlyDen  = 10
)

// usage of all quotas, from the figures of now. One that has not moved by a step stays
// as it was told before: the API server gets no hot status.
func usage(before []v1alpha1.QuotaUsage, now map[string]int64, limits v1alpha1.TenantQuotas) []v1alpha1.QuotaUsage {
	var out []v1alpha1.QuotaUsage
	for _, quota := range v1alpha1.Quotas {
		used, known := now[quota]
		i := slices.IndexFunc(before, func(u v1alpha1.QuotaUsage) bool { return u.Quota == quota })
		if !known {
			if i >= 0 {
				out = append(out, before[i])
			}
			continue
		}
		u := v1alpha1.QuotaUsage{Quota: quota, Used: used, Limit: limits.Limit(quota)}
		if i >= 0 && before[i].Limit == u.Limit && level(before[i]) == level(u) && !moved(quota, before[i].Used, u) {
			u.Used = before[i].Used
		}
		out = append(out, u)
	}
	return out
}

func moved(quota string, before int64, u v1alpha1.QuotaUsage) bool {
	step := u.Limit / usageSteps
	switch {
	case quota == v1alpha1.QuotaSites:
		step = 1
	case u.Limit == 0:
		step = max(before, u.Used) / (usageSteps / 2)
	}
	return before != u.Used && max(before, u.Used)-min(before, u.Used) >= step
}

// level is 0 for enough room, 1 for nearly used up, 2 for used up.
func level(u v1alpha1.QuotaUsage) int {
	switch {
	case u.Limit == 0 || u.Used < u.Limit/nearlyDen*nearlyNum:
		return 0
	case u.Used < u.Limit:
		return 1
	}
	return 2
}

// withinQuotas tells which quotas are used up, or nearly so.
func withinQuotas(all []v1alpha1.QuotaUsage) metav1.Condition {
	var says [3][]string
	for _, u := range all {
		says[level(u)] = append(says[level(u)], fmt.Sprintf("%s: %d of %d", u.Quota, u.Used, u.Limit))
	}
	c := metav1.Condition{Type: v1alpha1.ConditionWithinQuotas, Status: metav1.ConditionTrue, Reason: "WithinQuotas", Message: "there is room in every quota"}
	switch {
	case len(says[2]) > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "QuotaReached", strings.Join(says[2], "; ")+"; more is refused. Use less, or ask an operator to raise spec.quotas"
	case len(says[1]) > 0:
		c.Reason, c.Message = "NearlyUsedUp", strings.Join(says[1], "; ")
	}
	return c
}
