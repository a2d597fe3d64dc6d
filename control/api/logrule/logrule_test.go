package logrule

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/v1alpha1"
)

func rule(t *testing.T, text string) v1alpha1.LogRule {
	t.Helper()
	r := v1alpha1.LogRule{Name: "R"}
	if err := yaml.UnmarshalStrict([]byte(text), &r); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

func check(t *testing.T, text, want string) {
	t.Helper()
	errs := Check(v1alpha1.LogRulesSpec{Rules: []v1alpha1.LogRule{rule(t, text)}})
	switch {
	case want == "" && len(errs) > 0:
		t.Errorf("%s: refused: %v", text, errs.ToAggregate())
	case want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), want)):
		t.Errorf("%s:\n got %v\nwant …%s…", text, errs.ToAggregate(), want)
	}
}

func TestGood(t *testing.T) {
	for _, text := range []string{
		"{type: any}",
		"{type: any, filter: 'severity:error AND \"out of memory\"', severity: critical, realert: 0s, query_delay: 1h, aggregation: 24h}",
		"{type: any, query_key: [kubernetes.namespace, pod, labels.app], labels: {team: a}, annotations: {summary: '{{ $labels.pod }} {{ $value | humanize }} {{ $message }}'}}",
		"{type: frequency, num_events: 5, timeframe: 5m}",
		"{type: spike, timeframe: 24h, spike_height: '3', spike_type: both, threshold_ref: 1, threshold_cur: 2}",
		"{type: flatline, threshold: 1, timeframe: 1s}",
		"{type: blacklist, compare_key: labels.user, blacklist: [root]}",
		"{type: whitelist, compare_key: container, whitelist: [web], ignore_null: true}",
		"{type: change, compare_key: labels.version, query_key: [pod]}",
		"{type: change, compare_key: [labels.version, labels.channel], ignore_null: true}",
		"{type: any, realert: 5m, exponential_realert: 1h, top_count_keys: [pod, labels.user], top_count_number: 3}",
		"{type: any, query_key: [pod], include: [pod, labels.site, labels.user], annotations: {summary: '{{ $fields.pod }} {{ $fields.site | toUpper }} {{ $fields.user }}'}}",
		"{type: any, aggregation: 5m, aggregation_key: [labels.user, pod], query_key: [pod]}",
		"{type: frequency, num_events: 3, timeframe: 5m, aggregation: 5m, aggregation_key: [kubernetes.pod.name], query_key: [pod, labels.user]}",
		"{type: new_term, fields: [[labels.user, labels.country], labels.user], query_key: [pod]}",
		"{type: metric_aggregation, metric_agg_key: labels.ms, metric_agg_type: percentiles, percentile_range: 99, max_threshold: '500', timeframe: 5m}",
		"{type: spike_aggregation, metric_agg_key: labels.ms, metric_agg_type: percentiles, percentile_range: 50, spike_height: '2', spike_type: up, timeframe: 5m}",
		"{type: change, compare_key: labels.version, timeframe: 1h, ignore_null: true}",
		"{type: new_term, fields: [labels.user], terms_window_size: 2160h}",
		"{type: cardinality, cardinality_field: pod, max_cardinality: 0, timeframe: 5m}",
		"{type: cardinality, cardinality_field: pod, min_cardinality: 3, max_cardinality: 9, timeframe: 5m}",
		"{type: metric_aggregation, metric_agg_key: labels.ms, metric_agg_type: avg, max_threshold: '0.5', min_threshold: '-1', timeframe: 5m}",
		"{type: metric_aggregation, metric_agg_key: pod, metric_agg_type: cardinality, max_threshold: '5', timeframe: 5m}",
		"{type: frequency, num_events: 5, timeframe: 2160h}",
		"{type: cardinality, cardinality_field: pod, max_cardinality: 5, timeframe: 1080h}",
		"{type: spike, timeframe: 1080h, spike_height: '3', spike_type: both}",
		"{type: metric_aggregation, metric_agg_key: labels.ms, metric_agg_type: avg, max_threshold: '5', timeframe: 1h, bucket_interval: 1m, sync_bucket_interval: true}",
		"{type: spike_aggregation, metric_agg_key: labels.ms, metric_agg_type: avg, spike_height: '2', spike_type: up, timeframe: 5m, bucket_interval: 5m}",
		"{type: percentage_match, match_bucket_filter: 'severity:error', max_percentage: '5', timeframe: 1440h, bucket_interval: 24h}",
		"{type: percentage_match, match_bucket_filter: 'severity:error', max_percentage: '5.5', min_denominator: 10, timeframe: 5m, filter: web}",
	} {
		check(t, text, "")
	}
}

