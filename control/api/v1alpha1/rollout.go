package v1alpha1

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// AnnotationRollout, on an object that is under a rollout, names the RolloutState in the
// same namespace that says which sites have which of its contents. The API server sets it
// as the object changes, and nobody else may: without that state nothing of the object
// moves.
const AnnotationRollout = "muster.dev/rollout"

// AnnotationChangedBy, on objects of Muster's kinds, is the user who changed its spec last.
// The API server writes it; what a user writes into it is overwritten.
const AnnotationChangedBy = "muster.dev/changed-by"

// AnnotationControlledBy, on a Rollout, is the user who changed its spec.control last. The
// API server sets it, whatever was written.
const AnnotationControlledBy = "muster.dev/controlled-by"

// AnnotationStartedBy, on a Rollout, is the user who made it, or whose write it was made
// of. The API server sets it, whatever was written.
const AnnotationStartedBy = "muster.dev/started-by"

// Rollout takes a change over the sites wave by wave, as fast as their health allows: it
// compares what changed with what did not, stops when something gets worse, and puts it
// back.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ro
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Wave",type=string,JSONPath=`.status.progress`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.sites.updated`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.sites.failed`
// +kubebuilder:printcolumn:name="Sites",type=integer,JSONPath=`.status.sites.total`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Rollout struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   RolloutSpec   `json:"spec"`
	Status RolloutStatus `json:"status,omitempty"`
}

// RolloutSpec is what changes, where, how fast, and what has to be true on the way.
type RolloutSpec struct {
	// Changes that move together on each site, and are put back together. They can't be
	// changed once the rollout is made.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.changes: can't be changed; make another Rollout, which takes over from this one"
	Changes []RolloutChange `json:"changes"`
	// VirtualSites whose sites get the change, all of them together: NAMESPACE/NAME or
	// NAME of one in the same namespace. Empty: all sites that hold the objects. Sites
	// that hold them and are in none of these keep what they have until the rollout has
	// completed.
	// +kubebuilder:validation:MaxItems=50
	// +optional
	VirtualSites []string `json:"virtualSites,omitempty"`
	RolloutPlan  `json:",inline"`
	// Control is what people want of it while it is under way.
	// +optional
	Control RolloutControl `json:"control,omitempty"`
}

// RolloutChange is one object and what becomes of it. One of images, content and revision
// says what; none of them in a rollout that the API server made of an ordinary write,
// whose content is the object's own.
type RolloutChange struct {
	// APIVersion of the object, such as apps/v1.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`
	// Kind of the object: a workload or any other kind that is carried to sites,
	// CollectionPolicy, HealthPolicy, or SoftwarePolicy.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// Name of the object, in the rollout's namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Images to set, by container, of a workload.
	// +kubebuilder:validation:MaxProperties=32
	// +optional
	Images map[string]string `json:"images,omitempty"`
	// Content in the place of what a rollout moves: the pods' template of a workload, the
	// spec of a policy and of any other kind with one.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	Content *runtime.RawExtension `json:"content,omitempty"`
	// Revision of a workload to go back to, as `kubectl rollout history` counts them.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Revision *int64 `json:"revision,omitempty"`
}

// RolloutPlan is how a change goes over the sites. A RolloutPolicy has one for changes
// that nobody has made a Rollout for.
type RolloutPlan struct {
	// +kubebuilder:default={}
	// +optional
	Strategy RolloutStrategy `json:"strategy,omitempty"`
	// Gates that all have to pass, in each wave, after its sites have the change. None:
	// the defaults, which are ready, no more alerts of severity critical and no dimension
	// 10 points worse than at the sites that don't have the change yet, each against what
	// it was before.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Gates []RolloutGate `json:"gates,omitempty"`
	// Soak is how long all gates have to hold, without a break, before the next wave. It
	// begins anew with each wave.
	// +kubebuilder:default="15m"
	// +optional
	Soak metav1.Duration `json:"soak,omitempty"`
	// Settle is for how long after a site has become ready its scores and alerts may still be
	// of the update itself, as they look back over minutes: what they show until then can
	// hold a wave, and never fail it. What a gate's own query gives, may for as long as that
	// looks back. The default is how far the shipped signals of workloads look back, and five
	// minutes until what they see is collected and scored and a colour has recovered.
	// +kubebuilder:default="15m"
	// +optional
	Settle *metav1.Duration `json:"settle,omitempty"`
	// +kubebuilder:default={}
	// +optional
	Budget RolloutBudget `json:"budget,omitempty"`
	// Windows in which sites may change, in their own time zone; none: at any time.
	// Outside of them a site waits.
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Windows []RolloutWindow `json:"windows,omitempty"`
	// Freezes in which nothing begins to change, in the site's own time zone, such as the
	// days before Christmas.
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Freezes []RolloutFreeze `json:"freezes,omitempty"`
	// OnFailure is what happens when a gate fails or a budget is used up: Pause waits for
	// people, RollBackWave puts the wave back and pauses, RollBackAll puts all sites back.
	// +kubebuilder:validation:Enum=Pause;RollBackWave;RollBackAll
	// +kubebuilder:default=RollBackAll
	// +optional
	OnFailure RolloutOnFailure `json:"onFailure,omitempty"`
}

