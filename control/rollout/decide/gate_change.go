package decide

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// measure is what a gate on changes compares.
type measure struct {
	name  string
	col   int
	limit float64 // how much worse is allowed
	sign  float64 // -1: more is worse
	asked bool    // by name: that it is unknown counts
}

func (j *judge) measures(gate string, ch *v1alpha1.GateChange) []measure {
	if ch.Query != "" {
		return []measure{{gate, j.column[gate], ch.MaxRise.AsApproximateFloat64(), -1, true}}
	}
	limit := float64(cmp.Or(ch.MaxDrop, 10))
	var out []measure
	if len(ch.Dimensions) == 0 {
		for _, d := range dimensions {
			out = append(out, measure{d, j.column[d], limit, 1, false})
		}
	}
	for _, d := range ch.Dimensions {
		out = append(out, measure{string(d), j.column[string(d)], limit, 1, true})
	}
	return out
}

// moved is how far a site's measure has moved; less is worse.
type moved struct {
	s       *subject
	by      float64
	from    float64 // the score that it had before; NaN of what has no bounds
	against float64 // by, less what the site's peers in its region moved
}

// highest is the highest score, 0 the lowest.
const highest = 100

// could is how far a site can have moved by itself where its peers moved so far: who had 100
// before can't rise with those that recover, nor fall below 0 with the others.
func (m *moved) could(peers float64) float64 {
	if math.IsNaN(m.from) {
		return peers
	}
	return min(max(peers, -m.from), highest-m.from)
}

// delta returns how far sites have moved from what they were before. Missing are those
// that are online and should have a reading. One that went offline after it had fallen has
// still fallen: what keeps such in memory is fell.
func (j *judge) delta(list []subject, m measure, real bool, fell map[string]fall) (out []moved, missing, without int) {
	out = make([]moved, 0, len(list))
	for i := range list {
		s := &list[i]
		if s.failed {
			continue // the budget's, or the gate's on what is ready
		}
		before := s.before[m.col]
		if real {
			before = s.real[m.col]
		}
		now, ok := 0.0, true
		if s.s.Online {
			now, ok = j.mem.mean(s.s, m.name, j.readFrom(s, m.name), j.now)
		} else if m.name != connectivity {
			if f, ok := fell[s.s.Name]; ok {
				out = append(out, moved{s, f.by, math.NaN(), f.by})
			}
			continue
		}
		switch {
		case math.IsNaN(before):
			if ok && s.s.Online {
				without++
			}
		case !ok && s.updating: // it is about to say
		case !ok:
			missing++
		default:
			by, from := m.sign*(now-before), before
			if m.sign < 0 {
				from = math.NaN()
			}
			out = append(out, moved{s, by, from, by})
		}
	}
	return out, missing, without
}

// down counts the sites whose score was red before and has not fallen: that they withstood says
// nothing, as what the change would cost them may have been lost already.
func down(d []moved, limit float64) (n int) {
	for i := range d {
		if d[i].from < fleet.RedBelow && d[i].against > -limit {
			n++
		}
	}
	return n
}

// finding is what a gate on changes found of one measure.
type finding struct {
	m         measure
	verdict   v1alpha1.GateVerdict
	drop      float64 // how much worse, by the estimate
	fell      int     // sites that fell by more than is allowed
	sites, of int
	text      string
	worst     []string
	badness   float64 // to choose the one that is shown
}

// change reads a gate on changes: against peers, or each site with itself.
func (j *judge) change(gate string, ch *v1alpha1.GateChange, peers bool) v1alpha1.GateReading {
	list := j.measures(gate, ch)
	var found []finding
	for _, m := range list {
		what := gate + "/" + m.name
		d, missing, without := j.delta(j.changed, m, !peers, j.mem.fell[what])
		if !m.asked && len(d)+missing <= without {
			continue // not known of half of them before: nothing to compare
		}
		f := finding{m: m, sites: len(d), of: len(d) + missing + without}
		if len(d) == 0 || 100*len(d) < leastKnown*(len(d)+missing) {
			f.verdict, f.badness = v1alpha1.GateUnknown, math.Inf(1)
			f.text = fmt.Sprintf("%s is known, now and before, of %d of %s.", subjectOf(gate, m), len(d), sites(f.of))
			found = append(found, f)
			continue
		}
		var others []moved
		if peers {
			others, _, _ = j.delta(j.peers, m, false, j.mem.fell[what+" "])
		}
		if len(others) > 0 {
			j.againstPeers(gate, &f, d, others, len(list))
		} else {
			j.againstBefore(gate, &f, d, len(list), peers)
		}
		found = append(found, f)
	}
	if len(found) == 0 {
		return v1alpha1.GateReading{Verdict: v1alpha1.GateUnknown, Text: "No dimension is known of the sites both now and before they changed.", OfSites: int32(len(j.changed))}
	}
	worst := slices.MaxFunc(found, func(a, b finding) int {
		return cmp.Or(cmp.Compare(rank[a.verdict], rank[b.verdict]), cmp.Compare(a.badness, b.badness))
	})
	return v1alpha1.GateReading{
		Verdict: worst.verdict, Text: worst.text, Value: figure(worst.drop), Limit: figure(worst.m.limit),
		Sites: int32(worst.sites), OfSites: int32(worst.of), Worst: worst.worst,
	}
}

