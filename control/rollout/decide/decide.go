// Package decide is the pure part of rollouts: what happens next, from what is wanted,
// what is known of the sites, what was decided before, and the time. It does no I/O, reads
// no clock and starts no goroutines; control/rollout gathers the readings, writes the
// state down, and only then lets it happen.
//
// # The gate on peers
//
// Of each measure, D is by how much a site's mean over the last minutes is above what the
// site had before the wave began (a median of ten minutes; of a site that was red, from the
// second wave on, what it had then), less the median D of the peers
// in its region, where there are five, else of all: difference in differences, aligned (Hodges and Lehmann, Rank Methods for
// Combination of Independent Experiments in Analysis of Variance, 1962), so that neither
// the time of day nor a region's bad uplinks count. Of scores the median D counts only as far
// as the site can follow it, between 0 and 100: peers that recover make nobody worse who was
// well all along. A site has fallen if D is at or below
// the limit. Three tests against the peers, one-sided, any of which fails the gate:
//
//   - the shift: the median of all differences between a changed site's D and a peer's
//     (Hodges and Lehmann 1963) is at or below the limit, and Mann's and Whitney's U (1947,
//     normal, with corrections for ties and continuity) is beyond chance;
//   - the share: more changed sites than peers have fallen, by Fisher's exact test, among
//     all or among the sites with one value of a label that waves are spread by, times the
//     number of such values. That sees what is bad on one hardware only, which a median
//     does not;
//   - time: the share of those that have been fallen for as long as a soak; and all of the
//     changed sites, however few, where next to no peer was. Sites that were red before and
//     have not fallen speak neither for nor against that, as long as most have fallen.
//
// Sites of a count or percentage are chosen by hash, so that Fisher's test is exact as a
// test of the choice, whatever the trouble of sites has in common. Where waves are whole
// regions, each region counts as one, by its median.
//
// The first two are looked at once a minute, and have to be true for 45 s. Look k may use
// alpha/(k(k+1)) of alpha = 1 %, divided among the tests: the sum over any number of looks
// is alpha (Lan and DeMets 1983, with the union bound), so that looking often stops no
// good change. What is at the limit and may be chance, or is unlikely at 2 % at one look,
// holds, and the soak begins anew. Of one site against n peers chance explains a fall in 1
// of n+1 cases: no single look can tell, and the soak stands in for sites.
package decide

