package kube

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/internal/workload"
)

// verdict is what an object's own status says of it.
type verdict struct {
	state   workload.State // Ready, Progressing, Failed
	reason  string         // CamelCase
	message string
	final   bool // it won't become anything else by itself: a Job that failed or completed
}

func ready() verdict { return verdict{state: workload.Ready} }
func progressing(format string, args ...any) verdict {
	return verdict{state: workload.Progressing, reason: "NotReady", message: fmt.Sprintf(format, args...)}
}
func failed(reason, message string) verdict {
	return verdict{state: workload.Failed, reason: reason, message: message}
}

// judge says how far an object is. The rules are those of `kubectl rollout status` and
// `kubectl wait` for the kinds that they know, as the documentation of each kind's status
// has them; any other kind is judged by the conditions that the API conventions name
// (github.com/kubernetes/community, "Typical status properties"): one that has none is ready
// once it is there.
func judge(obj *unstructured.Unstructured) verdict {
	o := object(obj.Object)
	if observed, ok := o.num("status", "observedGeneration"); ok && observed < obj.GetGeneration() {
		return progressing("the site's controller has not seen it yet")
	}
	switch obj.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Group: "apps", Kind: "Deployment"}:
		return judgeDeployment(o)
	case schema.GroupKind{Group: "apps", Kind: "StatefulSet"}:
		return judgeStatefulSet(o)
	case schema.GroupKind{Group: "apps", Kind: "DaemonSet"}:
		return judgeDaemonSet(o)
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		return judgeJob(o)
	case schema.GroupKind{Kind: "PersistentVolumeClaim"}:
		switch phase := o.str("status", "phase"); phase {
		case "Bound":
			return ready()
		case "Lost":
			return failed("Lost", "its volume is gone")
		default:
			return progressing("not bound to a volume yet")
		}
	case schema.GroupKind{Kind: "Pod"}:
		switch phase := o.str("status", "phase"); phase {
		case "Succeeded":
			return ready()
		case "Failed":
			v := failed(orWord(o.str("status", "reason"), "PodFailed"), orWord(o.str("status", "message"), "the pod failed"))
			v.final = true
			return v
		}
	case schema.GroupKind{Kind: "Namespace"}:
		return ready() // being deleted is told apart
	case schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
		if status, reason, message := o.condition("NamesAccepted"); status == "False" {
			return failed(reason, message)
		}
		if status, _, _ := o.condition("Established"); status != "True" {
			return progressing("not established yet")
		}
		return ready()
	case schema.GroupKind{Group: "kubevirt.io", Kind: "VirtualMachine"}:
		if o.at("spec", "running") != false && o.str("spec", "runStrategy") != "Halted" {
			break // its conditions say
		}
		if o.at("status", "created") == true { // it is to be off
			return progressing("it is being stopped")
		}
		return ready()
	case schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}, schema.GroupKind{Kind: "Service"}:
		return ready()
	}
	if status, reason, message := o.condition("Stalled"); status == "True" {
		return failed(orWord(reason, "Stalled"), message)
	}
	for _, typ := range []string{"Ready", "Available"} {
		switch status, reason, message := o.condition(typ); status {
		case "True":
			return ready()
		case "False", "Unknown":
			v := progressing("%s is %s%s", typ, strings.ToLower(status), colon(message))
			v.reason = orWord(reason, v.reason)
			return v
		}
	}
	if status, reason, message := o.condition("Reconciling"); status == "True" {
		v := progressing("%s", orWord(message, "its controller is at work"))
		v.reason = orWord(reason, v.reason)
		return v
	}
	return ready()
}

