package validation

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/v1alpha1"
)

// Override checks that what it puts in the place of a spec can be one, and that its sites
// can exist.
func Override(o *v1alpha1.Override) field.ErrorList {
	var errs field.ErrorList
	for i, name := range o.Spec.SiteList {
		if msgs := validation.IsDNS1123Label(name); len(msgs) > 0 {
			errs = append(errs, field.Invalid(spec.Child("siteList").Index(i), name, "want the name of a site, without the tenant: "+msgs[0]))
		}
	}
	at := spec.Child("spec")
	var replacement map[string]any
	if err := json.Unmarshal(o.Spec.Spec.Raw, &replacement); err != nil || len(replacement) == 0 {
		return append(errs, field.Required(at, "want the whole spec that the object shall have on these sites"))
	}
	for _, key := range []string{"apiVersion", "kind", "metadata", "status", "spec"} {
		if _, has := replacement[key]; has {
			errs = append(errs, field.Invalid(at.Child(key), key, "want what stands under spec of the object, not the object"))
		}
	}
	return errs
}
