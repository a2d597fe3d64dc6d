package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AlertRules are Prometheus rule groups that every regional evaluates over what its
// sites send. A rule sees the data of the tenant in whose system namespace the
// object lives, and nothing else, whatever its expressions say; what it raises and
// records carries the tenant's label. In muster-system, the namespace of the
// platform's operators, rules see all tenants.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=alertrules,singular=alertrules,shortName=ar
// +kubebuilder:printcolumn:name="Engine",type=string,JSONPath=`.spec.engine`
// +kubebuilder:printcolumn:name="Rules",type=integer,JSONPath=`.status.rules`
// +kubebuilder:printcolumn:name="Regionals",type=integer,JSONPath=`.status.regionals`
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AlertRules struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   AlertRulesSpec `json:"spec,omitempty"`
	Status RulesStatus    `json:"status,omitempty"`
}

// AlertRulesSpec is a Prometheus rule file, and where it is evaluated.
type AlertRulesSpec struct {
	// Engine of the regionals: edge holds what sites send, local the region's own
	// services. local is for the platform's operators only.
	// +kubebuilder:validation:Enum=edge;local
	// +kubebuilder:default=edge
	// +optional
	Engine string `json:"engine,omitempty"`
	// Groups in Prometheus' own format: what stands under groups: in a rule file.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +listType=map
	// +listMapKey=name
	Groups []RuleGroup `json:"groups"`
}

// RuleGroup is a group of a Prometheus rule file; its rules run one after the other.
type RuleGroup struct {
	// Name, unique in the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	Name string `json:"name"`
	// Interval of evaluation, such as 30s; unset: the engine's, 15s.
	// +kubebuilder:validation:MaxLength=20
	// +optional
	Interval string `json:"interval,omitempty"`
	// QueryOffset moves the time of evaluation into the past.
	// +kubebuilder:validation:MaxLength=20
	// +optional
	QueryOffset string `json:"query_offset,omitempty"`
	// Limit on the alerts or series that one rule may give; 0: none.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Limit int `json:"limit,omitempty"`
	// Labels are added to what every rule gives.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=500
	Rules []Rule `json:"rules"`
}

