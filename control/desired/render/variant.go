package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/workload"
)

// object is one of the users' objects, as far as it is needed to render it for any site.
type object struct {
	kind  offered.Kind
	name  string // of the item
	base  []byte // as sites get it that no Override names
	where []string
	// overrides in their order; flavor as asked for.
	overrides []string
	flavor    string
	// scales is the item whose replicas it sets, of an autoscaler.
	scales   string
	version  uint64
	created  time.Time
	variants map[variant]*Piece
	// rollout is the RolloutState that it names, live then what it was made of, as JSON.
	rollout string
	live    []byte
}

// everywhere tells whether it goes wherever anything of the namespace goes, unless it says
// itself: what runs goes where it is told to, what it needs beside it, such as a ConfigMap,
// goes along.
func (o *object) everywhere() bool { return o.kind.Template == nil && !o.kind.Custom }

type variant struct {
	override string
	scaled   bool
	content  int // of a rollout, from 1; 0: its own
}

type override struct {
	sites []string // sorted
	kind  string
	spec  []byte // a JSON object
}

func (o *object) same(p *object) bool {
	return bytes.Equal(o.base, p.base) && o.rollout == p.rollout && o.flavor == p.flavor && slices.Equal(o.where, p.where) && slices.Equal(o.overrides, p.overrides)
}

// newObject reads an object. With an error it may be nil, or be what is left without what
// could not be read.
func newObject(kind offered.Kind, namespace, short string, content map[string]any) (*object, error) {
	meta := child(content, "metadata")
	name, _ := meta["name"].(string)
	if name == "" {
		return nil, fmt.Errorf("a %s without a name", kind.Kind)
	}
	o := &object{kind: kind, name: workload.ItemName(kind.Group, kind.Kind, namespace, name), variants: map[variant]*Piece{}}
	var problem error
	note := func(key string, err error) {
		if err != nil && problem == nil {
			problem = fmt.Errorf("annotation %s: %w", key, err)
		}
	}
	annotations := child(meta, "annotations")
	if v, ok := annotations[v1alpha1.AnnotationRollout].(string); ok && v != "" && !kind.Secret {
		live, err := json.Marshal(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.name, err)
		}
		o.rollout, o.live = v, live
	}
	if v, ok := annotations[workload.VirtualSites].(string); ok {
		where, err := VirtualSites(v, short)
		note(workload.VirtualSites, err)
		o.where = append([]string{}, where...) // not nil: what can't be read goes nowhere
	}
	if v, ok := annotations[workload.Overrides].(string); ok && kind.Spec {
		names, err := Overrides(v)
		note(workload.Overrides, err)
		o.overrides = names
	}
	if v, ok := annotations[workload.Flavor].(string); ok && kind.Template != nil {
		_, err := workload.ParseFlavor(v)
		note(workload.Flavor, err)
		if err == nil {
			o.flavor = v
		}
	}
	if kind.Kind == "HorizontalPodAutoscaler" {
		ref := child(content, "spec", "scaleTargetRef")
		refKind, _ := ref["kind"].(string)
		refName, _ := ref["name"].(string)
		apiVersion, _ := ref["apiVersion"].(string)
		if gv, err := schema.ParseGroupVersion(apiVersion); err == nil {
			o.scales = workload.ItemName(gv.Group, refKind, namespace, refName)
		}
	}
	base, err := o.encode(namespace, content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.name, err)
	}
	o.base = base
	return o, problem
}

// encode is an object as sites get it; it is changed.
func (o *object) encode(namespace string, content map[string]any) ([]byte, error) {
	strip(o.kind, content)
	child(content, "metadata")["namespace"] = namespace
	if o.kind.Template != nil {
		if err := size(child(content, o.kind.Template...), o.flavor); err != nil {
			return nil, err
		}
	}
	return json.Marshal(content)
}

// piece is the object with the spec of an Override, the content that a rollout holds, or
// its own, and without replicas where an autoscaler sets them.
func (s *Space) piece(o *object, v variant, by *override) *Piece {
	if p := o.variants[v]; p != nil {
		return p
	}
	blob := o.base
	if v.content > 0 {
		b, err := s.withContent(o, v.content-1)
		if err != nil || bytes.Equal(b, o.base) {
			v.content = 0
			return s.piece(o, v, by)
		}
		blob = b
	}
	if by != nil || v.scaled {
		if b, err := o.vary(blob, v, by); err == nil {
			blob = b
		}
	}
	p := newPiece(o.name, blob)
	p.Secret, p.Held = o.kind.Secret, v.content > 0
	o.variants[v] = p
	return p
}

func (o *object) vary(base []byte, v variant, by *override) ([]byte, error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(base, &top); err != nil {
		return nil, err
	}
	from := []byte(top["spec"])
	if by != nil {
		from = by.spec
	}
	spec := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(from))
	d.UseNumber()
	if err := d.Decode(&spec); err != nil || spec == nil {
		return nil, fmt.Errorf("the Override's spec is no object: %w", err)
	}
	if by != nil && o.kind.Template != nil {
		if err := size(child(map[string]any{"spec": spec}, o.kind.Template...), o.flavor); err != nil {
			return nil, err
		}
	}
	if v.scaled {
		delete(spec, "replicas")
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	top["spec"] = raw
	return json.Marshal(top)
}
