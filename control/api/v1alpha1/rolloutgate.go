package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RolloutGate is one condition that has to hold on a wave's sites. Exactly one of its
// kinds is set.
type RolloutGate struct {
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	Name string `json:"name"`
	// Ready: what changed is ready on the sites.
	// +optional
	Ready *GateReady `json:"ready,omitempty"`
	// Score is a least score.
	// +optional
	Score *GateScore `json:"score,omitempty"`
	// Unhealthy is how many of the wave's sites may be red.
	// +optional
	Unhealthy *GateUnhealthy `json:"unhealthy,omitempty"`
	// Before compares each site with itself before it changed.
	// +optional
	Before *GateChange `json:"before,omitempty"`
	// Peers compares the change of the sites of the wave with that of the sites that
	// don't have it, over the same time: difference in differences.
	// +optional
	Peers *GateChange `json:"peers,omitempty"`
	// Alerts: none of these severities fires on the wave's sites that did not before, if
	// that is more than happens to the other sites.
	// +optional
	Alerts *GateAlerts `json:"alerts,omitempty"`
	// Query is an own PromQL expression.
	// +optional
	Query *GateQuery `json:"query,omitempty"`
	// Logs counts lines.
	// +optional
	Logs *GateLogs `json:"logs,omitempty"`
	// Webhook asks somebody else.
	// +optional
	Webhook *GateWebhook `json:"webhook,omitempty"`
}

// GateReady passes when enough of the wave's sites report that what changed is ready.
type GateReady struct {
	// Percent of the wave's sites that count; the budget allows for the others.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=100
	// +optional
	Percent int32 `json:"percent,omitempty"`
}

// HealthDimension is one of the four, or Site for a site's score as a whole.
//
// +kubebuilder:validation:Enum=Site;Connectivity;Reliability;Security;Performance
type HealthDimension string

// GateScore passes while the mean score of the wave's sites is not below a minimum.
type GateScore struct {
	// +kubebuilder:default=Site
	// +optional
	Dimension HealthDimension `json:"dimension,omitempty"`
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Minimum int32 `json:"minimum"`
}

// GateUnhealthy passes while at most this part of the wave's sites is red. Sites that were red
// before they got the change hold the wave, and fail nothing.
type GateUnhealthy struct {
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxPercent int32 `json:"maxPercent"`
}

// GateChange passes while a measure is not worse by more than allowed.
type GateChange struct {
	// Dimensions that are compared; none, without a query: all that are known and Site.
	// +optional
	Dimensions []HealthDimension `json:"dimensions,omitempty"`
	// MaxDrop is how many points a dimension may fall.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=10
	// +optional
	MaxDrop int32 `json:"maxDrop,omitempty"`
	// Query in the place of dimensions: PromQL with one value a site, of which more is
	// worse, such as sum by (site) (rate(http_errors_total[5m])).
	// +optional
	Query string `json:"query,omitempty"`
	// MaxRise of the query's value, in its own unit.
	// +optional
	MaxRise *resource.Quantity `json:"maxRise,omitempty"`
}

// GateAlerts passes while no alert of the severities fires that did not fire on the same
// site before it changed, or no more often than at the sites that don't have the change.
type GateAlerts struct {
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Severities []string `json:"severities"`
}

// GateQuery passes while the expression's value is inside the bounds, for each site of
// the wave that it has a value for or, of one value without a site, for that. No value is
// unknown, and holds.
type GateQuery struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`
	// +optional
	Min *resource.Quantity `json:"min,omitempty"`
	// +optional
	Max *resource.Quantity `json:"max,omitempty"`
}

// GateLogs passes while at most this many lines of the wave's sites match, since the wave
// began.
type GateLogs struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`
	// +kubebuilder:validation:Minimum=0
	MaxCount int64 `json:"maxCount"`
}

// GateWebhook posts the wave as JSON, and passes on a 2xx whose body is empty or says
// {"verdict":"pass"}; "fail" and "wait" are the other verdicts. Whatever else comes is
// unknown, and holds.
type GateWebhook struct {
	// +kubebuilder:validation:Pattern=`^https?://`
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url"`
	// TokenSecret names a Secret in the namespace; its key token is sent as bearer token.
	// +optional
	TokenSecret string `json:"tokenSecret,omitempty"`
}

// GateCheck asks once whether the sites of a virtual site are well enough to go on: for
// pipelines outside of Muster. Its status has the verdict within seconds; it is removed
// after an hour.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Verdict",type=string,JSONPath=`.status.verdict`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GateCheck struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   GateCheckSpec   `json:"spec"`
	Status GateCheckStatus `json:"status,omitempty"`
}

// GateCheckSpec is what is asked.
type GateCheckSpec struct {
	// VirtualSite whose sites have the change, as in a Rollout.
	// +optional
	VirtualSite string `json:"virtualSite,omitempty"`
	// Sites that have it, in the place of a virtual site.
	// +kubebuilder:validation:MaxItems=10000
	// +optional
	Sites []string `json:"sites,omitempty"`
	// Peers is the virtual site whose other sites they are compared with.
	// +optional
	Peers string `json:"peers,omitempty"`
	// Since is when they got it: what was before is what it is compared with.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Gates as in a RolloutPlan, but for ready. None: no alert of severity critical, and no
	// dimension 10 points worse than before and than at the peers; without since, which that
	// takes, no site that is red.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Gates []RolloutGate `json:"gates,omitempty"`
}

// GateCheckStatus is the answer.
type GateCheckStatus struct {
	// Verdict is the worst of the gates'.
	// +optional
	Verdict GateVerdict `json:"verdict,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
	// +optional
	Gates []GateReading `json:"gates,omitempty"`
	// +optional
	At *metav1.Time `json:"at,omitempty"`
}

// +kubebuilder:object:root=true

// GateCheckList is a list of them.
type GateCheckList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GateCheck `json:"items"`
}
