package workload

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// MaxFields is how many fields are named of an object that is not as it should be, and
// MaxField how long each of these names may be, in bytes.
const (
	MaxFields = 20
	MaxField  = 200
)

// Differing names the fields in which two contents of an object differ, such as
// spec.template.spec.containers[web].image, sorted, and never what is in them. Of a Secret it
// names no keys either: who may not read it shall not learn them here. What is more than
// MaxFields is counted in the last.
func Differing(kind string, one, other map[string]any) []string {
	d := fieldDiff{both: true}
	d.maps("", one, other, nil)
	return d.names(kind)
}

// Changed names, as Differing does, the fields of wanted that live has otherwise and of which
// owned no longer holds the applier to be the owner: what an API server defaults or writes
// another way is no change. owned is the applier's FieldsV1; nil: not known, all that is
// otherwise counts.
func Changed(kind string, wanted, live map[string]any, owned []byte) []string {
	var of map[string]any
	if json.Unmarshal(owned, &of) != nil {
		of = nil
	}
	var d fieldDiff
	d.maps("", wanted, live, of)
	return d.names(kind)
}

// fieldDiff gathers the names of fields.
type fieldDiff struct {
	both  bool // what only the second has counts, too
	found []string
}

func (d *fieldDiff) names(kind string) []string {
	out := d.found
	for i, f := range out {
		if kind == "Secret" {
			f, _, _ = strings.Cut(f, "[")
			parts := strings.Split(f, ".")
			if parts[0] != "metadata" {
				parts = parts[:1]
			}
			f = strings.Join(parts[:min(len(parts), 2)], ".")
		}
		if len(f) > MaxField {
			f = strings.ToValidUTF8(f[:MaxField-len("…")], "") + "…"
		}
		out[i] = f
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if n := len(out) - MaxFields; n > 0 {
		out = append(out[:MaxFields-1:MaxFields-1], fmt.Sprintf("and %d more", n+1))
	}
	return out
}

// value compares what is at a path. owned is the managed fields below it; nil: none are.
func (d *fieldDiff) value(path string, one, other any, owned map[string]any) {
	if owned != nil && len(owned) == 0 {
		return // owned as a whole
	}
	switch v := one.(type) {
	case map[string]any:
		if o, ok := other.(map[string]any); ok {
			d.maps(path, v, o, owned)
			return
		}
	case []any:
		if o, ok := other.([]any); ok {
			d.lists(path, v, o, owned)
			return
		}
	}
	if !reflect.DeepEqual(one, other) {
		d.found = append(d.found, path)
	}
}

func (d *fieldDiff) maps(path string, one, other, owned map[string]any) {
	for _, k := range slices.Sorted(maps.Keys(one)) {
		v, there := other[k]
		switch {
		case there:
			of, _ := owned["f:"+k].(map[string]any)
			d.value(fieldPath(path, k), one[k], v, of)
		case !blank(one[k]):
			d.found = append(d.found, fieldPath(path, k))
		}
	}
	if !d.both {
		return
	}
	for k, v := range other {
		if _, there := one[k]; !there && !blank(v) {
			d.found = append(d.found, fieldPath(path, k))
		}
	}
}

// lists compares those of which the elements have names by these, and others as a whole.
func (d *fieldDiff) lists(path string, one, other []any, owned map[string]any) {
	a, b := byName(one), byName(other)
	if a == nil || b == nil {
		if !d.same(one, other) && !ownsAll(one, owned) {
			d.found = append(d.found, path)
		}
		return
	}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		at := path + "[" + name + "]"
		if o := b[name]; o != nil {
			d.maps(at, a[name], o, ownedElement(owned, a[name]))
		} else {
			d.found = append(d.found, at)
		}
	}
	for name := range b {
		if d.both && a[name] == nil {
			d.found = append(d.found, path+"["+name+"]")
		}
	}
}

// same tells whether a list without names is as the other, but for what is defaulted in it.
func (d *fieldDiff) same(one, other []any) bool {
	if len(one) != len(other) {
		return false
	}
	in := fieldDiff{both: d.both}
	for i := range one {
		in.value("", one[i], other[i], nil)
	}
	return len(in.found) == 0
}

// ownsAll tells whether the applier is still the owner of each element of a list.
func ownsAll(list []any, owned map[string]any) bool {
	if owned == nil {
		return false
	}
	for _, e := range list {
		of := ownedElement(owned, e)
		if of == nil {
			return false
		}
		m, ok := e.(map[string]any)
		if !ok {
			continue
		}
		for k, v := range m {
			if _, ok := of["f:"+k]; !ok && !blank(v) {
				return false
			}
		}
	}
	return true
}

// ownedElement finds the element of a list among the managed fields, by the keys that it says
// (others were defaulted), or by its value.
func ownedElement(owned map[string]any, e any) map[string]any {
	for k, v := range owned {
		of, _ := v.(map[string]any)
		switch {
		case of == nil:
		case strings.HasPrefix(k, "v:"):
			var is any
			if json.Unmarshal([]byte(k[2:]), &is) == nil && fmt.Sprint(is) == fmt.Sprint(e) {
				return of
			}
		case strings.HasPrefix(k, "k:"):
			m, _ := e.(map[string]any)
			var keys map[string]any
			if m == nil || json.Unmarshal([]byte(k[2:]), &keys) != nil {
				continue
			}
			said, other := 0, false
			for key, is := range keys {
				if has, there := m[key]; there {
					said++
					other = other || fmt.Sprint(has) != fmt.Sprint(is)
				}
			}
			if said > 0 && !other {
				return of
			}
		}
	}
	return nil
}

// byName are the elements of a list by their names; nil: not each has one of its own.
func byName(list []any) map[string]map[string]any {
	out := make(map[string]map[string]any, len(list))
	for _, e := range list {
		m, _ := e.(map[string]any)
		name, _ := m["name"].(string)
		if name == "" || out[name] != nil {
			return nil
		}
		out[name] = m
	}
	return out
}

// blank is what an API server takes for nothing.
func blank(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

func fieldPath(path, key string) string {
	switch {
	case strings.ContainsAny(key, ".[]/ "):
		return path + "[" + key + "]"
	case path == "":
		return key
	}
	return path + "." + key
}
