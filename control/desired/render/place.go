// Package render makes, of the intent in a namespace with a virtual Kubernetes, the
// objects that a site shall have: which of them it gets, with which spec, and without what
// the centre's API server made up for itself.
//
// It is pure: no I/O, no goroutines, no clock. control/desired feeds it and keeps what
// comes out; control/apiserver asks it whether an object can be rendered at all; the CLI
// shows what it would say.
package render

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"muster.dev/muster/internal/workload"
)

// Short is the name of a tenant's namespace as its users type it. The second result is
// false for a namespace that is not the tenant's.
func Short(tenant, namespace string) (string, bool) {
	short, ok := strings.CutPrefix(namespace, tenant+"-")
	return short, ok && short != ""
}

// VirtualSite reads the name of a virtual site, NAMESPACE/NAME or NAME, as written in a
// namespace; in and the result's namespace are as users type them.
func VirtualSite(name, in string) (key string, err error) {
	ns, vs, found := strings.Cut(name, "/")
	if !found {
		ns, vs = in, name
	}
	if len(validation.IsDNS1123Label(ns)) > 0 || len(validation.IsDNS1123Subdomain(vs)) > 0 {
		return "", fmt.Errorf("%.100q is no name of a virtual site: want NAMESPACE/NAME, such as shared/all-eu", name)
	}
	return ns + "/" + vs, nil
}

// VirtualSites reads the annotation workload.VirtualSites: sorted keys, each once.
func VirtualSites(value, in string) ([]string, error) {
	var out []string
	for _, name := range workload.List(value) {
		key, err := VirtualSite(name, in)
		if err != nil {
			return nil, err
		}
		out = append(out, key)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%.100q names no virtual site: want NAMESPACE/NAME, separated by commas, or no annotation for the default virtual site", value)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Overrides reads the annotation workload.Overrides: names in their order, each once.
func Overrides(value string) ([]string, error) {
	var out []string
	for _, name := range workload.List(value) {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			return nil, fmt.Errorf("%.100q is no name of an Override: want names of Overrides in the same namespace, separated by commas", name)
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%.100q names no Override: want names of Overrides in the same namespace, separated by commas, or no annotation", value)
	}
	return out, nil
}
