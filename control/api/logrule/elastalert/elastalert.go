// Package elastalert translates rules that were written for ElastAlert 2
// (https://elastalert2.readthedocs.io) into Muster's log rules, and says of each option
// what it could not take over.
//
// It is pure: text in, a rule and remarks out. It promises no more than what validation of
// the rule does, and does not check that a rule finds the same lines: fields of lines that
// Muster does not know by name are looked for among their labels.
package elastalert

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/logrule"
	"muster.dev/muster/control/api/v1alpha1"
)

// MaxBytes of one file.
const MaxBytes = 1 << 20

// Rule is what became of one.
type Rule struct {
	v1alpha1.LogRule
	// Remarks name each option that means less than it did, or nothing, and what to do.
	Remarks []string
}

// Translate reads one rule file. An error says what keeps it from being a log rule at all.
func Translate(file []byte) (*Rule, error) {
	if len(file) > MaxBytes {
		return nil, fmt.Errorf("the file has %d bytes, the limit is %d", len(file), MaxBytes)
	}
	t := translator{in: map[string]any{}, out: &Rule{}}
	if err := yaml.Unmarshal(file, &t.in); err != nil {
		return nil, fmt.Errorf("not YAML: %w", err)
	}
	if err := t.all(); err != nil {
		return nil, err
	}
	if errs := logrule.Check(v1alpha1.LogRulesSpec{Rules: []v1alpha1.LogRule{t.out.LogRule}}); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return t.out, nil
}

type translator struct {
	in  map[string]any
	out *Rule
}

func (t *translator) remark(format string, args ...any) {
	t.out.Remarks = append(t.out.Remarks, fmt.Sprintf(format, args...))
}

// take removes an option from what is left to look at.
func (t *translator) take(name string) (any, bool) {
	v, ok := t.in[name]
	delete(t.in, name)
	return v, ok && v != nil
}

func (t *translator) all() error {
	if file, ok := t.take("import"); ok {
		return fmt.Errorf("import: %s: what is in there decides as well what fires: write it into this file, its filters before those that are here, and remove the line", strings.Join(texts(file), ", "))
	}
	name, _ := t.take("name")
	if t.out.Name = ruleName(fmt.Sprint(name)); name == nil || t.out.Name == "" {
		return errors.New("name: there is none: is this a rule of ElastAlert?")
	}
	if on, ok := t.take("is_enabled"); ok && on == false {
		return errors.New("is_enabled: it is switched off; remove the line if it is to work here")
	}
	kind, _ := t.take("type")
	t.out.Type = fmt.Sprint(kind)
	if !slices.Contains(logrule.Types(), t.out.Type) {
		return fmt.Errorf("type: %q is none that Muster has: %s", t.out.Type, strings.Join(logrule.Types(), ", "))
	}
	if err := errors.Join(t.filter("filter", &t.out.Filter), t.filter("match_bucket_filter", &t.out.MatchBucketFilter), t.durations(), t.numbers(), t.words()); err != nil {
		return err
	}
	t.rest()
	return nil
}

// ruleName makes an alert's name of a title: "SSH abuse (2)" is SSHAbuse2.
func ruleName(title string) string {
	var b strings.Builder
	for _, word := range strings.FieldsFunc(title, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	}) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	name := b.String()
	if name != "" && name[0] >= '0' && name[0] <= '9' {
		name = "_" + name
	}
	return name[:min(len(name), 100)]
}

// units of ElastAlert's times, which are Python's timedelta.
var units = map[string]time.Duration{"weeks": 7 * 24 * time.Hour, "days": 24 * time.Hour, "hours": time.Hour, "minutes": time.Minute, "seconds": time.Second, "milliseconds": time.Millisecond}

