package decide

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// Wave is a wave as planned.
type Wave struct {
	Name string
	// Sites by name, in the order in which they change.
	Sites []string
	// Soak of its own; -1: the plan's.
	Soak     time.Duration
	Approval bool
}

// defaultSpread are the labels by which waves are spread: bad releases like to be bad
// somewhere, on one hardware or one architecture.
var defaultSpread = []string{fleet.LabelRegion, fleet.SystemLabelPrefix + "product", fleet.SystemLabelPrefix + "arch"}

const (
	// covered is how many sites of each kind the first default wave has, if it may: of four
	// of four against none of thirty, chance is out of the question. Of the first label,
	// which says where sites are and not what, it has one.
	covered = 4
	// rare is the least part of the sites that makes one.
	rare = 0.02
	// maxGroups is how many waves a rolling update has at most: with more sites than that
	// its groups are larger than asked for.
	maxGroups = 2000
)

// Plan says which sites are in which wave: of what Decide starts with, and for a dry run.
// The sites are sorted by name; inScope and member are as in Input. The choice depends on
// the rollout's name and the sites alone: the same again gives the same again. The error
// names the field of the spec that is wrong and what to do.
func Plan(name string, spec *v1alpha1.RolloutSpec, sites []Site, inScope func(*Site) bool, member func(virtualSite string, s *Site) bool) ([]Wave, error) {
	p := planner{name: name, spec: spec, member: member}
	for i := range sites {
		if inScope == nil || inScope(&sites[i]) {
			p.left = append(p.left, &sites[i])
		}
	}
	p.all = len(p.left)
	if err := p.check(); err != nil {
		return nil, err
	}
	p.deal()
	switch spec.Strategy.Type {
	case v1alpha1.StrategyRolling:
		size, err := amount("spec.strategy.group", spec.Strategy.Group, "1", p.all)
		if err != nil {
			return nil, err
		}
		size = max(1, size, (p.all+maxGroups-1)/maxGroups)
		order := append(p.pick(size, 0), p.pick(p.all, 0)...)
		for members := range slices.Chunk(order, size) {
			p.wave(v1alpha1.RolloutWave{}, fmt.Sprintf("group %d", len(p.waves)+1), members)
		}
	case v1alpha1.StrategyBlueGreen:
		p.wave(v1alpha1.RolloutWave{}, "blue: "+spec.Strategy.Blue, p.those(func(s *Site) bool { return p.isMember(spec.Strategy.Blue, s) }))
		if len(p.waves) == 0 && p.all > 0 {
			return nil, fmt.Errorf("spec.strategy.blue: %q has no site of the rollout: name a virtual site that has some", spec.Strategy.Blue)
		}
		p.wave(v1alpha1.RolloutWave{}, "green", p.rest())
	default:
		p.canary()
	}
	return p.waves, nil
}

type planner struct {
	name   string
	spec   *v1alpha1.RolloutSpec
	member func(string, *Site) bool
	all    int
	left   []*Site // that are in no wave yet
	cells  []*cell
	values []map[string]*share // by spread label
	waves  []Wave
	begun  bool // somebody is chosen
}

// cell is the sites that have the same values of all spread labels.
type cell struct {
	key    string
	shares []*share // one of each label
	sites  []*Site  // in the order in which they are chosen
}

// share is how many sites have a value of a label, and how many of them are chosen.
type share struct{ all, chosen, inWave int }

// SpreadLabels are the labels by which the waves of a plan are spread.
func SpreadLabels(spec *v1alpha1.RolloutSpec) []string {
	if len(spec.Strategy.SpreadBy) > 0 {
		return spec.Strategy.SpreadBy
	}
	return defaultSpread
}

