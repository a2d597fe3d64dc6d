package validation

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/alertrules"
	"muster.dev/muster/control/api/v1alpha1"
)

// AlertRules checks the rules with Prometheus' own parsers.
func AlertRules(r *v1alpha1.AlertRules) field.ErrorList {
	return alertrules.Check(r.Spec, strings.TrimSuffix(r.Namespace, "-system"))
}