// Rule alerts or records; exactly one of alert and record is set.
type Rule struct {
	// +kubebuilder:validation:MaxLength=200
	// +optional
	Alert string `json:"alert,omitempty"`
	// +kubebuilder:validation:MaxLength=200
	// +optional
	Record string `json:"record,omitempty"`
	// Expr is PromQL.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=10000
	Expr string `json:"expr"`
	// For is how long expr must hold before the alert fires, such as 5m.
	// +kubebuilder:validation:MaxLength=20
	// +optional
	For string `json:"for,omitempty"`
	// KeepFiringFor is how long the alert fires on after expr stopped to hold.
	// +kubebuilder:validation:MaxLength=20
	// +optional
	KeepFiringFor string `json:"keep_firing_for,omitempty"`
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// RulesStatus is what Muster observed of AlertRules and LogRules.
type RulesStatus struct {
	// Rules counts them.
	// +kubebuilder:default=0
	// +optional
	Rules int32 `json:"rules"`
	// Regionals counts those that evaluate the rules as they stand here.
	// +kubebuilder:default=0
	// +optional
	Regionals int32 `json:"regionals"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// +kubebuilder:object:root=true

// AlertRulesList is a list of alert rules.
type AlertRulesList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AlertRules `json:"items"`
}

// LogRules raise alerts from log lines. Types and names are ElastAlert's; a
// duration is written as 5m instead of minutes: 5. Every regional evaluates them
// over the logs of its region, for each site by itself.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=logrules,singular=logrules,shortName=lr
// +kubebuilder:printcolumn:name="Rules",type=integer,JSONPath=`.status.rules`
// +kubebuilder:printcolumn:name="Regionals",type=integer,JSONPath=`.status.regionals`
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type LogRules struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   LogRulesSpec `json:"spec,omitempty"`
	Status RulesStatus  `json:"status,omitempty"`
}

// LogRulesSpec is a list of rules over some of the tenant's sites.
type LogRulesSpec struct {
	// SiteSelector chooses sites by label; empty: all of the tenant's sites.
	// +optional
	SiteSelector metav1.LabelSelector `json:"siteSelector,omitempty"`
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +listType=map
	// +listMapKey=name
	Rules []LogRule `json:"rules"`
}

// LogRule is one rule. Which fields a type needs and knows is told with each of
// them; a field that the type does not know is refused.
type LogRule struct {
	// Name becomes the alert's alertname. Unique in the object.
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:Pattern=`^[a-zA-Z_][a-zA-Z0-9_]*$`
	Name string `json:"name"`
	// Type: any matches each line; frequency, num_events lines within timeframe;
	// spike, spike_height times as many or as few as in the timeframe before;
	// spike_aggregation, the same of a metric;
	// flatline, fewer than threshold lines within timeframe; blacklist and whitelist,
	// a compare_key that is in, or not in, the list; change, a compare_key that
	// changed for the same query_key; new_term, a value never seen before in fields;
	// cardinality, more or fewer different values of cardinality_field;
	// metric_aggregation, a metric over or under a threshold; percentage_match, the
	// share of lines that match_bucket_filter finds.
	// +kubebuilder:validation:Enum=any;blacklist;cardinality;change;flatline;frequency;metric_aggregation;new_term;percentage_match;spike;spike_aggregation;whitelist
	Type string `json:"type"`
	// Filter is a query as in `muster logs`; empty: every line.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Filter string `json:"filter,omitempty"`
	// Severity label of the alert.
	// +kubebuilder:validation:Enum=critical;warning;info
	// +kubebuilder:default=warning
	// +optional
	Severity string `json:"severity,omitempty"`
	// Labels of the alert, besides alertname, tenant, site, region, virtual_sites and severity.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of the alert. {{ $labels.x }} and {{ $value }} are filled in as in
	// Prometheus' rules, {{ $message }} is a line that matched, and {{ $fields.x }} a field of it that include names.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// QueryKey counts separately for each value of these fields, besides the site.
	// Their values become labels of the alert.
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:MaxLength=256
	// +optional
	QueryKey []string `json:"query_key,omitempty"`
	// Realert is how long the same alert, for the same site and query_key, is not
	// raised again; default 1m, as in ElastAlert. The alert fires for as long.
	// +optional
	Realert *metav1.Duration `json:"realert,omitempty"`
	// ExponentialRealert lets realert grow: each time the same alert comes back sooner than
	// the current realert after it ran out, it doubles, up to this; while nothing comes it
	// goes down again, by as much and as slowly.
	// +optional
	ExponentialRealert *metav1.Duration `json:"exponential_realert,omitempty"`
	// KeepFiringFor is how long an alert goes on after what matched last, so that one that
	// comes back meanwhile is the same alert and nobody is paged again. Default: 5m, and of
	// frequency, spike, spike_aggregation and cardinality timeframe and realert together, up to 1h. A flatline,
	// metric_aggregation or percentage_match lasts as long as what it is about, and by
	// default no longer.
	// +optional
	KeepFiringFor *metav1.Duration `json:"keep_firing_for,omitempty"`
	// QueryDelay waits for late lines before a stretch of time is looked at; default 0s.
	// +optional
	QueryDelay *metav1.Duration `json:"query_delay,omitempty"`
	// Aggregation collects what matches for so long and raises one alert for all of it.
	// +optional
	Aggregation *metav1.Duration `json:"aggregation,omitempty"`
	// AggregationKey are fields of which each value has an aggregation of its own, for each
	// site, and becomes a label of the alert, instead of query_key. any, blacklist, whitelist and
	// new_term take any fields, other types those of query_key.
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:MaxLength=256
	// +optional
	AggregationKey []string `json:"aggregation_key,omitempty"`
	// TopCountKeys are fields whose most frequent values, among the lines that the filter found in the
	// last timeframe or aggregation, the alert tells with how many lines had them: in the annotation
	// top_LABEL of each field.
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:MaxLength=256
	// +optional
	TopCountKeys []string `json:"top_count_keys,omitempty"`
	// TopCountNumber is how many values of each; default 5.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	// +optional
	TopCountNumber int64 `json:"top_count_number,omitempty"`
	// Include are fields of the line whose message the alert tells. The annotations have their values as
	// $fields.LABEL, such as {{ $fields.status }} for labels.status.
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:MaxLength=256
	// +optional
	Include []string `json:"include,omitempty"`
	// Timeframe of frequency, spike, flatline, cardinality; of metric_aggregation and
	// percentage_match, the buffer_time; of change, how long a former value counts.
	// +optional
	Timeframe *metav1.Duration `json:"timeframe,omitempty"`
	// BucketInterval of metric_aggregation, percentage_match and spike_aggregation cuts timeframe into segments of this
	// length, 60 at most. The first two match while the figure of one of them is out of bounds; of
	// spike_aggregation the figure is the mean of theirs.
	// +optional
	BucketInterval *metav1.Duration `json:"bucket_interval,omitempty"`
	// SyncBucketInterval lets segments begin at whole multiples of bucket_interval, such as full hours (UTC), so that one is looked
	// at when it is over. Otherwise they end at the step that is looked at.
	// +optional
	SyncBucketInterval bool `json:"sync_bucket_interval,omitempty"`

	// NumEvents of frequency.
	// +kubebuilder:validation:Minimum=1
	// +optional
	NumEvents int64 `json:"num_events,omitempty"`
	// Threshold of flatline: fewer lines than this alert.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Threshold int64 `json:"threshold,omitempty"`
	// SpikeHeight of spike and spike_aggregation: the ratio, such as "3".
	// +kubebuilder:validation:Pattern=`^[0-9]+(\.[0-9]+)?$`
	// +kubebuilder:validation:MaxLength=20
	// +optional
	SpikeHeight string `json:"spike_height,omitempty"`
	// SpikeType of spike and spike_aggregation.
	// +kubebuilder:validation:Enum=up;down;both
	// +optional
	SpikeType string `json:"spike_type,omitempty"`
	// ThresholdRef and ThresholdCur of spike: how many lines the former and the
	// current timeframe must have for a comparison to mean something.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ThresholdRef int64 `json:"threshold_ref,omitempty"`
	// +kubebuilder:validation:Minimum=0
	// +optional
	ThresholdCur int64 `json:"threshold_cur,omitempty"`
	// CompareKey of blacklist, whitelist and change: a field. Of change it may be a list of
	// fields: it matches when one of them changes.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	CompareKey FieldNames `json:"compare_key,omitempty"`
	// +kubebuilder:validation:MaxItems=1000
	// +optional
	Blacklist []string `json:"blacklist,omitempty"`
	// +kubebuilder:validation:MaxItems=1000
	// +optional
	Whitelist []string `json:"whitelist,omitempty"`
	// IgnoreNull of whitelist and change: lines without compare_key don't count.
	// +optional
	IgnoreNull bool `json:"ignore_null,omitempty"`
	// Fields of new_term, at most 5. One that is itself a list of fields, such as [labels.user, labels.country],
	// is looked at as a combination: it is new when these values were never seen together.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Fields []FieldNames `json:"fields,omitempty"`
	// TermsWindowSize of new_term: how far back a value is known; default 720h.
	// +optional
	TermsWindowSize *metav1.Duration `json:"terms_window_size,omitempty"`
	// CardinalityField of cardinality.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	CardinalityField string `json:"cardinality_field,omitempty"`
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxCardinality *int64 `json:"max_cardinality,omitempty"`
	// +kubebuilder:validation:Minimum=1
	// +optional
	MinCardinality *int64 `json:"min_cardinality,omitempty"`
	// MetricAggKey of metric_aggregation: a label of the line that holds a number,
	// such as labels.duration_ms.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	MetricAggKey string `json:"metric_agg_key,omitempty"`
	// MetricAggType is what of the numbers is looked at. percentiles wants a percentile_range.
	// +kubebuilder:validation:Enum=min;max;avg;sum;cardinality;value_count;percentiles
	// +optional
	MetricAggType string `json:"metric_agg_type,omitempty"`
	// PercentileRange of metric_agg_type percentiles: which, such as 99. Known to about 2 %.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	PercentileRange int64 `json:"percentile_range,omitempty"`
	// MaxThreshold and MinThreshold of metric_aggregation: numbers, such as "0.5".
	// +kubebuilder:validation:Pattern=`^-?[0-9]+(\.[0-9]+)?$`
	// +kubebuilder:validation:MaxLength=40
	// +optional
	MaxThreshold string `json:"max_threshold,omitempty"`
	// +kubebuilder:validation:Pattern=`^-?[0-9]+(\.[0-9]+)?$`
	// +kubebuilder:validation:MaxLength=40
	// +optional
	MinThreshold string `json:"min_threshold,omitempty"`
	// MatchBucketFilter of percentage_match: a query; the share of the filter's lines
	// that it finds, in percent.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	MatchBucketFilter string `json:"match_bucket_filter,omitempty"`
	// +kubebuilder:validation:Pattern=`^[0-9]+(\.[0-9]+)?$`
	// +kubebuilder:validation:MaxLength=20
	// +optional
	MinPercentage string `json:"min_percentage,omitempty"`
	// +kubebuilder:validation:Pattern=`^[0-9]+(\.[0-9]+)?$`
	// +kubebuilder:validation:MaxLength=20
	// +optional
	MaxPercentage string `json:"max_percentage,omitempty"`
	// MinDenominator of percentage_match: fewer lines than this say nothing.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MinDenominator int64 `json:"min_denominator,omitempty"`
}

// +kubebuilder:object:root=true

// LogRulesList is a list of log rules.
type LogRulesList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LogRules `json:"items"`
}

// AlertRoute says where a tenant's alerts go, in Alertmanager's own configuration
// format. Muster merges all routes into one Alertmanager, each below a matcher on its
// tenant, so that a route never sees another tenant's alerts. In muster-system
// routes see the alerts of all tenants.
//
// Anywhere in a receiver a string may be replaced by
// {secretKeyRef: {name: NAME, key: KEY}}, which takes it from a Secret of the same
// namespace. Fields that name files of the server are refused.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=alertroutes,singular=alertroute,shortName=aro
// +kubebuilder:printcolumn:name="Receivers",type=integer,JSONPath=`.status.receivers`
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AlertRoute struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   AlertRouteSpec   `json:"spec,omitempty"`
	Status AlertRouteStatus `json:"status,omitempty"`
}

// AlertRouteSpec is the parts of an Alertmanager configuration that a tenant may set.
type AlertRouteSpec struct {
	// Route is a routing tree: receiver, group_by, group_wait, matchers, routes, ….
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Route apiextensionsv1.JSON `json:"route"`
	// Receivers, each with a name and webhook_configs, email_configs,
	// slack_configs, pagerduty_configs, opsgenie_configs, ….
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	Receivers []apiextensionsv1.JSON `json:"receivers"`
	// InhibitRules: source_matchers, target_matchers, equal.
	// +kubebuilder:validation:MaxItems=50
	// +optional
	InhibitRules []apiextensionsv1.JSON `json:"inhibit_rules,omitempty"`
	// TimeIntervals that the route's mute_time_intervals and active_time_intervals name.
	// +kubebuilder:validation:MaxItems=50
	// +optional
	TimeIntervals []apiextensionsv1.JSON `json:"time_intervals,omitempty"`
}

// AlertRouteStatus is what Muster observed.
type AlertRouteStatus struct {
	// +kubebuilder:default=0
	// +optional
	Receivers int32 `json:"receivers"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// +kubebuilder:object:root=true

// AlertRouteList is a list of alert routes.
type AlertRouteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AlertRoute `json:"items"`
}
