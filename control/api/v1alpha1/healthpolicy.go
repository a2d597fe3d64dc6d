package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/internal/fleet"
)

// HealthPolicy says how the health of some sites is computed. The one with the
// highest priority that selects a site applies to it, alone.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hp
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Sites",type=integer,JSONPath=`.status.sites`
// +kubebuilder:printcolumn:name="Healthy",type=string,JSONPath=`.status.conditions[?(@.type=="SignalsHealthy")].status`
// +kubebuilder:printcolumn:name="Shipped",type=string,JSONPath=`.status.conditions[?(@.type=="FollowsShipped")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type HealthPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   HealthPolicySpec   `json:"spec,omitempty"`
	Status HealthPolicyStatus `json:"status,omitempty"`
}

// HealthPolicySpec is the model: signals, weights, hysteresis.
type HealthPolicySpec struct {
	// SiteSelector chooses sites by label; empty: all of the tenant's sites.
	// +optional
	SiteSelector metav1.LabelSelector `json:"siteSelector,omitempty"`
	// Mode is Enforce, which is what an unset one means, or Shadow. A policy in shadow is
	// evaluated beside the one in force at the sites that it selects. Its scores are shown
	// and count for nothing: no colour, alert or gate follows them. Of several in shadow
	// the strongest is evaluated.
	// +kubebuilder:validation:Enum=Enforce;Shadow
	// +optional
	Mode HealthPolicyMode `json:"mode,omitempty"`
	// Priority decides between policies; higher wins, then the name.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// Weights of the dimensions in the site's score; unset: 1.
	// +optional
	Weights DimensionWeights `json:"weights,omitempty"`
	// WorstShare is the part of the site's score, from "0" to "1", that follows its worst
	// dimension alone; the rest is the mean of all. Unset: 0.5.
	// +kubebuilder:validation:XValidation:rule="!quantity(string(self)).isLessThan(quantity('0')) && !quantity(string(self)).isGreaterThan(quantity('1'))",message="spec.worstShare: want 0 to 1"
	// +optional
	WorstShare *resource.Quantity `json:"worstShare,omitempty"`
	// Evaluations is how many in a row must agree before a colour gets worse; into red
	// by a critical signal it changes at once.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	// +kubebuilder:default=2
	// +optional
	Evaluations int32 `json:"evaluations,omitempty"`
	// RecoveryEvaluations is how many in a row must agree before a colour gets better.
	// Until then the score stays in its colour's band, with the reason.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=4
	// +optional
	RecoveryEvaluations int32 `json:"recoveryEvaluations,omitempty"`
	// Packs switch signals on where what they measure is found.
	// +kubebuilder:validation:MaxItems=30
	// +listType=map
	// +listMapKey=name
	// +optional
	Packs []SignalPack `json:"packs,omitempty"`
	// Overrides change signals at some sites until a day.
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	// +optional
	Overrides []SignalOverride `json:"overrides,omitempty"`
	// Signals, each one PromQL query.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +listType=map
	// +listMapKey=name
	Signals []Signal `json:"signals"`
}

// HealthPolicyMode says whether a HealthPolicy counts.
type HealthPolicyMode string

// The modes of a HealthPolicy.
const (
	HealthPolicyEnforce HealthPolicyMode = "Enforce"
	HealthPolicyShadow  HealthPolicyMode = "Shadow"
)

// DimensionWeights weigh the dimensions; quantities such as "1" or "0.5".
type DimensionWeights struct {
	// +optional
	Connectivity *resource.Quantity `json:"connectivity,omitempty"`
	// +optional
	Reliability *resource.Quantity `json:"reliability,omitempty"`
	// +optional
	Security *resource.Quantity `json:"security,omitempty"`
	// +optional
	Performance *resource.Quantity `json:"performance,omitempty"`
}

