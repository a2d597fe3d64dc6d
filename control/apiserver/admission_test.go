package apiserver

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"muster.dev/muster/control/api/v1alpha1"
)

// What a stricter rule would refuse today can still be labelled, and its
// finalizers removed.
func TestWhatWasLetInStaysEditable(t *testing.T) {
	policy := func(pattern, label string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "p", "labels": map[string]any{"x": label}},
			"spec":     map[string]any{"allow": map[string]any{"patterns": []any{pattern}}},
		}}
	}
	update := func(before, now *unstructured.Unstructured) error {
		return validator{}.Validate(t.Context(), admission.NewAttributesRecord(now, before, v1alpha1.GroupVersion.WithKind("CollectionPolicy"), "elsewhere", "p",
			v1alpha1.GroupVersion.WithResource("collectionpolicies"), "", admission.Update, nil, false, &user.DefaultInfo{Name: "alice"}), nil)
	}
	if err := update(policy("(", "a"), policy("(", "b")); err != nil {
		t.Errorf("a label: %v", err)
	}
	if err := update(policy("(", "a"), policy("((", "a")); err == nil {
		t.Error("a changed spec was not looked at")
	}
}
