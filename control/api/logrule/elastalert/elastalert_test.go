package elastalert

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestTranslate(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
		remarks        []string // a part of each
	}{
		{"counting, with its sender", `
name: "Too many refusals (core)"
type: frequency
index: fw-*
num_events: 30
timeframe: {minutes: 10}
realert: {hours: 1}
query_key: source.ip
filter:
- term: {action.keyword: "deny"}
- query: {query_string: {query: 'zone: dmz AND NOT host.name:"fw 1" AND -level:debug'}}
alert: [slack]
slack_webhook_url: https://hooks.example.com/x
`, `
name: TooManyRefusalsCore
type: frequency
num_events: 30
timeframe: 10m
realert: 1h
query_key: [labels.source.ip]
filter: 'labels.action:"deny" AND (labels.zone:dmz AND NOT host.name:"fw 1" AND -level:debug)'
`, []string{"alert, slack_webhook_url: how it is sent"}},
		{"bool, range, exists, prefix", `
name: slow
type: any
filter:
- bool:
    must: [{range: {status: {gte: 500, lt: 503}}}, {exists: {field: trace}}]
    must_not: {prefix: {path: "/health:"}}
    should: [{match: {message: time out}}, {terms: {code: [1, 2]}}]
    minimum_should_match: 1
`, `
name: Slow
type: any
filter: '((labels.status:[500 TO 503}) AND (_exists_:labels.trace)) AND NOT ((labels.path:\/health\:*)) AND (((message:"time" OR message:"out")) OR ((labels.code:"1" OR labels.code:"2")))'
`, nil},
		{"numbers, patterns and regular expressions", `
name: odd
type: any
filter:
- range: {took: {gt: 0.5}}
- range: {bytes: {lte: 1000000}}
- wildcard: {path: "*admin*"}
- regexp: {path.keyword: "/v[12]/a:.*"}
- regexp: {user: {value: '"a"@b'}}
- query_string: {query: 'status:>=500 path:/\/a b: .*/ OR zone:{3 TO *}'}
`, `
name: Odd
type: any
filter: 'labels.took:{0.5 TO *] AND labels.bytes:[* TO 1000000] AND labels.path:*admin* AND labels.path:/\/v[12]\/a:.*/ AND labels.user:/"a"@b/ AND (labels.status:>=500 OR labels.path:/\/a b: .*/ OR labels.zone:{3 TO *})'
`, []string{`filter: regexp: "a"@b: ~ & <`}},
		{"longest windows", `
name: who
type: new_term
fields: [[user, country], host]
terms_window_size: {days: 100}
filter: [{match_all: {}}]
`, `
name: Who
type: new_term
fields: [[labels.user, labels.country], labels.host]
terms_window_size: 2160h
`, []string{"terms_window_size: 2160h0m0s is the longest"}},
		{"a number over a threshold", `
name: 99th floor
type: metric_aggregation
metric_agg_key: cpu.pct
metric_agg_type: avg
max_threshold: 0.85
bucket_interval: {minutes: 1}
`, `
name: _99thFloor
type: metric_aggregation
bucket_interval: 1m
metric_agg_key: labels.cpu.pct
metric_agg_type: avg
max_threshold: "0.85"
timeframe: 45m
`, []string{"timeframe: 45m"}},
		{"segments of the clock", `
name: share
type: percentage_match
buffer_time: {hours: 1}
bucket_interval: {minutes: 5}
sync_bucket_interval: true
bucket_offset_delta: 3
match_bucket_filter: [{term: {status: 200}}]
min_percentage: 95
filter: [{match_all: {}}]
`, `
name: Share
type: percentage_match
timeframe: 1h
bucket_interval: 5m
sync_bucket_interval: true
match_bucket_filter: labels.status:"200"
min_percentage: "95"
`, nil},
		{"a figure of each run", `
name: hot
type: metric_aggregation
buffer_time: {hours: 1}
run_every: {minutes: 10}
use_run_every_query_size: true
metric_agg_key: cpu
metric_agg_type: max
max_threshold: 9
filter: [{match_all: {}}]
`, `
name: Hot
type: metric_aggregation
timeframe: 10m
metric_agg_key: labels.cpu
metric_agg_type: max
max_threshold: "9"
`, nil},
		{"a figure of each run of another file, and spikes of what timeframe says", `
name: jump
type: spike_aggregation
timeframe: {days: 40}
buffer_time: {hours: 1}
bucket_interval: {days: 1}
use_run_every_query_size: true
metric_agg_key: cpu
metric_agg_type: avg
spike_height: 2
spike_type: up
filter: [{match_all: {}}]
`, `
name: Jump
type: spike_aggregation
timeframe: 960h
bucket_interval: 24h
metric_agg_key: labels.cpu
metric_agg_type: avg
spike_height: "2"
spike_type: up
`, []string{"use_run_every_query_size: the file has no run_every: write"}},
		{"segments of a type that has none", `
name: many
type: frequency
num_events: 3
timeframe: {days: 45}
bucket_interval: {minutes: 1}
sync_bucket_interval: true
filter: [{match_all: {}}]
`, `
name: Many
type: frequency
num_events: 3
timeframe: 1080h
`, nil},
		{"a blacklist of several keys", `
name: bad
type: blacklist
compare_key: [user, host]
blacklist: [root, 17]
`, `
name: Bad
type: blacklist
compare_key: labels.user
blacklist: [root, "17"]
`, []string{"compare_key: labels.user alone"}},
		{"what is told of many matches", `
name: many
type: change
compare_key: [country, city]
query_key: user
realert: {minutes: 10}
exponential_realert: {hours: 1}
aggregation: {minutes: 5}
aggregation_key: user
top_count_keys: [host, "agent.name"]
top_count_number: 50
`, `
name: Many
type: change
compare_key: [labels.country, labels.city]
query_key: [labels.user]
realert: 10m
exponential_realert: 1h
aggregation: 5m
aggregation_key: [labels.user]
top_count_keys: [labels.host, labels.agent.name]
top_count_number: 20
`, []string{"top_count_number: 20"}},
		{"what can't be gathered so", `
name: slow
type: spike_aggregation
metric_agg_key: ms
metric_agg_type: percentiles
percentile_range: 95
timeframe: {minutes: 5}
spike_height: 2
spike_type: up
realert: {hours: 2}
exponential_realert: {hours: 1}
aggregation: {minutes: 5}
aggregation_key: [host]
`, `
name: Slow
type: spike_aggregation
metric_agg_key: labels.ms
metric_agg_type: percentiles
percentile_range: 95
timeframe: 5m
spike_height: "2"
spike_type: up
realert: 1h
exponential_realert: 1h
aggregation: 5m
`, []string{"exponential_realert: 1h0m0s is realert too", "aggregation_key: lines of different labels.host"}},
	} {
		got, err := Translate([]byte(c.in))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var want Rule
		if err := yaml.UnmarshalStrict([]byte(c.want), &want.LogRule); err != nil {
			t.Fatal(err)
		}
		g, _ := yaml.Marshal(got.LogRule)
		w, _ := yaml.Marshal(want.LogRule)
		if string(g) != string(w) {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, g, w)
		}
		if len(got.Remarks) != len(c.remarks) {
			t.Errorf("%s: %q", c.name, got.Remarks)
		}
		for _, want := range c.remarks {
			if !slices.ContainsFunc(got.Remarks, func(r string) bool { return strings.HasPrefix(r, want) }) {
				t.Errorf("%s: %q, want %q", c.name, got.Remarks, want)
			}
		}
	}
}

