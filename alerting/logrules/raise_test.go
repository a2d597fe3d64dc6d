package logrules

import (
	"testing"
	"time"
)

// An alert that ended and fires again by the next send fires: its end is told first.
func TestEndedAndFiringAtOnce(t *testing.T) {
	w := newWorld(t, "rome")
	w.use("acme", "{type: flatline, threshold: 1, timeframe: 1m}")
	r := w.runner()
	round1(r)
	w.run(2*time.Minute, r)
	w.expect("before", w.sink.firing(), "R{site=rome}")
	w.sink.fail = func() (error, error) { return errInjected, nil }
	w.log("rome", "x", 121)
	w.run(3*time.Minute, r)
	before := len(w.sink.sends)
	w.sink.fail = nil
	w.run(15*time.Second, r)
	w.expect("the last word on it", w.sink.firing(), "R{site=rome}")
	w.expect("raised", w.sink.raised(), "R{site=rome}@60", "R{site=rome}@183")
	if n := len(w.sink.sends) - before; n != 2 {
		t.Errorf("%d alerts sent at once, want one end and one start", n)
	}
}

// A threshold that is passed for hours is one alert, however far apart it is judged.
func TestThresholdLasts(t *testing.T) {
	for _, c := range []struct {
		rule string
		hold time.Duration
	}{
		{"{type: percentage_match, match_bucket_filter: 'severity:error', max_percentage: '10', timeframe: 1h}", 7 * time.Minute},
		{"{type: percentage_match, match_bucket_filter: 'severity:error', max_percentage: '10', timeframe: 1h, realert: 4m}", 10 * time.Minute},
		{"{type: percentage_match, match_bucket_filter: 'severity:error', max_percentage: '10', timeframe: 1h, realert: 0s, query_delay: 10m}", 4 * time.Minute},
		{"{type: percentage_match, match_bucket_filter: 'severity:error', max_percentage: '10', timeframe: 1h, aggregation: 10m}", 17 * time.Minute},
		{"{type: metric_aggregation, metric_agg_key: labels.ms, metric_agg_type: avg, max_threshold: '10', timeframe: 1h}", 7 * time.Minute},
		{"{type: metric_aggregation, metric_agg_key: labels.user, metric_agg_type: cardinality, max_threshold: '0', timeframe: 1h}", 7 * time.Minute},
	} {
		w := newWorld(t, "paris")
		w.use("acme", c.rule)
		r := w.runner()
		round1(r)
		for ; w.now.Before(t0.Add(2 * time.Hour)); w.run(30*time.Second, r) {
			w.log("paris", "web", w.now.Sub(t0).Seconds(), "severity=error", "labels.ms=20", "labels.user=a")
			if len(w.sink.raised()) > 0 && len(w.sink.firing()) == 0 {
				t.Fatalf("%s: ended after %s while it holds", c.rule, w.now.Sub(t0))
			}
		}
		for ; w.now.Before(t0.Add(2*time.Hour + 55*time.Minute)); w.run(30*time.Second, r) { // the last hour has them still
			if len(w.sink.firing()) == 0 {
				t.Fatalf("%s: ended after %s while it holds", c.rule, w.now.Sub(t0))
			}
		}
		if n := len(w.sink.raised()); n != 1 {
			t.Errorf("%s: raised %v", c.rule, w.sink.raised())
		}
		delay := millis(w.rules[0].Logs[0].Spec.Rules[0].QueryDelay) + millis(w.rules[0].Logs[0].Spec.Rules[0].Aggregation)
		last := t0.Add(3*time.Hour + time.Duration(delay)*time.Millisecond)
		w.run(last.Add(c.hold+DefaultInterval).Sub(w.now), r)
		w.expect(c.rule+": when it is over", w.sink.firing())
		if n := len(w.sink.raised()); n != 1 {
			t.Errorf("%s: raised %v", c.rule, w.sink.raised())
		}
	}
}

