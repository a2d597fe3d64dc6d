package alertroute

import (
	"fmt"
	"slices"
	"strings"
	"text/template"

	amtemplate "github.com/prometheus/alertmanager/template"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/templates"
)

const (
	secretKeyRef = "secretKeyRef"
	// redacted is what Alertmanager shows instead of a secret, and reads as none.
	redacted = "<secret>"
)

// free are the fields below which the keys are the user's own.
var free = []string{"headers", "http_headers", "proxy_connect_header", "details", "custom_fields", "fields", "attributes", "claims", "endpoint_params"}

// walk looks for what Alertmanager would take and Muster does not: fields that name
// files or secret stores of the server, and references to secrets in a wrong form or
// place. It checks the templates' syntax, which Alertmanager does only as it sends.
func walk(at *field.Path, v any, secrets bool) field.ErrorList {
	return walkIn(at, "", v, secrets, false)
}

func walkIn(at *field.Path, key string, v any, secrets, inFree bool) field.ErrorList {
	var errs field.ErrorList
	switch v := v.(type) {
	case map[string]any:
		if ref, is := v[secretKeyRef]; is {
			return checkRef(at, v, ref, secrets)
		}
		for _, k := range keys(v) {
			at := at.Child(k)
			// Below http_headers stand the headers' names, and below each a list of files.
			if (!inFree || key == "http_headers.*" && k == "files") && ofServer(k) {
				errs = append(errs, field.Forbidden(at, "an AlertRoute can't name files or secret stores of the server; put the value into a Secret and write "+strings.TrimSuffix(strings.TrimSuffix(k, "_file"), "_ref")+": {secretKeyRef: {name: NAME, key: KEY}}"))
				continue
			}
			if why := pastDenied[k]; !inFree && why != "" {
				errs = append(errs, field.Forbidden(at, why))
				continue
			}
			next := k
			if key == "http_headers" {
				next = "http_headers.*"
			}
			errs = append(errs, walkIn(at, next, v[k], secrets, inFree || slices.Contains(free, k) && isObject(v[k]))...)
		}
	case []any:
		for i := range v {
			errs = append(errs, walkIn(at.Index(i), key, v[i], secrets, inFree)...)
		}
	case string:
		if v == redacted {
			errs = append(errs, field.Invalid(at, v, "this is what Alertmanager shows instead of a secret; write the secret itself, or a secretKeyRef"))
		}
		if err := checkTemplate(key, v); err != nil {
			errs = append(errs, field.Invalid(at, brief(v), err.Error()))
		}
	}
	return errs
}

// pastDenied are fields whose requests Alertmanager makes past the networks that
// receivers may not reach.
var pastDenied = map[string]string{
	"oauth2":                 "not available in an AlertRoute: the token would be fetched past the networks that receivers are kept from; use authorization or basic_auth",
	"proxy_from_environment": "not available in an AlertRoute: the server's own proxy is not for receivers; name yours with proxy_url",
}

func isObject(v any) bool {
	_, is := v.(map[string]any)
	return is
}

func ofServer(key string) bool {
	return strings.HasSuffix(key, "_file") || strings.HasSuffix(key, "_files") || strings.HasSuffix(key, "_ref") || key == "files" || key == "templates"
}

// dialect of Alertmanager's templates.
var dialect = templates.Dialect{Template: true}

// checkTemplate leaves out what is not sent as a template, such as a password with
// two braces; but what Alertmanager could run as one, such as a routing key, is bounded.
func checkTemplate(key, s string) error {
	if !strings.Contains(s, "{{") {
		return nil
	}
	if _, err := template.New("text").Funcs(template.FuncMap(amtemplate.DefaultFuncs)).Parse(s); err != nil {
		for _, secret := range []string{"password", "secret", "token", "key", "credentials"} {
			if strings.Contains(key, secret) {
				return nil
			}
		}
		return fmt.Errorf("not a template: %s", strings.TrimPrefix(err.Error(), "template: "))
	}
	return dialect.Check(s)
}

