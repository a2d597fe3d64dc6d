// Package logrule reads the LogRules object: it says what is wrong with it, and what
// a rule means where it leaves something out. It is pure. The admission plugin asks it
// before an object is let in, and alerting/logrules asks again before it evaluates
// one.
package logrule

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/logquery"
)

// Defaults and bounds.
const (
	DefaultSeverity    = "warning"
	DefaultRealert     = time.Minute
	DefaultTermsWindow = 720 * time.Hour
	// DefaultKeepFiring is the least, MostDefaultKeepFiring the most that a rule has that
	// sets no keep_firing_for.
	DefaultKeepFiring     = 5 * time.Minute
	MostDefaultKeepFiring = time.Hour

	// MaxTimeframe bounds no memory: a window has the same few buckets, however long it is.
	MaxTimeframe   = 90 * 24 * time.Hour
	MaxTermsWindow = 90 * 24 * time.Hour
	MaxRealert     = 28 * 24 * time.Hour
	// MaxSegments are how many times bucket_interval may be in timeframe.
	MaxSegments = 60

	// DefaultTopCount is how many values of a field of top_count_keys are told.
	DefaultTopCount = 5
	MaxKeepFiring   = 24 * time.Hour
	MaxQueryDelay   = time.Hour
	MaxAggregation  = 24 * time.Hour
)

// Labels that every alert of a log rule carries besides tenant, site and region.
const (
	LabelName         = "alertname"
	LabelVirtualSites = "virtual_sites"
	LabelSeverity     = "severity"
)

// reserved can't be set by a rule, nor be the name that a field of query_key gets.
var reserved = []string{LabelName, fleet.SeriesTenant, fleet.SeriesSite, fleet.SeriesRegion, LabelVirtualSites, LabelSeverity}

// Realert of a rule, with the default.
func Realert(r v1alpha1.LogRule) time.Duration { return or(r.Realert, DefaultRealert) }

// KeepFiringFor of a rule, with the default.
func KeepFiringFor(r v1alpha1.LogRule) time.Duration {
	otherwise := DefaultKeepFiring
	if t := TypeOf(r.Type); t != nil {
		switch t.Lasts {
		case Itself:
			otherwise = 0
		case TillAgain:
			otherwise = min(max(otherwise, or(r.Timeframe, 0)+Realert(r)), MostDefaultKeepFiring)
		}
	}
	return or(r.KeepFiringFor, otherwise)
}

// TermsWindow of a rule, with the default.
func TermsWindow(r v1alpha1.LogRule) time.Duration { return or(r.TermsWindowSize, DefaultTermsWindow) }

// Severity of a rule, with the default.
func Severity(r v1alpha1.LogRule) string {
	if r.Severity == "" {
		return DefaultSeverity
	}
	return r.Severity
}

func or(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}

// Field is a field of a line that lines can be grouped by.
type Field struct {
	// Name as the stores know it; the one of a line's label is labels.KEY.
	Name string
	// Label is its name as a label of an alert: the name as the user wrote it, without
	// the labels. of a line's label, every character other than a letter, a digit and _ made
	// a _, and a _ before a leading digit.
	Label string
}

// ParseField finds the field of a name that a rule gives.
func ParseField(name string) (Field, error) {
	fields := logquery.LogFields()
	if key, ok := strings.CutPrefix(name, logquery.FieldLabels+"."); ok && key != "" {
		return Field{name, LabelOf(key)}, nil
	}
	f, ok := fields[name]
	switch {
	case name == "":
		return Field{}, fmt.Errorf("a field is wanted, such as pod or labels.app")
	case !ok:
		return Field{}, fmt.Errorf("there is no such field; the fields are %s", strings.Join(groupable(fields), ", "))
	case f.Kind == logquery.Labels:
		return Field{}, fmt.Errorf("which label? Write labels.KEY")
	case f.Kind == logquery.Text || f.Kind == logquery.Time || f.Name == logquery.FieldID:
		return Field{}, fmt.Errorf("lines can't be grouped by this field; the fields are %s", strings.Join(groupable(fields), ", "))
	}
	return Field{f.Name, LabelOf(name)}, nil
}

