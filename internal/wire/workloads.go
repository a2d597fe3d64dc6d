package wire

import "time"

// VirtualRoot is what the path of every virtual Kubernetes begins with; a namespace, a name
// and the path of the Kubernetes API follow.
const VirtualRoot = "/api/vK8s/namespaces/"

// VirtualPath is where a virtual Kubernetes is served, below the address of the API server.
func VirtualPath(namespace, name string) string { return VirtualRoot + namespace + "/" + name }

// Workload is an object of a virtual Kubernetes as its sites have it: what the virtual API
// answers below /muster/workloads, and the console, the CLI and rollouts read.
//
//	GET …/muster/workloads               a WorkloadList, without sites
//	GET …/muster/workloads?site=SITE     those that the site holds or should, each with that site alone
//	GET …/muster/workloads/ITEM          one, with its sites; ITEM is KIND.GROUP/NAME
//	GET …/muster/workloads/ITEM?fields=1 the same, with the fields in which sites have not what they should
type Workload struct {
	Group   string    `json:"group,omitempty"`
	Version string    `json:"version,omitempty"`
	Kind    string    `json:"kind"`
	Name    string    `json:"name"`
	Created time.Time `json:"created,omitzero"`
	// Images of its pods, those of Overrides not among them.
	Images []string `json:"images,omitempty"`
	// VirtualSites it runs on, as its users type them.
	VirtualSites []string `json:"virtualSites"`
	// Counts are of sites, Pods of all of them together.
	Counts WorkloadCounts `json:"counts"`
	Pods   WorkloadPods   `json:"pods"`
	// Reasons why sites are not ready, the one of most sites first.
	Reasons []WorkloadReason `json:"reasons"`
	// Sites by name; not in a list.
	Sites []WorkloadSite `json:"sites,omitempty"`
}

// WorkloadCounts are sites by the state that a workload is in there (workload.State).
// Sites that are offline count by what they said last, and apart.
type WorkloadCounts struct {
	Sites       int `json:"sites"`
	Ready       int `json:"ready"`
	Progressing int `json:"progressing"`
	Waiting     int `json:"waiting"`
	Failed      int `json:"failed"`
	RolledBack  int `json:"rolledBack"`
	Offline     int `json:"offline"`
	Drifted     int `json:"drifted"`
}

// WorkloadPods are pods; all 0 of kinds without any.
type WorkloadPods struct {
	Desired int `json:"desired"`
	Ready   int `json:"ready"`
}

// WorkloadReason is one thing that keeps sites from being ready.
type WorkloadReason struct {
	Reason  string `json:"reason"` // CamelCase
	Message string `json:"message"`
	Sites   int    `json:"sites"`
	Example string `json:"example"` // a site's name
}

// WorkloadSite is what a workload is on one site.
type WorkloadSite struct {
	Site    string       `json:"site"`
	Online  bool         `json:"online"`
	State   string       `json:"state"` // workload.State
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
	Since   time.Time    `json:"since,omitzero"`
	Pods    WorkloadPods `json:"pods"`
	// Wanted and Digest name what the site should hold, and what it has.
	Wanted  string `json:"wanted"`
	Digest  string `json:"digest,omitempty"`
	Drifted bool   `json:"drifted,omitempty"`
	// Fields names those that are otherwise on the site: those that somebody changed there,
	// and, if it is asked for, those in which what it has is not what it should have. Absent:
	// not known, or all of it.
	Fields []string `json:"fields,omitempty"`
	// NoFields is why none are named of what is otherwise: FieldsForbidden or FieldsNotKept.
	NoFields string `json:"noFields,omitempty"`
}

// Why no fields are named.
const (
	FieldsForbidden = "Forbidden" // who asks may not get the object
	FieldsNotKept   = "NotKept"   // the site has another version, usually an older one, which the control plane does not have any more
)

// WorkloadList is all of a virtual Kubernetes, by kind and name.
type WorkloadList struct {
	Items []Workload `json:"items"`
}
