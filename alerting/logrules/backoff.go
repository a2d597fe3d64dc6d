package logrules

import "maps"

// backoff is how far the realert of an alert has grown.
type backoff struct {
	Until int64 `json:"u"` // the last realert
	Times int   `json:"n"` // it doubled
}

// maxDoubled is how often a second doubles before it is logrule.MaxRealert.
const maxDoubled = 22

// wait is the realert of an alert that is raised at seen, by ElastAlert's rule: it doubles if the last one
// ran out less than itself ago, and else is halved for each time that it fits into the quiet since.
func (o *outbox) wait(key string, seen int64) int64 {
	p := o.p
	if p.longest == 0 || p.realert == 0 {
		return p.realert
	}
	b, again := o.st.Backoff[key]
	quiet := seen - b.Until
	switch {
	case !again:
	case quiet < p.realert<<b.Times:
		if p.realert<<b.Times < p.longest {
			b.Times++
		}
	default:
		for ; b.Times > 0 && quiet >= p.realert<<b.Times; b.Times-- {
			quiet -= p.realert << b.Times
		}
	}
	wait := min(p.realert<<b.Times, p.longest)
	b.Until = seen + wait
	o.st.Backoff[key] = b
	return wait
}

// calm forgets alerts that have been quiet for so long that their realert is what it was at first.
func (o *outbox) calm(to int64) {
	n := len(o.st.Backoff)
	maps.DeleteFunc(o.st.Backoff, func(_ string, b backoff) bool { return to-b.Until >= o.p.realert<<(b.Times+1) })
	o.changed = o.changed || n != len(o.st.Backoff)
}