func groupable(fields logquery.Fields) []string {
	var out []string
	for _, n := range slices.Sorted(maps.Keys(fields)) {
		switch f := fields[n]; {
		case f.Kind == logquery.Labels:
			out = append(out, n+".KEY")
		case n != "" && f.Kind != logquery.Text && f.Kind != logquery.Time && f.Name != logquery.FieldID:
			out = append(out, n)
		}
	}
	return out
}

// LabelOf makes a name that is valid for a label; see Field.Label.
func LabelOf(name string) string {
	out := strings.Map(func(r rune) rune {
		if r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
	if out != "" && out[0] >= '0' && out[0] <= '9' {
		out = "_" + out
	}
	return out
}

// Bucket returns the query of percentage_match's second number: the lines that
// the filter finds and match_bucket_filter too.
func Bucket(r v1alpha1.LogRule) string {
	if strings.TrimSpace(r.Filter) == "" {
		return r.MatchBucketFilter
	}
	return "(" + r.Filter + ") AND (" + r.MatchBucketFilter + ")"
}

// Check says what is wrong with the rules.
func Check(spec v1alpha1.LogRulesSpec) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("spec")
	if _, err := metav1.LabelSelectorAsSelector(&spec.SiteSelector); err != nil {
		errs = append(errs, field.Invalid(at.Child("siteSelector"), metav1.FormatLabelSelector(&spec.SiteSelector), err.Error()))
	}
	names := map[string]bool{}
	for i, r := range spec.Rules {
		at := at.Child("rules").Index(i)
		if names[r.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), r.Name))
		}
		names[r.Name] = true
		c := &checker{at: at, r: r}
		c.rule()
		errs = append(errs, c.errs...)
	}
	return errs
}

type checker struct {
	at   *field.Path
	r    v1alpha1.LogRule
	errs field.ErrorList
}

func (c *checker) invalid(name string, value any, format string, args ...any) {
	c.errs = append(c.errs, field.Invalid(c.at.Child(name), value, fmt.Sprintf(format, args...)))
}

func (c *checker) rule() {
	if !model.LegacyValidation.IsValidLabelName(c.r.Name) {
		c.invalid("name", c.r.Name, "letters, digits and _ only, no digit first")
	}
	if TypeOf(c.r.Type) == nil {
		c.invalid("type", c.r.Type, "want one of %s", strings.Join(Types(), ", "))
		return
	}
	if !slices.Contains([]string{"critical", "warning", "info"}, Severity(c.r)) {
		c.invalid("severity", c.r.Severity, "want critical, warning or info")
	}
	c.knownAndNeeded()
	c.filters()
	c.durations()
	c.fields()
	c.labels()
	c.numbers()
	c.lists()
}

// knownAndNeeded compares the options that are set with those of the type.
func (c *checker) knownAndNeeded() {
	t := *TypeOf(c.r.Type)
	set := optionsOf(c.r)
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if set[name] && !t.Has(name) {
			c.errs = append(c.errs, field.Forbidden(c.at.Child(name), fmt.Sprintf("type %s does not know it, only %s do; remove it", t.Name, strings.Join(knowing(name), ", "))))
		}
	}
	for _, name := range t.Needs {
		if !set[name] {
			c.errs = append(c.errs, field.Required(c.at.Child(name), "type "+t.Name+" needs it"))
		}
	}
	if p := t.OneOf; p[0] != "" && !set[p[0]] && !set[p[1]] {
		c.errs = append(c.errs, field.Required(c.at.Child(p[0]), fmt.Sprintf("type %s needs it or %s, or both", t.Name, p[1])))
	}
}

func (c *checker) filters() {
	ok := true
	parse := func(name, text, query string) {
		if _, err := logquery.Parse(query, logquery.LogFields(), time.Unix(0, 0)); err != nil {
			c.invalid(name, text, "%s", err)
			ok = false
		}
	}
	parse("filter", c.r.Filter, c.r.Filter)
	if c.r.MatchBucketFilter != "" {
		if parse("match_bucket_filter", c.r.MatchBucketFilter, c.r.MatchBucketFilter); ok {
			parse("match_bucket_filter", c.r.MatchBucketFilter, Bucket(c.r))
		}
	}
}

