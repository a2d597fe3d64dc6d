// Package sum makes the status of a workload the sum over its sites, so that kubectl
// rollout status, kubectl wait and Helm's --wait mean the fleet; and tells, below /muster/
// of a virtual Kubernetes, what a workload is on each of them.
//
// It reads what control/vk8s/status holds and where control/desired carries things, and
// writes the status subresource of Deployments, StatefulSets, DaemonSets, Jobs and CronJobs,
// of PersistentVolumeClaims and Services of the type LoadBalancer of
// namespaces with a virtual Kubernetes, and conditions of objects of granted CRDs: on change
// alone, and at most once a second each.
// The sums are pure functions.
package sum

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// Placement is where an item is carried to.
type Placement struct {
	Version uint64                  // the resource version of the object that was rendered
	Created time.Time               // of that object
	Digests map[fleet.SiteID]string // site → the blob that it should have
	// Held are those of the sites at which a rollout keeps what was there before the object
	// became what it is; Over: it has ended, and they will not get it.
	Held map[fleet.SiteID]bool
	Over bool
	// VirtualSites that it goes to, NAMESPACE/NAME as users type them, sorted.
	VirtualSites []string
}

// place is one of the sites of a workload.
type place struct {
	site   fleet.SiteID
	wanted string
	online bool
	held   bool                 // by a rollout, at what it had before
	said   *wire.WorkloadStatus // nil: nothing yet
}

// applied: the site has what it should have.
func (p place) applied() bool { return p.said != nil && p.said.GetDigest() == p.wanted }

// state is what a site has made of what it should have now.
func (p place) state() workload.State {
	switch {
	case p.said == nil:
		return workload.Waiting
	case p.said.GetWanted() != p.wanted && p.said.GetDigest() != p.wanted:
		return workload.Waiting // what it says is of something older
	}
	return workload.State(p.said.GetState())
}

// over: nothing more will come of it by itself.
func (p place) over() bool {
	return slices.Contains([]workload.State{workload.Failed, workload.RolledBack}, p.state())
}

// updated: it has what the object is now, and not what a rollout has it keep.
func (p place) updated() bool { return p.applied() && !p.held }

// ready: it has what it should have, and that is ready.
func (p place) ready() bool { return p.applied() && p.state() == workload.Ready }

// places are the sites of an item, by name. ignored are those that are offline and that
// its annotation leaves out.
func places(p Placement, states map[fleet.SiteID]*wire.WorkloadStatus, online func(fleet.SiteID) bool, ignore bool) (all, ignored []place) {
	for id, digest := range p.Digests {
		at := place{site: id, wanted: digest, online: online(id), held: p.Held[id], said: states[id]}
		if ignore && !at.online {
			ignored = append(ignored, at)
		} else {
			all = append(all, at)
		}
	}
	byName := func(a, b place) int { return strings.Compare(a.site.Name, b.site.Name) }
	slices.SortFunc(all, byName)
	slices.SortFunc(ignored, byName)
	return all, ignored
}

// observed says whether the sites' answers are about the object as it is: it was rendered,
// and every connected site has what came of it, or said that it won't.
func observed(version uint64, p Placement, all []place) bool {
	if p.Version < version {
		return false
	}
	return !slices.ContainsFunc(all, func(at place) bool { return at.online && !at.applied() && !at.over() })
}

// verdict is what is said of all sites together.
type verdict struct {
	sites, ready, over, offline int
	held                        int    // ready or not
	behind                      int    // have not what they should
	drifted                     int    // have, but for what somebody changed there
	others                      string // which they are, and what is otherwise
	why                         string // of those that are not ready
}

// under says how far a workload is under its rollout.
func (v verdict) under(o client.Object) string {
	return fmt.Sprintf("%d of %d sites have it, by rollout %s", v.sites-v.held, v.sites, o.GetAnnotations()[v1alpha1.AnnotationRollout])
}

// done: all sites are ready with what the object is now.
func (v verdict) done() bool { return v.sites > 0 && v.ready == v.sites && v.held == 0 }

func judge(all, ignored []place) verdict {
	v := verdict{sites: len(all), offline: len(ignored)}
	for _, at := range all {
		switch {
		case at.ready():
			v.ready++
		case at.over():
			v.over++
		}
		if !at.online {
			v.offline++
		}
		if at.held {
			v.held++
		}
		if !at.applied() {
			v.behind++
		} else if at.said.GetDrifted() {
			v.drifted++
			if v.drifted == 1 {
				v.others = at.site.Name + ": " + cmp.Or(strings.Join(at.said.GetChanged(), ", "), "it is not known what")
			}
		}
	}
	var parts []string
	for _, r := range reasonsOf(all) {
		if parts = append(parts, fmt.Sprintf("%s on %s", cmp.Or(r.Reason, "not ready"), sitesOf(r.Sites, r.Example))); len(parts) == 3 {
			break
		}
	}
	v.why = strings.Join(parts, "; ")
	return v
}

