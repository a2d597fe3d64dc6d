// Package alertroute reads the parts of an Alertmanager configuration that an
// AlertRoute holds, and checks them with Alertmanager's own parser, so that what
// admission lets in is what the alerting role can run.
//
// It does no I/O: secrets are asked of the function that Resolve is given.
// control/api/validation checks with it at admission, alerting/routes merges with it.
package alertroute

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/config/receiver"
	"github.com/prometheus/alertmanager/featurecontrol"
	"github.com/prometheus/alertmanager/matcher/compat"
	"github.com/prometheus/alertmanager/template"
	"github.com/prometheus/common/promslog"
	"gopkg.in/yaml.v2"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/v1alpha1"
)

// MaxBytes of a spec as JSON.
const MaxBytes = 1 << 20

// Every alert of a tenant is held against each of its routes.
const (
	// MaxRoutes of a spec, those below others counted.
	MaxRoutes = 500
	// MaxDepth of routes below routes.
	MaxDepth = 16
)

// SecretRef names a key of a Secret in the AlertRoute's namespace.
type SecretRef struct{ Name, Key string }

// Spec is an AlertRouteSpec that was checked. Its values are as encoding/json reads
// them, with json.Number for numbers: whoever changes them works on a Clone.
type Spec struct {
	Route         map[string]any
	Receivers     []map[string]any
	InhibitRules  []map[string]any
	TimeIntervals []map[string]any
}

// parsers is set once in a process: the choice is global in Alertmanager's library.
var parsers sync.Once

// UseAlertmanagerParsers makes the library read matchers as the alertmanager program
// does: the UTF-8 syntax, and the former one where that fails. By itself the library
// knows the former one only. Parse calls it; so must whoever loads a configuration.
func UseAlertmanagerParsers() {
	parsers.Do(func() { compat.InitFromFlags(promslog.NewNopLogger(), featurecontrol.NoopFlags{}) })
}

// Parse decodes and checks a spec; the errors' paths begin with spec. References to
// secrets stay in it and are checked in form only. The Spec is nil if there are errors.
func Parse(in *v1alpha1.AlertRouteSpec) (*Spec, field.ErrorList) {
	UseAlertmanagerParsers()
	at := field.NewPath("spec")
	s, errs := decode(at, in)
	if len(errs) > 0 {
		return nil, errs
	}
	for i, r := range s.Receivers {
		errs = append(errs, walk(at.Child("receivers").Index(i), r, true)...)
	}
	errs = append(errs, walk(at.Child("route"), s.Route, false)...)
	for i, r := range s.InhibitRules {
		errs = append(errs, walk(at.Child("inhibit_rules").Index(i), r, false)...)
	}
	for i, r := range s.TimeIntervals {
		errs = append(errs, walk(at.Child("time_intervals").Index(i), r, false)...)
	}
	errs = append(errs, s.names(at)...)
	errs = append(errs, s.regexes(at)...)
	if n, depth := s.Routes(); n > MaxRoutes || depth > MaxDepth {
		errs = append(errs, field.Invalid(at.Child("route"), "", fmt.Sprintf("it has %d routes, %d deep; want at most %d, %d deep", n, depth, MaxRoutes, MaxDepth)))
	}
	if len(errs) == 0 {
		errs = s.check(at)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return s, nil
}

func decode(at *field.Path, in *v1alpha1.AlertRouteSpec) (*Spec, field.ErrorList) {
	size := len(in.Route.Raw)
	for _, l := range [][]json.RawMessage{raw(in.Receivers), raw(in.InhibitRules), raw(in.TimeIntervals)} {
		for _, b := range l {
			size += len(b)
		}
	}
	if size > MaxBytes {
		return nil, field.ErrorList{field.TooLong(at, "", MaxBytes)}
	}
	var errs field.ErrorList
	object := func(at *field.Path, b []byte) map[string]any {
		var m map[string]any
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.UseNumber() // a chat's ID doesn't survive as a float
		err := dec.Decode(&m)
		if err == nil {
			if _, more := dec.Token(); !errors.Is(more, io.EOF) {
				err = errors.New("something stands after the object")
			}
		}
		if err != nil {
			errs = append(errs, field.Invalid(at, "", "not a JSON object: "+err.Error()))
		} else if m == nil {
			errs = append(errs, field.Required(at, "want an object"))
		}
		return m
	}
	list := func(name string, l []json.RawMessage) []map[string]any {
		out := make([]map[string]any, len(l))
		for i, b := range l {
			out[i] = object(at.Child(name).Index(i), b)
		}
		return out
	}
	s := &Spec{
		Route:         object(at.Child("route"), in.Route.Raw),
		Receivers:     list("receivers", raw(in.Receivers)),
		InhibitRules:  list("inhibit_rules", raw(in.InhibitRules)),
		TimeIntervals: list("time_intervals", raw(in.TimeIntervals)),
	}
	return s, errs
}

func raw[T any](l []T) []json.RawMessage {
	out := make([]json.RawMessage, len(l))
	for i := range l {
		out[i], _ = json.Marshal(l[i]) // a JSON that keeps its bytes: see apiextensionsv1.JSON
	}
	return out
}

// check parses with Alertmanager's structs, secrets replaced by what looks like one.
func (s *Spec) check(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	if len(s.Receivers) == 0 {
		return field.ErrorList{field.Required(at.Child("receivers"), "at least one is needed")}
	}
	for i, m := range s.Receivers {
		errs = append(errs, checkReceiver(at.Child("receivers").Index(i), m, names)...)
	}
	intervals := map[string]bool{}
	for i, m := range s.TimeIntervals {
		at := at.Child("time_intervals").Index(i)
		var t config.TimeInterval
		if err := strict(m, &t); err != nil {
			errs = append(errs, field.Invalid(at, brief(m["name"]), err.Error()))
			continue
		}
		if intervals[t.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), t.Name))
		}
		intervals[t.Name] = true
	}
	for i, m := range s.InhibitRules {
		var r config.InhibitRule
		if err := strict(m, &r); err != nil {
			errs = append(errs, field.Invalid(at.Child("inhibit_rules").Index(i), brief(m["name"]), err.Error()))
		}
	}
	var r config.Route
	at = at.Child("route")
	if err := strict(s.Route, &r); err != nil {
		return append(errs, field.Invalid(at, "", err.Error()))
	}
	if r.Receiver == "" {
		errs = append(errs, field.Required(at.Child("receiver"), "the first route needs one, for alerts that no route below it takes"))
	}
	if r.Continue {
		errs = append(errs, field.Invalid(at.Child("continue"), true, "Muster always goes on to the tenant's other AlertRoutes; remove it"))
	}
	return append(errs, references(at, &r, names, intervals)...)
}