// What decides what fires is not called a matter of how it is sent.
func TestOptionsThatDecide(t *testing.T) {
	for option, rule := range map[string]string{
		"alert_on_new_data": "type: spike, spike_height: 2, spike_type: up, timeframe: {minutes: 5}, query_key: user", "forget_keys": "type: flatline, threshold: 1, timeframe: {minutes: 5}, query_key: user",
		"alert_on_missing_field": "type: new_term, fields: [user]", "match_enhancements": "type: any", "limit_execution": "type: any",
	} {
		r, err := Translate([]byte("{name: x, " + rule + ", alert: email, email: a@example.com, " + option + ": true}"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(r.Remarks, func(s string) bool { return strings.HasPrefix(s, option+": not known, and it decides what fires: ") }) {
			t.Errorf("%s: %q", option, r.Remarks)
		}
	}
}

// What Lucene means without saying it.
func TestQueryStrings(t *testing.T) {
	for in, want := range map[string]string{
		`query_string: {query: 'error timeout'}`:                                          `(error OR timeout)`,
		`query_string: {query: 'error timeout', default_operator: and}`:                   `(error timeout)`,
		`query_string: {query: '"no route" level:(error fatal) a:[1 TO 3] b'}`:            `("no route" OR level:(error OR fatal) OR labels.a:[1 TO 3] OR b)`,
		`query_string: {query: '(a b) AND c OR d NOT e -f'}`:                              `((a OR b) AND c OR d NOT e -f)`,
		`query_string: {query: 'a\ b c'}`:                                                 `(a\ b OR c)`,
		`match: {message: time out}`:                                                      `(message:"time" OR message:"out")`,
		`match: {message: {query: time out, operator: and}}`:                              `(message:"time" AND message:"out")`,
		`match_phrase: {message: time out}`:                                               `message:"time out"`,
		`bool: {must: [{term: {a: 1}}], should: [{term: {b: 2}}]}`:                        `((labels.a:"1"))`,
		`bool: {should: [{term: {a: 1}}, {term: {b: 2}}]}`:                                `((labels.a:"1") OR (labels.b:"2"))`,
		`bool: {filter: {term: {a: 1}}, should: {term: {b: 2}}, minimum_should_match: 1}`: `((labels.a:"1")) AND ((labels.b:"2"))`,
	} {
		got, err := Translate([]byte("{name: x, type: any, filter: [{" + in + "}]}"))
		if err != nil {
			t.Errorf("%s: %v", in, err)
		} else if got.Filter != want {
			t.Errorf("%s: %s, want %s", in, got.Filter, want)
		}
	}
}

func TestWhatIsNoRule(t *testing.T) {
	for want, in := range map[string]string{
		"not YAML":                      "\t",
		"name: there is none":           "type: any",
		`type: "custom.Rule"`:           "{name: x, type: custom.Rule}",
		"filter: [0].geo_distance":      "{name: x, type: any, filter: [{geo_distance: {}}]}",
		"fuzzy":                         "{name: x, type: any, filter: [{query_string: {query: 'message: x~2'}}]}",
		"no number":                     "{name: x, type: any, filter: [{range: {status: {gte: high}}}]}",
		"not a regular expression":      "{name: x, type: any, filter: [{regexp: {path: '(a'}}]}",
		"num_events":                    "{name: x, type: frequency}",
		"is_enabled: it is switched":    "{name: x, type: any, is_enabled: false}",
		"num_events: many is no":        "{name: x, type: frequency, num_events: many}",
		"timeframe: fortnights":         "{name: x, type: frequency, num_events: 1, timeframe: {fortnights: 1}}",
		"minimum_should_match: 2":       "{name: x, type: any, filter: [{bool: {should: [{match_all: {}}], minimum_should_match: 2}}]}",
		"write what is in that file":    "{name: x, type: blacklist, compare_key: a, blacklist: ['!file /etc/x']}",
		"import: base.yaml: what is in": "{name: x, type: any, import: base.yaml}",
		"import: a.yaml, b.yaml":        "{import: [a.yaml, b.yaml], name: x, type: any}",
		"want one query":                "{name: x, type: any, filter: [x]}",
		"match_bucket_filter: [0].geo":  "{name: x, type: percentage_match, min_percentage: 5, match_bucket_filter: [{geo: {}}]}",
	} {
		if r, err := Translate([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %q", in, r, err, want)
		}
	}
}

// Whatever the file, there is a rule that admission takes or an error.
func FuzzTranslate(f *testing.F) {
	f.Add([]byte("{name: x, type: any, filter: [{query_string: {query: 'a: b \\: \"c d\" -e'}}, {range: {n: {gt: 1, lte: 3}}}]}"))
	f.Add([]byte("{name: x, type: frequency, num_events: 1, timeframe: {minutes: 1}, query_key: [a, b]}"))
	f.Add([]byte("{name: é, type: change, compare_key: [[]], query_key: {a: b}, aggregation: {schedule: x}}"))
	f.Add([]byte("{name: x, type: percentage_match, min_percentage: 1, buffer_time: {hours: 1}, bucket_interval: {minutes: 7}, sync_bucket_interval: true, use_run_every_query_size: true, run_every: {minutes: 7}, match_bucket_filter: [{match_all: {}}]}"))
	f.Add([]byte("{name: x, type: new_term, fields: [[a, [b]]], blacklist: {}, timeframe: 5}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := Translate(b); err == nil && r.Name == "" {
			t.Fatal("a rule without a name")
		}
	})
}
