package logrules

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// aggregation_key makes an alert of each of its values, whatever query_key they came under; a line
// that has none is under the empty value.
func TestAggregationKey(t *testing.T) {
	for _, c := range []struct {
		name, rule string
		want       []string
	}{
		{"of a field of its own", "{type: any, aggregation: 1m, aggregation_key: [labels.user], realert: 0s}",
			[]string{"R{site=paris,user=a}@1=1", "R{site=paris,user=b}@2=1", "R{site=paris}@4=1", "R{site=rome,user=a}@5=1"}},
		{"instead of query_key", "{type: any, aggregation: 1m, query_key: [pod, labels.user], aggregation_key: [labels.user]}",
			[]string{"R{site=paris,user=a}@1=2", "R{site=paris,user=b}@2=1", "R{site=paris}@4=1", "R{site=rome,user=a}@5=1"}},
		{"of what is counted by query_key", "{type: frequency, num_events: 1, timeframe: 1m, aggregation: 1m, query_key: [pod, labels.user], aggregation_key: [pod]}",
			[]string{"R{pod=x,site=paris}@1=2", "R{pod=y,site=paris}@3=2", "R{pod=x,site=rome}@5=1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, "paris", "rome")
			w.use("acme", strings.TrimSuffix(c.rule, "}")+", annotations: {matches: '{{ $value }}'}}")
			r := w.runner()
			play(w, r, list(at(1, "paris", "x", "pod=x", "labels.user=a"), at(2, "paris", "x", "pod=x", "labels.user=b"), at(3, "paris", "x", "pod=y", "labels.user=a").x(2),
				at(4, "paris", "x", "pod=y"), at(5, "rome", "x", "pod=x", "labels.user=a")), 45)
			w.expect("raised while they are gathered", w.sink.raised())
			// The process dies: what was gathered is in the State.
			w.run(90*time.Second, w.runner(func(o *Options) { o.LeaseTTL = time.Millisecond }))
			got := map[string]bool{}
			for _, a := range w.sink.sends {
				got[fmt.Sprintf("%s@%g=%s", id(a.Labels), a.StartsAt.Sub(t0).Seconds(), a.Annotations["matches"])] = true
			}
			for _, want := range c.want {
				if !got[want] {
					t.Errorf("no alert %s among %v", want, got)
				}
			}
			if len(got) != len(c.want) {
				t.Errorf("alerts %v, want %v", got, c.want)
			}
		})
	}
}

// realert doubles while the alert comes back, and goes down again in the quiet after it. A new process knows how
// far it is.
func TestExponentialRealert(t *testing.T) {
	w := newWorld(t, "paris")
	w.use("acme", "{type: any, realert: 1m, exponential_realert: 4m, keep_firing_for: 0s}")
	wait := func(r *Runner, line float64) time.Duration {
		t.Helper()
		w.now = t0.Add(time.Duration(line) * time.Second)
		round1(r)
		w.log("paris", "x", line)
		w.now = w.now.Add(time.Second)
		n := len(w.sink.sends)
		round1(r)
		last := w.sink.sends[len(w.sink.sends)-1]
		if len(w.sink.sends) == n {
			return 0 // within realert
		}
		return last.EndsAt.Sub(last.when).Round(time.Minute)
	}
	first := w.runner()
	round1(first)
	for _, c := range []struct {
		line float64
		want time.Duration
	}{{10, time.Minute}, {40, 0}, {75, 2 * time.Minute}, {200, 4 * time.Minute}, {442, 4 * time.Minute}} {
		if got := wait(first, c.line); got != c.want {
			t.Errorf("after the line of second %g the alert fires for %s, want %s", c.line, got, c.want)
		}
	}
	second := w.runner(func(o *Options) { o.LeaseTTL = time.Millisecond })
	round1(second)
	// 682 is when the last ran out: quiet for 5 minutes halves it once, for 15 altogether.
	for _, c := range []struct {
		line float64
		want time.Duration
	}{{682 + 300, 2 * time.Minute}, {1102 + 900, time.Minute}} {
		if got := wait(second, c.line); got != c.want {
			t.Errorf("after the line of second %g the alert fires for %s, want %s", c.line, got, c.want)
		}
	}
	w.run(10*time.Minute, second)
	for _, u := range second.units {
		if n := len(u.st.Backoff); n != 0 {
			t.Errorf("%d alerts are remembered after a long quiet", n)
		}
	}
}

func TestTopCounts(t *testing.T) {
	w := newWorld(t, "paris", "rome")
	w.use("acme", "{type: frequency, filter: denied, num_events: 6, timeframe: 1m, query_key: [pod], top_count_keys: [labels.user, labels.none], top_count_number: 2}")
	r := w.runner()
	play(w, r, list(at(1, "paris", "denied", "pod=a", "labels.user=root").x(3), at(2, "paris", "denied", "pod=a", "labels.user=joe").x(2), at(3, "paris", "denied", "pod=a", "labels.user=ann"),
		at(3, "paris", "denied", "pod=b", "labels.user=eve").x(5), at(3, "rome", "denied", "pod=a", "labels.user=eve"), at(3, "paris", "fine", "pod=a", "labels.user=eve").x(9)), 15)
	w.expect("raised", w.sink.raised(), "R{pod=a,site=paris}@3")
	a := w.sink.sends[0].Annotations
	if a["top_user"] != "root: 3, joe: 2, 1 more" || a["top_none"] != "no line has it" {
		t.Errorf("annotations: %q", a)
	}

	// An alert does not wait for what it would be nice to know.
	w.now = w.now.Add(10 * time.Minute)
	round1(r)
	w.log("rome", "denied", w.now.Sub(t0).Seconds(), "pod=a")
	for range 6 {
		w.log("rome", "denied", w.now.Sub(t0).Seconds(), "pod=a")
	}
	w.now = w.now.Add(time.Second)
	w.src.failBy = "labels.user"
	round1(r)
	w.expect("raised", w.sink.raised(), "R{pod=a,site=paris}@3", "R{pod=a,site=rome}@615")
}