// What comes and goes is one alert, and pages once: of every type whose matches are moments.
func TestWhatComesAndGoesIsOneAlert(t *testing.T) {
	type burst struct{ every, line []string } // the line that comes every minute, if any, and that of the burst
	for rule, of := range map[string]burst{
		"type: frequency, num_events: 5, timeframe: 2m": {},
		"type: any": {},
		"type: blacklist, compare_key: labels.user, blacklist: [root]":                                                               {line: []string{"labels.user=root"}},
		"type: whitelist, compare_key: labels.user, whitelist: [joe]":                                                                {line: []string{"labels.user=root"}},
		"type: cardinality, cardinality_field: labels.user, max_cardinality: 0, timeframe: 1m":                                       {line: []string{"labels.user=root"}},
		"type: spike, spike_height: '3', spike_type: up, timeframe: 1m":                                                              {},
		"type: spike_aggregation, metric_agg_key: labels.ms, metric_agg_type: avg, spike_height: '3', spike_type: up, timeframe: 1m": {every: []string{"labels.ms=1"}, line: []string{"labels.ms=100"}},
		"type: change, compare_key: labels.user, query_key: [pod]":                                                                   {every: []string{"pod=p", "labels.user=joe"}, line: []string{"pod=p", "labels.user=root"}},
	} {
		for keep, many := range map[string]bool{"": false, ", keep_firing_for: 0s": true} {
			w := newWorld(t, "paris")
			w.use("acme", "{"+rule+keep+"}")
			r := w.runner()
			round1(r)
			for range 15 { // five lines every four minutes, for an hour
				for range 4 {
					w.run(time.Minute, r)
					if of.every != nil {
						w.log("paris", "x", w.now.Sub(t0).Seconds(), of.every...)
					}
				}
				for range 5 {
					w.log("paris", "x", w.now.Sub(t0).Seconds(), of.line...)
				}
			}
			w.run(2*time.Minute, r)
			raised, firing := w.sink.raised(), w.sink.firing()
			if (len(raised) > 1) != many || !many && len(firing) != 1 {
				t.Errorf("%s%s: raised %v, firing %v", rule, keep, raised, firing)
			}
			w.run(2*time.Hour, r)
			if firing := w.sink.firing(); len(firing) != 0 {
				t.Errorf("%s%s: fires for ever: %v", rule, keep, firing)
			}
		}
	}
}

// What goes on matching is one alert all the time, also where it may be told of again only
// after longer than it is kept: matches within realert keep it firing.
func TestWhatGoesOnIsOneAlert(t *testing.T) {
	for _, rule := range []string{
		"type: any, realert: 1m, keep_firing_for: 1m",
		"type: any, realert: 30m",
		"type: blacklist, compare_key: labels.user, blacklist: [root], realert: 30m",
		"type: whitelist, compare_key: labels.user, whitelist: [joe], realert: 30m",
		"type: frequency, num_events: 2, timeframe: 1m, realert: 30m, keep_firing_for: 2m",
		"type: cardinality, cardinality_field: labels.user, max_cardinality: 0, timeframe: 1m, realert: 30m, keep_firing_for: 2m",
		"type: any, realert: 1m, exponential_realert: 1h, keep_firing_for: 1m",
		"type: any, realert: 30m, aggregation: 1m",
	} {
		w := newWorld(t, "paris")
		w.use("acme", "{"+rule+"}")
		r := w.runner()
		round1(r)
		for w.now.Before(t0.Add(2 * time.Hour)) {
			w.log("paris", "x", w.now.Sub(t0).Seconds(), "labels.user=root")
			w.run(15*time.Second, r)
			if len(w.sink.raised()) > 0 && len(w.sink.firing()) == 0 {
				t.Errorf("%s: ended after %s while it goes on", rule, w.now.Sub(t0))
				break
			}
		}
		if n := len(w.sink.raised()); n != 1 {
			t.Errorf("%s: raised %v", rule, w.sink.raised())
		}
		w.run(35*time.Minute, r)
		w.expect(rule+": when it is over", w.sink.firing())
		if n := len(w.sink.raised()); n != 1 {
			t.Errorf("%s: raised %v", rule, w.sink.raised())
		}
	}
}