func checkRef(at *field.Path, outer map[string]any, v any, allowed bool) field.ErrorList {
	at = at.Child(secretKeyRef)
	if !allowed {
		return field.ErrorList{field.Forbidden(at, "secrets can stand in receivers only")}
	}
	inner, _ := v.(map[string]any)
	name, okName := inner["name"].(string)
	key, okKey := inner["key"].(string)
	switch {
	case len(outer) != 1 || len(inner) != 2 || !okName || !okKey:
		return field.ErrorList{field.Invalid(at, "", "want {secretKeyRef: {name: NAME, key: KEY}} and nothing else")}
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return field.ErrorList{field.Invalid(at.Child("name"), brief(name), "not the name of a Secret")}
	case len(validation.IsConfigMapKey(key)) > 0:
		return field.ErrorList{field.Invalid(at.Child("key"), brief(key), "not a key of a Secret")}
	}
	return nil
}

func keys(m map[string]any) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// placeholder is a value that Alertmanager's parser takes wherever a secret may stand.
func placeholder(key string, _ SecretRef) any {
	if key == "smarthost" {
		return "secret.invalid:25"
	}
	return "https://secret.invalid/"
}

// replace returns a copy with with(key, reference) for each reference; key is the field
// in which it stands.
func replace(v any, with func(key string, ref SecretRef) any) any { return replaceIn("", v, with) }

func replaceIn(key string, v any, with func(string, SecretRef) any) any {
	switch v := v.(type) {
	case map[string]any:
		if ref, is := v[secretKeyRef].(map[string]any); is && len(v) == 1 {
			name, okName := ref["name"].(string)
			k, okKey := ref["key"].(string)
			if okName && okKey {
				return with(key, SecretRef{name, k})
			}
		}
		out := make(map[string]any, len(v))
		for k := range v {
			out[k] = replaceIn(k, v[k], with)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = replaceIn(key, v[i], with)
		}
		return out
	}
	return v
}

func clone(v any) any {
	return replace(v, func(_ string, ref SecretRef) any {
		return map[string]any{secretKeyRef: map[string]any{"name": ref.Name, "key": ref.Key}}
	})
}

// names checks that names and what refers to them are strings. YAML would read a
// number as one, and whoever renames them would miss it.
func (s *Spec) names(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, l := range []struct {
		name string
		of   []map[string]any
	}{{"receivers", s.Receivers}, {"inhibit_rules", s.InhibitRules}, {"time_intervals", s.TimeIntervals}} {
		for i, m := range l.of {
			errs = append(errs, texts(at.Child(l.name).Index(i), m, "name")...)
		}
	}
	return append(errs, routeNames(at.Child("route"), s.Route)...)
}

func routeNames(at *field.Path, r map[string]any) field.ErrorList {
	errs := texts(at, r, "receiver", "group_by", "mute_time_intervals", "active_time_intervals")
	subs, _ := r["routes"].([]any)
	for i, sub := range subs {
		if m, is := sub.(map[string]any); is {
			errs = append(errs, routeNames(at.Child("routes").Index(i), m)...)
		}
	}
	return errs
}

// Routes counts the routes, and how deep they stand in each other.
func (s *Spec) Routes() (n, depth int) {
	var count func(r map[string]any, at int)
	count = func(r map[string]any, at int) {
		n, depth = n+1, max(depth, at)
		subs, _ := r["routes"].([]any)
		for _, sub := range subs {
			if m, is := sub.(map[string]any); is {
				count(m, at+1)
			}
		}
	}
	count(s.Route, 1)
	return n, depth
}

// texts checks that the fields are strings, or lists of strings, or not there.
func texts(at *field.Path, m map[string]any, fields ...string) field.ErrorList {
	var errs field.ErrorList
	one := func(at *field.Path, v any) {
		if _, is := v.(string); !is && v != nil {
			errs = append(errs, field.TypeInvalid(at, "", "want a string; put quotes round it"))
		}
	}
	for _, f := range fields {
		l, is := m[f].([]any)
		if !is {
			one(at.Child(f), m[f])
		}
		for i := range l {
			one(at.Child(f).Index(i), l[i])
		}
	}
	return errs
}