// RolloutOnFailure is what happens when a gate fails or a budget is used up.
type RolloutOnFailure string

// The ways.
const (
	OnFailurePause        RolloutOnFailure = "Pause"
	OnFailureRollBackWave RolloutOnFailure = "RollBackWave"
	OnFailureRollBackAll  RolloutOnFailure = "RollBackAll"
)

// RolloutStrategyType is in which order sites change.
type RolloutStrategyType string

// The strategies.
const (
	StrategyCanary    RolloutStrategyType = "Canary"
	StrategyRolling   RolloutStrategyType = "Rolling"
	StrategyBlueGreen RolloutStrategyType = "BlueGreen"
)

// RolloutStrategy is in which order sites change.
type RolloutStrategy struct {
	// Type is Canary (waves that grow, the default), Rolling (waves of one size) or
	// BlueGreen (the sites of one virtual site change, the others don't, and the two are
	// compared until the soak is over; then the others follow).
	// +kubebuilder:validation:Enum=Canary;Rolling;BlueGreen
	// +kubebuilder:default=Canary
	// +optional
	Type RolloutStrategyType `json:"type,omitempty"`
	// Waves of a canary, in order; what is left over at the end is a wave of its own.
	// None: 1, 10, 50 and 100 percent, of which the first has one site of each value of the
	// first label of spreadBy and four of each of the others, if 10 percent are enough.
	// +kubebuilder:validation:MaxItems=50
	// +optional
	Waves []RolloutWave `json:"waves,omitempty"`
	// Group is how many sites a wave of Rolling has, a number or a percentage of all; there
	// are at most 2000 waves.
	// +kubebuilder:default="1"
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]{0,5}$|^([1-9]|[1-9][0-9]|100)%$`
	// +optional
	Group string `json:"group,omitempty"`
	// Blue is the virtual site of BlueGreen whose sites change first.
	// +optional
	Blue string `json:"blue,omitempty"`
	// MaxInFlight is how many sites may be changing at one moment; 0: the whole wave.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxInFlight int32 `json:"maxInFlight,omitempty"`
	// SpreadBy are labels of sites by which waves of a count or percentage are spread, so
	// that each looks like the fleet. Default: region, muster.dev/system-product and
	// muster.dev/system-arch. Sites with the same value of the first are compared with one
	// another where they can be.
	// +kubebuilder:validation:MaxItems=4
	// +optional
	SpreadBy []string `json:"spreadBy,omitempty"`
}

// RolloutWave says which sites are in a wave, of those in none before: exactly one of
// percent, count, virtualSite and label.
type RolloutWave struct {
	// Name that people see; default: what it consists of.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Name string `json:"name,omitempty"`
	// Percent of all sites of the rollout that have the change once the wave is through,
	// those of earlier waves among them; at least one site.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	Percent *int32 `json:"percent,omitempty"`
	// Count of the wave's sites.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Count *int32 `json:"count,omitempty"`
	// VirtualSite whose sites are the wave, as in virtualSites.
	// +optional
	VirtualSite string `json:"virtualSite,omitempty"`
	// Label that the sites of the wave have, KEY=VALUE.
	// +optional
	Label string `json:"label,omitempty"`
	// Soak of this wave; default: the plan's.
	// +optional
	Soak *metav1.Duration `json:"soak,omitempty"`
	// Approval: a person has to promote the wave once its gates have held.
	// +optional
	Approval bool `json:"approval,omitempty"`
}

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

// RolloutBudget is how much may go wrong before the rollout fails. A site fails when what
// changed fails there, or isn't ready by the deadline.
type RolloutBudget struct {
	// MaxFailed sites in all, a number or a percentage of all.
	// +kubebuilder:default="2%"
	// +kubebuilder:validation:Pattern=`^[0-9]{1,6}$|^([0-9]|[1-9][0-9]|100)%$`
	// +optional
	MaxFailed string `json:"maxFailed,omitempty"`
	// MaxFailedInWave in one wave, a number or a percentage of the wave's.
	// +kubebuilder:default="10%"
	// +kubebuilder:validation:Pattern=`^[0-9]{1,6}$|^([0-9]|[1-9][0-9]|100)%$`
	// +optional
	MaxFailedInWave string `json:"maxFailedInWave,omitempty"`
	// ReadyWithin is how long a site may take from when it gets the change, while it is
	// online, until it counts as failed.
	// +kubebuilder:default="10m"
	// +optional
	ReadyWithin metav1.Duration `json:"readyWithin,omitempty"`
}

// RolloutWindow is a part of the week.
type RolloutWindow struct {
	// Days on which it begins; none: each.
	// +kubebuilder:validation:items:Enum=Mon;Tue;Wed;Thu;Fri;Sat;Sun
	// +kubebuilder:validation:MaxItems=7
	// +optional
	Days []string `json:"days,omitempty"`
	// From and To, such as 22:00 and 04:30, of the clock on the site's wall.
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	From string `json:"from"`
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]$`
	To string `json:"to"`
}

