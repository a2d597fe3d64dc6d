package validation

import (
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/v1alpha1"
)

// VirtualHost checks that the name under which it is reached can be that of a Service, and
// is not that of the Service that serves it.
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
	if host == h.Spec.Service.Name {
		return field.ErrorList{field.Invalid(at, host, "is the name of the Service itself, which a site may have beside it: name another one in spec.host")}
	}
	return nil
}
