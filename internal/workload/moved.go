package workload

import "maps"

// Moved is the part of an object that a rollout moves: the pods' template, which stands
// at a path such as spec.template, of what has one; of anything else all but metadata and
// status. The rest of a workload, such as its replicas and its labels, follows what people
// write at once, on all sites. The result shares its content with the object; nil: it has
// no such part.
func Moved(object map[string]any, template []string) map[string]any {
	if len(template) > 0 {
		at := object
		for _, key := range template {
			at, _ = at[key].(map[string]any)
		}
		return at
	}
	out := maps.Clone(object)
	for _, key := range []string{"apiVersion", "kind", "metadata", "status"} {
		delete(out, key)
	}
	return out
}

// WithMoved returns the object with another content in the place of what Moved returns;
// neither is changed.
func WithMoved(object map[string]any, template []string, content map[string]any) map[string]any {
	if len(template) > 0 {
		out := maps.Clone(object)
		at := out
		for _, key := range template[:len(template)-1] {
			child, _ := at[key].(map[string]any)
			if child = maps.Clone(child); child == nil {
				child = map[string]any{}
			}
			at[key] = child
			at = child
		}
		at[template[len(template)-1]] = content
		return out
	}
	out := maps.Clone(content)
	for _, key := range []string{"apiVersion", "kind", "metadata", "status"} {
		if v, has := object[key]; has {
			out[key] = v
		}
	}
	return out
}
