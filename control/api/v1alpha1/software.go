package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SoftwareComponent is a part of a site that is replaced as a whole.
//
// +kubebuilder:validation:Enum=os;agent;platform
type SoftwareComponent string

// AnnotationSoftwareRetry, on a Site, counts how often somebody asked it to try again a
// version that had failed there; another number than before is another try. A Rollout's
// spec.control.retry raises it, and AnnotationSoftwareRetryOf notes for which of these it
// was raised last, as UID/SITE'S COUNT, so that none counts twice.
const (
	AnnotationSoftwareRetry   = "muster.dev/software-retry"
	AnnotationSoftwareRetryOf = "muster.dev/software-retry-of"
)

// The components.
const (
	SoftwareOS       SoftwareComponent = "os"       // kernel and root file system of the nodes
	SoftwareAgent    SoftwareComponent = "agent"    // muster-edge
	SoftwarePlatform SoftwareComponent = "platform" // Kubernetes and what Muster installs on it
)

// SoftwareVersion is a released version of a component: what it is made of, and what a
// site must have before it may get it. It does nothing by itself; a site gets what a
// SoftwarePolicy names, which a Rollout changes wave by wave, or its own spec.software.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=sv
// +kubebuilder:printcolumn:name="Component",type=string,JSONPath=`.spec.component`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Withdrawn",type=string,JSONPath=`.spec.withdrawn`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.component + '-' + self.spec.version",message="metadata.name: want COMPONENT-VERSION, such as os-1.4.2, so that there is one object a version"
type SoftwareVersion struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SoftwareVersionSpec `json:"spec"`
}

// SoftwareVersionSpec is what was released. Only withdrawn and notes can be changed: a
// version that means something else on each site is none.
//
// +kubebuilder:validation:XValidation:rule="has(self.requires) == has(oldSelf.requires) && (!has(self.requires) || self.requires == oldSelf.requires)",message="spec.requires: can't be changed; make another SoftwareVersion"
type SoftwareVersionSpec struct {
	// Component that it is a version of.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.component: can't be changed; make another SoftwareVersion"
	Component SoftwareComponent `json:"component"`
	// Version as people and Site.spec.software name it, in Semantic Versioning's form and
	// lower case: 1.4.2, 2026.11.1-rc.1.
	// +kubebuilder:validation:MaxLength=50
	// +kubebuilder:validation:Pattern=`^[0-9]+\.[0-9]+\.[0-9]+(-[a-z0-9]+([-.][a-z0-9]+)*)?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.version: can't be changed; make another SoftwareVersion"
	Version string `json:"version"`
	// Bundles hold the files, one for each architecture. Which of them a site may trust
	// says the signed repository, not this object: what stands here can only narrow it.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.bundles: can't be changed; make another SoftwareVersion"
	// +listType=map
	// +listMapKey=architecture
	Bundles []SoftwareBundle `json:"bundles"`
	// Requires is, by component, the oldest version that a site must run before it gets
	// this one. Of the same component: from where one may go here without a stop between.
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(c, c in ['os', 'agent', 'platform'])",message="spec.requires: want versions by component: os, agent, platform"
	// +optional
	Requires map[SoftwareComponent]string `json:"requires,omitempty"`
	// Withdrawn says why no site may begin to install it any more; empty: it may. Sites
	// that run it keep it.
	// +kubebuilder:validation:MaxLength=200
	// +optional
	Withdrawn string `json:"withdrawn,omitempty"`
	// Notes for people: what is new, or where that can be read.
	// +kubebuilder:validation:MaxLength=2000
	// +optional
	Notes string `json:"notes,omitempty"`
}

// SoftwareBundle is the files of a version, for one architecture.
type SoftwareBundle struct {
	// Architecture as the nodes report it; any: the bundle is the same for all. kubernetes:
	// the reference of an image, for sites on which the agent is pods of a cluster.
	// +kubebuilder:validation:Enum=any;amd64;arm64;arm;riscv64;kubernetes
	// +kubebuilder:default=any
	Architecture string `json:"architecture"`
	// Target is its name in the signed repository, such as os/1.4.2/amd64.img.
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$`
	Target string `json:"target"`
	// Digest is the SHA-256 of the file, in hex.
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	Digest string `json:"digest"`
	// Size of the file in bytes.
	// +kubebuilder:validation:Minimum=1
	Size int64 `json:"size"`
}

// +kubebuilder:object:root=true

// SoftwareVersionList is a list of them.
type SoftwareVersionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SoftwareVersion `json:"items"`
}

// SoftwareState is where a site stands with a version that it shall have.
//
// +kubebuilder:validation:Enum=Available;Scheduled;Downloading;Installing;Done;Failed
type SoftwareState string

// The states. From Available to Installing the site runs what it ran before; Failed: it
// runs that again, or still.
const (
	SoftwareAvailable   SoftwareState = "Available"   // known to the site, nothing is done about it yet
	SoftwareScheduled   SoftwareState = "Scheduled"   // for the time in startsAt
	SoftwareDownloading SoftwareState = "Downloading" // percent says how far
	SoftwareInstalling  SoftwareState = "Installing"  // written, switched to, or on trial after a boot
	SoftwareDone        SoftwareState = "Done"        // runs and is well
	SoftwareFailed      SoftwareState = "Failed"
)

// SiteSoftware is what a site runs of one component, and what it does to run another
// version.
type SiteSoftware struct {
	Component SoftwareComponent `json:"component"`
	// Running version, as the site reports it.
	// +optional
	Running string `json:"running,omitempty"`
	// Wanted is the version that the state is about.
	// +optional
	Wanted string `json:"wanted,omitempty"`
	// +optional
	State SoftwareState `json:"state,omitempty"`
	// Percent of the download, while there is one.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	Percent *int32 `json:"percent,omitempty"`
	// StartsAt is when it begins, where it is Scheduled.
	// +optional
	StartsAt *metav1.Time `json:"startsAt,omitempty"`
	// Digest of what the site was told that the state is about, in hex.
	// +kubebuilder:validation:Pattern=`^([0-9a-f]{64})?$`
	// +optional
	Digest string `json:"digest,omitempty"`
	// Message says it in a sentence; of a failure: what failed at which step, and what
	// runs now.
	// +kubebuilder:validation:MaxLength=500
	// +optional
	Message string `json:"message,omitempty"`
	// Since is when the state was reached.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}