func checkReceiver(at *field.Path, m map[string]any, names map[string]bool) field.ErrorList {
	secrets := false
	m = replace(m, func(key string, ref SecretRef) any {
		secrets = true
		return placeholder(key, ref)
	}).(map[string]any)
	var r config.Receiver
	if err := strict(m, &r); err != nil {
		if name, is := m["name"].(string); is {
			names[name] = true // or every route to it would be an error of its own
		}
		return field.ErrorList{field.Invalid(at, brief(m["name"]), err.Error())}
	}
	if names[r.Name] {
		return field.ErrorList{field.Duplicate(at.Child("name"), r.Name)}
	}
	names[r.Name] = true
	for i, c := range r.SNSConfigs {
		if c.Sigv4.AccessKey == "" || c.Sigv4.SecretKey == "" || c.Sigv4.Profile != "" {
			return field.ErrorList{field.Invalid(at.Child("sns_configs").Index(i).Child("sigv4"), "", "set access_key and secret_key, and no profile: the server's own AWS credentials are not for AlertRoutes")}
		}
	}
	if err := load(m, !secrets); err != nil {
		return field.ErrorList{field.Invalid(at, r.Name, err.Error())}
	}
	return nil
}

func references(at *field.Path, r *config.Route, receivers, intervals map[string]bool) field.ErrorList {
	var errs field.ErrorList
	if r.Receiver != "" && !receivers[r.Receiver] {
		errs = append(errs, field.NotFound(at.Child("receiver"), r.Receiver))
	}
	for _, l := range []struct {
		name string
		used []string
	}{{"mute_time_intervals", r.MuteTimeIntervals}, {"active_time_intervals", r.ActiveTimeIntervals}} {
		for i, n := range l.used {
			if !intervals[n] {
				errs = append(errs, field.NotFound(at.Child(l.name).Index(i), n))
			}
		}
	}
	for i, sub := range r.Routes {
		if sub == nil {
			errs = append(errs, field.Required(at.Child("routes").Index(i), "want an object"))
			continue
		}
		errs = append(errs, references(at.Child("routes").Index(i), sub, receivers, intervals)...)
	}
	return errs
}

// load checks a receiver as Alertmanager loads it, with the defaults of an empty
// global section. With built, it makes what would send too, which reads certificates.
func load(r map[string]any, built bool) error {
	r = maps.Clone(r)
	r["name"] = "receiver" // "none" may be its name
	b, err := Encode(map[string]any{
		"route":     map[string]any{"receiver": "none"},
		"receivers": []any{map[string]any{"name": "none"}, r},
	})
	if err != nil {
		return err
	}
	c, err := config.Load(string(b))
	if err == nil && built {
		err = build(c.Receivers[1])
	}
	if err != nil {
		return errors.New(remedy(err))
	}
	return nil
}