// RolloutFreeze is a time of the calendar, both days included.
type RolloutFreeze struct {
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`
	From string `json:"from"`
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`
	To string `json:"to"`
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Reason string `json:"reason,omitempty"`
}

// RolloutControl is what people want of a rollout that is under way.
type RolloutControl struct {
	// Paused: no further site changes; those that do go on.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// Promote is the number of the wave, from 1, up to which gates need not pass, or that
	// a person approved. To raise it where gates do not hold takes the verb skip-gates on
	// rollouts, and approve where nothing but the approval is missing.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Promote int32 `json:"promote,omitempty"`
	// Resume, raised by one, has it go on after it paused by itself: what failed until then
	// no longer counts, and a wave that was put back begins anew.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Resume int32 `json:"resume,omitempty"`
	// Abort puts all sites back.
	// +optional
	Abort bool `json:"abort,omitempty"`
	// Retry counts, by site, how often a failed one is to be tried again.
	// +kubebuilder:validation:MaxProperties=1000
	// +optional
	Retry map[string]int32 `json:"retry,omitempty"`
}

// RolloutPhase is where a rollout stands.
//
// +kubebuilder:validation:Enum=Queued;Progressing;Paused;RollingBack;RolledBack;Completed;Superseded;Invalid
type RolloutPhase string

// The phases. The last four are ends.
const (
	RolloutQueued      RolloutPhase = "Queued" // behind another one on the same objects or sites
	RolloutProgressing RolloutPhase = "Progressing"
	RolloutPaused      RolloutPhase = "Paused" // by people or by itself; the message says which
	RolloutRollingBack RolloutPhase = "RollingBack"
	RolloutRolledBack  RolloutPhase = "RolledBack"
	RolloutCompleted   RolloutPhase = "Completed"
	RolloutSuperseded  RolloutPhase = "Superseded" // a newer one took over
	RolloutInvalid     RolloutPhase = "Invalid"    // it can't be begun; the message says why
)

// Ended tells whether nothing will happen any more.
func (p RolloutPhase) Ended() bool {
	return p == RolloutRolledBack || p == RolloutCompleted || p == RolloutSuperseded || p == RolloutInvalid
}

// GateVerdict is what a gate says.
//
// +kubebuilder:validation:Enum=Pass;Wait;Unknown;Fail
type GateVerdict string

// The verdicts. Wait and Unknown hold: the one lacks time or sites, the other data.
const (
	GatePass    GateVerdict = "Pass"
	GateWait    GateVerdict = "Wait"
	GateUnknown GateVerdict = "Unknown"
	GateFail    GateVerdict = "Fail"
)

