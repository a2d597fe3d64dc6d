package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// VirtualKubernetes makes a namespace one Kubernetes cluster out of many: what stands in
// the namespace runs on every site of its virtual sites, and the pods of all of them are
// seen here. A namespace has one.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=virtualkubernetes,singular=virtualkubernetes,shortName=vk8s
// +kubebuilder:printcolumn:name="Default Virtual Site",type=string,JSONPath=`.spec.defaultVirtualSite`
// +kubebuilder:printcolumn:name="Sites",type=integer,JSONPath=`.status.sites`
// +kubebuilder:printcolumn:name="Online",type=integer,JSONPath=`.status.online`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.status.url`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="metadata.name: at most 63 lower-case letters, digits or '-': it is a part of the URL"
type VirtualKubernetes struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VirtualKubernetesSpec   `json:"spec"`
	Status VirtualKubernetesStatus `json:"status,omitempty"`
}

// VirtualKubernetesSpec says where things run.
type VirtualKubernetesSpec struct {
	// DefaultVirtualSite is where objects go that name no virtual site themselves:
	// NAMESPACE/NAME as the tenant's users type it, such as shared/all-eu, or NAME of
	// one in the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	DefaultVirtualSite string `json:"defaultVirtualSite"`
}

// VirtualKubernetesStatus is what Muster observed.
type VirtualKubernetesStatus struct {
	// URL, below the address of the API server, at which the namespace is served as a
	// Kubernetes cluster.
	// +optional
	URL string `json:"url,omitempty"`
	// Sites that hold objects of the namespace, or will once there are any: those of the
	// default virtual site, and of those that objects name.
	// +kubebuilder:default=0
	// +optional
	Sites int32 `json:"sites"`
	// Online are those of them that are connected.
	// +kubebuilder:default=0
	// +optional
	Online int32 `json:"online"`
	// Objects of the namespace that are carried to sites.
	// +kubebuilder:default=0
	// +optional
	Objects int32 `json:"objects"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// +kubebuilder:object:root=true

// VirtualKubernetesList is a list of them.
type VirtualKubernetesList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualKubernetes `json:"items"`
}

// Override is another spec for the workloads that name it, on some sites: of those in the
// annotation ves.io/overrides, the first whose siteList has a site replaces the spec there.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.kind`
// +kubebuilder:printcolumn:name="Sites",type=integer,JSONPath=`.status.sites`
// +kubebuilder:printcolumn:name="Missing",type=integer,JSONPath=`.status.missing`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Override struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   OverrideSpec   `json:"spec"`
	Status OverrideStatus `json:"status,omitempty"`
}

// OverrideSpec is what replaces what, where.
type OverrideSpec struct {
	// SiteList names the sites. One that does not exist counts when it comes.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	SiteList []string `json:"siteList"`
	// Kind that it is for, such as Deployment; empty: whichever names it. An object of
	// another kind that names it is refused.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Kind string `json:"kind,omitempty"`
	// Spec that the object has on these sites, whole: nothing of the object's own spec
	// is kept.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Spec runtime.RawExtension `json:"spec"`
}

// OverrideStatus is what Muster observed.
type OverrideStatus struct {
	// Sites of the list that exist.
	// +kubebuilder:default=0
	// +optional
	Sites int32 `json:"sites"`
	// Missing are those that don't; the condition SitesExist names the first.
	// +kubebuilder:default=0
	// +optional
	Missing int32 `json:"missing"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// +kubebuilder:object:root=true

// OverrideList is a list of them.
type OverrideList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Override `json:"items"`
}

// PodSecurityLevel is one of the Pod Security Standards of Kubernetes.
//
// +kubebuilder:validation:Enum=Privileged;Baseline;Restricted
type PodSecurityLevel string

// The levels.
const (
	PodSecurityPrivileged PodSecurityLevel = "Privileged"
	PodSecurityBaseline   PodSecurityLevel = "Baseline"
	PodSecurityRestricted PodSecurityLevel = "Restricted"
)

// SiteQuotas bound what a namespace of a tenant may take on a site: they become its
// ResourceQuota there.
type SiteQuotas struct {
	// CPU that all pods of the namespace on one site may request together.
	// +optional
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// Memory that all pods of the namespace on one site may request together.
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
	// Pods of the namespace on one site.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Pods *int64 `json:"pods,omitempty"`
	// NodePorts that Services of the namespace may take on one site, whose 2,768 ports all
	// tenants share; absent: 100. Each port of a Service of the types NodePort and
	// LoadBalancer is one.
	// +kubebuilder:validation:Minimum=0
	// +optional
	NodePorts *int64 `json:"nodePorts,omitempty"`
}

// DefaultNodePorts are those of a namespace on one site where its tenant's siteQuotas say
// nothing of them.
const DefaultNodePorts = 100