// Signal turns one PromQL query into a part of a dimension's score: 1 at or better
// than good, 0 at or worse than bad, linear between. good and bad must differ.
type Signal struct {
	// Name, unique in the policy.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// +kubebuilder:validation:Enum=connectivity;reliability;security;performance
	Dimension fleet.Dimension `json:"dimension"`
	// Query is PromQL over the regional's edge engine. It returns at most one value
	// for each (tenant, site): aggregate `by (tenant, site)`.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`
	// Good: at or better than this the signal scores 1.
	Good resource.Quantity `json:"good"`
	// Bad: at or worse than this the signal scores 0.
	Bad resource.Quantity `json:"bad"`
	// Weight in the dimension; unset: 1.
	// +optional
	Weight *resource.Quantity `json:"weight,omitempty"`
	// Critical is a cap of 39: red when the signal scores 0.
	// +optional
	Critical bool `json:"critical,omitempty"`
	// Cap is the most that the dimension and the site can have while the signal scores 0,
	// whatever else is good. It comes on a ramp: no cap at half of the way from good to
	// bad, and in full at bad. Unset: 39 if critical, else none.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	Cap *int32 `json:"cap,omitempty"`
	// Pack that the signal belongs to: where the pack is not found, the signal does not
	// apply and is left out. Without one it applies everywhere, and a site without a value
	// for it lacks something.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Pack string `json:"pack,omitempty"`
	// Causes names the signals that fall as a consequence of this one: they rank after
	// it while both lose.
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	Causes []string `json:"causes,omitempty"`
	// Objects is PromQL over the same series that returns one value for each thing that is to blame: a
	// node, a container, a file system, a target. It must keep the labels tenant and site.
	// It is asked about sites that lose in the signal, and of each the three largest are
	// named with the reason.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Objects string `json:"objects,omitempty"`
	// Min and Max bound what the value can be. Beyond them it is garbage: unknown, with a
	// reason that says so.
	// +optional
	Min *resource.Quantity `json:"min,omitempty"`
	// +optional
	Max *resource.Quantity `json:"max,omitempty"`
	// Sparse says that the signal's series exist only while something is wrong. A good
	// value is then no proof while the site's series budget is used up, and is unknown.
	// +optional
	Sparse bool `json:"sparse,omitempty"`
	// Unit of the value, for people: seconds, percent, bytes, count, days, …
	// +kubebuilder:validation:MaxLength=20
	// +optional
	Unit string `json:"unit,omitempty"`
	// Text tells a person what is wrong, with {value} and {threshold} filled in,
	// e.g. "{value} nodes are not ready".
	// +kubebuilder:validation:MaxLength=200
	// +optional
	Text string `json:"text,omitempty"`
	// Source says which exporter gives the metric.
	// +kubebuilder:validation:MaxLength=200
	// +optional
	Source string `json:"source,omitempty"`
}

// SignalPack is a set of signals that go together: those of one exporter or product.
type SignalPack struct {
	// Name that signals refer to.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// When is PromQL that returns a value above 0 for each (tenant, site) where the pack is
	// found. A site keeps a pack for a day after it was found last, so that what falls
	// silent is missed.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	When string `json:"when"`
}

// SignalOverride changes thresholds at some sites, for a reason and until a day.
type SignalOverride struct {
	// Sites by name, and all members of VirtualSites ("namespace/name").
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	// +optional
	Sites []string `json:"sites,omitempty"`
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	// +optional
	VirtualSites []string `json:"virtualSites,omitempty"`
	// Signals and what they are there.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +listType=map
	// +listMapKey=name
	Signals []SignalChange `json:"signals"`
	// Reason tells people why.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	Reason string `json:"reason"`
	// Until when; from then on the override does nothing.
	Until metav1.Time `json:"until"`
}

// SignalChange is what an override sets of a signal.
type SignalChange struct {
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// +optional
	Good *resource.Quantity `json:"good,omitempty"`
	// +optional
	Bad *resource.Quantity `json:"bad,omitempty"`
	// Ignore leaves the signal out.
	// +optional
	Ignore bool `json:"ignore,omitempty"`
}

// HealthPolicyStatus counts the sites and names failing signals.
type HealthPolicyStatus struct {
	// +kubebuilder:default=0
	// +optional
	Sites int32 `json:"sites"`
	// Shadow is what a policy in shadow would change; unset for others.
	// +optional
	Shadow *HealthPolicyShadowStatus `json:"shadow,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// HealthPolicyShadowStatus is what a policy in shadow would change.
type HealthPolicyShadowStatus struct {
	// WouldChange is how many of its sites would have another colour.
	WouldChange int32 `json:"wouldChange"`
	// Examples of them: site, colours, first reason.
	// +listType=atomic
	// +optional
	Examples []string `json:"examples,omitempty"`
}

// +kubebuilder:object:root=true

// HealthPolicyList is a list of health policies.
type HealthPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HealthPolicy `json:"items"`
}