// RolloutStatus is where it stands, and why. It stays small whatever the number of sites:
// which site is where is in the RolloutState of the same name.
type RolloutStatus struct {
	// +optional
	Phase RolloutPhase `json:"phase,omitempty"`
	// Message says, in a sentence, why it stands where it stands.
	// +optional
	Message string `json:"message,omitempty"`
	// Progress is the wave and their number, such as 2/4.
	// +optional
	Progress string `json:"progress,omitempty"`
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Wave is the current one, from 1; 0: none yet.
	// +optional
	Wave int32 `json:"wave,omitempty"`
	// +optional
	Waves []RolloutWaveStatus `json:"waves,omitempty"`
	// +optional
	Sites RolloutCounts `json:"sites,omitempty"`
	// Gates of the current wave, as last read.
	// +optional
	Gates []GateReading `json:"gates,omitempty"`
	// Next is what will be decided next, and when.
	// +optional
	Next string `json:"next,omitempty"`
	// +optional
	NextAt *metav1.Time `json:"nextAt,omitempty"`
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// +optional
	EndedAt *metav1.Time `json:"endedAt,omitempty"`
	// Decisions are the last ones, oldest first.
	// +kubebuilder:validation:MaxItems=50
	// +optional
	Decisions []RolloutDecision `json:"decisions,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RolloutWaveStatus is one wave.
type RolloutWaveStatus struct {
	Name string `json:"name"`
	// +optional
	Sites RolloutCounts `json:"sites,omitempty"`
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// +optional
	PassedAt *metav1.Time `json:"passedAt,omitempty"`
}

// RolloutCounts are sites by what they are in.
type RolloutCounts struct {
	// +optional
	Total int32 `json:"total"`
	// Waiting have what they had, and wait for their turn.
	// +optional
	Waiting int32 `json:"waiting"`
	// Updating got the change and are not ready with it yet.
	// +optional
	Updating int32 `json:"updating"`
	// Updated are ready with it, passed ones among them.
	// +optional
	Updated int32 `json:"updated"`
	// Passed have it, and their wave's gates have held.
	// +optional
	Passed int32 `json:"passed"`
	// +optional
	Failed int32 `json:"failed"`
	// Offline were skipped, and are caught up when they return.
	// +optional
	Offline int32 `json:"offline"`
	// Held are in maintenance or outside of their window.
	// +optional
	Held int32 `json:"held"`
	// RolledBack had it, and were put back.
	// +optional
	RolledBack int32 `json:"rolledBack"`
}

// GateReading is what a gate read, and on how much evidence.
type GateReading struct {
	Name    string      `json:"name"`
	Verdict GateVerdict `json:"verdict"`
	// Text is the reading in words, with its figures.
	Text string `json:"text"`
	// Value and Limit as figures, where there is one.
	// +optional
	Value string `json:"value,omitempty"`
	// +optional
	Limit string `json:"limit,omitempty"`
	// Sites that were read, of OfSites that should be.
	// +optional
	Sites int32 `json:"sites,omitempty"`
	// +optional
	OfSites int32 `json:"ofSites,omitempty"`
	// Seconds that it has been looked at in this wave, of OfSeconds.
	// +optional
	Seconds int32 `json:"seconds,omitempty"`
	// +optional
	OfSeconds int32 `json:"ofSeconds,omitempty"`
	// Worst are sites that speak most against it, at most five.
	// +optional
	Worst []string `json:"worst,omitempty"`
}

// RolloutDecision is a step that was taken.
type RolloutDecision struct {
	At metav1.Time `json:"at"`
	// What, such as WaveStarted, WavePassed, GateFailed, Paused, RollingBack.
	What string `json:"what"`
	// Text says it in a sentence.
	Text string `json:"text"`
	// By is the user, if a person took it.
	// +optional
	By string `json:"by,omitempty"`
}

// +kubebuilder:object:root=true

// RolloutList is a list of them.
type RolloutList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Rollout `json:"items"`
}

// RolloutPolicy makes a rollout of each ordinary write (kubectl apply, helm upgrade, Argo
// CD) that changes one of the objects that it selects in its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.spec.strategy.type`
// +kubebuilder:printcolumn:name="Soak",type=string,JSONPath=`.spec.soak`
// +kubebuilder:printcolumn:name="On Failure",type=string,JSONPath=`.spec.onFailure`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RolloutPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec RolloutPolicySpec `json:"spec"`
}

