package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CollectionPolicy says which metrics the collectors of some sites send, and how.
//
// When several select a site, their lists are joined (allow, dropSeries, dropLabels,
// aggregations) and each scalar (interval, seriesBudget) comes from the policy
// with the highest priority that sets it; equal priorities are ordered by name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cp
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Interval",type=string,JSONPath=`.spec.interval`
// +kubebuilder:printcolumn:name="Budget",type=integer,JSONPath=`.spec.seriesBudget`
// +kubebuilder:printcolumn:name="Sites",type=integer,JSONPath=`.status.sites`
// +kubebuilder:printcolumn:name="Applied",type=integer,JSONPath=`.status.applied`
// +kubebuilder:printcolumn:name="Rejected",type=integer,JSONPath=`.status.rejected`
// +kubebuilder:printcolumn:name="Shipped",type=string,JSONPath=`.status.conditions[?(@.type=="FollowsShipped")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CollectionPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   CollectionPolicySpec   `json:"spec,omitempty"`
	Status CollectionPolicyStatus `json:"status,omitempty"`
}

// CollectionPolicySpec is applied in this order: allow, dropSeries, dropLabels, aggregations,
// seriesBudget.
type CollectionPolicySpec struct {
	// SiteSelector chooses sites by label; empty: all of the tenant's sites.
	// +optional
	SiteSelector metav1.LabelSelector `json:"siteSelector,omitempty"`
	// Priority decides between policies; higher wins.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// Interval between scrapes; unset: from a policy of lower priority, else 15s.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('10m')",message="spec.interval: want 1s to 10m"
	// +optional
	Interval *metav1.Duration `json:"interval,omitempty"`
	// Allow lists the metrics to keep. Nothing else leaves the site.
	// +optional
	Allow MetricAllow `json:"allow,omitempty"`
	// DropSeries are series of allowed metrics that stay on the site all the same, such as
	// those of the network interfaces of pods.
	// +kubebuilder:validation:MaxItems=50
	// +listType=atomic
	// +optional
	DropSeries []SeriesDrop `json:"dropSeries,omitempty"`
	// DropLabels are taken off every series. tenant, site and region can't be named.
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:Pattern=`^[a-zA-Z_][a-zA-Z0-9_]*$`
	// +kubebuilder:validation:XValidation:rule="!self.exists(l, l in ['__name__', 'tenant', 'site', 'region'])",message="spec.dropLabels: __name__, tenant, site and region identify a series and can't be dropped; remove them from the list"
	// +listType=set
	// +optional
	DropLabels []string `json:"dropLabels,omitempty"`
	// Aggregations say what becomes of series that are equal once labels are
	// dropped. Without one, the first is kept, the others are dropped and counted.
	// +kubebuilder:validation:MaxItems=200
	// +optional
	Aggregations []Aggregation `json:"aggregations,omitempty"`
	// SeriesBudget is the largest number of series that leave the site. Series that
	// already flow keep flowing; new ones over the budget are refused and counted. Only for
	// what the site's HealthPolicy reads the youngest others make room.
	// Unset: from a policy of lower priority, else 2000.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	SeriesBudget *int32 `json:"seriesBudget,omitempty"`
	// Spool bounds the buffer on the site's disk.
	// +optional
	Spool *SpoolLimits `json:"spool,omitempty"`
	// Logs says which log streams the regional takes from the site, and how much.
	// +optional
	Logs *LogPolicy `json:"logs,omitempty"`
}

// LogPolicy selects log streams and bounds them. A stream's name is
// pod/NAMESPACE/POD/CONTAINER, unit/NAME, or other; in a pattern * stands for any
// characters. The lists of all policies that select a site are joined.
type LogPolicy struct {
	// Allow lists the streams to keep; empty: all.
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +optional
	Allow []string `json:"allow,omitempty"`
	// Deny lists the streams to drop; it wins over allow.
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +optional
	Deny []string `json:"deny,omitempty"`
	// BytesPerSecond of uncompressed log lines, on average; the site may send 30
	// seconds' worth at once. Unset: from a policy of lower priority, else 1Mi.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('1023')) ",message="spec.logs.bytesPerSecond: want at least 1Ki"
	// +optional
	BytesPerSecond *resource.Quantity `json:"bytesPerSecond,omitempty"`
	// LinesPerSecond is how many log lines a second, on average; the site may send 30
	// seconds' worth at once. Unset: from a policy of lower priority, else one for each 512
	// of bytesPerSecond, and 100 at least.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	LinesPerSecond *int32 `json:"linesPerSecond,omitempty"`
}

// MetricAllow lists metrics by exact name or by regular expression.
type MetricAllow struct {
	// Names are exact metric names.
	// +kubebuilder:validation:MaxItems=5000
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^[a-zA-Z_:][a-zA-Z0-9_:]*$`
	// +optional
	Names []string `json:"names,omitempty"`
	// Patterns are RE2 regular expressions, anchored at both ends.
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +optional
	Patterns []string `json:"patterns,omitempty"`
}

// SeriesDrop selects the series of some metrics by the value of a label.
type SeriesDrop struct {
	// Metric is an RE2 regular expression over the name, anchored at both ends.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Metric string `json:"metric"`
	// Label whose value decides.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[a-zA-Z_][a-zA-Z0-9_]*$`
	Label string `json:"label"`
	// Values is an RE2 regular expression, anchored at both ends.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Values string `json:"values"`
}

// Aggregation joins the series of one metric that became equal.
type Aggregation struct {
	// Metric is an exact metric name.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[a-zA-Z_:][a-zA-Z0-9_:]*$`
	Metric string `json:"metric"`
	// Op joins the values.
	// +kubebuilder:validation:Enum=sum;max;min;count
	Op string `json:"op"`
}

// SpoolLimits bound what a site keeps while it can't push.
type SpoolLimits struct {
	// MaxBytes on disk, e.g. 512Mi.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('1Mi')) ",message="spec.spool.maxBytes: want more than 1Mi"
	// +optional
	MaxBytes *resource.Quantity `json:"maxBytes,omitempty"`
	// MaxAge of a sample.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="spec.spool.maxAge: want at least 1m"
	// +optional
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
}

// ConditionFollowsShipped of a policy named "default" is True while it is the one that
// Muster ships and upgrades change it, False once somebody else wrote to it.
const ConditionFollowsShipped = "FollowsShipped"

// CollectionPolicyStatus counts the sites.
type CollectionPolicyStatus struct {
	// Sites that it selects.
	// +kubebuilder:default=0
	// +optional
	Sites int32 `json:"sites"`
	// Applied counts sites that report the policy rendered for them.
	// +kubebuilder:default=0
	// +optional
	Applied int32 `json:"applied"`
	// Rejected counts sites that kept their last good policy.
	// +kubebuilder:default=0
	// +optional
	Rejected int32 `json:"rejected"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// +kubebuilder:object:root=true

// CollectionPolicyList is a list of collection policies.
type CollectionPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CollectionPolicy `json:"items"`
}
