package validation

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/workload"
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

// OurAnnotation tells whether an annotation is one that Muster reads, or may be taken for
// one.
func OurAnnotation(key string) bool {
	return strings.HasPrefix(key, "muster.dev/") || strings.HasPrefix(key, "ves.io/")
}

// values are the annotations of workloads and what each may say.
var values = map[string]func(string) error{
	workload.VirtualSites:    nil, // control/apiserver looks which there are
	workload.Overrides:       nil,
	workload.Flavor:          flavor,
	workload.Apply:           oneOf(workload.Optimistic, workload.Pessimistic),
	workload.ApplyDeadline:   deadline,
	workload.Prepull:         oneOf("true", "false"),
	workload.PrepullDeadline: deadline,
	workload.Bundle:          bundle,
	workload.Drift:           oneOf(workload.Mend, workload.Leave),
	workload.OfflineSites:    oneOf(workload.Wait, workload.Ignore),
}

func oneOf(allowed ...string) func(string) error {
	return func(v string) error {
		if slices.Contains(allowed, v) {
			return nil
		}
		return fmt.Errorf("want %s", strings.Join(allowed, " or "))
	}
}

func flavor(v string) error {
	if v == "" {
		return errors.New("want the name of a flavor, or no annotation for the default")
	}
	_, err := workload.ParseFlavor(v)
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), strconv.Quote(v)+": "))
	}
	return nil
}

// maxDeadline bounds how long a site tries before it goes back.
const maxDeadline = 24 * time.Hour

func deadline(v string) error {
	if d, err := time.ParseDuration(v); err != nil || d < time.Second || d > maxDeadline {
		return errors.New("want a duration between 1s and 24h, such as 10m")
	}
	return nil
}

func bundle(v string) error {
	if msgs := validation.IsDNS1123Label(v); len(msgs) > 0 {
		return errors.New("want a name that the objects of the bundle share: " + msgs[0])
	}
	return nil
}

// WorkloadAnnotations checks those annotations of an object that changed, as far as they
// can be checked without asking what else there is; of annotations that look like Muster's
// and are none it warns.
func WorkloadAnnotations(kind offered.Kind, annotations map[string]string, changed func(key string) bool) (errs field.ErrorList, warnings []string) {
	at := field.NewPath("metadata", "annotations")
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		v := annotations[key]
		if !OurAnnotation(key) || key == v1alpha1.AnnotationRollout || !changed(key) {
			continue // the API server sets that one itself
		}
		check, known := values[key]
		switch {
		case !known:
			warnings = append(warnings, fmt.Sprintf("annotation %s is none that Muster knows; it knows %s", key, strings.Join(slices.Sorted(maps.Keys(values)), ", ")))
		case key == workload.Overrides && !kind.Spec:
			errs = append(errs, field.Invalid(at.Key(key), v, "an Override replaces a spec, and a "+kind.Kind+" has none"))
		case key == workload.Flavor && kind.Template == nil:
			errs = append(errs, field.Invalid(at.Key(key), v, "a flavor is for what makes pods: "+strings.Join(podMakers(), ", ")))
		case check != nil:
			if err := check(v); err != nil {
				errs = append(errs, field.Invalid(at.Key(key), v, err.Error()))
			}
		}
	}
	return errs, warnings
}

func podMakers() []string {
	var out []string
	for _, k := range offered.Stock {
		if k.Template != nil {
			out = append(out, k.Kind)
		}
	}
	return out
}

var evaluator = sync.OnceValues(func() (policy.Evaluator, error) { return policy.NewEvaluator(policy.DefaultChecks(), nil) })

// PodSecurity checks the template of pods against a Pod Security Standard, in its latest
// version. The error says what to change.
func PodSecurity(level v1alpha1.PodSecurityLevel, template map[string]any) error {
	if level == v1alpha1.PodSecurityPrivileged {
		return nil
	}
	var pod corev1.PodTemplateSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, &pod); err != nil {
		return fmt.Errorf("the template of its pods can't be read: %w", err)
	}
	checks, err := evaluator()
	if err != nil {
		return err
	}
	at := api.LevelVersion{Level: api.LevelBaseline, Version: api.LatestVersion()}
	if level == v1alpha1.PodSecurityRestricted {
		at.Level = api.LevelRestricted
	}
	if r := policy.AggregateCheckResults(checks.EvaluatePod(at, &pod.ObjectMeta, &pod.Spec)); !r.Allowed {
		return errors.New(r.ForbiddenDetail())
	}
	return nil
}
