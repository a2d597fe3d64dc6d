package logrules

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/api/logrule"
)

// script is a line of a test of types: at what second a line comes in, whose own time
// is late by so much.
type script struct {
	at      int
	site    string
	message string
	late    int
	fields  []string
	times   int
}

func at(sec int, site, message string, fields ...string) script {
	return script{at: sec, site: site, message: message, fields: fields, times: 1}
}

func (s script) x(n int) script     { s.times = n; return s }
func (s script) by(late int) script { s.late = late; return s }
func every(step, from, to int, s script) (out []script) {
	for t := from; t < to; t += step {
		s.at = t
		out = append(out, s)
	}
	return out
}

func all(lists ...[]script) (out []script) {
	for _, l := range lists {
		out = append(out, l...)
	}
	slices.SortStableFunc(out, func(a, b script) int { return a.at - b.at })
	return out
}

func list(s ...script) []script { return s }

func play(w *world, r *Runner, lines []script, until int) {
	round1(r)
	i := 0
	for sec := 1; sec <= until; sec++ {
		w.now = t0.Add(time.Duration(sec) * time.Second)
		for ; i < len(lines) && lines[i].at <= sec; i++ {
			l := lines[i]
			for range l.times {
				w.log(l.site, l.message, float64(l.at-l.late), l.fields...)
			}
		}
		if sec%15 == 0 {
			round1(r)
		}
	}
}

