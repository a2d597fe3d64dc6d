package validation

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
)

func TestVirtualHost(t *testing.T) {
	for name, c := range map[string]struct{ object, host, want string }{
		"its own name":           {"db-global", "", ""},
		"another":                {"1", "db-global", ""},
		"no name of a Service":   {"1", "", "metadata.name"},
		"that of the Service":    {"x", "db", "spec.host"},
		"so by the object's own": {"db", "", "metadata.name"},
		"that of a route's":      {"api", "", "metadata.name"},
		"two routes for one":     {"twice", "", "spec.routes[2]"},
	} {
		h := &v1alpha1.VirtualHost{ObjectMeta: metav1.ObjectMeta{Name: c.object}, Spec: v1alpha1.VirtualHostSpec{Host: c.host, Service: v1alpha1.VirtualHostService{Name: "db", Port: 1}}}
		api := v1alpha1.VirtualHostService{Name: "api", Port: 1}
		h.Spec.Routes = []v1alpha1.VirtualHostRoute{{Path: "/v1", Service: api}, {Host: "x.example.com", Path: "/v1", Service: api}}
		if c.object == "twice" {
			h.Spec.Routes = append(h.Spec.Routes, v1alpha1.VirtualHostRoute{Path: "/v1/", Service: api})
		}
		if err := VirtualHost(h).ToAggregate(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