import (
	"math"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

// Site is what is known of a site now.
type Site struct {
	Name   string
	Labels map[string]string
	// VirtualSites that it belongs to, as NAMESPACE/NAME.
	VirtualSites []string
	// Online: it is connected, or its pushes are acknowledged.
	Online bool
	// Maintenance: planned or begun by hand.
	Maintenance bool
	// Busy says which other rollout is changing it, as in "being changed by rollout x"; "": none.
	// It does not begin meanwhile. Its wave waits for it, but with Later, where it is caught up.
	Busy  string
	Later bool
	// Zone is its time zone; nil: UTC.
	Zone *time.Location
	// State of the content that it shall have, whichever that is.
	State Applied
	// Why, if State is Failed.
	Why string
	// Measures that gates compare, by name: the dimensions of v1alpha1.HealthDimension
	// (points), and for a gate with a query the gate's name (the query's unit). What is
	// unknown is not in it; nor is what is older than a minute, or than Pace allows.
	Measures map[string]float64
	// Pace of a site that is scraped once a minute or less often (fleet.Slow); else 0. What it shows comes
	// later, and looks back further.
	Pace time.Duration
	// Red: its colour.
	Red bool
	// Alerts that fire, by severity and name, such as "critical/DiskFull", sorted; those
	// that are silenced are none.
	Alerts []string
	// AlertsKnown is false while nobody can say what fires: then an empty list means
	// nothing, and a gate on alerts is unknown.
	AlertsKnown bool
}

// Paces are those of sites that have one, by name.
func Paces(lists ...[]Site) map[string]time.Duration {
	var out map[string]time.Duration
	for _, list := range lists {
		for i := range list {
			if list[i].Pace == 0 {
				continue
			}
			if out == nil {
				out = map[string]time.Duration{}
			}
			out[list[i].Name] = list[i].Pace
		}
	}
	return out
}

// measure is what a site's measure is, if it is known and can be compared.
func (s *Site) measure(name string) (float64, bool) {
	v, ok := s.Measures[name]
	return v, ok && comparable(v)
}

// comparable: means and differences of such values are numbers, also in half the precision.
func comparable(v float64) bool { return math.Abs(v) <= 1e30 }

// Applied is what a site says of what it shall have.
type Applied byte

// What a site says.
const (
	NotYet      Applied = iota // it has not said, or has not got it
	Progressing                // has it, not ready
	Ready
	Failed // could not apply it, or went back
	// Waits: it has it and begins later, in a window of its own or when its operator has it
	// begin. Nobody waits for it, as for a site that is offline: it counts neither as ready
	// nor as failed, and is caught up once it has begun.
	Waits
	// Restarting: progressing, and may go offline on the way, as a site that boots another
	// system does.
	Restarting
)

// Outside is the reading of a gate that is not about single sites' measures: its logs,
// its webhook, or a query with one value. One that is missing is unknown.
type Outside struct {
	Verdict v1alpha1.GateVerdict
	Text    string // with figures
	Value   string
}

// Input is all that a decision depends on.
type Input struct {
	Name string
	Spec *v1alpha1.RolloutSpec
	// State as it was last written; nil Decided: nothing was decided yet.
	State *v1alpha1.RolloutStateSpec
	// Parsed is State, for who has read it already; nil: it is read. Deciding uses it up.
	Parsed *Parsed
	// Sites that hold the objects, or will, sorted by name: also those outside of the
	// rollout's virtual sites.
	Sites []Site
	// InScope tells whether the rollout's virtual sites select the site.
	InScope func(*Site) bool
	// Member tells whether a site is in a virtual site that the spec names, by the name
	// that stands there.
	Member func(virtualSite string, s *Site) bool
	// Outside readings by the gate's name.
	Outside map[string]Outside
	// Before are means of the sites' measures over the minutes before now, from the
	// history of scores, by site: of sites that have not got the change, where Memory is
	// too young to know them. May be nil: then the readings of the moment are taken.
	Before map[string]map[string]float64
	// Reach is how far back what a gate's own query gives looks, by the gate's name. Of one
	// that is not in it, as of scores and alerts, Spec.Settle says it.
	Reach map[string]time.Duration
	// SupersededBy is the rollout that took over from this one; "": none.
	SupersededBy string
	// Queued: another rollout is before this one, as this says; "": none.
	Queued string
	// Memory that the last decision returned, in this process; nil: it has just started.
	Memory *Memory
	// User who changed spec.control last, for the decisions' By; "": unknown.
	User string
	Now  time.Time
}

// Output is what was decided.
type Output struct {
	// State to be written before anything else, if Changed.
	State   *v1alpha1.RolloutStateSpec
	Changed bool
	Status  v1alpha1.RolloutStatus
	// Decisions of this step, which are also the last of Status.Decisions.
	Decisions []v1alpha1.RolloutDecision
	// Again is when to decide the next time at the latest, though nothing changes.
	Again  time.Time
	Memory *Memory
}

// Decide says what happens next: at most one step of a rollout's phases and waves, and all
// steps of its sites that are due.
//
// It is called again and again, with the state as it was last written. Whatever is to
// happen stands in the state that it returns; so if the process dies before that is
// written nothing has happened, and the next call decides anew; and if it dies after, the
// next call finds it done. What is lost with Memory is looked at again, for as long as it
// takes.
func Decide(in Input) Output {
	r := &run{in: &in, mem: in.Memory, again: in.Now.Add(lookEvery), unit: in.Now.Unix()}
	if r.mem == nil {
		r.mem = newMemory()
	}
	r.mem.init()
	if err := r.load(); err != nil {
		return r.unreadable(err)
	}
	if !r.d.Phase.Ended() {
		r.mem.look(in.Sites, in.Now)
		r.step()
	}
	return r.output()
}