func TestTypes(t *testing.T) {
	// Half a minute of slow errors among lines that are well, and one slow line after many that are not.
	burst := all(every(10, 0, 120, at(0, "paris", "x", "labels.ms=10")), every(10, 120, 160, at(0, "paris", "x", "labels.ms=90", "severity=error")), every(10, 160, 720, at(0, "paris", "x", "labels.ms=10")))
	thin := all(every(1, 0, 300, at(0, "paris", "x", "labels.ms=10")), list(at(330, "paris", "x", "labels.ms=100")))
	for _, c := range []struct {
		name  string
		rule  string
		lines []script
		until int
		want  []string
		// firing at the end; nil: not looked at
		firing []string
	}{
		{"any", "{type: any, filter: oom}", list(at(3, "paris", "oom"), at(4, "rome", "fine")), 15, []string{"R{site=paris}@3"}, nil},
		{"any by pod", "{type: any, query_key: [pod]}", list(at(3, "paris", "x", "pod=a"), at(4, "paris", "x", "pod=b"), at(5, "paris", "x")), 15,
			[]string{"R{pod=a,site=paris}@3", "R{pod=b,site=paris}@4", "R{site=paris}@5"}, nil},
		{"any of a site outside", "{type: any}", list(at(3, "nowhere", "oom")), 15, nil, nil},
		{"any from the future", "{type: any}", list(at(3, "paris", "x").by(-1000)), 15, []string{"R{site=paris}@15"}, nil},
		{"frequency", "{type: frequency, num_events: 3, timeframe: 1m}", list(at(3, "paris", "x"), at(30, "paris", "x"), at(62, "paris", "x"), at(5, "rome", "x").x(2)), 90, []string{"R{site=paris}@62"}, nil},
		{"frequency too slow", "{type: frequency, num_events: 3, timeframe: 1m}", list(at(3, "paris", "x"), at(30, "paris", "x"), at(64, "paris", "x"), at(125, "paris", "x").x(2)), 180, nil, nil},
		{"frequency in one step", "{type: frequency, num_events: 3, timeframe: 1m}", list(at(3, "paris", "x").x(3)), 15, []string{"R{site=paris}@3"}, nil},
		{"frequency, late lines count in their own time", "{type: frequency, num_events: 3, timeframe: 1m}",
			list(at(100, "paris", "x").x(2), at(130, "paris", "x").by(300)), 180, nil, nil},
		{"frequency, a late line completes", "{type: frequency, num_events: 3, timeframe: 1m}",
			list(at(100, "paris", "x").x(2), at(250, "paris", "x").by(140)), 300, nil, nil}, // the window is gone by then
		{"frequency, all of it late, in pieces", "{type: frequency, num_events: 3, timeframe: 1m}",
			list(at(1000, "paris", "x").by(900), at(1020, "paris", "x").by(910), at(1050, "paris", "x").by(945)), 1100, []string{"R{site=paris}@110"}, nil},
		{"frequency, late and soon", "{type: frequency, num_events: 3, timeframe: 1m}",
			list(at(100, "paris", "x").x(2), at(140, "paris", "x").by(30)), 300, []string{"R{site=paris}@110"}, nil},
		{"spike up", "{type: spike, timeframe: 1m, spike_height: '3', spike_type: up, threshold_cur: 5}",
			all(every(10, 0, 180, at(0, "paris", "x")), every(2, 180, 240, at(0, "paris", "x"))), 300, []string{"R{site=paris}@210"}, nil},
		{"spike, then both windows fill anew", "{type: spike, keep_firing_for: 0s, timeframe: 1m, spike_height: '3', spike_type: both}",
			all(every(10, 0, 180, at(0, "paris", "x")), every(2, 180, 240, at(0, "paris", "x"))), 345, []string{"R{site=paris}@210", "R{site=paris}@330"}, nil},
		{"spike up, not down", "{type: spike, timeframe: 1m, spike_height: '3', spike_type: up}", every(10, 0, 180, at(0, "paris", "x")), 400, nil, nil},
		{"spike down", "{type: spike, timeframe: 1m, spike_height: '3', spike_type: down, threshold_ref: 4}", every(10, 0, 180, at(0, "paris", "x")), 300, []string{"R{site=paris}@213"}, nil},
		{"spike both, too little", "{type: spike, timeframe: 1m, spike_height: '3', spike_type: both, threshold_ref: 9, threshold_cur: 9}", every(10, 0, 180, at(0, "paris", "x")), 400, nil, nil},
		{"spike not before two timeframes are known", "{type: spike, timeframe: 1m, spike_height: '3', spike_type: up}", list(at(70, "paris", "x").x(9)), 115, nil, nil},
		{"spike out of nothing", "{type: spike, timeframe: 1m, spike_height: '3', spike_type: up}", list(at(130, "paris", "x").x(9)), 150, []string{"R{site=paris}@132"}, nil},
		{"flatline of a site never heard of", "{type: flatline, threshold: 1, timeframe: 1m}", every(20, 0, 200, at(0, "paris", "x")), 200, []string{"R{site=rome}@60"}, []string{"R{site=rome}"}},
		{"flatline ends", "{type: flatline, threshold: 1, timeframe: 1m}", all(every(20, 0, 300, at(0, "paris", "x")), every(20, 120, 300, at(0, "rome", "x"))), 300, []string{"R{site=rome}@60"}, []string{}},
		{"flatline, fewer than enough", "{type: flatline, threshold: 5, timeframe: 1m}", all(every(20, 0, 200, at(0, "paris", "x")), every(5, 0, 200, at(0, "rome", "x"))), 200, []string{"R{site=paris}@60"}, []string{"R{site=paris}"}},
		{"flatline by pod", "{type: flatline, threshold: 1, timeframe: 1m, query_key: [pod]}", all(list(at(10, "paris", "x", "pod=a")), every(20, 0, 200, at(0, "paris", "x", "pod=b"))), 200, []string{"R{pod=a,site=paris}@75"}, nil},
		{"flatline, late lines make up", "{type: flatline, threshold: 1, timeframe: 1m, query_delay: 2m}", all(every(20, 0, 400, at(0, "paris", "x").by(100)), every(20, 0, 400, at(0, "rome", "x"))), 400, nil, []string{}},
		{"blacklist", "{type: blacklist, compare_key: labels.user, blacklist: [root]}", list(at(1, "paris", "x", "labels.user=root"), at(2, "rome", "x", "labels.user=joe"), at(3, "rome", "x")), 15, []string{"R{site=paris}@1"}, nil},
		{"whitelist", "{type: whitelist, compare_key: labels.user, whitelist: [joe]}", list(at(1, "paris", "x", "labels.user=root"), at(2, "rome", "x", "labels.user=joe")), 15, []string{"R{site=paris}@1"}, nil},
		{"whitelist, null", "{type: whitelist, compare_key: labels.user, whitelist: [joe]}", list(at(3, "rome", "x")), 15, []string{"R{site=rome}@3"}, nil},
		{"whitelist, null ignored", "{type: whitelist, compare_key: labels.user, whitelist: [joe], ignore_null: true}", list(at(3, "rome", "x")), 15, nil, nil},
		{"change", "{type: change, compare_key: labels.v, query_key: [pod]}", list(at(1, "paris", "x", "pod=a", "labels.v=1"), at(2, "paris", "x", "pod=b", "labels.v=2"), at(40, "paris", "x", "pod=a", "labels.v=2"), at(50, "paris", "x", "pod=b", "labels.v=2")), 90, []string{"R{pod=a,site=paris}@40"}, nil},
		{"change of one of several", "{type: change, compare_key: [labels.v, labels.w], ignore_null: true}", list(at(1, "paris", "x", "labels.v=1", "labels.w=a"), at(20, "paris", "x", "labels.v=2"), at(40, "paris", "x", "labels.v=1", "labels.w=b"),
			at(1, "rome", "x", "labels.v=1", "labels.w=a"), at(40, "rome", "x", "labels.v=1", "labels.w=a")), 90, []string{"R{site=paris}@40"}, nil},
		{"change too long ago", "{type: change, compare_key: labels.v, timeframe: 1m}", list(at(1, "paris", "x", "labels.v=1"), at(100, "paris", "x", "labels.v=2")), 150, nil, nil},
		{"change, null ignored", "{type: change, compare_key: labels.v, ignore_null: true}", list(at(1, "paris", "x", "labels.v=1"), at(20, "paris", "x"), at(40, "paris", "x", "labels.v=1")), 90, nil, nil},
		{"change, null counts", "{type: change, compare_key: labels.v}", list(at(1, "paris", "x", "labels.v=1"), at(20, "paris", "x")), 90, []string{"R{site=paris}@20"}, nil},
		{"change, a late line in its order", "{type: change, compare_key: labels.v, query_delay: 1m}", list(at(10, "paris", "x", "labels.v=2"), at(40, "paris", "x", "labels.v=1").by(35)), 120, []string{"R{site=paris}@10"}, nil},
		{"change, a late line out of order", "{type: change, compare_key: labels.v}", list(at(10, "paris", "x", "labels.v=2"), at(40, "paris", "x", "labels.v=1").by(35)), 120, nil, nil},
		{"new term", "{type: new_term, fields: [labels.user]}", list(at(1, "paris", "x", "labels.user=a"), at(20, "paris", "x", "labels.user=b"), at(40, "paris", "x", "labels.user=a")), 90, []string{"R{site=paris}@20"}, nil},
		{"new term, a combination", "{type: new_term, fields: [[labels.user, labels.from]]}", list(at(1, "paris", "x", "labels.user=a", "labels.from=fr"), at(1, "paris", "x", "labels.user=b", "labels.from=it"), at(20, "paris", "x", "labels.user=a", "labels.from=it"),
			at(1, "rome", "x", "labels.user=a", "labels.from=fr"), at(30, "rome", "x", "labels.user=b"), at(40, "rome", "x", "labels.user=a", "labels.from=fr")), 90, []string{"R{site=paris}@20"}, nil},
		{"new term, a combination and a field", "{type: new_term, fields: [[labels.user, labels.from], labels.user], realert: 0s, keep_firing_for: 0s}", list(at(1, "paris", "x", "labels.user=a", "labels.from=fr"), at(20, "paris", "x", "labels.user=a", "labels.from=it"), at(200, "paris", "x", "labels.user=c")), 240,
			[]string{"R{site=paris}@20", "R{site=paris}@200"}, nil},
		{"new term forgotten", "{type: new_term, fields: [labels.user], terms_window_size: 2m}", all(every(10, 0, 400, at(0, "paris", "x", "labels.user=a")), list(at(1, "paris", "x", "labels.user=b"), at(300, "paris", "x", "labels.user=b"))), 400, []string{"R{site=paris}@300"}, nil},
		{"cardinality max", "{type: cardinality, cardinality_field: labels.user, max_cardinality: 2, timeframe: 1m}", list(at(1, "paris", "x", "labels.user=a"), at(20, "paris", "x", "labels.user=b"), at(40, "paris", "x", "labels.user=c"), at(1, "rome", "x", "labels.user=a").x(9)), 90, []string{"R{site=paris}@40"}, nil},
		{"cardinality max, too slow", "{type: cardinality, cardinality_field: labels.user, max_cardinality: 2, timeframe: 1m}", list(at(1, "paris", "x", "labels.user=a"), at(40, "paris", "x", "labels.user=b"), at(80, "paris", "x", "labels.user=c")), 120, nil, nil},
		{"cardinality max, just too slow", "{type: cardinality, cardinality_field: labels.user, max_cardinality: 2, timeframe: 1m}", list(at(1, "paris", "x", "labels.user=a"), at(40, "paris", "x", "labels.user=b"), at(62, "paris", "x", "labels.user=c")), 120, nil, nil},
		{"cardinality min", "{type: cardinality, cardinality_field: labels.user, min_cardinality: 2, timeframe: 1m}", all(every(10, 0, 200, at(0, "paris", "x", "labels.user=a")), every(10, 100, 200, at(0, "paris", "x", "labels.user=b")), every(10, 0, 200, at(0, "rome", "x", "labels.user=a")), every(10, 0, 200, at(0, "rome", "x", "labels.user=b"))), 200, []string{"R{site=paris}@60"}, []string{}},
		{"cardinality min, never heard of", "{type: cardinality, cardinality_field: labels.user, min_cardinality: 1, timeframe: 1m}", every(10, 0, 200, at(0, "paris", "x", "labels.user=a")), 200, []string{"R{site=rome}@60"}, []string{"R{site=rome}"}},
		{"spike of a metric", "{type: spike_aggregation, metric_agg_key: labels.ms, metric_agg_type: avg, timeframe: 1m, spike_height: '3', spike_type: up}",
			all(every(10, 0, 120, at(0, "paris", "x", "labels.ms=10")), every(10, 120, 300, at(0, "paris", "x", "labels.ms=90"))), 300, []string{"R{site=paris}@135"}, nil},
		{"spike of a metric, down", "{type: spike_aggregation, metric_agg_key: labels.ms, metric_agg_type: sum, timeframe: 1m, spike_height: '3', spike_type: down, threshold_ref: 50}",
			all(every(10, 0, 180, at(0, "paris", "x", "labels.ms=10")), every(10, 180, 300, at(0, "paris", "x", "labels.ms=1"))), 300, []string{"R{site=paris}@222"}, nil},
		{"spike of a metric, from nothing or to nothing", "{type: spike_aggregation, metric_agg_key: labels.ms, metric_agg_type: avg, timeframe: 1m, spike_height: '3', spike_type: both}",
			all(every(10, 0, 130, at(0, "paris", "x")), every(10, 130, 180, at(0, "paris", "x", "labels.ms=90"))), 400, nil, nil},
		{"spike of a metric, steady", "{type: spike_aggregation, metric_agg_key: labels.ms, metric_agg_type: max, timeframe: 1m, spike_height: '2', spike_type: both}",
			every(10, 0, 300, at(0, "paris", "x", "labels.ms=10")), 300, nil, nil},
		{"metric max", "{type: metric_aggregation, metric_agg_key: labels.ms, metric_agg_type: avg, max_threshold: '10', timeframe: 1m}", list(at(1, "paris", "x", "labels.ms=5"), at(2, "paris", "x", "labels.ms=16"), at(3, "rome", "x", "labels.ms=10")), 30, []string{"R{site=paris}@3"}, nil},
		{"metric max of max", "{type: metric_aggregation, metric_agg_key: labels.ms, metric_agg_type: max, max_threshold: '10', timeframe: 1m}", list(at(1, "paris", "x", "labels.ms=5"), at(2, "paris", "x", "labels.ms=16"), at(3, "rome", "x", "labels.ms=10")), 30, []string{"R{site=paris}@3"}, nil},
		{"metric min of min", "{type: metric_aggregation, metric_agg_key: labels.ms, metric_agg_type: min, min_threshold: '5', timeframe: 1m}", list(at(1, "paris", "x", "labels.ms=5"), at(2, "rome", "x", "labels.ms=-1"), at(3, "rome", "x", "labels.ms=none")), 30, []string{"R{site=rome}@3"}, nil},
		{"metric percentile", "{type: metric_aggregation, metric_agg_key: labels.ms, metric_agg_type: percentiles, percentile_range: 90, max_threshold: '100', timeframe: 1m}", all(every(1, 0, 30, at(0, "paris", "x", "labels.ms=50")), every(3, 15, 30, at(0, "paris", "x", "labels.ms=150")),
			every(1, 0, 30, at(0, "rome", "x", "labels.ms=50")), every(15, 15, 30, at(0, "rome", "x", "labels.ms=150"))), 60, []string{"R{site=paris}@24"}, nil},
		{"spike of a percentile", "{type: spike_aggregation, metric_agg_key: labels.ms, metric_agg_type: percentiles, percentile_range: 50, timeframe: 1m, spike_height: '3', spike_type: up}",
			all(every(5, 0, 120, at(0, "paris", "x", "labels.ms=10")), every(5, 120, 300, at(0, "paris", "x", "labels.ms=90"))), 300, []string{"R{site=paris}@153"}, nil},
		{"metric sum of nothing", "{type: metric_aggregation, metric_agg_key: labels.ms, metric_agg_type: sum, min_threshold: '1', timeframe: 1m, realert: 1h}", every(10, 0, 100, at(0, "paris", "x", "labels.ms=5")), 100, []string{"R{site=rome}@60"}, nil},
		{"metric value count", "{type: metric_aggregation, metric_agg_key: labels.ms, metric_agg_type: value_count, max_threshold: '2', timeframe: 1m}", list(at(1, "paris", "x", "labels.ms=a").x(3), at(1, "rome", "x").x(5)), 30, []string{"R{site=paris}@3"}, nil},
		{"metric cardinality", "{type: metric_aggregation, metric_agg_key: pod, metric_agg_type: cardinality, max_threshold: '1', timeframe: 1m}", list(at(1, "paris", "x", "pod=a"), at(2, "paris", "x", "pod=b"), at(2, "rome", "x", "pod=b").x(5)), 30, []string{"R{site=paris}@15"}, nil},
		{"percentage max", "{type: percentage_match, match_bucket_filter: 'severity:error', max_percentage: '10', timeframe: 1m, filter: web}", list(at(1, "paris", "web", "severity=error").x(2), at(1, "paris", "web").x(10), at(1, "rome", "web", "severity=error"), at(1, "rome", "web").x(9), at(1, "rome", "other", "severity=error").x(9)), 30, []string{"R{site=paris}@3"}, nil},
		{"percentage min", "{type: percentage_match, match_bucket_filter: 'severity:info', min_percentage: '50', timeframe: 1m, realert: 1h}", list(at(1, "paris", "web", "severity=error").x(2), at(1, "paris", "web", "severity=info")), 30, []string{"R{site=paris}@3"}, nil},
		{"metric max of a segment", "{type: metric_aggregation, metric_agg_key: labels.ms, metric_agg_type: avg, max_threshold: '50', timeframe: 5m, bucket_interval: 1m}", burst, 400, []string{"R{site=paris}@155"}, []string{"R{site=paris}"}},
		{"metric max of a segment that is over", "{type: metric_aggregation, metric_agg_key: labels.ms, metric_agg_type: avg, max_threshold: '50', timeframe: 5m, bucket_interval: 1m}", burst, 720, []string{"R{site=paris}@155"}, []string{}},
		{"metric max of a segment of the clock", "{type: metric_aggregation, metric_agg_key: labels.ms, metric_agg_type: avg, max_threshold: '50', timeframe: 5m, bucket_interval: 1m, sync_bucket_interval: true}", burst, 400, []string{"R{site=paris}@180"}, []string{"R{site=paris}"}},
		{"metric max of no segments", "{type: metric_aggregation, metric_agg_key: labels.ms, metric_agg_type: avg, max_threshold: '50', timeframe: 5m}", burst, 400, nil, nil},
		{"percentage of a segment", "{type: percentage_match, match_bucket_filter: 'severity:error', max_percentage: '50', timeframe: 5m, bucket_interval: 1m}", burst, 400, []string{"R{site=paris}@155"}, []string{"R{site=paris}"}},
		{"percentage of no segments", "{type: percentage_match, match_bucket_filter: 'severity:error', max_percentage: '50', timeframe: 5m}", burst, 400, nil, nil},
		{"spike of the mean of segments", "{type: spike_aggregation, metric_agg_key: labels.ms, metric_agg_type: avg, timeframe: 2m, bucket_interval: 1m, spike_height: '3', spike_type: up}", thin, 360, []string{"R{site=paris}@360"}, nil},
		{"spike of no segments", "{type: spike_aggregation, metric_agg_key: labels.ms, metric_agg_type: avg, timeframe: 2m, spike_height: '3', spike_type: up}", thin, 360, nil, nil},
		{"percentage of too few", "{type: percentage_match, match_bucket_filter: 'severity:error', max_percentage: '10', min_denominator: 3, timeframe: 1m}", list(at(1, "paris", "web", "severity=error").x(2)), 30, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, "paris", "rome")
			w.use("acme", c.rule)
			r := w.runner()
			play(w, r, c.lines, c.until)
			w.expect("raised", w.sink.raised(), c.want...)
			if c.firing != nil {
				w.expect("firing", w.sink.firing(), c.firing...)
			}
			if testing.Verbose() {
				for _, s := range w.sink.sends {
					t.Log(s.Labels, s.Annotations)
				}
			}
			for _, u := range r.status.Units {
				t.Errorf("%+v", u)
			}
		})
	}
}

