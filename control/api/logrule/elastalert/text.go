package elastalert

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"muster.dev/muster/control/api/logrule"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/logquery"
)

// says makes annotations of what an alert says: a summary of the subject, and a description of the
// text, or of the file's description where there is no text.
func (t *translator) says() {
	set := func(name, text string) {
		if t.out.Annotations == nil {
			t.out.Annotations = map[string]string{}
		}
		if len(text) > logrule.MaxAnnotation {
			t.remark("annotation %s: cut to %d bytes", name, logrule.MaxAnnotation)
			text = strings.ToValidUTF8(text[:logrule.MaxAnnotation], "")
		}
		t.out.Annotations[name] = text
	}
	if v, ok := t.take("description"); ok {
		set("description", literal(fmt.Sprint(v)))
	}
	kind, _ := t.in["alert_text_type"].(string)
	if strings.Contains(kind, "jinja") {
		return // its templates stay among what is not taken over
	}
	delete(t.in, "alert_text_type") // of the fields behind the text
	for _, of := range []struct{ option, annotation string }{{"alert_subject", "summary"}, {"alert_text", "description"}} {
		text, ok := t.take(of.option)
		args, given := t.take(of.option + "_args")
		named, _ := t.take(of.option + "_kw")
		if !ok {
			continue
		}
		byName, _ := named.(map[string]any)
		if given || byName != nil {
			set(of.annotation, t.format(of.option, fmt.Sprint(text), texts(args), byName))
		} else {
			set(of.annotation, literal(fmt.Sprint(text)))
		}
	}
}

// literal is text in which nothing is filled in.
func literal(text string) string { return strings.ReplaceAll(text, "{{", "{ {") }

// placeholder of Python's str.format, or a doubled brace, which stands for one.
var placeholder = regexp.MustCompile(`\{\{|\}\}|\{([A-Za-z0-9_]*)(?:[!:.\[][^{}]*)?\}`)

// format is Python's str.format of fields' names, in a rule's own way of filling in.
func (t *translator) format(option, text string, args []string, byName map[string]any) string {
	next, unknown := 0, []string{}
	out := placeholder.ReplaceAllStringFunc(text, func(p string) string {
		if p == "{{" || p == "}}" {
			return p[:1]
		}
		id := placeholder.FindStringSubmatch(p)[1]
		field, ok := "", false
		if id == "" {
			id = strconv.Itoa(next)
			next++
		}
		if i, err := strconv.Atoi(id); err == nil && i < len(args) {
			field, ok = args[i], true
		} else { // under the name that the text has for a field
			for name, called := range byName {
				if fmt.Sprint(called) == id {
					field, ok = name, true
				}
			}
		}
		filled, known := "["+id+"]", false
		if ok {
			filled, known = t.filled(field)
		} else {
			field = id
		}
		if !known {
			unknown = append(unknown, field)
		}
		return filled
	})
	if len(unknown) > 0 {
		t.remark("%s: %s: not a field that lines are grouped by, or one too many (a text has %d of them at most beside query_key): [%s] stands there", option, strings.Join(unknown, ", "), logquery.MaxInclude, unknown[0])
	}
	return out
}

// filled is what stands in an annotation for a field of the line, and whether that is its value.
func (t *translator) filled(name string) (string, bool) {
	switch name {
	case "num_hits", "num_matches":
		return "{{ $value }}", true
	case "rule.name", "name":
		return literal(t.out.Name), true
	case "":
		return "[]", false
	}
	field := t.field(name)
	if field == logquery.FieldMessage {
		return "{{ $message }}", true
	}
	f, err := logrule.ParseField(field)
	switch {
	case err != nil:
		return "[" + literal(name) + "]", false
	case f.Name == logquery.FieldSite:
		return "{{ $labels." + fleet.SeriesSite + " }}", true
	case f.Name == logquery.FieldRegion:
		return "{{ $labels." + fleet.SeriesRegion + " }}", true
	}
	keys := t.out.QueryKey
	if len(t.out.AggregationKey) > 0 {
		keys = t.out.AggregationKey
	}
	for _, key := range keys {
		if key == field {
			return "{{ $labels." + f.Label + " }}", true
		}
	}
	if made.MatchString(name) || !named.MatchString(name) || !t.include(f) {
		return "[" + literal(name) + "]", false
	}
	return "{{ $fields." + f.Label + " }}", true
}

// named is what a line's field may be called here; made is what ElastAlert adds to a line.
var (
	named = regexp.MustCompile(`^[\pL\pN_@./-]+$`)
	made  = regexp.MustCompile(`^(kibana|opensearch|_|num_|rule\.)`)
)

// include has the rule ask for a field, if there is room for it.
func (t *translator) include(f logrule.Field) bool {
	for _, name := range t.out.Include {
		if name == f.Name {
			return true
		}
		if has, err := logrule.ParseField(name); err != nil || has.Label == f.Label {
			return false
		}
	}
	if len(t.out.Include) == logquery.MaxInclude {
		return false
	}
	t.out.Include = append(t.out.Include, f.Name)
	return true
}
