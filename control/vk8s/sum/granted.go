package sum

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/internal/workload"
)

// summedConditions are those of any kind that are counted over its sites: what kinds that
// have conditions at all say when they are well.
var summedConditions = []string{"Ready", "Available"}

// Conditions sums up an object of any kind: each of summedConditions that a site tells of is
// true when it is on all sites, and beside them stands how the sites are. was are the
// conditions that it had; those of other types stay.
func Conditions(was []metav1.Condition, generation int64, all, ignored []place, now metav1.Time) []metav1.Condition {
	sums := conditionsOf(judge(all, ignored))
	for _, kind := range summedConditions {
		count, known, why := 0, false, ""
		for _, at := range all {
			s := parse[struct{ Conditions []metav1.Condition }](at)
			i := slices.IndexFunc(s.Conditions, func(c metav1.Condition) bool { return c.Type == kind })
			known = known || i >= 0
			switch {
			case i >= 0 && at.applied() && s.Conditions[i].Status == metav1.ConditionTrue:
				count++
			case why == "" && i >= 0 && at.applied():
				why = fmt.Sprintf(": %s says %s", at.site.Name, s.Conditions[i].Message)
			}
		}
		if !known {
			continue
		}
		sum := condition{kind, corev1.ConditionFalse, "SitesNotReady", fmt.Sprintf("it is on %d of %d sites%s", count, len(all), why)}
		if count == len(all) {
			sum.status, sum.reason = corev1.ConditionTrue, "SitesReady"
		}
		sums = append(sums, sum)
	}
	out := slices.Clone(was)
	for _, c := range sums {
		meta.SetStatusCondition(&out, metav1.Condition{Type: c.kind, Status: metav1.ConditionStatus(c.status), ObservedGeneration: generation, Reason: c.reason, Message: c.message, LastTransitionTime: now})
	}
	return out
}

// writeGranted writes the status of an object of a granted kind, if that has one. It is read
// when a site has said something of it: control/desired watches these kinds, not this.
func (c *Controller) writeGranted(ctx context.Context, kind offered.Kind, item, namespace, name string) error {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind.GroupVersionKind())
	if err := c.o.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o); err != nil {
		if _, answered := err.(apierrors.APIStatus); !answered { // what is wrapped is discovery's, of a kind that is new: it is tried again
			return fmt.Errorf("status of %s: %v", item, err) //nolint:errorlint // or it would be taken for the object's
		}
		if apierrors.IsNotFound(err) {
			c.mu.Lock()
			delete(c.spaces[namespace], item)
			c.mu.Unlock()
		}
		return err
	}
	c.noteGranted(namespace, item)
	p, ok := c.o.Placed(item)
	if !ok {
		return nil
	}
	all, ignored := places(p, c.o.States(item), c.o.Online, o.GetAnnotations()[workload.OfflineSites] == workload.Ignore)
	var was struct {
		Status struct {
			Conditions         []metav1.Condition `json:"conditions"`
			ObservedGeneration int64              `json:"observedGeneration"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &was); err != nil {
		return nil // its status means something else
	}
	observation := was.Status.ObservedGeneration
	if observed(versionOf(o), p, all) {
		observation = o.GetGeneration()
	}
	next := Conditions(was.Status.Conditions, observation, all, ignored, metav1.Now().Rfc3339Copy())
	status, _, _ := unstructured.NestedMap(o.Object, "status")
	words := Words(all)
	maps.DeleteFunc(words, func(k string, v any) bool { return status[k] == v })
	if sameConditions(next, was.Status.Conditions) && observation == was.Status.ObservedGeneration && len(words) == 0 {
		return nil
	}
	write := func(words map[string]any) error {
		status := map[string]any{"conditions": next, "observedGeneration": observation}
		maps.Copy(status, words)
		patch, err := json.Marshal(map[string]any{"status": status})
		if err != nil {
			return fmt.Errorf("status of %s: %w", item, err)
		}
		return c.o.Client.Status().Patch(ctx, o.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
	}
	err := write(words)
	if apierrors.IsInvalid(err) && len(words) > 0 {
		err = write(nil)
	}
	if apierrors.IsInvalid(err) {
		c.o.Logger.Debug("the definition does not take conditions as they usually are: its objects have no status here", "item", item, "err", err)
		return nil
	}
	return err
}

// sameConditions compares conditions of which a definition may keep no generation.
func sameConditions(next, was []metav1.Condition) bool {
	return slices.EqualFunc(next, was, func(a, b metav1.Condition) bool {
		if b.ObservedGeneration == 0 {
			a.ObservedGeneration = 0
		}
		return equality.Semantic.DeepEqual(a, b)
	})
}

// Words are what sites say of an object in words and yes or no at the top of its status, such
// as a virtual machine's printableStatus: those of the first site that is not ready, else of
// the first one. What only others say is no there, or, of words, nil.
func Words(all []place) map[string]any {
	out := map[string]any{}
	var speaks map[string]any
	behind := false
	for _, at := range all {
		if !at.applied() {
			continue
		}
		status := parse[map[string]any](at)
		maps.DeleteFunc(status, func(key string, v any) bool {
			if key == "conditions" || key == "observedGeneration" { // which are ours
				return true
			}
			word, isWord := v.(string)
			_, isBool := v.(bool)
			return !isBool && (!isWord || len(word) > workload.MaxWord)
		})
		if speaks == nil || !behind && !at.ready() {
			speaks, behind = status, !at.ready()
		}
		for k, v := range status {
			if _, isBool := v.(bool); isBool {
				out[k] = false
			} else if out[k] == nil {
				out[k] = nil
			}
		}
	}
	maps.Copy(out, speaks)
	return out
}

// noteGranted has an item among those that are looked at when sites come and go.
func (c *Controller) noteGranted(namespace, item string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spaces[namespace] == nil {
		c.spaces[namespace] = map[string]bool{}
	}
	c.spaces[namespace][item] = true
}

// granted tells the kind of an item that is of a CRD; false: it is of none.
func (c *Controller) granted(item string) (k offered.Kind, namespace, name string, ok bool) {
	group, kind, namespace, name, err := workload.ParseItemName(item)
	if err != nil {
		return k, "", "", false
	}
	k, ok = c.o.Granted(schema.GroupKind{Group: group, Kind: kind})
	return k, namespace, name, ok && k.Custom
}