func (p *planner) check() error {
	st := &p.spec.Strategy
	switch st.Type {
	case "", v1alpha1.StrategyCanary, v1alpha1.StrategyRolling:
	case v1alpha1.StrategyBlueGreen:
		if st.Blue == "" {
			return errors.New("spec.strategy.blue: must name the virtual site whose sites change first")
		}
	default:
		return fmt.Errorf("spec.strategy.type: %q: want Canary, Rolling or BlueGreen", st.Type)
	}
	for i, w := range st.Waves {
		n := 0
		for _, set := range []bool{w.Percent != nil, w.Count != nil, w.VirtualSite != "", w.Label != ""} {
			if set {
				n++
			}
		}
		if n != 1 {
			return fmt.Errorf("spec.strategy.waves[%d]: has %d of percent, count, virtualSite and label: give exactly one", i, n)
		}
		if w.Label != "" && !strings.Contains(w.Label, "=") {
			return fmt.Errorf("spec.strategy.waves[%d].label: %q: want KEY=VALUE", i, w.Label)
		}
	}
	if _, err := amount("spec.budget.maxFailed", p.spec.Budget.MaxFailed, defaultMaxFailed, 100); err != nil {
		return err
	}
	if _, err := amount("spec.budget.maxFailedInWave", p.spec.Budget.MaxFailedInWave, defaultMaxFailedInWave, 100); err != nil {
		return err
	}
	if _, err := newCalendar(&p.spec.RolloutPlan, time.Time{}); err != nil {
		return err
	}
	return checkGates(p.spec.Gates)
}

func (p *planner) isMember(virtualSite string, s *Site) bool {
	return p.member != nil && p.member(virtualSite, s)
}

// deal puts the sites into cells, those that can be reached first, by the hash of the
// rollout's name and theirs.
func (p *planner) deal() {
	labels := SpreadLabels(p.spec)
	p.values = make([]map[string]*share, len(labels))
	for l := range labels {
		p.values[l] = map[string]*share{}
	}
	byKey := map[string]*cell{}
	order := make(map[*Site]uint64, len(p.left))
	for _, s := range p.left {
		key := ""
		for _, l := range labels {
			key += s.Labels[l] + "\x00"
		}
		c := byKey[key]
		if c == nil {
			c = &cell{key: key}
			for l, label := range labels {
				v := s.Labels[label]
				if p.values[l][v] == nil {
					p.values[l][v] = &share{}
				}
				c.shares = append(c.shares, p.values[l][v])
			}
			byKey[key] = c
			p.cells = append(p.cells, c)
		}
		for _, sh := range c.shares {
			sh.all++
		}
		c.sites = append(c.sites, s)
		order[s] = hash(p.name, s.Name)
	}
	reach := func(s *Site) int {
		if s.Online && !s.Maintenance {
			return 0
		}
		return 1
	}
	for _, c := range p.cells {
		slices.SortFunc(c.sites, func(a, b *Site) int {
			return cmp.Or(cmp.Compare(reach(a), reach(b)), cmp.Compare(order[a], order[b]), strings.Compare(a.Name, b.Name))
		})
	}
	slices.SortFunc(p.cells, func(a, b *cell) int {
		return cmp.Or(cmp.Compare(hash(p.name, a.key), hash(p.name, b.key)), strings.Compare(a.key, b.key))
	})
}