func sitesOf(n int, example string) string {
	if n == 1 {
		return example
	}
	return fmt.Sprintf("%d sites such as %s", n, example)
}

// reasonsOf are what keeps sites from being ready, that of most sites first.
func reasonsOf(all []place) []wire.WorkloadReason {
	var out []wire.WorkloadReason
	for _, at := range all {
		if at.ready() {
			continue
		}
		r := wire.WorkloadReason{Reason: string(at.state()), Example: at.site.Name}
		if at.said != nil {
			r.Reason, r.Message = cmp.Or(at.said.GetReason(), r.Reason), at.said.GetMessage()
		}
		if !at.online {
			r.Reason, r.Message = "SiteOffline", "the site is not connected"
		}
		if i := slices.IndexFunc(out, func(o wire.WorkloadReason) bool { return o.Reason == r.Reason }); i >= 0 {
			out[i].Sites++
			continue
		}
		r.Sites = 1
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b wire.WorkloadReason) int { return b.Sites - a.Sites })
	return out
}

// condition is one of a workload, whatever its kind.
type condition struct {
	kind            string
	status          corev1.ConditionStatus
	reason, message string
}

// conditionsOf are those that say how the sites are.
func conditionsOf(v verdict) []condition {
	yesNo := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}
	count := fmt.Sprintf("%d of %d sites are ready", v.ready, v.sites)
	if v.why != "" {
		count += ": " + v.why
	}
	sites := condition{"SitesReady", yesNo[v.ready == v.sites && v.sites > 0], "SitesReady", count}
	if v.sites == 0 {
		sites.reason, sites.message = "NoSites", "no site is a member of its virtual sites"
	} else if v.ready < v.sites {
		sites.reason = "SitesNotReady"
	}
	online := condition{"SitesOnline", yesNo[v.offline == 0], "SitesOnline", "all sites are connected"}
	if v.offline > 0 {
		online.reason, online.message = "SitesOffline", fmt.Sprintf("%d sites are not connected; they get it when they are back", v.offline)
	}
	same := condition{"SitesInSync", corev1.ConditionTrue, "SitesInSync", "all sites have it as it is here"}
	switch {
	case v.drifted > 0:
		same.status, same.reason, same.message = corev1.ConditionFalse, "Drifted", clip(fmt.Sprintf("somebody changed it on %d of %d sites, such as on %s", v.drifted, v.sites, v.others))
	case v.behind > 0:
		same.status, same.reason, same.message = corev1.ConditionFalse, "NotApplied", fmt.Sprintf("%d of %d sites have not what they should have", v.behind, v.sites)
	case v.held > 0:
		same.message = "all sites have what they should have; a rollout keeps some at what they had"
	case v.sites == 0:
		same.status, same.reason, same.message = corev1.ConditionUnknown, "NoSites", sites.message
	}
	return []condition{sites, online, same}
}

