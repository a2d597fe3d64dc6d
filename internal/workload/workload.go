// Package workload holds the words that the centre and the sites share about what runs
// on the sites' clusters: annotations, flavors, the names of items and the states that
// an item can be in.
//
// It is pure: no I/O, no goroutines, no Kubernetes types beyond strings, so that the
// edge binary can use it. control/desired renders items, control/agent/kube applies them,
// control/vk8s shows what became of them.
package workload

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is the wire.Item kind of one object for a site's Kubernetes API. Its blob is the
// object as JSON, as the site shall have it: rendered, with the namespace that it has on
// the site, without status and without fields that the centre's API server set for itself.
const Kind = "KubernetesObject"

// The annotations of a workload. Those under ves.io are the reference's; they count on
// every object of a virtual Kubernetes.
const (
	// VirtualSites lists the virtual sites, NAMESPACE/NAME, separated by commas, on whose
	// sites (all of them together) the object is; absent: the default virtual site.
	VirtualSites = "ves.io/virtual-sites"
	// Overrides lists the Overrides, by name, separated by commas, of which the first that
	// names a site replaces the object's spec there.
	Overrides = "ves.io/overrides"
	// Flavor is what each container gets; absent: tiny.
	Flavor = "ves.io/workload-flavor"

	// Apply is Optimistic (the default: apply and go on) or Pessimistic (wait until it is
	// ready, and go back to the last good one when it is not by ApplyDeadline).
	Apply = "muster.dev/apply"
	// ApplyDeadline is a Go duration; absent: DefaultApplyDeadline.
	ApplyDeadline = "muster.dev/apply-deadline"
	// Prepull, "true": the images of a new version are pulled before the old one is
	// replaced; PrepullDeadline is a Go duration; absent: DefaultPrepullDeadline.
	Prepull         = "muster.dev/prepull"
	PrepullDeadline = "muster.dev/prepull-deadline"
	// Bundle names a group of objects of one namespace that move and roll back together.
	Bundle = "muster.dev/bundle"
	// Drift says what becomes of what somebody changed on a site: Mend (the default) or
	// Leave. It is shown in both cases.
	Drift = "muster.dev/drift"
	// OfflineSites says whether sites that are offline count as not ready in the
	// workload's own status: Wait (the default) or Ignore.
	OfflineSites = "muster.dev/offline-sites"
)

// Values of the annotations.
const (
	Optimistic, Pessimistic = "Optimistic", "Pessimistic"
	Mend, Leave             = "Mend", "Leave"
	Wait, Ignore            = "Wait", "Ignore"

	DefaultApplyDeadline   = 10 * time.Minute
	DefaultPrepullDeadline = 10 * time.Minute
)

// Labels and annotations of the objects on a site.
const (
	// Owned, with the value "true", is the label by which a site knows what Muster put
	// there. Nothing without it is ever changed or removed.
	Owned = "muster.dev/owned"
	// Digest is the annotation that names the item that the object was made of.
	Digest = "muster.dev/digest"
	// Origin is the annotation that has the UID at the centre: what was made anew there is
	// another one.
	Origin = "muster.dev/origin"
	// Refused is the annotation of what was rolled back: the version that did not become ready,
	// so that a site that forgets all does not try it again.
	Refused = "muster.dev/refused"
	// FieldManager is who applies.
	FieldManager = "muster-edge"
)

// Pods are those of a workload on all of its sites together.
type Pods struct{ Desired, Updated, Ready, Available int }

// MaxStatus is how large a status may be to be passed on to the centre, in bytes of JSON, and
// MaxWord how long one of its words is that is short.
const (
	MaxStatus = 16 << 10
	MaxWord   = 256
)

// FlavorOf is a size of containers: the limits; requests are half of them.
type FlavorOf struct {
	Name        string
	MilliCPU    int64
	MemoryBytes int64
}

// Flavors, smallest first; the first is the default. Source: the reference's "Managing
// Compute Resources for Containers".
var Flavors = []FlavorOf{
	{"tiny", 100, 100 << 20},
	{"medium", 250, 250 << 20},
	{"large", 1000, 1024 << 20},
}

// ParseFlavor returns the flavor of a name; the empty name is the default's.
func ParseFlavor(name string) (FlavorOf, error) {
	if name == "" {
		return Flavors[0], nil
	}
	if i := slices.IndexFunc(Flavors, func(f FlavorOf) bool { return f.Name == name }); i >= 0 {
		return Flavors[i], nil
	}
	names := make([]string, len(Flavors))
	for i, f := range Flavors {
		names[i] = f.Name
	}
	return FlavorOf{}, fmt.Errorf("%q: want one of %s", name, strings.Join(names, ", "))
}

// List splits an annotation's list; elements are trimmed, empty ones left out.
func List(value string) []string {
	var out []string
	for _, s := range strings.Split(value, ",") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// ItemName names an object of a site as a wire.Item: KIND.GROUP/NAMESPACE/NAME, KIND alone
// for the core group, "-" for the namespace of what has none.
func ItemName(group, kind, namespace, name string) string {
	if group != "" {
		kind += "." + group
	}
	if namespace == "" {
		namespace = "-"
	}
	return kind + "/" + namespace + "/" + name
}

// ParseItemName is the inverse of ItemName.
func ParseItemName(item string) (group, kind, namespace, name string, err error) {
	parts := strings.Split(item, "/")
	if len(parts) != 3 || slices.Contains(parts, "") {
		return "", "", "", "", fmt.Errorf("item %.80q: want KIND.GROUP/NAMESPACE/NAME", item)
	}
	kind, group, _ = strings.Cut(parts[0], ".")
	if namespace = parts[1]; namespace == "-" {
		namespace = ""
	}
	return group, kind, namespace, parts[2], nil
}

// State is what an item is in on a site.
type State string

// The states.
const (
	Waiting     State = "Waiting"     // not applied yet: for its turn, its images, what it depends on
	Progressing State = "Progressing" // applied, not ready yet
	Ready       State = "Ready"       // applied, and ready where its kind can be
	Failed      State = "Failed"      // could not be applied, or will not become ready
	RolledBack  State = "RolledBack"  // the last good one is in effect again
)

// States in the order in which people read them.
var States = []State{Ready, Progressing, Waiting, RolledBack, Failed}

// NodeName is a site's node as the centre shows it: SITE-NODE.
func NodeName(site, node string) string { return site + "-" + node }