func (c *checker) durations() {
	check := func(name string, d *metav1.Duration, least, most time.Duration) {
		if d == nil {
			return
		}
		if d.Duration < least || d.Duration > most {
			c.invalid(name, d.Duration.String(), "want %s to %s", least, most)
		} else if d.Duration%time.Second != 0 {
			c.invalid(name, d.Duration.String(), "want whole seconds")
		}
	}
	check("realert", c.r.Realert, 0, MaxRealert)
	check("exponential_realert", c.r.ExponentialRealert, max(Realert(c.r), time.Second), MaxRealert)
	check("keep_firing_for", c.r.KeepFiringFor, 0, MaxKeepFiring)
	check("query_delay", c.r.QueryDelay, 0, MaxQueryDelay)
	check("aggregation", c.r.Aggregation, time.Second, MaxAggregation)
	check("timeframe", c.r.Timeframe, time.Second, MaxTimeframe)
	check("terms_window_size", c.r.TermsWindowSize, time.Minute, MaxTermsWindow)
	check("bucket_interval", c.r.BucketInterval, time.Second, MaxTimeframe)
	c.segments()
}

// segments checks that bucket_interval cuts timeframe into whole parts, and not too many.
func (c *checker) segments() {
	whole, part := or(c.r.Timeframe, 0), or(c.r.BucketInterval, 0)
	switch {
	case c.r.BucketInterval == nil && c.r.SyncBucketInterval:
		c.errs = append(c.errs, field.Forbidden(c.at.Child("sync_bucket_interval"), "means nothing without bucket_interval; add that or remove this"))
	case whole <= 0 || part <= 0:
	case c.r.MetricAggType == "cardinality":
		c.errs = append(c.errs, field.Forbidden(c.at.Child("bucket_interval"), fmt.Sprintf("not with metric_agg_type cardinality: of values only the last time is kept; remove it and write timeframe: %s, which counts those of so long", part)))
	case whole%part != 0:
		c.invalid("bucket_interval", part.String(), "timeframe (%s) has to be a whole multiple of it", whole)
	case whole/part > MaxSegments:
		c.invalid("bucket_interval", part.String(), "it is %d times in timeframe, %d is the most: want at least %s, or a shorter timeframe", whole/part, MaxSegments, (whole+MaxSegments-1)/MaxSegments)
	}
}

func (c *checker) fields() {
	c.labelling("query_key", c.r.QueryKey)
	c.labelling("aggregation_key", c.r.AggregationKey)
	c.labelling("top_count_keys", c.r.TopCountKeys)
	c.labelling("include", c.r.Include)
	one := func(at *field.Path, name string) {
		if name == "" {
			return
		}
		if _, err := ParseField(name); err != nil {
			c.errs = append(c.errs, field.Invalid(at, name, err.Error()))
		}
	}
	one(c.at.Child("cardinality_field"), c.r.CardinalityField)
	one(c.at.Child("metric_agg_key"), c.r.MetricAggKey)
	c.combinations()
	if slices.Contains([]string{"min", "max", "avg", "sum", "percentiles"}, c.r.MetricAggType) && c.r.MetricAggKey != "" && !strings.HasPrefix(c.r.MetricAggKey, logquery.FieldLabels+".") {
		c.invalid("metric_agg_key", c.r.MetricAggKey, "only labels hold numbers: want labels.KEY, or metric_agg_type cardinality or value_count")
	}
}

