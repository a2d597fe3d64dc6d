package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SharedViews is the name of the SavedViews that all users of a tenant have.
const SharedViews = "shared"

// ViewsName is the name of the SavedViews of a user; of nobody, of those that are shared.
func ViewsName(user string) string {
	if user == "" {
		return SharedViews
	}
	sum := sha256.Sum256([]byte(user))
	return "user-" + hex.EncodeToString(sum[:16])
}

// SavedViews are views of the inventory that have names: a person's own in an object that
// nobody else writes, and the tenant's in one that is called shared, which takes the verb
// share on savedviews. They hold no secrets: who knows a user's name may read that user's.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=savedviews,singular=savedviews
// +kubebuilder:printcolumn:name="Owner",type=string,JSONPath=`.spec.owner`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SavedViews struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SavedViewsSpec `json:"spec"`
}

// SavedViewsSpec is whose they are, and what they show.
type SavedViewsSpec struct {
	// Owner is the user whose they are, as the API server knows them; none of those that
	// are shared. The object's name follows from it.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Owner string `json:"owner,omitempty"`
	// +kubebuilder:validation:MaxItems=50
	// +listType=map
	// +listMapKey=name
	// +optional
	Views []SavedView `json:"views,omitempty"`
}

// SavedView is a question to the inventory, in the words of GET /api/v1/sites.
type SavedView struct {
	// Name as people type it: 1 to 60 printable characters without "/".
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=60
	Name string `json:"name"`
	// Query says which sites, such as `kind=store score<60`; empty: all.
	// +kubebuilder:validation:MaxLength=2000
	// +optional
	Query string `json:"query,omitempty"`
	// Sort are up to three columns; a - before one puts its largest first.
	// +kubebuilder:validation:MaxLength=1000
	// +optional
	Sort string `json:"sort,omitempty"`
	// Columns that are shown; empty: those that are shown at first.
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=317
	// +listType=atomic
	// +optional
	Columns []string `json:"columns,omitempty"`
	// Group is the column by which sites are counted; empty: none.
	// +kubebuilder:validation:MaxLength=317
	// +optional
	Group string `json:"group,omitempty"`
}

// +kubebuilder:object:root=true

// SavedViewsList is a list of them.
type SavedViewsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SavedViews `json:"items"`
}