func TestBad(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"{type: nosuch}", "rules[0].type"},
		{"{name: 1x, type: any}", "rules[0].name"},
		{"{type: any, severity: bad}", "rules[0].severity"},
		{"{type: any, num_events: 3}", "only frequency do"},
		{"{type: spike_aggregation, timeframe: 5m, metric_agg_key: labels.ms, metric_agg_type: avg, spike_type: up}", "spike_height: Required"},
		{"{type: spike_aggregation, timeframe: 5m, metric_agg_key: labels.ms, metric_agg_type: cardinality, spike_type: up, spike_height: '3'}", "metric_agg_type"},
		{"{type: spike_aggregation, timeframe: 5m, metric_agg_key: labels.ms, metric_agg_type: avg, spike_type: up, spike_height: '3', max_threshold: '3'}", "only metric_aggregation do"},
		{"{type: any, compare_key: pod}", "only blacklist, change, whitelist do"},
		{"{type: any, timeframe: 5m}", "rules[0].timeframe"},
		{"{type: flatline, threshold: 1, timeframe: 5m, aggregation: 5m}", "rules[0].aggregation"},
		{"{type: blacklist, compare_key: pod, blacklist: [x], ignore_null: true}", "only change, whitelist do"},
		{"{type: frequency, timeframe: 5m}", "num_events: Required"},
		{"{type: frequency, num_events: 3}", "timeframe: Required"},
		{"{type: frequency, num_events: -3, timeframe: 5m}", "at least 0"},
		{"{type: spike, timeframe: 5m, spike_type: up}", "spike_height: Required"},
		{"{type: spike, timeframe: 5m, spike_height: '3'}", "spike_type: Required"},
		{"{type: spike, timeframe: 5m, spike_height: '3', spike_type: sideways}", "up, down or both"},
		{"{type: spike, timeframe: 5m, spike_height: '1', spike_type: up}", "more than 1"},
		{"{type: spike, timeframe: 5m, spike_height: x, spike_type: up}", "want a number"},
		{"{type: flatline, timeframe: 5m}", "threshold: Required"},
		{"{type: blacklist, compare_key: pod}", "blacklist: Required"},
		{"{type: blacklist, blacklist: [x]}", "compare_key: Required"},
		{"{type: blacklist, compare_key: message, blacklist: [x]}", "can't be grouped"},
		{"{type: blacklist, compare_key: pod, blacklist: ['']}", "blacklist[0]"},
		{"{type: blacklist, compare_key: pod, blacklist: ['!file /etc/passwd']}", "can't be read"},
		{"{type: whitelist, compare_key: labels, whitelist: [x]}", "labels.KEY"},
		{"{type: change}", "compare_key: Required"},
		{"{type: new_term}", "fields: Required"},
		{"{type: change, compare_key: [pod, pod]}", "Duplicate"},
		{"{type: change, compare_key: [pod, nosuch]}", "no such field"},
		{"{type: blacklist, compare_key: [pod, node], blacklist: [x]}", "compares one field"},
		{"{type: new_term, fields: [[pod, node], [pod, node]]}", "Duplicate"},
		{"{type: new_term, fields: [[]]}", "a field is wanted"},
		{"{type: new_term, fields: [pod, node, unit, stream, container, labels.a]}", "at most 5"},
		{"{type: new_term, fields: [[labels.a, labels.b, labels.c, labels.d, labels.e]], query_key: [labels.f, labels.g, labels.h]}", "at most 8 fields"},
		{"{type: any, aggregation_key: [pod]}", "aggregation: Required"},
		{"{type: any, aggregation: 5m, aggregation_key: [site]}", "every alert has already"},
		{"{type: frequency, num_events: 3, timeframe: 5m, aggregation: 5m, aggregation_key: [pod]}", "add it to query_key"},
		{"{type: cardinality, cardinality_field: pod, min_cardinality: 3, timeframe: 5m, aggregation: 5m, query_key: [node], aggregation_key: [node]}", "min_cardinality"},
		{"{type: flatline, threshold: 1, timeframe: 5m, aggregation_key: [pod], query_key: [pod]}", "aggregation: Required"},
		{"{type: any, top_count_keys: [message]}", "can't be grouped"},
		{"{type: any, top_count_number: 3}", "top_count_keys: Required"},
		{"{type: any, top_count_keys: [pod], top_count_number: 21}", "at most 20"},
		{"{type: any, realert: 5m, exponential_realert: 4m}", "want 5m0s to 672h0m0s"},
		{"{type: metric_aggregation, metric_agg_key: labels.x, metric_agg_type: percentiles, max_threshold: '1', timeframe: 5m}", "percentile_range"},
		{"{type: metric_aggregation, metric_agg_key: labels.x, metric_agg_type: avg, percentile_range: 9, max_threshold: '1', timeframe: 5m}", "percentile_range"},
		{"{type: metric_aggregation, metric_agg_key: pod, metric_agg_type: percentiles, percentile_range: 9, max_threshold: '1', timeframe: 5m}", "only labels hold numbers"},
		{"{type: new_term, fields: [pod, pod]}", "Duplicate"},
		{"{type: new_term, fields: [pod], terms_window_size: 2161h}", "terms_window_size"},
		{"{type: frequency, num_events: 5, timeframe: 5m, bucket_interval: 1m}", "bucket_interval: Forbidden"},
		{"{type: metric_aggregation, metric_agg_key: labels.x, metric_agg_type: avg, max_threshold: '1', timeframe: 5m, bucket_interval: 2m}", "whole multiple"},
		{"{type: metric_aggregation, metric_agg_key: labels.x, metric_agg_type: avg, max_threshold: '1', timeframe: 5m, bucket_interval: 10m}", "whole multiple"},
		{"{type: metric_aggregation, metric_agg_key: labels.x, metric_agg_type: avg, max_threshold: '1', timeframe: 5m, bucket_interval: 0s}", "bucket_interval"},
		{"{type: metric_aggregation, metric_agg_key: labels.x, metric_agg_type: avg, max_threshold: '1', timeframe: 2h, bucket_interval: 1m}", "want at least 2m0s"},
		{"{type: metric_aggregation, metric_agg_key: pod, metric_agg_type: cardinality, max_threshold: '1', timeframe: 5m, bucket_interval: 1m}", "write timeframe: 1m0s"},
		{"{type: metric_aggregation, metric_agg_key: labels.x, metric_agg_type: avg, max_threshold: '1', timeframe: 5m, sync_bucket_interval: true}", "add that or remove this"},
		{"{type: cardinality, cardinality_field: pod, timeframe: 5m}", "min_cardinality, or both"},
		{"{type: cardinality, cardinality_field: nosuch, timeframe: 5m, max_cardinality: 1}", "cardinality_field"},
		{"{type: cardinality, cardinality_field: pod, timeframe: 5m, max_cardinality: 1, min_cardinality: 2}", "more than the maximum"},
		{"{type: cardinality, cardinality_field: pod, timeframe: 5m, min_cardinality: 0}", "at least 1"},
		{"{type: metric_aggregation, metric_agg_key: pod, metric_agg_type: avg, max_threshold: '1', timeframe: 5m}", "only labels hold numbers"},
		{"{type: metric_aggregation, metric_agg_key: labels.x, metric_agg_type: p99, max_threshold: '1', timeframe: 5m}", "metric_agg_type"},
		{"{type: metric_aggregation, metric_agg_key: labels.x, metric_agg_type: avg, timeframe: 5m}", "min_threshold, or both"},
		{"{type: metric_aggregation, metric_agg_key: labels.x, metric_agg_type: avg, max_threshold: '1e999', timeframe: 5m}", "max_threshold"},
		{"{type: percentage_match, match_bucket_filter: x, timeframe: 5m}", "max_percentage, or both"},
		{"{type: percentage_match, max_percentage: '5', timeframe: 5m}", "match_bucket_filter: Required"},
		{"{type: percentage_match, match_bucket_filter: x, max_percentage: '500', timeframe: 5m}", "0 to 100"},
		{"{type: percentage_match, match_bucket_filter: 'nosuch:x', max_percentage: '5', timeframe: 5m}", "rules[0].match_bucket_filter"},
		{"{type: percentage_match, match_bucket_filter: '" + strings.Repeat("a", 3000) + "', filter: '" + strings.Repeat("b", 3000) + "', max_percentage: '5', timeframe: 5m}", "longer than"},
		{"{type: any, filter: 'tenant:other'}", `no field "tenant"`},
		{"{type: any, realert: 673h}", "rules[0].realert"},
		{"{type: any, realert: -1s}", "rules[0].realert"},
		{"{type: any, query_delay: 61m}", "rules[0].query_delay"},
		{"{type: any, aggregation: 25h}", "rules[0].aggregation"},
		{"{type: frequency, num_events: 3, timeframe: 2161h}", "rules[0].timeframe"},
		{"{type: frequency, num_events: 3, timeframe: 0s}", "rules[0].timeframe"},
		{"{type: frequency, num_events: 3, timeframe: 1500ms}", "whole seconds"},
		{"{type: any, query_key: [nosuch]}", "query_key[0]"},
		{"{type: any, query_key: ['@timestamp']}", "can't be grouped"},
		{"{type: any, query_key: [site]}", "every alert has already"},
		{"{type: any, query_key: [labels.severity]}", "every alert has already"},
		{"{type: any, query_key: [namespace, kubernetes.namespace]}", "same field"},
		{"{type: any, query_key: [labels.a.b, labels.a/b]}", "as labels.a.b does"},
		{"{type: any, include: [message]}", "can't be grouped"},
		{"{type: any, include: [labels.a.b, labels.a/b]}", "is $fields.a_b in annotations, as labels.a.b is"},
		{"{type: any, include: [pod], annotations: {summary: '{{ $fields.pod }} {{ $fields.user }}'}}", "name it in include, such as labels.user"},
		{"{type: any, query_key: [pod], labels: {pod: x}}", "which labels sets too"},
		{"{type: any, labels: {tenant: x}}", "Muster sets this label"},
		{"{type: any, labels: {virtual_sites: x}}", "Muster sets this label"},
		{"{type: any, labels: {a-b: x}}", "not the name of a label"},
		{"{type: any, labels: {__a: x}}", "not the name of a label"},
		{"{type: any, annotations: {summary: '{{ $nosuch }}'}}", "annotations[summary]"},
		{"{type: any, annotations: {summary: '{{ query \"up\" }}'}}", "function query is not available"},
		{"{type: any, annotations: {summary: '{{ if false }}{{ query \"up\" | first }}{{ end }}'}}", "function query is not available"},
		{"{type: any, annotations: {summary: '{{ range 1000000000 }}x{{ end }}'}}", "range is for labels"},
		{"{type: any, annotations: {summary: '{{ define \"a\" }}{{ template \"a\" }}{{ end }}x'}}", "not available"},
		{"{type: any, annotations: {a-b: x}}", "annotations[a-b]"},
	} {
		check(t, c.text, c.want)
	}
}

