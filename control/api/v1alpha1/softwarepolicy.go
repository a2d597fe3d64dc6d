package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SoftwarePolicy says which version of a component some sites shall run. The one with the
// highest priority that selects a site decides for its component, alone; a version that
// the Site itself names in spec.software counts before it.
//
// A change of it goes to all of its sites at once, unless a RolloutPolicy selects it or a
// Rollout makes the change: then it goes as any other does, wave by wave.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=swp
// +kubebuilder:printcolumn:name="Component",type=string,JSONPath=`.spec.component`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Sites",type=integer,JSONPath=`.status.sites`
// +kubebuilder:printcolumn:name="Done",type=integer,JSONPath=`.status.done`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.failed`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SoftwarePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SoftwarePolicySpec   `json:"spec"`
	Status SoftwarePolicyStatus `json:"status,omitempty"`
}

// SoftwarePolicySpec is the version, for whom, and when.
type SoftwarePolicySpec struct {
	// Component that it is about.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.component: can't be changed; make another SoftwarePolicy"
	Component SoftwareComponent `json:"component"`
	// Version that the sites shall run: the spec.version of a SoftwareVersion of the
	// component in the same namespace. Empty: what each ran before it was asked for
	// another one, and nothing for sites that never were. So a policy without a version
	// moves nothing, and a rollout of its first version can be put back.
	// +kubebuilder:validation:MaxLength=50
	// +kubebuilder:validation:Pattern=`^([0-9]+\.[0-9]+\.[0-9]+(-[a-z0-9]+([-.][a-z0-9]+)*)?)?$`
	// +optional
	Version string `json:"version,omitempty"`
	// SiteSelector chooses sites by label; empty: all of the tenant's sites.
	// +optional
	SiteSelector metav1.LabelSelector `json:"siteSelector,omitempty"`
	// Priority decides between policies of a component; higher wins, then the name.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// NotBefore is when sites may begin, with the download as well; unset: at once.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
	// Windows in which sites begin and restart, in their own time zone; none: at any time. A
	// download that has begun goes on outside of them, and so does a trial.
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Windows []RolloutWindow `json:"windows,omitempty"`
	// OperatorMayDefer is for how long after it was offered a site's own operator may put
	// a version off (`muster-edge software defer`); unset: not at all.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('2160h')",message="operatorMayDefer: want 0s to 2160h, which are 90 days"
	// +optional
	OperatorMayDefer metav1.Duration `json:"operatorMayDefer,omitempty"`
	// BytesPerSecond is how fast a site may download; 0: as fast as it can.
	// +kubebuilder:validation:Minimum=0
	// +optional
	BytesPerSecond int32 `json:"bytesPerSecond,omitempty"`
}

// SoftwarePolicyStatus counts sites.
type SoftwarePolicyStatus struct {
	// Sites for which it decides.
	// +optional
	Sites int32 `json:"sites"`
	// Done are those that run what they shall, Failed those that tried and went back.
	// +optional
	Done int32 `json:"done"`
	// +optional
	Failed int32 `json:"failed"`
	// ObservedGeneration is of the spec that the counts are about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// +kubebuilder:object:root=true

// SoftwarePolicyList is a list of them.
type SoftwarePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SoftwarePolicy `json:"items"`
}
