package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/logrule"
	"muster.dev/muster/control/api/v1alpha1"
)

// LogRules checks the rules as those who evaluate them read them.
func LogRules(r *v1alpha1.LogRules) field.ErrorList {
	return logrule.Check(r.Spec)
}
