package logrules

import (
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"
)

// A site that logs what never was before takes nothing from another one.
func TestFloodingSite(t *testing.T) {
	for _, rule := range []string{
		"{type: any, query_key: [pod], realert: 1h}",
		"{type: any, query_key: [pod], realert: 1h, aggregation: 1m}",
		"{type: frequency, num_events: 3, timeframe: 10m, query_key: [pod], realert: 1h}",
		"{type: new_term, fields: [pod], realert: 0s}",
		"{type: new_term, fields: [pod], query_key: [labels.user], realert: 0s}",
		"{type: cardinality, cardinality_field: pod, min_cardinality: 1, max_cardinality: 3, timeframe: 10m}",
	} {
		t.Run(rule, func(t *testing.T) {
			w := newWorld(t, "paris", "rome", "oslo")
			w.use("acme", rule)
			r := w.runner(func(o *Options) { o.MaxKeys, o.MaxTerms = 30, 60 })
			round1(r)
			say := func(site, pod, user string) {
				w.log(site, "x", w.now.Sub(t0).Seconds(), "pod="+pod, "labels.user="+user)
			}
			for _, site := range []string{"paris", "rome"} {
				say(site, "known", "joe")
			}
			w.run(15*time.Second, r)
			for i := range 10 {
				for j := range 20 {
					say("paris", fmt.Sprintf("p%d-%d", i, j), "joe")
					say("paris", fmt.Sprintf("p%d-%d", i, j), fmt.Sprintf("u%d-%d", i, j))
				}
				w.run(15*time.Second, r)
			}
			var u *unit
			for _, u = range r.units {
			}
			if u.st.Cut == 0 {
				t.Error("the flood was no flood")
			}
			for i := range 4 { // within its share
				for range 3 {
					say("rome", fmt.Sprintf("new%d", i), "joe")
				}
			}
			from := w.now.Sub(t0).Seconds()
			w.run(2*time.Minute, r)
			if !slices.ContainsFunc(w.sink.sends, func(s sent) bool {
				return s.Labels["site"] == "rome" && s.StartsAt.Sub(t0).Seconds() >= from
			}) {
				t.Errorf("nothing of rome was raised: %v", w.sink.raised())
			}
			terms := 0
			for _, win := range u.st.Keys {
				terms += len(win.Terms)
			}
			if len(u.st.Keys) >= 60 || len(u.st.Active) >= 60 || len(u.st.Collecting) >= 60 || terms >= 120 {
				t.Errorf("%d windows, %d alerts, %d collecting, %d terms", len(u.st.Keys), len(u.st.Active), len(u.st.Collecting), terms)
			}
		})
	}
}

func TestQuota(t *testing.T) {
	q := newQuota(100, 4, 1)
	took := func(site string, tries int) (n int) {
		for range tries {
			if q.take(site) {
				n++
			}
		}
		return n
	}
	if n := took("loud", 1000); n != 100 {
		t.Errorf("alone, a site got %d of 100", n)
	}
	for _, site := range []string{"a", "b", "c"} {
		if n := took(site, 1000); n != 25 {
			t.Errorf("%s got %d, its share is 25", site, n)
		}
	}
	q.give("loud", 90)
	if n := took("loud", 1000); n != 15 { // its share
		t.Errorf("got %d, its share is 15 more", n)
	}
	if q := newQuota(3, 1000, 1); !q.take("a") || !q.take("b") || !q.take("c") || !q.take("d") || q.take("d") {
		t.Error("a site's share is one at least")
	}
}

// A state that is too big loses windows of who has the most, however old others' are.
func TestShrinkIsFair(t *testing.T) {
	s := newState()
	s.init()
	s.Keys["rome"] = &window{Last: 1, Buckets: []bucket{{T: 1, N: 1}}}
	s.Keys["oslo\x00pod"] = &window{Last: 2, Terms: map[string]int64{"x": 1}}
	for i := range 60_000 {
		s.Keys["paris\x00"+termHash(fmt.Sprint("k", i))] = &window{Last: t0.UnixMilli() + int64(i), Terms: map[string]int64{termHash(fmt.Sprint(i)): int64(i * 7919)}}
	}
	loud := &window{Last: t0.UnixMilli(), Terms: map[string]int64{}} // one window, as big as many
	for i := range 60_000 {
		loud.Terms[termHash(fmt.Sprint("t", i))] = int64(i * 7919)
	}
	s.Keys["loud"] = loud
	if _, err := s.encode(); err != nil {
		t.Fatal(err)
	}
	if s.Keys["rome"] == nil || s.Keys["oslo\x00pod"] == nil {
		t.Error("the windows of quiet sites went")
	}
	if s.Cut == 0 || len(s.Keys) < 1000 {
		t.Errorf("%d windows went, %d are left", s.Cut, len(s.Keys))
	}

	s = newState()
	s.init()
	for i := range 999 {
		s.Keys[fmt.Sprintf("%s\x00%03d", []string{"paris", "rome"}[i%2], i)] = &window{Last: int64(i)}
	}
	s.shrinkWindows()
	left := map[string]int{}
	for k := range s.Keys {
		left[siteOf(k)]++
	}
	if left["paris"] < 230 || left["rome"] < 230 {
		t.Errorf("of two loud sites these windows are left: %v", left)
	}

	s = newState()
	s.init()
	for i := range 1000 {
		s.Keys[fmt.Sprintf("site-%03d", i)] = &window{Last: int64(i)}
	}
	s.shrinkWindows()
	if len(s.Keys) != 500 || s.Keys["site-499"] != nil || s.Keys["site-500"] == nil {
		t.Errorf("%d windows of equal sites are left", len(s.Keys))
	}
	for n := len(s.Keys); n > 0; n = len(s.Keys) {
		if s.shrinkWindows(); len(s.Keys) >= n {
			t.Fatalf("%d of %d windows are left", len(s.Keys), n)
		}
	}
}

// What a state loses when it is written counts too.
// Alerts of one site that are too much for the document go before those of others.
func TestAlertsThatAreTooMuch(t *testing.T) {
	s := newState()
	s.init()
	add := func(site string, i int) {
		s.Active[site+"\x00"+fmt.Sprint(i)] = &active{Site: site, StartsAt: int64(i), Labels: map[string]string{"site": site}, Annotations: map[string]string{"summary": rand.Text() + rand.Text() + rand.Text() + rand.Text() + rand.Text()}}
	}
	for i := range 12_000 {
		add("loud", i)
	}
	for i := range 5 {
		add("quiet", 20_000+i)
	}
	if _, err := s.encode(); err != nil {
		t.Fatal(err)
	}
	left := map[string]int{}
	for _, a := range s.Active {
		left[a.Site]++
	}
	if left["quiet"] != 5 || left["loud"] < 2000 || s.Cut != int64(12_000-left["loud"]) || s.Active["loud\x000"] == nil {
		t.Errorf("left %v, cut %d", left, s.Cut)
	}
}

func TestShrinkIsCounted(t *testing.T) {
	w := newWorld(t, "paris")
	w.use("acme", "{type: frequency, num_events: 3, timeframe: 1m}")
	reg, with := measured("one")
	r := w.runner(with)
	round1(r)
	for _, u := range r.units {
		for i := range 100_000 {
			u.st.Keys["paris\x00"+termHash(fmt.Sprint(i))] = &window{Last: int64(i * 7919)}
		}
		u.dirty = true
	}
	w.run(15*time.Second, r)
	if gauges(t, reg)["cut_total"] == 0 {
		t.Error("the metric says nothing")
	}
}
