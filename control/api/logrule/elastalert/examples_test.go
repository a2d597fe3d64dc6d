package elastalert

import (
	"slices"
	"testing"
)

// What the example rules that come with ElastAlert and ElastAlert 2 ask for, type by type: in words
// of our own, with the same options. whole: nothing is left out but how it is sent.
func TestExamples(t *testing.T) {
	const sent = ": how it is sent, and what it says, is up to an AlertRoute and the rule's annotations"
	translated := 0
	for _, c := range []struct {
		name, in string
		remarks  []string
		fails    string
	}{
		{"frequency of one term", `
name: refusals
type: frequency
es_host: es.test
index: app-*
num_events: 50
timeframe: {hours: 4}
filter: [{term: {outcome: refused}}]
alert: [email]
email: [ops@example.com]
`, []string{"alert, email" + sent}, ""},
		{"frequency over several indices, two query strings", `
name: two of them
type: frequency
index: "a-%Y.%m.%d, b-%Y.%m.%d"
use_strftime_index: true
num_events: 50
timeframe: {hours: 4}
filter:
- query: {query_string: {query: "machine:dev*"}}
- query: {query_string: {query: 'service.raw:"till"'}}
`, nil, ""},
		{"frequency of a part of a word, to a pager", `
name: pager
type: frequency
index: app-*
num_events: 50
timeframe: {hours: 2}
filter: [{query: {query_string: {query: "@message: *oops*"}}}]
alert: [opsgenie]
opsgenie_key: k
opsgenie_tags: [Production]
`, []string{"alert, opsgenie_key, opsgenie_tags" + sent}, ""},
		{"frequency of a part of a word, to a webhook", `
name: hook
type: frequency
index: app-*
num_events: 50
timeframe: {hours: 2}
filter: [{query: {query_string: {query: "@message: *oops*"}}}]
alert: [webhook]
webhook_method: POST
webhook_endpoint: 'http://hook.test?q={{match["x"]}}'
`, []string{"alert, webhook_endpoint, webhook_method" + sent}, ""},
		{"logins that fail, by address, told in words", `
name: "logins that fail (2)"
type: frequency
num_events: 20
timeframe: {minutes: 60}
realert: {minutes: 1}
filter: [{query: {query_string: {query: "event.type:authentication_failure"}}}]
index: audit-*
query_key: [source.ip]
include: [host.hostname, user.name, source.ip]
alert_subject: "Failed logins at <{}> | <{}|open>"
alert_subject_args: [host.hostname, kibana_link]
alert_text: "From {} as {}"
alert_text_args: [source.ip, user.name]
alert_text_type: alert_text_only
alert: [slack]
slack_webhook_url: https://hooks.test/x
`, []string{
			"alert_subject: kibana_link: not a field that lines are grouped by, or one too many (a text has 5 of them at most beside query_key): [kibana_link] stands there",
			"alert, include, slack_webhook_url" + sent}, ""},
		{"who comes back, out of the alerts that were sent", `
name: again and again
type: frequency
num_events: 2
timeframe: {weeks: 1}
realert: {weeks: 4}
index: alerts
filter: [{term: {rule_name: "logins that fail"}}]
query_key: [match_body.source.ip]
alert_text: "{} again"
alert_text_args: [match_body.source.ip]
`, nil, ""},
		{"any, of two numbers, with an embed", `
name: chat
type: any
index: app_%Y
use_strftime_index: true
filter: [{query: {query_string: {query: "id: 2501 OR id: 5503"}}}]
realert: {minutes: 0}
include: [timestamp, computer]
alert_text: "At {0} on {1}"
alert_text_args: [timestamp, computer]
alert: [discord]
discord_webhook_url: x
`, []string{"alert, discord_webhook_url, include" + sent}, ""},
		{"any, to a system of cases", `
name: case
type: any
index: app_*
filter: [{query: {query_string: {query: "session_status: opened"}}}]
realert: {minutes: 0}
alert: [iris]
iris_host: 127.0.0.1
iris_alert_context: {username: username}
`, []string{"alert, iris_alert_context, iris_host" + sent}, ""},
		{"another country within a day", `
name: elsewhere
type: change
index: app-*
compare_key: country_name
ignore_null: true
query_key: username
timeframe: {days: 1}
filter: [{query: {query_string: {query: "document_type: login"}}}]
`, nil, ""},
		{"new values of a field", `
name: never seen
type: new_term
index: app-*
fields: [ip_address]
terms_window_size: {days: 90}
filter: [{term: {_type: login}}, {term: {username: admin}}]
`, []string{"filter: _type: lines have no document type here"}, ""},
		{"few names within hours", `
name: few
type: cardinality
index: app-*
cardinality_field: Hostname
min_cardinality: 15
timeframe: {hours: 4}
filter: [{term: {status: active}}]
`, nil, ""},
		{"three times as many", `
name: burst
type: spike
index: app-*
threshold_cur: 5
timeframe: {hours: 2}
spike_height: 3
spike_type: up
filter: [{query: {query_string: {query: "field: value"}}}, {type: {value: some}}]
`, []string{"filter: type some: lines have no document type here"}, ""},
		{"a mean twice as high", `
name: hot
type: spike_aggregation
index: metrics-*
buffer_time: {hours: 1}
metric_agg_key: system.cpu.user.pct
metric_agg_type: avg
query_key: beat.hostname
threshold_cur: 0.9
min_doc_count: 5
spike_height: 2
spike_type: up
filter: [{term: {metricset.name: cpu}}]
`, []string{"threshold_cur: left out: how high the number has to be (0.9) is not asked here"}, ""},
		{"a mean out of bounds", `
name: out of bounds
type: metric_aggregation
index: metrics-*
buffer_time: {hours: 1}
metric_agg_key: system.cpu.user.pct
metric_agg_type: avg
query_key: beat.hostname
bucket_interval: {minutes: 5}
min_threshold: 0.1
max_threshold: 0.8
filter: [{term: {metricset.name: cpu}}]
`, nil, ""},
		{"a share that is too low", `
name: share
type: percentage_match
index: http-*
description: "95% fine"
filter: [{term: {_type: http_request}}]
buffer_time: {minutes: 5}
query_key: Hostname.keyword
match_bucket_filter: [{terms: {ResponseStatus: [200]}}]
min_percentage: 95
`, []string{"filter: _type: lines have no document type here"}, ""},
		{"a list in a file of its own", `
name: known bad
type: blacklist
index: app-*
compare_key: client.ip
blacklist: ["!file /opt/list"]
`, nil, "write what is in that file"},
	} {
		r, err := Translate([]byte(c.in))
		switch {
		case c.fails != "":
			if err == nil {
				t.Errorf("%s: it is translated, want an error with %q: %q", c.name, c.fails, r.Remarks)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case !slices.Equal(r.Remarks, c.remarks):
			t.Errorf("%s:\n got %q\nwant %q", c.name, r.Remarks, c.remarks)
		default:
			translated++
		}
	}
	if translated != 15 {
		t.Errorf("%d are translated", translated)
	}
}

func TestWhatAnAlertSays(t *testing.T) {
	for _, c := range []struct{ in, summary, description string }{
		{`query_key: user
alert_subject: "{1} lines of {0}: {{x}} {2!s:>10} in {3}"
alert_subject_args: [user, num_hits, message, orchestrator.cluster.name]
alert_text: "no {} here {{ $x }}"`, "{{ $value }} lines of {{ $labels.user }}: {x} {{ $message }} in {{ $labels.site }}", "no {} here { { $x }}"},
		{`query_key: [host.ip, user]
alert_text: "{who} at {host}, {none}"
alert_text_kw: {user: who, host.ip: host}`, "", "{{ $labels.user }} at {{ $labels.host_ip }}, [none]"},
		{`description: what to do
alert_text: "{} of {} and {}"
alert_text_args: [rule.name, "{{ evil }}"]`, "", "X of [{ { evil }}] and [2]"},
		{`include: [http.response.status_code]
alert_subject: "{0} at {1}, {0} from {2}; {3}"
alert_subject_args: [user, pod, user.name, "_id"]`, "{{ $fields.user }} at {{ $fields.pod }}, {{ $fields.user }} from {{ $fields.user_name }}; [_id]", ""},
		{`alert_subject: "{}{}{}{}{}{}"
alert_subject_args: [a, b, c, d, e, f]`, "{{ $fields.a }}{{ $fields.b }}{{ $fields.c }}{{ $fields.d }}{{ $fields.e }}[f]", ""},
		{`alert_subject: "{} {}"
alert_subject_args: [a.b, a_b]`, "{{ $fields.a_b }} [a_b]", ""},
		{`description: "{{ what }}"`, "", "{ { what }}"},
		{`alert_text: "{{ user }}"
alert_text_type: alert_text_jinja`, "", ""},
	} {
		r, err := Translate([]byte("name: x\ntype: any\n" + c.in))
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
		} else if got := r.Annotations; got["summary"] != c.summary || got["description"] != c.description {
			t.Errorf("%s: %q", c.in, got)
		}
	}
}
