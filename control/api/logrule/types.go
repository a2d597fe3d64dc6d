package logrule

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

// Type is what has to be known of a type of rule before a line is read. A type is a file in
// alerting/logrules, which says this beside how it is evaluated; make generate copies it into the table
// of this package, because control must not import alerting.
type Type struct {
	Name string

	// Which of the options that not all types know it needs, knows besides, and wants at least one of.
	Needs []string
	Knows []string
	OneOf [2]string

	Lasts Lasting
	// ByLine: it looks at lines one by one, so aggregation_key may name any field.
	ByLine bool
	// ComparesSeveral: compare_key may be a list.
	ComparesSeveral bool

	// OfBuffer: in ElastAlert it computes something of a buffer of lines, whose buffer_time is timeframe here.
	OfBuffer bool
	// ElastAlertTimeframe is written into a rule of ElastAlert that has none, where it may be left out; 0: nothing is.
	ElastAlertTimeframe time.Duration
}

// Lasting is how long an alert of a type goes on by default.
type Lasting int

// How long: see each.
const (
	AWhile    Lasting = iota // after what matched last
	TillAgain                // lines that led to a match are used up: at the same rate the next one comes a timeframe later
	Itself                   // as long as what it is about, and no longer
)

// ofEveryType are the fields of a rule that all types know. Every other one is an option, which those types
// know that say so.
var ofEveryType = []string{"name", "type", "filter", "severity", "labels", "annotations", "query_key", "realert", "exponential_realert", "keep_firing_for", "query_delay", "aggregation_key", "top_count_keys", "top_count_number", "include"}

// optionsOf are the fields that not all types know, and whether the rule sets them.
func optionsOf(r v1alpha1.LogRule) map[string]bool {
	out := map[string]bool{}
	v := reflect.ValueOf(r)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if slices.Contains(ofEveryType, name) {
			continue
		}
		if f := v.Field(i); f.Kind() == reflect.Slice {
			out[name] = f.Len() > 0
		} else {
			out[name] = !f.IsZero()
		}
	}
	return out
}

// Types are the names of all of them.
func Types() []string {
	var out []string
	for _, t := range types {
		out = append(out, t.Name)
	}
	return out
}

// TypeOf finds a type by its name; nil if there is none.
func TypeOf(name string) *Type {
	i := slices.IndexFunc(types, func(t Type) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &types[i]
}

// Has tells whether the type knows an option.
func (t Type) Has(option string) bool {
	return slices.Contains(t.Needs, option) || slices.Contains(t.Knows, option) || slices.Contains(t.OneOf[:], option)
}

// knowing are the types that know an option.
func knowing(option string) []string {
	var out []string
	for _, t := range types {
		if t.Has(option) {
			out = append(out, t.Name)
		}
	}
	return out
}