func subjectOf(gate string, m measure) string {
	if m.sign < 0 {
		return "The value of " + gate
	}
	return title(m.name)
}

// againstBefore compares each site with itself. Nothing says what would have happened
// without the change, so time stands in for it.
func (j *judge) againstBefore(gate string, f *finding, d []moved, tests int, alone bool) {
	by := func(d []moved) (fell int, drop float64) {
		all := make([]float64, len(d))
		for i := range d {
			all[i] = d[i].by
			if d[i].by <= -f.m.limit {
				fell++
			}
		}
		slices.Sort(all)
		return fell, -centre(all)
	}
	f.fell, f.drop = by(d)
	f.badness = f.drop / f.m.limit
	f.worst = fallen(d, f.m.limit)
	doubt := j.doubted(d, f.m)
	f.sites -= len(doubt.sites)
	fell, drop := by(doubt.without(d))
	what := gate + "/" + f.m.name
	wait := j.patience()
	if alone {
		wait = j.persistent()
	}
	low := drop >= f.m.limit
	many := fell > 1 && unusual(fell, len(d)) <= spend(j.look(), tests)
	lowFor, manyFor := j.mem.holds(what+"/low", j.now, low), j.mem.holds(what+"/many", j.now, many)
	switch {
	case lowFor >= wait || manyFor >= confirm:
		f.verdict = v1alpha1.GateFail
	case low || f.drop >= f.m.limit || f.fell > 0 && unusual(f.fell, len(d)) <= alphaHold:
		f.verdict = v1alpha1.GateWait
	default:
		f.verdict = v1alpha1.GatePass
	}
	f.text = f.words(gate, d, nil, "")
	if alone {
		f.text += " There are no sites to compare with, so that they are compared with themselves before."
	}
	f.text += doubt.words(len(d))
}

// odds are what one look at the changed sites and their peers says.
type odds struct {
	drop  float64 // by how much they moved for the worse
	sure  bool    // that is beyond chance
	every bool    // all of them fell, and no peer
	holds bool    // it may be chance, or not
	where string  // among whom it is the least chance
}

// odds takes one look at sites that are aligned, which is one of so many tests.
func (j *judge) odds(d, others []moved, limit float64, clustered bool, tests int) odds {
	a, b := values(d), values(others)
	if clustered {
		a, b = j.byRegion(d), j.byRegion(others)
	}
	o := odds{drop: -shift(a, b)}
	x, y := below(a, limit), below(b, limit)
	pShift, pShare := lower(a, b), more(x, len(a), y, len(b))
	pHold := pShare
	if !clustered {
		p, n, at := j.kinds(d, others, func(m moved) bool { return m.against <= -limit })
		pHold = min(pHold, p) // that it may be one of many holds nothing up
		if p *= float64(n); p < pShare {
			pShare, o.where = p, at
		}
	}
	level := spend(j.look(), tests)
	low := o.drop >= limit
	o.sure = low && pShift <= level || pShare <= level && (x > 1 || len(a) == 1)
	o.every = len(fallen(d, limit)) == len(d) && x > 0 && y == 0
	o.holds = low || o.every || x > 0 && pHold <= alphaHold
	return o
}