func duration(v any) (time.Duration, error) {
	of, ok := v.(map[string]any)
	if !ok {
		return 0, errors.New("want a time such as {minutes: 5}")
	}
	var sum float64
	for unit, n := range of {
		f, isNumber := n.(float64)
		if units[unit] == 0 || !isNumber || f < 0 {
			return 0, fmt.Errorf("%s: %v: want weeks, days, hours, minutes or seconds", unit, n)
		}
		sum += f * float64(units[unit])
	}
	if sum > math.MaxInt64/2 {
		return 0, errors.New("too long")
	}
	return time.Duration(sum).Round(time.Second), nil
}

func (t *translator) durations() error {
	r := &t.out.LogRule
	kind := logrule.TypeOf(r.Type)
	t.segments(kind)
	for _, d := range []struct {
		name string
		to   **metav1.Duration
		most time.Duration
	}{
		{"timeframe", &r.Timeframe, logrule.MaxTimeframe}, {"buffer_time", &r.Timeframe, logrule.MaxTimeframe}, {"realert", &r.Realert, logrule.MaxRealert}, {"exponential_realert", &r.ExponentialRealert, logrule.MaxRealert},
		{"query_delay", &r.QueryDelay, logrule.MaxQueryDelay}, {"aggregation", &r.Aggregation, logrule.MaxAggregation}, {"bucket_interval", &r.BucketInterval, logrule.MaxTimeframe}, {"terms_window_size", &r.TermsWindowSize, logrule.MaxTermsWindow},
	} {
		v, ok := t.take(d.name)
		if !ok {
			continue
		}
		if d.name == "buffer_time" {
			// Of the types that look at a buffer it is the timeframe; of others it says
			// how much is asked for at once.
			// Where both are told, timeframe is what spikes are of.
			if !kind.OfBuffer || r.Type == logrule.SpikeAggregation && r.Timeframe != nil {
				continue
			}
		}
		if (d.name == "terms_window_size" || d.name == "bucket_interval") && !kind.Has(d.name) {
			continue
		}
		got, err := duration(v)
		if err != nil {
			if of, ok := v.(map[string]any); ok && of["schedule"] != nil {
				t.remark("%s: by a schedule is not there: matches are told one by one", d.name)
				continue
			}
			return fmt.Errorf("%s: %w", d.name, err)
		}
		if got > d.most {
			t.remark("%s: %s is the longest that there is, instead of %s", d.name, d.most, got)
			got = d.most
		}
		*d.to = &metav1.Duration{Duration: got}
	}
	if r.Timeframe == nil && kind.OfBuffer {
		// ElastAlert's own default, which stands in its configuration.
		r.Timeframe = &metav1.Duration{Duration: 45 * time.Minute}
		t.remark("timeframe: 45m, as the file has no buffer_time: correct it if your config.yaml has another one")
	}
	if d := kind.ElastAlertTimeframe; r.Timeframe == nil && d > 0 {
		r.Timeframe = &metav1.Duration{Duration: d}
		t.remark("timeframe: the file has none, and %dm was put there: correct it", int(d.Minutes()))
	}
	return nil
}

// segments reads what, beside bucket_interval, says of which stretch of time a figure is.
func (t *translator) segments(kind *logrule.Type) {
	synced, _ := t.take("sync_bucket_interval")
	// Without segments it says nothing in ElastAlert either.
	t.out.SyncBucketInterval = synced == true && t.in["bucket_interval"] != nil && kind.Has("bucket_interval")
	if of, _ := t.take("use_run_every_query_size"); of != true || !kind.OfBuffer {
		return
	}
	if every, ok := t.take("run_every"); ok {
		t.in["buffer_time"] = every
		return
	}
	t.remark("use_run_every_query_size: the file has no run_every: write that of your config.yaml into timeframe")
}

