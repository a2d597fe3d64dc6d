package validation

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"muster.dev/muster/control/api/v1alpha1"
)

func TestAlertRoute(t *testing.T) {
	route := func(route, receiver string) *v1alpha1.AlertRoute {
		return &v1alpha1.AlertRoute{Spec: v1alpha1.AlertRouteSpec{
			Route:     apiextensionsv1.JSON{Raw: []byte(route)},
			Receivers: []apiextensionsv1.JSON{{Raw: []byte(receiver)}},
		}}
	}
	hook := `{"name": "team", "webhook_configs": [{"url": {"secretKeyRef": {"name": "hook", "key": "url"}}}]}`
	expect(t, "a route", AlertRoute(route(`{"receiver": "team"}`, hook)))
	expect(t, "a misspelt receiver", AlertRoute(route(`{"receiver": "taem"}`, hook)), "spec.route.receiver", "taem")
	expect(t, "a file of the server", AlertRoute(route(`{"receiver": "team"}`, `{"name": "team", "webhook_configs": [{"url_file": "/etc/passwd"}]}`)),
		"spec.receivers[0].webhook_configs[0].url_file", "secretKeyRef")
}