func judgeDeployment(o object) verdict {
	if status, reason, message := o.condition("Progressing"); status == "False" && reason == "ProgressDeadlineExceeded" {
		return failed(reason, message)
	}
	if status, reason, message := o.condition("ReplicaFailure"); status == "True" {
		return failed(orWord(reason, "ReplicaFailure"), message)
	}
	if _, seen := o.num("status", "observedGeneration"); !seen {
		return progressing("the site's controller has not seen it yet")
	}
	want := o.numOr(1, "spec", "replicas")
	all, updated, available := o.numOr(0, "status", "replicas"), o.numOr(0, "status", "updatedReplicas"), o.numOr(0, "status", "availableReplicas")
	switch {
	case updated < want:
		return progressing("%d of %d replicas are of the new version", updated, want)
	case all > updated:
		return progressing("%d old replicas are still there", all-updated)
	case available < updated:
		return progressing("%d of %d replicas are available", available, want)
	}
	return ready()
}

func judgeStatefulSet(o object) verdict {
	if _, seen := o.num("status", "observedGeneration"); !seen {
		return progressing("the site's controller has not seen it yet")
	}
	want := o.numOr(1, "spec", "replicas")
	up, updated := o.numOr(0, "status", "readyReplicas"), o.numOr(0, "status", "updatedReplicas")
	if up < want {
		return progressing("%d of %d replicas are ready", up, want)
	}
	if o.str("spec", "updateStrategy", "type") == "OnDelete" {
		return ready()
	}
	if partition := o.numOr(0, "spec", "updateStrategy", "rollingUpdate", "partition"); partition > 0 {
		if updated < want-partition {
			return progressing("%d of %d replicas are of the new version", updated, want-partition)
		}
		return ready()
	}
	if o.str("status", "updateRevision") != o.str("status", "currentRevision") {
		return progressing("%d of %d replicas are of the new version", updated, want)
	}
	return ready()
}

func judgeDaemonSet(o object) verdict {
	if _, seen := o.num("status", "observedGeneration"); !seen {
		return progressing("the site's controller has not seen it yet")
	}
	want := o.numOr(0, "status", "desiredNumberScheduled")
	updated, available := o.numOr(0, "status", "updatedNumberScheduled"), o.numOr(0, "status", "numberAvailable")
	if o.str("spec", "updateStrategy", "type") != "OnDelete" && updated < want {
		return progressing("%d of %d nodes run the new version", updated, want)
	}
	if available < want {
		return progressing("it is available on %d of %d nodes", available, want)
	}
	return ready()
}

func judgeJob(o object) verdict {
	if status, reason, message := o.condition("Failed"); status == "True" {
		v := failed(orWord(reason, "JobFailed"), message)
		v.final = true
		return v
	}
	if status, _, _ := o.condition("Complete"); status == "True" {
		v := ready()
		v.final = true
		return v
	}
	if status, _, _ := o.condition("Suspended"); status == "True" {
		v := progressing("it is suspended")
		v.reason = "Suspended"
		return v
	}
	return progressing("%d of %d pods have completed, %d failed", o.numOr(0, "status", "succeeded"), o.numOr(1, "spec", "completions"), o.numOr(0, "status", "failed"))
}

func orWord(s, or string) string {
	if s == "" {
		return or
	}
	return s
}

func colon(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}

// object reads fields of what somebody else wrote, without trust in their types.
type object map[string]any

func (o object) at(path ...string) any {
	var v any = map[string]any(o)
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

func (o object) str(path ...string) string {
	s, _ := o.at(path...).(string)
	return s
}

func (o object) num(path ...string) (int64, bool) {
	switch n := o.at(path...).(type) {
	case int64:
		return n, true
	case float64:
		return int64(n), true
	}
	return 0, false
}

func (o object) numOr(or int64, path ...string) int64 {
	if n, ok := o.num(path...); ok {
		return n
	}
	return or
}

func (o object) condition(typ string) (status, reason, message string) {
	list, _ := o.at("status", "conditions").([]any)
	for _, c := range list {
		m, _ := c.(map[string]any)
		if c := object(m); c.str("type") == typ {
			return c.str("status"), c.str("reason"), c.str("message")
		}
	}
	return "", "", ""
}
