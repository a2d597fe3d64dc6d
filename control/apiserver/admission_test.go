package apiserver

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"muster.dev/muster/control/api/kinds"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/egress"
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

// A receiver that none may connect to is told at once, where it is written out.
func TestReceiversOutOfReach(t *testing.T) {
	policy, err := egress.New(egress.Options{Own: []string{"127.0.0.1:9009"}})
	if err != nil {
		t.Fatal(err)
	}
	create := func(url string) error {
		route := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "r"}, "spec": map[string]any{
			"route":     map[string]any{"receiver": "a"},
			"receivers": []any{map[string]any{"name": "a", "webhook_configs": []any{map[string]any{"url": url}}}},
		}}}
		return validator{kinds.Env{Reach: policy.Named}}.Validate(t.Context(), admission.NewAttributesRecord(route, nil, v1alpha1.GroupVersion.WithKind("AlertRoute"), "acme-system", "r",
			v1alpha1.GroupVersion.WithResource("alertroutes"), "", admission.Create, nil, false, &user.DefaultInfo{Name: "alice"}), nil)
	}
	if err := create("http://127.0.0.1:9009/ingester/shutdown"); err == nil || !strings.Contains(err.Error(), "spec.receivers[0].webhook_configs[0].url") || !strings.Contains(err.Error(), "refused by policy") {
		t.Errorf("Cortex' own: %v", err)
	}
	if err := create("https://hooks.example.com/x"); err != nil {
		t.Errorf("one on the Internet: %v", err)
	}
}