func (t *translator) numbers() error {
	r := &t.out.LogRule
	var errs []error
	number := func(name string, set func(float64)) {
		v, ok := t.take(name)
		if !ok {
			return
		}
		f, err := strconv.ParseFloat(fmt.Sprint(v), 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			errs = append(errs, fmt.Errorf("%s: %v is no number", name, v))
			return
		}
		set(f)
	}
	whole := func(name string, to *int64) {
		number(name, func(f float64) {
			if *to = int64(math.Ceil(f)); f != math.Trunc(f) {
				t.remark("%s: %d instead of %v: it counts lines here", name, *to, f)
			}
		})
	}
	text := func(name string, to *string) {
		number(name, func(f float64) { *to = strconv.FormatFloat(f, 'f', -1, 64) })
	}
	whole("num_events", &r.NumEvents)
	whole("threshold", &r.Threshold)
	if r.Type == logrule.SpikeAggregation { // where ElastAlert's thresholds are of the number, and here of lines
		for _, name := range []string{"threshold_ref", "threshold_cur"} {
			if v, ok := t.take(name); ok {
				t.remark("%s: left out: how high the number has to be (%v) is not asked here", name, v)
			}
		}
		whole("min_doc_count", &r.ThresholdRef)
		r.ThresholdCur = r.ThresholdRef
	}
	whole("threshold_ref", &r.ThresholdRef)
	whole("threshold_cur", &r.ThresholdCur)
	whole("min_denominator", &r.MinDenominator)
	whole("percentile_range", &r.PercentileRange)
	whole("top_count_number", &r.TopCountNumber)
	text("spike_height", &r.SpikeHeight)
	text("max_threshold", &r.MaxThreshold)
	text("min_threshold", &r.MinThreshold)
	text("min_percentage", &r.MinPercentage)
	text("max_percentage", &r.MaxPercentage)
	for name, to := range map[string]**int64{"max_cardinality": &r.MaxCardinality, "min_cardinality": &r.MinCardinality} {
		var n int64
		if _, ok := t.in[name]; ok {
			whole(name, &n)
			*to = &n
		}
	}
	return errors.Join(errs...)
}

func (t *translator) words() error {
	r := &t.out.LogRule
	one := func(name string, to *string) {
		v, ok := t.take(name)
		if !ok {
			return
		}
		list := texts(v)
		if len(list) > 1 {
			t.remark("%s: %s alone: make a rule of each", name, list[0])
		}
		if len(list) > 0 {
			*to = t.field(list[0])
		}
	}
	one("cardinality_field", &r.CardinalityField)
	one("metric_agg_key", &r.MetricAggKey)
	if v, ok := t.take("metric_agg_type"); ok {
		r.MetricAggType = fmt.Sprint(v)
	}
	if v, ok := t.take("spike_type"); ok {
		r.SpikeType = fmt.Sprint(v)
	}
	if v, ok := t.take("ignore_null"); ok {
		r.IgnoreNull = v == true
	}
	several := func(option string) (out []string) {
		for _, name := range texts(first(t.take(option))) {
			out = append(out, t.field(name))
		}
		return out
	}
	r.QueryKey, r.TopCountKeys, r.AggregationKey = several("query_key"), several("top_count_keys"), several("aggregation_key")
	if r.CompareKey = several("compare_key"); len(r.CompareKey) > 1 && !logrule.TypeOf(r.Type).ComparesSeveral {
		t.remark("compare_key: %s alone: make a rule of each", r.CompareKey[0])
		r.CompareKey = r.CompareKey[:1]
	}
	if v, ok := t.take("fields"); ok {
		list, _ := v.([]any)
		for _, f := range list {
			var together v1alpha1.FieldNames
			for _, name := range texts(f) {
				together = append(together, t.field(name))
			}
			r.Fields = append(r.Fields, together)
		}
		if len(list) == 0 {
			r.Fields = []v1alpha1.FieldNames{{t.field(fmt.Sprint(v))}}
		}
	}
	if len(r.Fields) == 0 && r.Type == logrule.NewTerm { // there it may be left out
		for _, name := range r.QueryKey {
			r.Fields = append(r.Fields, v1alpha1.FieldNames{name})
		}
		r.QueryKey = nil
	}
	t.gathering()
	for name, to := range map[string]*[]string{"blacklist": &r.Blacklist, "whitelist": &r.Whitelist} {
		v, ok := t.take(name)
		if !ok {
			continue
		}
		for _, entry := range texts(v) {
			if strings.HasPrefix(entry, "!file") {
				return fmt.Errorf("%s: %s: write what is in that file into the list", name, entry)
			}
			*to = append(*to, entry)
		}
	}
	t.says()
	return nil
}