func hash(parts ...string) uint64 {
	h := fnv.New64a()
	for _, s := range parts {
		_, _ = h.Write([]byte(s))
		_, _ = h.Write([]byte{0})
	}
	// FNV alone keeps names that differ in their last letter close together.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}

// pick chooses n of the sites that are left, one after the other: each of the cell whose
// values lack most against their part of the fleet among all that are chosen. Values that
// least sites of this wave have come before that. The first that are chosen of all are not
// red, as far as there are others of their cell: a site that is has little to lose, and can't
// show that the change is bad.
func (p *planner) pick(n, least int) []*Site {
	for _, l := range p.values {
		for _, sh := range l {
			sh.inWave = 0
		}
	}
	var out []*Site
	done := p.all - len(p.left)
	for len(out) < n && len(p.left) > len(out) {
		if least > 0 && len(out) >= p.onePercent() && !p.lacks(least) {
			break
		}
		var best *cell
		bestScore := 0.0
		want := float64(done+len(out)+1) / float64(max(1, p.all))
		for _, c := range p.cells {
			if len(c.sites) == 0 {
				continue
			}
			score := 0.0
			for l, sh := range c.shares {
				score += want*float64(sh.all) - float64(sh.chosen)
				if p.missing(l, sh, least) {
					score += 1e6
				}
			}
			if best == nil || score > bestScore {
				best, bestScore = c, score
			}
		}
		at := 0
		if !p.begun {
			at = max(0, slices.IndexFunc(best.sites, func(s *Site) bool { return s.Online && !s.Maintenance && !s.Red }))
		}
		s := best.sites[at]
		best.sites = slices.Delete(best.sites, at, at+1)
		for _, sh := range best.shares {
			sh.chosen++
			sh.inWave++
		}
		out = append(out, s)
	}
	p.begun = true
	p.without(out)
	return out
}

func (p *planner) missing(label int, sh *share, least int) bool {
	if label == 0 {
		least = min(least, 1)
	}
	return sh.inWave < min(least, sh.all) && float64(sh.all) >= rare*float64(p.all)
}

func (p *planner) lacks(least int) bool {
	for l, values := range p.values {
		for _, sh := range values {
			if p.missing(l, sh, least) {
				return true
			}
		}
	}
	return false
}

func (p *planner) onePercent() int { return max(1, p.all/100) }

// those takes the sites out that are left and of which something is true.
func (p *planner) those(is func(*Site) bool) []*Site {
	var out []*Site
	for _, c := range p.cells {
		c.sites = slices.DeleteFunc(c.sites, func(s *Site) bool {
			if !is(s) {
				return false
			}
			for _, sh := range c.shares {
				sh.chosen++
			}
			out = append(out, s)
			return true
		})
	}
	slices.SortFunc(out, func(a, b *Site) int { return cmp.Compare(hash(p.name, a.Name), hash(p.name, b.Name)) })
	p.without(out)
	return out
}

func (p *planner) rest() []*Site { return p.those(func(*Site) bool { return true }) }

func (p *planner) without(out []*Site) {
	taken := make(map[*Site]bool, len(out))
	for _, s := range out {
		taken[s] = true
	}
	p.left = slices.DeleteFunc(p.left, func(s *Site) bool { return taken[s] })
}

// wave appends one, unless it is empty.
func (p *planner) wave(w v1alpha1.RolloutWave, name string, members []*Site) {
	if len(members) == 0 {
		return
	}
	out := Wave{Name: cmp.Or(w.Name, name), Approval: w.Approval, Soak: -1}
	if w.Soak != nil {
		out.Soak = w.Soak.Duration
	}
	for _, s := range members {
		out.Sites = append(out.Sites, s.Name)
	}
	p.waves = append(p.waves, out)
}

func (p *planner) canary() {
	upTo := func(percent int) int { // how many more make it that percentage of all
		return max(1, (p.all*percent+99)/100-(p.all-len(p.left)))
	}
	if len(p.spec.Strategy.Waves) == 0 {
		// The first has what it takes to tell, of each kind of site, but at most a tenth.
		p.wave(v1alpha1.RolloutWave{}, "first", p.pick(max(1, p.all/10), covered))
		for _, percent := range []int{10, 50, 100} {
			if p.all-len(p.left) < (p.all*percent+99)/100 {
				p.wave(v1alpha1.RolloutWave{}, fmt.Sprintf("%d%%", percent), p.pick(upTo(percent), 0))
			}
		}
		return
	}
	for _, w := range p.spec.Strategy.Waves {
		switch {
		case w.Percent != nil:
			p.wave(w, fmt.Sprintf("%d%%", *w.Percent), p.pick(upTo(int(*w.Percent)), 0))
		case w.Count != nil:
			p.wave(w, sites(int(*w.Count)), p.pick(int(*w.Count), 0))
		case w.VirtualSite != "":
			p.wave(w, w.VirtualSite, p.those(func(s *Site) bool { return p.isMember(w.VirtualSite, s) }))
		default:
			key, value, _ := strings.Cut(w.Label, "=")
			p.wave(w, w.Label, p.those(func(s *Site) bool { v, has := s.Labels[key]; return has && v == value }))
		}
	}
	p.wave(v1alpha1.RolloutWave{}, "the others", p.rest())
}