// againstPeers compares how the changed sites moved with how the others did over the same
// time. Three things fail it, each beyond what chance explains; see the package comment.
func (j *judge) againstPeers(gate string, f *finding, d, others []moved, measures int) {
	limit, what := f.m.limit, gate+"/"+f.m.name
	clustered := j.align(d, others)
	f.worst = fallen(d, limit)
	f.fell = len(f.worst)
	j.low = append(j.low, f.worst...)
	all := j.odds(d, others, limit, clustered, 3*measures)
	f.drop = all.drop
	f.badness = f.drop / limit
	doubt, known := j.doubted(d, f.m), all
	f.sites -= len(doubt.sites)
	certain := doubt.without(d)
	if len(doubt.sites) > 0 {
		known = j.odds(certain, others, limit, clustered, 3*measures)
	}
	long, longOthers := j.lasting(what, certain, limit), j.lasting(what+" ", others, limit)
	pLong, always, where := 1.0, false, all.where
	if !clustered {
		pLong = more(long, len(d), longOthers, len(others))
		// All of few sites, and next to none of the others, for as long as a soak: time
		// stands in for sites.
		always = long > len(d)/2 && long == len(d)-down(certain, limit) && (longOthers == 0 || pLong <= alphaHold)
		always = always || j.apart && long > 0 && (longOthers == 0 || more(1, 1, longOthers, len(others)) <= alphaHold)
		p, n, at := j.kinds(certain, others, func(m moved) bool { return j.lasts(what, m, limit) || j.lasts(what+" ", m, limit) })
		if p *= float64(n); p < pLong && long > 0 {
			pLong, where = p, cmp.Or(where, at)
		}
	}
	sureFor, everyFor := j.mem.holds(what+"/sure", j.now, known.sure), j.mem.holds(what+"/every", j.now, known.every)
	// Whole regions that are offline and have nobody to compare with: the gate on contact says what that is.
	seen := f.m.name != connectivity || slices.ContainsFunc(certain, func(m moved) bool { return m.against <= -limit && m.s.s.Online })
	switch {
	case sureFor >= confirm, always, clustered && seen && everyFor >= j.persistent(), long > 0 && f.fell > 1 && pLong <= alpha/4/float64(measures):
		f.verdict = v1alpha1.GateFail
	case all.holds || known.holds:
		f.verdict = v1alpha1.GateWait
	default:
		f.verdict = v1alpha1.GatePass
	}
	f.text = f.words(gate, d, others, where)
	if clustered {
		f.text += " The changed sites have their regions to themselves, so that each region counts as one."
	}
	switch {
	case f.verdict == v1alpha1.GateWait && !known.holds:
		f.text += doubt.words(len(d))
	case f.verdict == v1alpha1.GateWait:
		f.text += " That may be chance yet, and holds."
	}
	j.remember(what, certain, limit)
	j.remember(what+" ", others, limit)
}

// remember notes which sites have fallen, since when.
func (j *judge) remember(what string, d []moved, limit float64) {
	fell := j.mem.fell[what]
	if fell == nil {
		fell = map[string]fall{}
		j.mem.fell[what] = fell
	}
	for i := range d {
		name := d[i].s.s.Name
		if d[i].against > -limit {
			delete(fell, name)
		} else if f, ok := fell[name]; ok {
			fell[name] = fall{j.mem.tick(f.clock, j.now), d[i].by}
		} else {
			fell[name] = fall{clock{at: j.now, look: j.mem.looks}, d[i].by}
		}
	}
}

// lasts: it has fallen, and has been seen fallen for as long as a soak.
func (j *judge) lasts(what string, m moved, limit float64) bool {
	f, ok := j.mem.fell[what][m.s.s.Name]
	return ok && m.against <= -limit && j.mem.ran(f.clock, j.now) >= j.persistent()
}

func (j *judge) lasting(what string, d []moved, limit float64) int {
	if len(j.mem.fell[what]) == 0 {
		return 0
	}
	n := 0
	for i := range d {
		if j.lasts(what, d[i], limit) {
			n++
		}
	}
	return n
}

const (
	// regionPeers is how many peers a region needs to say how its sites move.
	regionPeers = 5
	// apart is the part of the changed sites, in percent, that may be in regions without
	// peers until regions are what counts.
	apart = 20
)

func (j *judge) region(m *moved) string {
	if len(j.spread) == 0 {
		return ""
	}
	return m.s.s.Labels[j.spread[0]]
}

// align takes from each move the median of the peers in its region (of all peers, where
// there are few), so that a time of day or an outage that regions have to themselves moves
// nobody; after Hodges' and Lehmann's aligned ranks, 1962. Scores have bounds, so that a site
// is not expected beyond them. It tells whether the changed
// sites have their regions to themselves.
func (j *judge) align(d, others []moved) (clustered bool) {
	all := make([]float64, len(others))
	per := map[string][]float64{}
	for i := range others {
		all[i] = others[i].by
		r := j.region(&others[i])
		per[r] = append(per[r], others[i].by)
	}
	middle := median(all)
	centres := make(map[string]float64, len(per))
	for r, v := range per {
		if centres[r] = middle; len(v) >= regionPeers {
			centres[r] = median(v)
		}
	}
	alone := 0
	own := map[string]bool{}
	for i := range d {
		r := j.region(&d[i])
		own[r] = true
		if len(per[r]) == 0 {
			alone++
		}
		c, ok := centres[r]
		if !ok {
			c = middle
		}
		d[i].against = d[i].by - d[i].could(c)
	}
	for i := range others {
		others[i].against = others[i].by - others[i].could(centres[j.region(&others[i])])
	}
	return 100*alone > apart*len(d) && len(d) > 1 && len(own)+len(per) > 2
}

