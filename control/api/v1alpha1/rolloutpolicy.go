package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
