package sum

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Job sums one up: it is complete when it is on all sites, and failed when it is over on
// all and failed on any. Its figures are in terms of the spec, which is about one site, since
// they are compared with it: what has succeeded is the part of all sites' completions, and all of
// them when it is complete on all; what has failed is what did where most did. As the API server
// has it, neither becomes less.
func Job(d *batchv1.Job, version uint64, p Placement, all, ignored []place, now metav1.Time) batchv1.JobStatus {
	out := batchv1.JobStatus{StartTime: d.Status.StartTime, CompletionTime: d.Status.CompletionTime}
	complete, failed, running := 0, 0, false
	var ready int32
	for _, at := range all {
		s := parse[batchv1.JobStatus](at)
		out.Active, out.Failed = max(out.Active, positive(s.Active)), max(out.Failed, positive(s.Failed))
		if s.Ready != nil {
			ready = max(ready, min(positive(*s.Ready), positive(s.Active)))
		}
		running = running || positive(s.Active) > 0
		if s.StartTime != nil && out.StartTime == nil {
			out.StartTime = &now
		}
		is := func(kind batchv1.JobConditionType) bool { // of a site one, whatever it says
			return at.applied() && slices.ContainsFunc(s.Conditions, func(c batchv1.JobCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
		}
		switch {
		case is(batchv1.JobFailed):
			failed++
		case is(batchv1.JobComplete):
			complete++
		}
	}
	out.Ready = &ready
	v := judge(all, ignored)
	conditions := conditionsOf(v)
	over := v.sites > 0 && complete+failed == v.sites && !running && p.Version >= version
	want := replicas(d.Spec.Completions)
	switch {
	case over && failed == 0:
		out.Succeeded = want
	case v.sites > 0:
		out.Succeeded = int32(min(int64(completions(d, all))/int64(v.sites), int64(max(want-1, 0))))
	}
	out.Succeeded, out.Failed = max(out.Succeeded, d.Status.Succeeded), max(out.Failed, d.Status.Failed)
	if over && out.StartTime == nil {
		out.StartTime = &now
	}
	switch {
	case over && failed > 0:
		why := fmt.Sprintf("it failed on %d of %d sites: %s", failed, v.sites, v.why)
		conditions = append(conditions, condition{string(batchv1.JobFailureTarget), corev1.ConditionTrue, "SitesFailed", why}, condition{string(batchv1.JobFailed), corev1.ConditionTrue, "SitesFailed", why})
	case over:
		conditions = append(conditions, condition{string(batchv1.JobSuccessCriteriaMet), corev1.ConditionTrue, "CompletionsReached", "it is complete on all sites"},
			condition{string(batchv1.JobComplete), corev1.ConditionTrue, "CompletionsReached", "it is complete on all sites"})
		if out.CompletionTime == nil {
			out.CompletionTime = &now
		}
	}
	for _, c := range conditions {
		n := batchv1.JobCondition{Type: batchv1.JobConditionType(c.kind), Status: c.status, Reason: c.reason, Message: c.message, LastProbeTime: now, LastTransitionTime: now}
		if i := slices.IndexFunc(d.Status.Conditions, func(o batchv1.JobCondition) bool { return o.Type == n.Type }); i >= 0 {
			if was := d.Status.Conditions[i]; was.Status == n.Status {
				n.LastTransitionTime, n.LastProbeTime = was.LastTransitionTime, was.LastProbeTime
			}
		}
		out.Conditions = append(out.Conditions, n)
	}
	return out
}

// completions are those of all sites together, of each no more than it should have.
func completions(d *batchv1.Job, all []place) int {
	sum := 0
	for _, at := range all {
		if n := positive(parse[batchv1.JobStatus](at).Succeeded); at.applied() {
			sum += int(min(n, replicas(d.Spec.Completions)))
		}
	}
	return sum
}

// maxActive bounds how many running Jobs of a CronJob are named.
const maxActive = 500

// CronJob sums one up: the Jobs that run on any site, when it was last scheduled on any,
// and since when it has succeeded on all.
func CronJob(d *batchv1.CronJob, all []place) batchv1.CronJobStatus {
	var out batchv1.CronJobStatus
	everywhere := len(all) > 0
	for _, at := range all {
		s := parse[batchv1.CronJobStatus](at)
		for _, job := range s.Active {
			if len(out.Active) < maxActive {
				out.Active = append(out.Active, corev1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: d.Namespace, Name: job.Name})
			}
		}
		if t := s.LastScheduleTime; t != nil && (out.LastScheduleTime == nil || out.LastScheduleTime.Before(t)) {
			out.LastScheduleTime = t
		}
		t := s.LastSuccessfulTime
		if everywhere = everywhere && t != nil; everywhere && (out.LastSuccessfulTime == nil || t.Before(out.LastSuccessfulTime)) {
			out.LastSuccessfulTime = t
		}
	}
	if !everywhere {
		out.LastSuccessfulTime = nil
	}
	return out
}
