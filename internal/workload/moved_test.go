package workload

import (
	"reflect"
	"testing"
)

func TestMoved(t *testing.T) {
	object := func() map[string]any {
		return map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web"}, "status": map[string]any{},
			"spec": map[string]any{"replicas": 3, "template": map[string]any{"spec": "v1"}}}
	}
	for name, c := range map[string]struct {
		path        []string
		moved, with map[string]any
	}{
		"template": {[]string{"spec", "template"}, map[string]any{"spec": "v1"},
			map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web"}, "status": map[string]any{},
				"spec": map[string]any{"replicas": 3, "template": map[string]any{"spec": "v2"}}}},
		"whole": {nil, map[string]any{"spec": map[string]any{"replicas": 3, "template": map[string]any{"spec": "v1"}}},
			map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web"}, "status": map[string]any{}, "spec": "v2"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := object()
			if got := Moved(o, c.path); !reflect.DeepEqual(got, c.moved) {
				t.Errorf("moved %v, want %v", got, c.moved)
			}
			if got := WithMoved(o, c.path, map[string]any{"spec": "v2"}); !reflect.DeepEqual(got, c.with) {
				t.Errorf("with: %v, want %v", got, c.with)
			}
			if !reflect.DeepEqual(o, object()) {
				t.Errorf("the object was changed: %v", o)
			}
		})
	}
	if got := Moved(map[string]any{"spec": "no object"}, []string{"spec", "template"}); got != nil {
		t.Errorf("of what has no template: %v", got)
	}
}
