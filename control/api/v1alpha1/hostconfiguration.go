package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionConflict of a HostConfiguration is True while a stronger one sets something that
// it sets, too, to another value.
const ConditionConflict = "Conflict"

// HostConfiguration says how the hosts of some sites are configured. Those that select a
// site are joined, setting by setting: the one with the highest priority decides, then the
// name, and the others say so in their condition Conflict. What none names stays as the
// host has it, and what is taken out of all of them is put back to what was there before.
//
// Sites take it only if their own operator has said so (hostConfiguration in edge.yaml). A
// change of it goes to all of its sites at once, unless a RolloutPolicy selects it or a
// Rollout makes the change.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=hc
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Dry-Run",type=boolean,JSONPath=`.spec.dryRun`
// +kubebuilder:printcolumn:name="Sites",type=integer,JSONPath=`.status.sites`
// +kubebuilder:printcolumn:name="Applied",type=integer,JSONPath=`.status.applied`
// +kubebuilder:printcolumn:name="Rejected",type=integer,JSONPath=`.status.rejected`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type HostConfiguration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   HostConfigurationSpec   `json:"spec"`
	Status HostConfigurationStatus `json:"status,omitempty"`
}

// HostConfigurationSpec is what hosts shall have, and which.
type HostConfigurationSpec struct {
	// SiteSelector chooses sites by label; empty: all of the tenant's sites.
	// +optional
	SiteSelector metav1.LabelSelector `json:"siteSelector,omitempty"`
	// Priority decides between objects that set the same; higher wins, then the name.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// DryRun: nothing is changed by it; each site says in its condition
	// HostConfigurationDryRun what would be.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
	// OnDrift is what a site does when somebody has changed on the host what it was given:
	// Heal gives it again, Report leaves it; both say so in the condition
	// HostConfigurationDrift. Of several objects the strongest that sets it decides; unset: Heal.
	// +kubebuilder:validation:Enum=Heal;Report
	// +optional
	OnDrift string `json:"onDrift,omitempty"`
	// Sysctls are values of the kernel by key, such as net.core.somaxconn: "4096".
	// +kubebuilder:validation:MaxProperties=200
	// +optional
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// Hugepages are how many pages of each size are set aside.
	// +listType=map
	// +listMapKey=size
	// +kubebuilder:validation:MaxItems=6
	// +optional
	Hugepages []HostHugepages `json:"hugepages,omitempty"`
	// Hosts are names of other machines that the host knows without DNS (/etc/hosts).
	// +kubebuilder:validation:MaxItems=500
	// +optional
	Hosts []HostEntry `json:"hosts,omitempty"`
	// SSH says who may log in.
	// +optional
	SSH *HostSSH `json:"ssh,omitempty"`
	// NTP says which servers the clock follows.
	// +optional
	NTP *HostNTP `json:"ntp,omitempty"`
}

// HostHugepages are pages of one size.
type HostHugepages struct {
	// Size of a page; which there are, the hardware says: 2Mi and 1Gi on most.
	// +kubebuilder:validation:Enum="64Ki";"2Mi";"32Mi";"512Mi";"1Gi";"16Gi"
	Size string `json:"size"`
	// Count of pages.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1048576
	Count int32 `json:"count"`
}

// HostEntry is an address with its names.
type HostEntry struct {
	// Address is an IP address.
	// +kubebuilder:validation:MaxLength=45
	Address string `json:"address"`
	// Names of it. A name may stand at several addresses.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	Names []string `json:"names"`
}

// HostSSH says whom sshd lets in, beside whom the host's own configuration does.
type HostSSH struct {
	// UserAuthorities are public keys whose certificates sshd takes (TrustedUserCAKeys); to
	// rotate one, add the new key, and take the old one out later. Those of all objects
	// add up.
	// +kubebuilder:validation:MaxItems=10
	// +optional
	UserAuthorities []string `json:"userAuthorities,omitempty"`
	// Users are accounts that the host has, and who may log in as them.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=50
	// +optional
	Users []HostSSHUser `json:"users,omitempty"`
}

// HostSSHUser is an account.
type HostSSHUser struct {
	// Name of an account of the host; it is not made, and root is refused.
	// +kubebuilder:validation:MaxLength=32
	Name string `json:"name"`
	// Principals of certificates that let in as the account, in place of its own name.
	// +kubebuilder:validation:MaxItems=50
	// +optional
	Principals []string `json:"principals,omitempty"`
	// AuthorizedKeys are public keys that let in as the account, as in a .pub file.
	// +kubebuilder:validation:MaxItems=20
	// +optional
	AuthorizedKeys []string `json:"authorizedKeys,omitempty"`
}

// HostNTP are the servers of the clock.
type HostNTP struct {
	// Servers are DNS names or IP addresses.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Servers []string `json:"servers"`
}

// HostConfigurationStatus counts sites.
type HostConfigurationStatus struct {
	// Sites that it selects.
	// +kubebuilder:default=0
	// +optional
	Sites int32 `json:"sites"`
	// Applied counts sites whose host has what they shall have, of all objects together.
	// +kubebuilder:default=0
	// +optional
	Applied int32 `json:"applied"`
	// Rejected counts sites that could not, and kept what they had.
	// +kubebuilder:default=0
	// +optional
	Rejected int32 `json:"rejected"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// +kubebuilder:object:root=true

// HostConfigurationList is a list of them.
type HostConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HostConfiguration `json:"items"`
}
