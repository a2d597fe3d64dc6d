package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"strings"
)

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
	// WaveCount is how many waves there are.
	// +optional
	WaveCount int32 `json:"waveCount,omitempty"`
	// Waves are all of them, or of more than 50 those around the current one.
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
	// Number is which of all waves it is, from 1.
	// +optional
	Number int32 `json:"number,omitempty"`
	// Begin and End are where its sites stand among those of the RolloutState, from 0, without
	// the one at End.
	// +optional
	Begin int32 `json:"begin,omitempty"`
	// +optional
	End int32 `json:"end,omitempty"`
	// SoakSeconds are for how long its gates have to hold, if not as long as the plan says.
	// +optional
	SoakSeconds *int64 `json:"soakSeconds,omitempty"`
	// Approval: a person has to promote it.
	// +optional
	Approval bool `json:"approval,omitempty"`
	// +optional
	Sites RolloutCounts `json:"sites,omitempty"`
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// +optional
	PassedAt *metav1.Time `json:"passedAt,omitempty"`
}

// WaveAt returns the wave of this number; nil: it is not among those of the status.
func (s *RolloutStatus) WaveAt(number int32) *RolloutWaveStatus {
	for i := range s.Waves {
		if s.Waves[i].Number == number {
			return &s.Waves[i]
		}
	}
	return nil
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
