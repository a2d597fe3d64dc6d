package validation

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/software"
)

// SoftwareVersion checks that versions can be compared, and that it can be installed
// anywhere at all.
func SoftwareVersion(s *v1alpha1.SoftwareVersion) field.ErrorList {
	errs := semantic(spec.Child("version"), s.Spec.Version)
	errs = append(errs, versions(spec.Child("requires"), s.Spec.Requires)...)
	if len(errs) > 0 {
		return errs
	}
	if own := s.Spec.Requires[s.Spec.Component]; own != "" && !version.MustParseSemantic(own).LessThan(version.MustParseSemantic(s.Spec.Version)) {
		errs = append(errs, field.Invalid(spec.Child("requires").Key(string(s.Spec.Component)), own, "no site could ever get "+s.Spec.Version+"; want an older version than that"))
	}
	has := func(architecture string) bool {
		return slices.ContainsFunc(s.Spec.Bundles, func(b v1alpha1.SoftwareBundle) bool { return b.Architecture == architecture })
	}
	machines := len(s.Spec.Bundles)
	if has(software.Kubernetes) {
		if machines--; s.Spec.Component != "agent" {
			errs = append(errs, field.Invalid(spec.Child("bundles"), software.Kubernetes, "want it of the agent alone: nothing else is pods that are replaced"))
		}
	}
	if machines > 1 && has("any") {
		errs = append(errs, field.Invalid(spec.Child("bundles"), "any", "want either one bundle for any architecture, or one for each"))
	}
	return errs
}

func versions(at *field.Path, of map[v1alpha1.SoftwareComponent]string) field.ErrorList {
	var errs field.ErrorList
	for _, c := range slices.Sorted(maps.Keys(of)) {
		errs = append(errs, semantic(at.Key(string(c)), of[c])...)
	}
	return errs
}

func semantic(at *field.Path, v string) field.ErrorList {
	if _, err := version.ParseSemantic(v); err != nil || v[0] == 'v' {
		return field.ErrorList{field.Invalid(at, v, "want a version in Semantic Versioning's form, without a v in front: 1.4.2 or 1.4.2-rc.1")}
	}
	return nil
}

// SoftwarePolicy checks the version and the selector.
func SoftwarePolicy(p *v1alpha1.SoftwarePolicy) field.ErrorList {
	errs := selector(spec.Child("siteSelector"), &p.Spec.SiteSelector)
	if p.Spec.Version != "" {
		errs = append(errs, semantic(spec.Child("version"), p.Spec.Version)...)
	}
	return errs
}