func build(r config.Receiver) error {
	tmpl, err := template.New() // without the default texts, which nothing is sent with here
	if err != nil {
		return err
	}
	_, err = receiver.BuildReceiverIntegrations(r, tmpl, nil)
	return err
}

// Encode writes a configuration for config.Load: as JSON, which YAML reads, so that
// strings stay strings and numbers keep their digits.
func Encode(conf any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(conf); err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	// YAML has no DEL character; JSON leaves it as it is.
	return bytes.ReplaceAll(b.Bytes(), []byte{0x7f}, []byte(`\u007f`)), nil
}

func strict(m map[string]any, out any) error {
	b, err := Encode(m)
	if err != nil {
		return err
	}
	if err := yaml.UnmarshalStrict(b, out); err != nil {
		return errors.New(remedy(err))
	}
	return nil
}

// remedy says an error of Alertmanager's parser in a line that fits an AlertRoute.
func remedy(err error) string {
	s := err.Error()
	for _, cut := range []string{"yaml: unmarshal errors:", "yaml: "} {
		s = strings.TrimPrefix(s, cut)
	}
	for i := 1; i <= 3; i++ { // what Encode writes is one line, strings included
		s = strings.ReplaceAll(s, "line "+strconv.Itoa(i)+": ", "")
	}
	s = strings.Join(strings.Fields(strings.ReplaceAll(s, " in type config.plain", "")), " ")
	if strings.HasPrefix(s, "no global ") {
		s += "; an AlertRoute has no global section, so set it in the receiver itself"
	}
	return s
}

func brief(v any) string {
	s, _ := v.(string)
	return s[:min(len(s), 100)]
}

// Secrets lists the references, each once, in order.
func (s *Spec) Secrets() []SecretRef {
	seen := map[SecretRef]bool{}
	for _, r := range s.Receivers {
		replace(r, func(_ string, ref SecretRef) any {
			seen[ref] = true
			return nil
		})
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b SecretRef) int {
		return strings.Compare(a.Name+"/"+a.Key, b.Name+"/"+b.Key)
	})
}

// Resolve returns a copy with the secrets in place; the spaces and line ends round
// them are cut, as Alertmanager does with files. get is asked once for each reference.
// All errors are joined; they don't tell a secret's value.
func (s *Spec) Resolve(get func(name, key string) (string, error)) (*Spec, error) {
	values := map[SecretRef]string{}
	var errs []error
	for _, ref := range s.Secrets() {
		v, err := get(ref.Name, ref.Key)
		if v = strings.TrimSpace(v); err == nil && v == "" {
			err = errors.New("is empty")
		}
		if err == nil && v == redacted {
			err = errors.New("is the placeholder " + redacted)
		}
		if err == nil {
			err = checkTemplate(secretKeyRef, v) // Alertmanager may run it as one
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("secret %s, key %s: %w", ref.Name, ref.Key, err))
		}
		values[ref] = v
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	out := s.Clone()
	for i, r := range out.Receivers {
		out.Receivers[i] = replace(r, func(_ string, ref SecretRef) any { return values[ref] }).(map[string]any)
	}
	for i, r := range out.Receivers {
		if load(r, true) != nil {
			return nil, s.blame(i, values)
		}
	}
	return out, nil
}

// blame finds the secret that makes receiver i unusable. Alertmanager's own error may
// quote the value, so it is not passed on.
func (s *Spec) blame(i int, values map[SecretRef]string) error {
	one := &Spec{Receivers: s.Receivers[i : i+1]}
	refs := one.Secrets()
	for _, ref := range refs {
		alone := replace(s.Receivers[i], func(key string, r SecretRef) any {
			if r == ref {
				return values[r]
			}
			return placeholder(key, r)
		}).(map[string]any)
		if load(alone, len(refs) == 1) != nil {
			return fmt.Errorf("secret %s, key %s: its value can't stand where spec.receivers[%d] (%s) has it; look whether it is a URL, a certificate or HOST:PORT as the field wants", ref.Name, ref.Key, i, brief(s.Receivers[i]["name"]))
		}
	}
	return fmt.Errorf("spec.receivers[%d] (%s) is not usable with its secrets' values", i, brief(s.Receivers[i]["name"]))
}

// Clone is a deep copy.
func (s *Spec) Clone() *Spec {
	list := func(l []map[string]any) []map[string]any {
		out := make([]map[string]any, len(l))
		for i := range l {
			out[i] = clone(l[i]).(map[string]any)
		}
		return out
	}
	return &Spec{Route: clone(s.Route).(map[string]any), Receivers: list(s.Receivers), InhibitRules: list(s.InhibitRules), TimeIntervals: list(s.TimeIntervals)}
}