// gathering leaves out what admission would refuse of the options about many matches.
func (t *translator) gathering() {
	r := &t.out.LogRule
	if max := r.ExponentialRealert; max != nil && max.Duration < logrule.Realert(*r) {
		t.remark("exponential_realert: %s is realert too, which was longer", max.Duration)
		r.Realert = max
	}
	switch apart := logrule.Together(*r); {
	case len(r.AggregationKey) == 0:
	case r.Aggregation == nil:
		t.remark("aggregation_key: means nothing without aggregation: {minutes: …}")
		r.AggregationKey = nil
	case r.MinCardinality != nil:
		t.remark("aggregation_key: not with min_cardinality: make that a rule of its own")
		r.AggregationKey = nil
	case len(apart) > 0 && !logrule.TypeOf(r.Type).ByLine:
		t.remark("aggregation_key: lines of different %s are counted together: add it to query_key if they should not be", apart[0].Name)
		r.AggregationKey = nil
	}
	if len(r.TopCountKeys) == 0 {
		r.TopCountNumber = 0
	}
	if r.TopCountNumber > 20 {
		t.remark("top_count_number: 20 is the most that there is, instead of %d", r.TopCountNumber)
		r.TopCountNumber = 20
	}
}

func first(v any, _ bool) any { return v }

// texts is one text, or a list of them.
func texts(v any) []string {
	if v == nil {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		return []string{fmt.Sprint(v)}
	}
	var out []string
	for _, x := range list {
		out = append(out, fmt.Sprint(x))
	}
	return out
}

// silent are options that mean nothing here, and whose absence nobody misses.
var silent = regexp.MustCompile(`^(index|use_strftime_index|timestamp_field|timestamp_type|timestamp_format|es_.*|doc_type|use_count_query|use_terms_query|terms_size|query_timezone|scan_entire_timeframe|kibana_.*|generate_kibana.*|bucket_offset_delta|max_query_size|owner|priority|category|_source_enabled|use_keyword_postfix|raw_count_keys)$`)

// decides are options that change when a rule fires, and that Muster does not have.
var decides = map[string]string{
	"alert_on_new_data":       "a value of query_key is compared with its own past alone, and is quiet until it has one",
	"forget_keys":             "a value of query_key that went quiet fires on until lines come again, or it is forgotten after a day",
	"alert_on_missing_field":  "a line without the field is no new value",
	"match_enhancements":      "what an enhancement drops fires here: say it in the filter",
	"limit_execution":         "the rule is evaluated all day: have the AlertRoute mute it by mute_time_intervals",
	"realert_key":             "realert is by query_key",
	"aggregate_by_match_time": "aggregation is by when a match was found",
}

// rest names what was not taken over.
func (t *translator) rest() {
	var sending []string
	for _, name := range slices.Sorted(maps.Keys(t.in)) {
		switch {
		case silent.MatchString(name):
		case name == "min_doc_count":
			t.remark("min_doc_count: not known: say with threshold_ref and threshold_cur what must be there")
		case name == "summary_table_fields":
			t.remark("%s: not known: query_key makes an alert of each value, and group_by of the AlertRoute puts them into one message", name)
		case decides[name] != "":
			t.remark("%s: not known, and it decides what fires: %s", name, decides[name])
		case name == "attach_related" || name == "doc_type_field" || name == "run_every":
			t.remark("%s: not known", name)
		default:
			sending = append(sending, name)
		}
	}
	if len(sending) > 0 {
		t.remark("%s: how it is sent, and what it says, is up to an AlertRoute and the rule's annotations", strings.Join(sending, ", "))
	}
}