// What an alert says of a line it says of one, whatever type found it, how long it was gathered, and whoever
// goes on from there.
func TestIncludedFieldsAreOfTheLineThatIsTold(t *testing.T) {
	const says = "include: [node, labels.user, labels.status], annotations: {summary: '{{ $message }}: {{ $fields.user }} at {{ $fields.node }} got {{ $fields.status }}|'}}"
	for name, rule := range map[string]string{
		"by line":               "{type: any, filter: denied",
		"of a list":             "{type: blacklist, filter: denied, compare_key: labels.user, blacklist: [root]",
		"counted":               "{type: frequency, filter: denied, num_events: 2, timeframe: 1m",
		"of values":             "{type: cardinality, filter: denied, cardinality_field: pod, max_cardinality: 1, timeframe: 1m",
		"of a number":           "{type: metric_aggregation, filter: denied, metric_agg_key: labels.status, metric_agg_type: max, max_threshold: '402', timeframe: 1m",
		"of another value":      "{type: change, filter: denied, compare_key: labels.status",
		"gathered, then killed": "{type: any, filter: denied, aggregation: 1m",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "paris")
			w.use("acme", rule+", "+says)
			play(w, w.runner(), list(at(1, "paris", "denied one", "node=n1", "pod=a", "labels.user=root", "labels.status=401"), at(4, "paris", "denied two", "node=n2", "pod=b", "labels.user=root", "labels.status=403"),
				at(5, "paris", "fine", "node=n3", "labels.user=joe", "labels.status=200")), 15)
			w.run(2*time.Minute, w.runner(func(o *Options) { o.LeaseTTL = time.Millisecond }))
			if len(w.sink.sends) == 0 {
				t.Fatal("no alert")
			}
			for _, a := range w.sink.sends {
				if got := a.Annotations["summary"]; got != "denied one: root at n1 got 401|" && got != "denied two: root at n2 got 403|" {
					t.Errorf("it says %q", got)
				}
			}
		})
	}
}

// Every type has an alert that fires, and that resolves once what it is about is over; a process that takes over
// meanwhile resolves what the one before raised.
func TestEveryTypeFiresAndResolves(t *testing.T) {
	before := every(10, 0, 130, at(0, "paris", "x", "labels.user=a", "labels.ms=10"))
	burst := every(1, 130, 160, at(0, "paris", "x", "severity=error", "labels.user=a", "labels.ms=90"))
	after := every(10, 160, 1500, at(0, "paris", "x", "labels.user=a", "labels.ms=10"))
	other := list(at(135, "paris", "x", "labels.user=b"))
	cases := map[string]struct {
		options string
		lines   []script
	}{
		"any":                {"filter: 'severity:error'", burst},
		"frequency":          {"num_events: 20, timeframe: 1m", burst},
		"spike":              {"timeframe: 1m, spike_height: '3', spike_type: up", burst},
		"spike_aggregation":  {"metric_agg_key: labels.ms, metric_agg_type: avg, timeframe: 1m, spike_height: '3', spike_type: up", burst},
		"flatline":           {"threshold: 1, timeframe: 1m", nil},
		"blacklist":          {"compare_key: labels.user, blacklist: [b]", other},
		"whitelist":          {"compare_key: labels.user, whitelist: [a]", other},
		"change":             {"compare_key: labels.user", other},
		"new_term":           {"fields: [labels.user]", other},
		"cardinality":        {"cardinality_field: labels.user, max_cardinality: 1, timeframe: 1m", other},
		"metric_aggregation": {"metric_agg_key: labels.ms, metric_agg_type: percentiles, percentile_range: 90, max_threshold: '50', timeframe: 1m", burst},
		"percentage_match":   {"match_bucket_filter: 'severity:error', max_percentage: '10', timeframe: 1m", burst},
	}
	for name := range kinds {
		t.Run(name, func(t *testing.T) {
			c, ok := cases[name]
			if !ok {
				t.Fatal("no lines for this type")
			}
			w := newWorld(t, "paris")
			w.use("acme", fmt.Sprintf("{type: %s, %s, realert: 1m, keep_firing_for: 0s}", name, c.options))
			r := w.runner()
			lines, gap := all(before, c.lines, after), 0
			if name == "flatline" { // nothing comes for a while
				lines, gap = all(before, every(10, 240, 1500, at(0, "paris", "x"))), 60
			}
			play(w, r, lines, 165+gap)
			w.expect("firing", w.sink.firing(), "R{site=paris}")
			next := w.runner(func(o *Options) { o.LeaseTTL = time.Millisecond })
			for _, l := range lines {
				if l.at > 165+gap {
					w.now = t0.Add(time.Duration(l.at) * time.Second)
					w.log(l.site, l.message, float64(l.at), l.fields...)
					round1(next)
				}
			}
			w.expect("firing afterwards", w.sink.firing())
		})
	}
}
