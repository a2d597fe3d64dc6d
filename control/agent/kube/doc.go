// Package kube is the agent on a site's own Kubernetes cluster: it makes the cluster hold
// the objects that control wants there, mirrors what runs back, and serves logs and exec
// of pods on the connections that the site opens for them. muster-edge runs it where
// kubernetes.enabled is set; it links client-go and no server.
//
// # What it touches
//
// Everything that it puts on the cluster bears the label workload.Owned, is applied
// server-side by the field manager workload.FieldManager, and lies in a namespace that
// bears the label, too. What lacks the label is never changed and never removed: an object
// that is in the way is told as a name clash. It removes what has the label and its
// annotation workload.Digest, is nobody's child, and is not in the set that control last
// sent; never because control is silent, nor because a blob could not be fetched.
//
// A cluster is one site's: the ConfigMap kube-system/muster-edge says which (claim.go). An
// agent of another site applies, removes and mirrors nothing there.
//
// # What it needs
//
// Rules, as a ClusterRole; the Helm chart has them. Custom resources are granted by further
// roles; without, their objects are told as refused by the API server.
//
// # How it goes about it
//
// One goroutine, in worker.go, goes over units: an object, or the objects of a bundle. What
// is to be done with a unit is found each time anew from what is wanted, what is live, and
// the little that is on disk (state.go); a restart in the middle goes on from there.
// Reflectors keep of each owned object only what is needed to judge it (live.go).
package kube