// RolloutPolicySpec is for which objects, and how.
type RolloutPolicySpec struct {
	// Kinds of objects; none: all workloads with pods (Deployment, StatefulSet, DaemonSet)
	// and, in a tenant's system namespace, all policies.
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Kinds []string `json:"kinds,omitempty"`
	// Selector of the objects' labels; empty: all.
	// +optional
	Selector metav1.LabelSelector `json:"selector,omitempty"`
	// Priority: of several that select an object, the one with the highest counts, then
	// the first by name.
	// +optional
	Priority    int32 `json:"priority,omitempty"`
	RolloutPlan `json:",inline"`
}

// +kubebuilder:object:root=true

// RolloutPolicyList is a list of them.
type RolloutPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RolloutPolicy `json:"items"`
}

// SiteStep is where a site stands in a rollout.
type SiteStep byte

// The steps, as in RolloutStateSpec.Steps.
const (
	StepWaiting    SiteStep = 'w' // for its turn
	StepOffline    SiteStep = 'o' // skipped; caught up when it returns
	StepHeld       SiteStep = 'h' // in maintenance, outside of its window, or put off by its operator
	StepUpdating   SiteStep = 'u' // got the change, not ready yet
	StepReady      SiteStep = 'r' // ready with it, the wave's gates have not passed yet
	StepPassed     SiteStep = 'p'
	StepFailed     SiteStep = 'f'
	StepRolledBack SiteStep = 'b'
)

// RolloutState is which sites have which content of the objects that a rollout moves, and
// what the rollout has decided so far: written before anything of it happens. Muster's
// own; people read the Rollout of the same name, and write neither.
//
// +kubebuilder:object:root=true
// +kubebuilder:printcolumn:name="Held",type=boolean,JSONPath=`.spec.held`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RolloutState struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec RolloutStateSpec `json:"spec"`
}

// RolloutStateSpec is the state. Sites, Steps and Has go together: a name, a letter and a
// digit for each site, in the order of the waves; so 10,000 sites need 150 kB.
type RolloutStateSpec struct {
	// Objects with all contents that sites may have of them.
	// +kubebuilder:validation:MaxItems=16
	Objects []RolloutObject `json:"objects"`
	// Held: a site has of the objects the content that Has says; the first one if it is
	// not among Sites. False: the objects' own content counts everywhere (again).
	Held bool `json:"held"`
	// Policy, if the rollout was made of an ordinary write: the RolloutPolicy whose plan
	// it follows.
	// +optional
	Policy string `json:"policy,omitempty"`
	// Supersedes is the rollout of the same objects that this one takes over from.
	// +optional
	Supersedes string `json:"supersedes,omitempty"`
	// By is the user whose write it was made of.
	// +optional
	By string `json:"by,omitempty"`
	// Sites are names, separated by one space.
	// +optional
	Sites string `json:"sites,omitempty"`
	// Steps has a SiteStep for each.
	// +optional
	Steps string `json:"steps,omitempty"`
	// Has has, for each, the digit of the content of the objects that it shall have.
	// +optional
	Has string `json:"has,omitempty"`
	// Decided is what the rollout has to remember besides, as control/rollout/decide
	// encodes it.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	Decided *runtime.RawExtension `json:"decided,omitempty"`
}

// RolloutObject is an object under a rollout.
type RolloutObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	// Contents of the object, each as workload.Moved takes it out: the first is what all
	// sites had before, the last the one that the rollout brings.
	// +kubebuilder:validation:MaxItems=10
	Contents []runtime.RawExtension `json:"contents"`
	// Written: the rollout itself wrote the last content into the object, and writes the
	// first one back when all sites are put back. Else the write was a person's, who finds
	// the object as they left it; the sites keep the first content until the next write.
	// +optional
	Written bool `json:"written,omitempty"`
}

// +kubebuilder:object:root=true

// RolloutStateList is a list of them.
type RolloutStateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RolloutState `json:"items"`
}

// Assigned returns, by site, which of the contents it has; a site that is not in the map
// has the first. It is nil if nothing is held.
func (s *RolloutStateSpec) Assigned() map[string]int {
	if !s.Held {
		return nil
	}
	names := strings.Fields(s.Sites)
	out := make(map[string]int, len(names))
	for i, name := range names {
		if i < len(s.Has) && s.Has[i] > '0' && s.Has[i] <= '9' {
			out[name] = int(s.Has[i] - '0')
		}
	}
	return out
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
