package logrule

import (
	"slices"

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

// ruleType says which of the options that not all types know one needs and knows. How it is
// evaluated stands in alerting/logrules, in the file of its name.
type ruleType struct {
	name  string
	needs []string
	knows []string  // besides
	oneOf [2]string // at least one of them
}

var types = []ruleType{
	{name: Any, knows: []string{"aggregation"}},
	{name: Frequency, needs: []string{"timeframe", "num_events"}, knows: []string{"aggregation"}},
	{name: Spike, needs: []string{"timeframe", "spike_height", "spike_type"}, knows: []string{"threshold_ref", "threshold_cur", "aggregation"}},
	{name: SpikeAggregation, needs: []string{"timeframe", "metric_agg_key", "metric_agg_type", "spike_height", "spike_type"}, knows: []string{"percentile_range", "threshold_ref", "threshold_cur", "aggregation"}},
	{name: Flatline, needs: []string{"timeframe", "threshold"}},
	{name: Blacklist, needs: []string{"compare_key", "blacklist"}, knows: []string{"aggregation"}},
	{name: Whitelist, needs: []string{"compare_key", "whitelist"}, knows: []string{"ignore_null", "aggregation"}},
	{name: Change, needs: []string{"compare_key"}, knows: []string{"timeframe", "ignore_null", "aggregation"}},
	{name: NewTerm, needs: []string{"fields"}, knows: []string{"terms_window_size", "aggregation"}},
	{name: Cardinality, needs: []string{"timeframe", "cardinality_field"}, knows: []string{"aggregation"}, oneOf: [2]string{"max_cardinality", "min_cardinality"}},
	{name: MetricAggregation, needs: []string{"timeframe", "metric_agg_key", "metric_agg_type"}, knows: []string{"percentile_range", "aggregation"}, oneOf: [2]string{"max_threshold", "min_threshold"}},
	{name: PercentageMatch, needs: []string{"timeframe", "match_bucket_filter"}, knows: []string{"min_denominator", "aggregation"}, oneOf: [2]string{"min_percentage", "max_percentage"}},
}

// optionsOf are the fields that not all types know, and whether the rule sets them.
func optionsOf(r v1alpha1.LogRule) map[string]bool {
	return map[string]bool{
		"aggregation": r.Aggregation != nil, "timeframe": r.Timeframe != nil,
		"num_events": r.NumEvents != 0, "threshold": r.Threshold != 0,
		"spike_height": r.SpikeHeight != "", "spike_type": r.SpikeType != "", "threshold_ref": r.ThresholdRef != 0, "threshold_cur": r.ThresholdCur != 0,
		"compare_key": len(r.CompareKey) > 0, "blacklist": len(r.Blacklist) > 0, "whitelist": len(r.Whitelist) > 0, "ignore_null": r.IgnoreNull,
		"fields": len(r.Fields) > 0, "terms_window_size": r.TermsWindowSize != nil,
		"cardinality_field": r.CardinalityField != "", "max_cardinality": r.MaxCardinality != nil, "min_cardinality": r.MinCardinality != nil,
		"metric_agg_key": r.MetricAggKey != "", "metric_agg_type": r.MetricAggType != "", "percentile_range": r.PercentileRange != 0, "max_threshold": r.MaxThreshold != "", "min_threshold": r.MinThreshold != "",
		"match_bucket_filter": r.MatchBucketFilter != "", "min_percentage": r.MinPercentage != "", "max_percentage": r.MaxPercentage != "", "min_denominator": r.MinDenominator != 0,
	}
}

// Types are the names of all of them.
func Types() []string {
	var out []string
	for _, t := range types {
		out = append(out, t.name)
	}
	return out
}

func typeOf(name string) *ruleType {
	i := slices.IndexFunc(types, func(t ruleType) bool { return t.name == name })
	if i < 0 {
		return nil
	}
	return &types[i]
}

func (t ruleType) has(option string) bool {
	return slices.Contains(t.needs, option) || slices.Contains(t.knows, option) || slices.Contains(t.oneOf[:], option)
}

// knowing are the types that know an option.
func knowing(option string) []string {
	var out []string
	for _, t := range types {
		if t.has(option) {
			out = append(out, t.name)
		}
	}
	return out
}
