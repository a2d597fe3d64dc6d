package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/alertroute"
	"muster.dev/muster/control/api/v1alpha1"
)

// AlertRoute checks the routing tree, receivers, inhibitions and time intervals with
// Alertmanager's own parser. Whether the Secrets exist is not looked at: they may come
// later, and status says so until then.
func AlertRoute(r *v1alpha1.AlertRoute) field.ErrorList {
	_, errs := alertroute.Parse(&r.Spec)
	return errs
}

// Destinations checks that what an AlertRoute names and can be looked at without
// resolving it may be reached, as reach says of HOST:PORT. It says nothing about a route
// that AlertRoute refuses.
func Destinations(r *v1alpha1.AlertRoute, reach func(address string) error) field.ErrorList {
	s, errs := alertroute.Parse(&r.Spec)
	if len(errs) > 0 {
		return nil
	}
	return s.Unreachable(reach)
}