func TestObject(t *testing.T) {
	two := v1alpha1.LogRulesSpec{Rules: []v1alpha1.LogRule{{Name: "A", Type: Any}, {Name: "A", Type: Any}}}
	if errs := Check(two); len(errs) != 1 || !strings.Contains(errs[0].Error(), "rules[1].name: Duplicate") {
		t.Errorf("a name twice: %v", errs)
	}
	bad := v1alpha1.LogRulesSpec{SiteSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}}
	if errs := Check(bad); len(errs) != 1 || errs[0].Field != "spec.siteSelector" {
		t.Errorf("a bad selector: %v", errs)
	}
}

func TestLabelOf(t *testing.T) {
	for in, want := range map[string]string{"pod": "pod", "kubernetes.pod.name": "kubernetes_pod_name", "app.kubernetes.io/name": "app_kubernetes_io_name", "0x": "_0x", "größe": "gr__e"} {
		if got := LabelOf(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	if f, err := ParseField("labels.app"); err != nil || f.Name != "labels.app" || f.Label != "app" {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err := ParseField("kubernetes.namespace"); err != nil || f.Name != "orchestrator.namespace" || f.Label != "kubernetes_namespace" {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestExpand(t *testing.T) {
	now := time.Unix(1700000000, 0)
	for in, want := range map[string]string{
		"plain":                                                        "plain",
		"{{ $labels.site }} {{ $labels.none }}|":                       "paris |",
		"{{ $value | humanize }} {{ $message }}":                       "1.5k boom",
		"{{ printf \"%.0f\" $value }}":                                 "1500",
		"{{ query \"up\" }}":                                           "<error expanding",
		"{{ reReplaceAll \"o+\" \"0\" $message }}":                     "b0m",
		"{{ $fields.user }} {{ $fields.message }} {{ $fields.none }}|": "joe its label |",
	} {
		if got := Expand(in, Told{map[string]string{"site": "paris"}, 1500, "boom", map[string]string{"user": "joe", "message": "its label"}}, now); !strings.HasPrefix(got, want) || len(want) == 0 {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

// A result that multiplies is refused when the rule is written; what is long is cut.
func TestTemplatesAreBounded(t *testing.T) {
	for _, bad := range []string{
		"{{ $message" + strings.Repeat(` | printf "%[1]s%[1]s"`, 150) + " }}",
		"{{ $message" + strings.Repeat(` | printf "%s%s" $message`, 10) + ` | reReplaceAll "" $message }}`,
		`{{ printf "%9999d" 1 }}`, `{{ query "up" }}`, `{{ range $i := 1000000 }}x{{ end }}`, `{{ template "x" }}`, `{{ define "x" }}{{ end }}`,
	} {
		if err := CheckTemplate(bad); err == nil {
			t.Errorf("%.80s is taken", bad)
		}
	}
	long := strings.Repeat("{{ $message }}", 40)
	if err := CheckTemplate(long); err != nil {
		t.Fatal(err)
	}
	if got := Expand(long, Told{Message: strings.Repeat("x", 1000)}, time.Unix(0, 0)); len(got) != MaxAnnotation {
		t.Errorf("%d bytes", len(got))
	}
}

func FuzzCheck(f *testing.F) {
	f.Add([]byte(`{"rules":[{"name":"A","type":"frequency","num_events":3,"timeframe":"5m","query_key":["pod"],"annotations":{"summary":"{{ $value }}"}}]}`))
	f.Add([]byte(`{"rules":[{"name":"A","type":"percentage_match","match_bucket_filter":"x","max_percentage":"5","timeframe":"5m"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var spec v1alpha1.LogRulesSpec
		if json.Unmarshal(b, &spec) != nil || len(Check(spec)) > 0 {
			return
		}
		for _, r := range spec.Rules {
			for _, k := range r.QueryKey {
				if f, err := ParseField(k); err != nil || f.Label == "" || f.Label == LabelName {
					t.Fatalf("%q: %+v, %v", k, f, err)
				}
			}
			for _, a := range r.Annotations {
				if got := Expand(a, Told{Value: 1, Message: "m"}, time.Unix(0, 0)); len(got) > MaxAnnotation {
					t.Fatalf("%d bytes", len(got))
				}
			}
		}
	})
}
