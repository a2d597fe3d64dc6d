package validation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/v1alpha1"
)

// VirtualHost checks that the name under which it is reached can be that of a Service, and
// is not that of a Service that serves it, and that no two routes are for the same requests.
func VirtualHost(h *v1alpha1.VirtualHost) field.ErrorList {
	at, host := spec.Child("host"), h.Spec.Host
	if host == "" {
		if at, host = field.NewPath("metadata", "name"), h.Name; host == "" {
			return nil // generateName: looked at again with its name
		}
	}
	if msgs := validation.IsDNS1035Label(host); len(msgs) > 0 {
		return field.ErrorList{field.Invalid(at, host, "want a name that a Service can have, or one in spec.host: "+msgs[0])}
	}
	services := []string{h.Spec.Service.Name}
	seen := map[[2]string]int{}
	var errs field.ErrorList
	for i, r := range h.Spec.Routes {
		services = append(services, r.Service.Name)
		same := [2]string{r.Host, cmp.Or(strings.TrimSuffix(r.Path, "/"), "/")}
		if first, ok := seen[same]; ok {
			errs = append(errs, field.Duplicate(spec.Child("routes").Index(i), fmt.Sprintf("%s%s is routes[%d]'s already", same[0], same[1], first)))
		} else {
			seen[same] = i
		}
	}
	if slices.Contains(services, host) {
		errs = append(errs, field.Invalid(at, host, "is the name of the Service itself, which a site may have beside it: name another one in spec.host"))
	}
	return errs
}