// byRegion is the median of each region's sites: where whole regions change, they are what
// may have trouble of its own.
func (j *judge) byRegion(d []moved) []float64 {
	per := map[string][]float64{}
	for i := range d {
		r := j.region(&d[i])
		per[r] = append(per[r], d[i].against)
	}
	out := make([]float64, 0, len(per))
	for _, v := range per {
		out = append(out, median(v))
	}
	slices.Sort(out)
	return out
}

// kinds looks for trouble that only sites of one kind have: the least chance of that many
// sites among those with one value of a label, and how many values there are: it is the
// least of so many.
func (j *judge) kinds(d, others []moved, is func(moved) bool) (p float64, values int, where string) {
	p = 1
	for _, label := range j.spread {
		type four struct{ x, m, y, n int }
		per := map[string]*four{}
		for i := range d {
			v := d[i].s.s.Labels[label]
			k := per[v]
			if k == nil {
				k = &four{}
				per[v] = k
			}
			k.m++
			if is(d[i]) {
				k.x++
			}
		}
		if len(per) == 1 {
			continue
		}
		for i := range others {
			if k := per[others[i].s.s.Labels[label]]; k != nil {
				k.n++
				if is(others[i]) {
					k.y++
				}
			}
		}
		values += len(per)
		for v, k := range per {
			if k.x < 2 || k.n < regionPeers {
				continue
			}
			if q := more(k.x, k.m, k.y, k.n); q < p || q == p && label+"="+v < where {
				p, where = q, label+"="+v
			}
		}
	}
	return p, max(1, values), where
}

func values(d []moved) []float64 {
	out := make([]float64, len(d))
	for i := range d {
		out[i] = d[i].against
	}
	slices.Sort(out)
	return out
}

func below(v []float64, limit float64) int {
	n, _ := slices.BinarySearchFunc(v, -limit, func(x, t float64) int {
		if x <= t {
			return -1
		}
		return 1
	})
	return n
}

// fallen are the sites that fell by more than is allowed, the worst first.
func fallen(d []moved, limit float64) []string {
	var at []*moved
	for i := range d {
		if d[i].against <= -limit {
			at = append(at, &d[i])
		}
	}
	slices.SortStableFunc(at, func(a, b *moved) int { return cmp.Compare(a.against, b.against) })
	out := make([]string, len(at))
	for i, m := range at {
		out[i] = m.s.s.Name
	}
	return out
}

// words say what a measure did: at those that fell by too much, if some did, else at all.
func (f *finding) words(gate string, d, others []moved, where string) string {
	pick := make([]float64, 0, len(d))
	for i := range d {
		if f.fell == 0 || d[i].against <= -f.m.limit {
			pick = append(pick, d[i].by)
		}
	}
	by := median(pick)
	verb := "fell"
	if f.m.sign < 0 {
		verb = "rose"
	}
	unit := "points"
	if f.m.sign < 0 {
		unit = ""
	}
	amount := func(v float64) string { return figure(-v) }
	text := subjectOf(gate, f.m) + " "
	switch {
	case f.fell == 0 && math.Abs(by) < 0.05:
		text += fmt.Sprintf("did not change at %s with the change", sites(len(d)))
	case f.fell == 0 && by > 0:
		text += fmt.Sprintf("is better by %s%s at %s with the change", figure(by), space(unit), sites(len(d)))
	case f.fell == 0:
		text += fmt.Sprintf("%s by %s%s at %s with the change", verb, amount(by), space(unit), sites(len(d)))
	default:
		text += fmt.Sprintf("%s by %s%s at %d of %d changed sites", verb, amount(by), space(unit), f.fell, len(d))
		if where != "" {
			text += " (those with " + where + ")"
		}
	}
	if len(others) > 0 {
		o := make([]float64, len(others))
		fell := 0
		for i := range others {
			o[i] = others[i].by
			if others[i].against <= -f.m.limit {
				fell++
			}
		}
		text += fmt.Sprintf(", %s at %d that did not change", figure(-median(o)), len(others))
		if f.fell > 0 && fell > 0 {
			text += fmt.Sprintf(" (%d of them fell as far)", fell)
		}
	}
	return text + fmt.Sprintf("; %s are allowed.", figure(f.m.limit))
}

func space(unit string) string {
	if unit == "" {
		return ""
	}
	return " " + unit
}
