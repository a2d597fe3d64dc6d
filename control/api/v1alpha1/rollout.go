package v1alpha1

import (
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
	// CollectionPolicy, HealthPolicy, SoftwarePolicy, or HostConfiguration.
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

// GoOn ends a pause, whether people began it or the rollout itself did.
func (c *RolloutControl) GoOn() {
	c.Paused = false
	c.Resume++
}

// +kubebuilder:object:root=true

// RolloutList is a list of them.
type RolloutList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Rollout `json:"items"`
}