func TestSteps(t *testing.T) {
	const day = 86400
	for sec := int64(1); sec <= int64(logrule.MaxTimeframe/time.Second); sec++ {
		most, more := int64(60), int64(20_000)
		if sec > 20*day {
			most, more = max(60, sec/day+1), (sec/day+1)*1000
		}
		step, whole := steps(sec * 1000)
		if step < 1000 || step > day*1000 || step%1000 != 0 || whole%step != 0 || whole < sec*1000 || whole > sec*1000+more || whole/step > most {
			t.Fatal(sec, step, whole)
		}
	}
	if step, whole := steps(3600_000); fmt.Sprint(step, whole) != "180000 3600000" {
		t.Error(step, whole)
	}
}

// The steps of segments divide them, and a window has no more of them than any other.
func TestStepsOfSegments(t *testing.T) {
	for segment := int64(1); segment <= 2*86400; segment += 1 + segment/50 {
		for n := int64(1); n <= logrule.MaxSegments; n++ {
			step := stepOfSegment(n*segment*1000, segment*1000, false)
			if step < 1000 || step%1000 != 0 || segment*1000%step != 0 || n*segment*1000/step > 60 {
				t.Fatal(segment, n, step)
			}
		}
	}
}

// A timeframe of weeks finds what one of minutes finds. It neither holds lines nor asks for any a second time.
func TestLongTimeframes(t *testing.T) {
	const day = 24 * 3600
	ninth := func(fields ...func(i int) string) (out []script) { // a line each ninth day
		for i := range 9 {
			var of []string
			for _, f := range fields {
				of = append(of, f(i))
			}
			out = append(out, at((1+9*i)*day, "paris", "x", of...))
		}
		return out
	}
	user := func(i int) string { return fmt.Sprintf("labels.user=%d", i) }
	slow := func(int) string { return "labels.ms=10" }
	for _, c := range []struct {
		rule  string
		lines []script
		days  int
		want  []string // and the day
	}{
		{"{type: frequency, num_events: 5, timeframe: 960h}", ninth(), 40, []string{"R{site=paris}@37"}},
		{"{type: frequency, num_events: 5, timeframe: 720h}", ninth(), 80, nil},
		{"{type: frequency, num_events: 2, timeframe: 480h, keep_firing_for: 24h}", ninth(), 40, []string{"R{site=paris}@10", "R{site=paris}@28"}}, // each its own
		{"{type: cardinality, cardinality_field: labels.user, max_cardinality: 4, timeframe: 960h}", ninth(user), 40, []string{"R{site=paris}@37"}},
		{"{type: cardinality, cardinality_field: labels.user, max_cardinality: 4, timeframe: 720h}", ninth(user), 80, nil},
		{"{type: spike, spike_height: '3', spike_type: up, timeframe: 840h}", all(every(7*day, 0, 70*day, at(0, "paris", "x")), every(day, 70*day, 84*day, at(0, "paris", "x"))), 84, []string{"R{site=paris}@81"}},
		{"{type: flatline, threshold: 1, timeframe: 960h}", list(at(3*day, "paris", "x")), 45, []string{"R{site=paris}@43"}},
		{"{type: new_term, fields: [labels.user], terms_window_size: 1080h}", list(at(day, "paris", "x", "labels.user=a"), at(40*day, "paris", "x", "labels.user=a"), at(41*day, "paris", "x", "labels.user=b")), 42, []string{"R{site=paris}@41"}},
		{"{type: metric_aggregation, metric_agg_key: labels.ms, metric_agg_type: sum, max_threshold: '45', timeframe: 960h}", ninth(slow), 40, []string{"R{site=paris}@37"}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			w := newWorld(t, "paris")
			w.use("acme", c.rule)
			r := w.runner()
			round1(r)
			i := 0
			for at := 0; at <= c.days*day; at += 3 * 3600 {
				w.now = t0.Add(time.Duration(at)*time.Second + time.Minute)
				for ; i < len(c.lines) && c.lines[i].at <= at; i++ {
					w.log(c.lines[i].site, c.lines[i].message, float64(c.lines[i].at)+30, c.lines[i].fields...)
				}
				round1(r)
				for _, u := range r.units {
					for _, k := range u.st.Keys {
						if len(k.Buckets) > 2*90 {
							t.Fatalf("%d buckets", len(k.Buckets))
						}
					}
				}
			}
			var got []string
			for _, raised := range w.sink.raised() {
				id, sec, _ := strings.Cut(raised, "@")
				n, err := strconv.ParseFloat(sec, 64)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%s@%d", id, int(n)/day))
			}
			slices.Sort(got)
			w.expect("raised", got, c.want...)
			learned := t0
			for _, q := range w.src.queries {
				if q.UpTo.Before(t0) || q.UpTo.Equal(t0) { // what new_term learns
					continue
				}
				if q.After.Before(learned) {
					t.Fatalf("lines up to %s are asked for from %s on again", learned, q.After)
				}
				learned = q.UpTo
			}
		})
	}
}

// A type is its file: what it says there of itself is what control admits, and each file is evaluated.
func TestEveryTypeIsItsFile(t *testing.T) {
	files, err := filepath.Glob("type_*.go")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(kinds) || len(files) != len(logrule.Types()) {
		t.Errorf("%d files, %d types are evaluated, %d admitted: make generate", len(files), len(kinds), len(logrule.Types()))
	}
	for _, f := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(f, "type_"), ".go")
		k, admitted := kinds[name], logrule.TypeOf(name)
		if k == nil || admitted == nil {
			t.Errorf("%s: no type of this name is evaluated, or admitted: make generate", f)
			continue
		}
		says := k.about()
		says.Name = name
		if !reflect.DeepEqual(says, *admitted) {
			t.Errorf("%s says %+v, control has %+v: make generate", f, says, *admitted)
		}
	}
}