// clip bounds a message of a condition.
func clip(s string) string {
	const most = 1000
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

func parse[T any](at place) (out T) {
	if at.said != nil && len(at.said.GetStatus()) > 0 {
		_ = json.Unmarshal(at.said.GetStatus(), &out) // what can't be read counts as nothing
	}
	return out
}

func positive(n int32) int32 { return min(max(n, 0), 1_000_000) }

// replicas is how many pods a site should have of what says so.
func replicas(spec *int32) int32 {
	if spec == nil {
		return 1
	}
	return *spec
}

// sumPods adds up what Deployments and StatefulSets say of their pods, by the same names.
func sumPods(spec *int32, all []place) workload.Pods {
	var out workload.Pods
	for _, at := range all {
		s := parse[appsv1.DeploymentStatus](at)
		n := positive(s.Replicas)
		if !at.ready() { // what is still to come is told as what is not updated yet
			n = max(n, replicas(spec))
		}
		if at.updated() {
			out.Updated += int(min(positive(s.UpdatedReplicas), n))
		}
		out.Desired += int(n)
		ready := min(positive(s.ReadyReplicas), n)
		out.Ready += int(ready)
		out.Available += int(min(positive(s.AvailableReplicas), ready)) // the API server refuses more than are ready
	}
	return out
}

// inTermsOf is what pods of all sites are in terms of the spec, which is about one: with half
// of them ready half of its replicas are. Who waits for a workload compares its status with
// its spec, and what is above that is, to some, still to go. All are ready when all sites are,
// and not before; and updated when no rollout keeps any of them at what it had.
func (v verdict) inTermsOf(spec *int32, pods workload.Pods) (all, updated, ready, available int32) {
	want := replicas(spec)
	if v.sites == 0 {
		return 0, 0, 0, 0
	}
	part := func(n int) int32 { return int32(int64(want) * int64(n) / int64(max(pods.Desired, 1))) }
	short := max(want-1, 0)
	switch updated = part(pods.Updated); {
	case v.held > 0:
		updated = min(updated, short)
	case v.done():
		updated = want
	}
	if v.ready == v.sites {
		return want, updated, want, want
	}
	return want, updated, min(part(pods.Ready), short), min(part(pods.Available), short)
}

// Deployment sums one up.
func Deployment(d *appsv1.Deployment, version uint64, p Placement, all, ignored []place, now metav1.Time) appsv1.DeploymentStatus {
	out := appsv1.DeploymentStatus{ObservedGeneration: d.Status.ObservedGeneration}
	if observed(version, p, all) {
		out.ObservedGeneration = d.Generation
	}
	v := judge(all, ignored)
	out.Replicas, out.UpdatedReplicas, out.ReadyReplicas, out.AvailableReplicas = v.inTermsOf(d.Spec.Replicas, sumPods(d.Spec.Replicas, all))
	out.UnavailableReplicas = out.Replicas - out.AvailableReplicas
	ready := fmt.Sprintf("%d of %d sites are ready", v.ready, v.sites)
	progress := condition{string(appsv1.DeploymentProgressing), corev1.ConditionTrue, "ReplicaSetUpdated", ready}
	switch {
	case v.done():
		progress.reason = "NewReplicaSetAvailable"
	case v.held > 0 && p.Over: // kubectl rollout status ends with an error then
		progress = condition{progress.kind, corev1.ConditionFalse, "ProgressDeadlineExceeded", v.under(d)}
	case v.held > 0:
		progress.message = v.under(d)
	case v.over > 0 && v.ready+v.over == v.sites:
		progress.status, progress.reason, progress.message = corev1.ConditionFalse, "ProgressDeadlineExceeded", v.why
	}
	available := condition{string(appsv1.DeploymentAvailable), corev1.ConditionTrue, "MinimumReplicasAvailable", "all sites have what they should have"}
	if v.ready < v.sites || v.sites == 0 {
		why := progress.message
		if v.held > 0 {
			why = ready
		}
		available = condition{available.kind, corev1.ConditionFalse, "MinimumReplicasUnavailable", why}
	}
	for _, c := range append([]condition{available, progress}, conditionsOf(v)...) {
		n := appsv1.DeploymentCondition{Type: appsv1.DeploymentConditionType(c.kind), Status: c.status, Reason: c.reason, Message: c.message, LastUpdateTime: now, LastTransitionTime: now}
		if i := slices.IndexFunc(d.Status.Conditions, func(o appsv1.DeploymentCondition) bool { return o.Type == n.Type }); i >= 0 {
			if was := d.Status.Conditions[i]; was.Status == n.Status {
				n.LastTransitionTime = was.LastTransitionTime
				if was.Reason == n.Reason && was.Message == n.Message {
					n.LastUpdateTime = was.LastUpdateTime
				}
			}
		}
		out.Conditions = append(out.Conditions, n)
	}
	return out
}

// StatefulSet sums one up.
func StatefulSet(d *appsv1.StatefulSet, version uint64, p Placement, all, ignored []place, now metav1.Time) appsv1.StatefulSetStatus {
	out := appsv1.StatefulSetStatus{ObservedGeneration: d.Status.ObservedGeneration}
	if observed(version, p, all) {
		out.ObservedGeneration = d.Generation
	}
	v := judge(all, ignored)
	out.Replicas, out.UpdatedReplicas, out.ReadyReplicas, out.AvailableReplicas = v.inTermsOf(d.Spec.Replicas, sumPods(d.Spec.Replicas, all))
	out.UpdateRevision = d.Name + "-" + revision(p)
	out.CurrentRevision = cmp.Or(d.Status.CurrentRevision, d.Name+"-none")
	if v.done() {
		out.CurrentRevision, out.CurrentReplicas = out.UpdateRevision, out.UpdatedReplicas
	}
	for _, c := range conditionsOf(v) {
		n := appsv1.StatefulSetCondition{Type: appsv1.StatefulSetConditionType(c.kind), Status: c.status, Reason: c.reason, Message: c.message, LastTransitionTime: now}
		if i := slices.IndexFunc(d.Status.Conditions, func(o appsv1.StatefulSetCondition) bool { return o.Type == n.Type }); i >= 0 && d.Status.Conditions[i].Status == n.Status {
			n.LastTransitionTime = d.Status.Conditions[i].LastTransitionTime
		}
		out.Conditions = append(out.Conditions, n)
	}
	return out
}

// DaemonSet sums one up.
func DaemonSet(d *appsv1.DaemonSet, version uint64, p Placement, all, ignored []place, now metav1.Time) appsv1.DaemonSetStatus {
	out := appsv1.DaemonSetStatus{ObservedGeneration: d.Status.ObservedGeneration}
	if observed(version, p, all) {
		out.ObservedGeneration = d.Generation
	}
	for _, at := range all {
		s := parse[appsv1.DaemonSetStatus](at)
		desired := positive(s.DesiredNumberScheduled)
		if !at.ready() {
			desired = max(desired, 1) // of how many nodes is not known yet
		}
		if at.updated() {
			out.UpdatedNumberScheduled += min(positive(s.UpdatedNumberScheduled), desired)
		}
		out.DesiredNumberScheduled += desired
		out.CurrentNumberScheduled += min(positive(s.CurrentNumberScheduled), desired)
		out.NumberMisscheduled += positive(s.NumberMisscheduled)
		out.NumberReady += min(positive(s.NumberReady), desired)
		out.NumberAvailable += min(positive(s.NumberAvailable), positive(s.NumberReady), desired)
	}
	out.NumberUnavailable = out.DesiredNumberScheduled - out.NumberAvailable
	for _, c := range conditionsOf(judge(all, ignored)) {
		n := appsv1.DaemonSetCondition{Type: appsv1.DaemonSetConditionType(c.kind), Status: c.status, Reason: c.reason, Message: c.message, LastTransitionTime: now}
		if i := slices.IndexFunc(d.Status.Conditions, func(o appsv1.DaemonSetCondition) bool { return o.Type == n.Type }); i >= 0 && d.Status.Conditions[i].Status == n.Status {
			n.LastTransitionTime = d.Status.Conditions[i].LastTransitionTime
		}
		out.Conditions = append(out.Conditions, n)
	}
	return out
}

// revision names what the sites should have.
func revision(p Placement) string {
	digests := map[string]bool{}
	for _, d := range p.Digests {
		digests[d] = true
	}
	names := make([]string, 0, len(digests))
	for d := range digests {
		names = append(names, d)
	}
	slices.Sort(names)
	return wire.DigestOf([]byte(strings.Join(names, ",")))[:10]
}

// pods of a site, whatever the kind.
func podsOf(at place, desired int) wire.WorkloadPods {
	s := parse[struct {
		Replicas, ReadyReplicas, DesiredNumberScheduled, NumberReady, Active, Succeeded int32
	}](at)
	return wire.WorkloadPods{Desired: max(desired, int(positive(s.DesiredNumberScheduled)), int(positive(s.Active))), Ready: int(max(positive(s.ReadyReplicas), positive(s.NumberReady)))}
}

// Describe tells what a workload is on its sites.
func describe(w wire.Workload, all []place, desired int, withSites bool) wire.Workload {
	w.Reasons = reasonsOf(all)
	if w.Reasons == nil {
		w.Reasons = []wire.WorkloadReason{}
	}
	for _, at := range all {
		pods := podsOf(at, desired)
		w.Pods.Desired += pods.Desired
		w.Pods.Ready += pods.Ready
		w.Counts.Sites++
		state := at.state()
		switch state {
		case workload.Ready:
			w.Counts.Ready++
		case workload.Waiting:
			w.Counts.Waiting++
		case workload.Failed:
			w.Counts.Failed++
		case workload.RolledBack:
			w.Counts.RolledBack++
		default:
			w.Counts.Progressing++
		}
		if !at.online {
			w.Counts.Offline++
		}
		s := wire.WorkloadSite{Site: at.site.Name, Online: at.online, State: string(state), Wanted: at.wanted, Pods: pods}
		if at.said != nil {
			s.Reason, s.Message, s.Digest, s.Drifted = at.said.GetReason(), at.said.GetMessage(), at.said.GetDigest(), at.said.GetDrifted()
			s.Fields = at.said.GetChanged()
			if t := at.said.GetSince(); t != nil {
				s.Since = t.AsTime().Truncate(time.Second)
			}
		}
		if s.Drifted {
			w.Counts.Drifted++
		}
		if withSites {
			w.Sites = append(w.Sites, s)
		}
	}
	return w
}