func (c *checker) labels() {
	for _, name := range slices.Sorted(maps.Keys(c.r.Labels)) {
		at := c.at.Child("labels").Key(name)
		switch {
		case slices.Contains(reserved, name):
			c.errs = append(c.errs, field.Forbidden(at, "Muster sets this label; remove it"))
		case !model.LegacyValidation.IsValidLabelName(name) || strings.HasPrefix(name, "__"):
			c.errs = append(c.errs, field.Invalid(at, name, "not the name of a label: letters, digits and _ only, no digit and no __ first"))
		case !model.LabelValue(c.r.Labels[name]).IsValid():
			c.errs = append(c.errs, field.Invalid(at, c.r.Labels[name], "not valid UTF-8"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.r.Annotations)) {
		at := c.at.Child("annotations").Key(name)
		if !model.LegacyValidation.IsValidLabelName(name) {
			c.errs = append(c.errs, field.Invalid(at, name, "not the name of an annotation: letters, digits and _ only, no digit first"))
		}
		if err := CheckTemplate(c.r.Annotations[name]); err != nil {
			c.errs = append(c.errs, field.Invalid(at, c.r.Annotations[name], err.Error()))
		}
		c.included(at, c.r.Annotations[name])
	}
}

func (c *checker) numbers() {
	parse := func(name, s string, least, most float64) float64 {
		if s == "" {
			return math.NaN()
		}
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			c.invalid(name, s, "want a number")
			return math.NaN()
		}
		if f < least || f > most {
			c.invalid(name, s, "want %v to %v", least, most)
			return math.NaN()
		}
		return f
	}
	if f := parse("spike_height", c.r.SpikeHeight, 0, 1e9); f <= 1 {
		c.invalid("spike_height", c.r.SpikeHeight, "want more than 1: it is how many times as many, or as few")
	}
	if c.r.SpikeType != "" && !slices.Contains([]string{"up", "down", "both"}, c.r.SpikeType) {
		c.invalid("spike_type", c.r.SpikeType, "want up, down or both")
	}
	if c.r.MetricAggType != "" && !slices.Contains([]string{"min", "max", "avg", "sum", "cardinality", "value_count", "percentiles"}, c.r.MetricAggType) {
		c.invalid("metric_agg_type", c.r.MetricAggType, "want min, max, avg, sum, cardinality, value_count or percentiles")
	}
	if p := c.r.PercentileRange; p < 0 || p > 100 || (p != 0) != (c.r.MetricAggType == "percentiles") {
		c.invalid("percentile_range", p, "want 1 to 100 with metric_agg_type percentiles, such as 99, and none with others")
	}
	if c.r.Type == SpikeAggregation && c.r.MetricAggType == "cardinality" {
		c.invalid("metric_agg_type", c.r.MetricAggType, "want min, max, avg, sum, value_count or percentiles: of values only the last time is kept, so how many there were before is not known")
	}
	ordered := func(name string, least, most float64) {
		if least > most {
			c.errs = append(c.errs, field.Forbidden(c.at.Child(name), "the minimum is more than the maximum: every value would alert"))
		}
	}
	ordered("min_threshold", parse("min_threshold", c.r.MinThreshold, -1e300, 1e300), parse("max_threshold", c.r.MaxThreshold, -1e300, 1e300))
	ordered("min_percentage", parse("min_percentage", c.r.MinPercentage, 0, 100), parse("max_percentage", c.r.MaxPercentage, 0, 100))
	if lo, hi := c.r.MinCardinality, c.r.MaxCardinality; lo != nil && hi != nil {
		ordered("min_cardinality", float64(*lo), float64(*hi))
	}
	for _, n := range []struct {
		name  string
		v     int64
		least int64
	}{{"num_events", c.r.NumEvents, 0}, {"threshold", c.r.Threshold, 0}, {"threshold_ref", c.r.ThresholdRef, 0}, {"threshold_cur", c.r.ThresholdCur, 0},
		{"min_denominator", c.r.MinDenominator, 0}, {"top_count_number", c.r.TopCountNumber, 0}, {"max_cardinality", deref(c.r.MaxCardinality, 0), 0}, {"min_cardinality", deref(c.r.MinCardinality, 1), 1}} {
		if n.v < n.least {
			c.invalid(n.name, n.v, "want at least %d", n.least)
		}
	}
}

func deref(p *int64, otherwise int64) int64 {
	if p == nil {
		return otherwise
	}
	return *p
}

func (c *checker) lists() {
	for name, list := range map[string][]string{"blacklist": c.r.Blacklist, "whitelist": c.r.Whitelist} {
		for i, v := range list {
			switch {
			case v == "":
				c.errs = append(c.errs, field.Invalid(c.at.Child(name).Index(i), v, "empty: a line without compare_key is told by ignore_null"))
			case strings.HasPrefix(v, "!file"):
				c.errs = append(c.errs, field.Invalid(c.at.Child(name).Index(i), v, "files of the server can't be read; write the values here"))
			}
		}
	}
}
