package logrule

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

// Types of a rule.
const (
	Any               = "any"
	Frequency         = "frequency"
	Spike             = "spike"
	SpikeAggregation  = "spike_aggregation"
	Flatline          = "flatline"
	Blacklist         = "blacklist"
	Whitelist         = "whitelist"
	Change            = "change"
	NewTerm           = "new_term"
	Cardinality       = "cardinality"
	MetricAggregation = "metric_aggregation"
	PercentageMatch   = "percentage_match"
)

// Type is what has to be known of a type of rule before a line is read. How it is evaluated stands in
// alerting/logrules, in the file of its name.
type Type struct {
	Name string

	// Which of the options that not all types know it needs, knows besides, and wants at least one of.
	needs []string
	knows []string
	oneOf [2]string

	lasts lasting
	// ByLine: it looks at lines one by one, so aggregation_key may name any field.
	ByLine bool
	// ComparesSeveral: compare_key may be a list.
	ComparesSeveral bool

	// OfBuffer: in ElastAlert it computes something of a buffer of lines, whose buffer_time is timeframe here.
	OfBuffer bool
	// ElastAlertTimeframe is written into a rule of ElastAlert that has none, where it may be left out; 0: nothing is.
	ElastAlertTimeframe time.Duration
}

// lasting is how long an alert of a type goes on by default.
type lasting int

const (
	aWhile    lasting = iota // after what matched last
	tillAgain                // lines that led to a match are used up: at the same rate the next one comes a timeframe later
	itself                   // as long as what it is about, and no longer
)

var types = []Type{
	{Name: Any, knows: []string{"aggregation"}, ByLine: true},
	{Name: Frequency, needs: []string{"timeframe", "num_events"}, knows: []string{"aggregation"}, lasts: tillAgain, ElastAlertTimeframe: 5 * time.Minute},
	{Name: Spike, needs: []string{"timeframe", "spike_height", "spike_type"}, knows: []string{"threshold_ref", "threshold_cur", "aggregation"}, lasts: tillAgain},
	{Name: SpikeAggregation, needs: []string{"timeframe", "metric_agg_key", "metric_agg_type", "spike_height", "spike_type"}, knows: []string{"percentile_range", "threshold_ref", "threshold_cur", "aggregation"}, lasts: tillAgain, OfBuffer: true},
	{Name: Flatline, needs: []string{"timeframe", "threshold"}, lasts: itself},
	{Name: Blacklist, needs: []string{"compare_key", "blacklist"}, knows: []string{"aggregation"}, ByLine: true},
	{Name: Whitelist, needs: []string{"compare_key", "whitelist"}, knows: []string{"ignore_null", "aggregation"}, ByLine: true},
	{Name: Change, needs: []string{"compare_key"}, knows: []string{"timeframe", "ignore_null", "aggregation"}, ComparesSeveral: true},
	{Name: NewTerm, needs: []string{"fields"}, knows: []string{"terms_window_size", "aggregation"}, ByLine: true},
	{Name: Cardinality, needs: []string{"timeframe", "cardinality_field"}, knows: []string{"aggregation"}, oneOf: [2]string{"max_cardinality", "min_cardinality"}, lasts: tillAgain},
	{Name: MetricAggregation, needs: []string{"timeframe", "metric_agg_key", "metric_agg_type"}, knows: []string{"percentile_range", "aggregation"}, oneOf: [2]string{"max_threshold", "min_threshold"}, lasts: itself, OfBuffer: true},
	{Name: PercentageMatch, needs: []string{"timeframe", "match_bucket_filter"}, knows: []string{"min_denominator", "aggregation"}, oneOf: [2]string{"min_percentage", "max_percentage"}, lasts: itself, OfBuffer: true},
}

// ofEveryType are the fields of a rule that all types know. Every other one is an option, which those types
// know that say so.
var ofEveryType = []string{"name", "type", "filter", "severity", "labels", "annotations", "query_key", "realert", "exponential_realert", "keep_firing_for", "query_delay", "aggregation_key", "top_count_keys", "top_count_number"}

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
	return slices.Contains(t.needs, option) || slices.Contains(t.knows, option) || slices.Contains(t.oneOf[:], option)
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
