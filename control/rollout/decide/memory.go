package decide

import (
	"math"
	"slices"
	"strings"
	"time"
)

const (
	// sampleEvery is how close samples of a site stand at most, keepSamples for how long
	// they are kept.
	sampleEvery = 20 * time.Second
	keepSamples = 10 * time.Minute
	// blind is how long nobody may have looked until what held before no longer counts as
	// having held without a break.
	blind = 3 * time.Minute
)

// Memory is what gates have seen of the sites so far: samples of their measures. It is
// lost when control restarts; what was seen of the current wave is gathered anew then,
// and the readings from before sites changed are in the state. Decide and Evaluate add to
// the one that they are given: it belongs to one rollout, and to one goroutine at a time.
type Memory struct {
	names  []string       // of measures
	column map[string]int // by name
	sites  map[string]*samples

	began  time.Time // the first look of this process
	awake  time.Time // since when it looks without a break
	looked time.Time // last
	passed time.Time // since when all gates have passed, zero: they did not
	looks  int       // how many there were
	// for how long something that speaks against a gate is true: by gate and what it is, and
	// for single sites by gate and site.
	holding map[string]clock
	fell    map[string]map[string]fall
	// when sites were last seen in maintenance, by name; a new process gives all sites their
	// time anew.
	maintained map[string]time.Time
	online     map[string]time.Time // when sites were last seen online, by name
}

// clock adds up for how long something was seen to be true, from look to look. Time before
// a look at which it could not be told, and after that until the next, is left out: what
// nobody knew is no evidence.
type clock struct {
	ran  time.Duration
	at   time.Time // the last look that told
	look int       // its number
}

// ran is for how long it was true by a look that says that it is.
func (m *Memory) ran(c clock, now time.Time) time.Duration {
	if m.looks-c.look > 1 {
		return c.ran
	}
	return c.ran + max(0, now.Sub(c.at))
}

// tick is the clock after a look that says that it is true.
func (m *Memory) tick(c clock, now time.Time) clock { return clock{m.ran(c, now), now, m.looks} }

// fall is of a site that moved by too much: for how long, and by how much when it was seen
// last.
type fall struct {
	clock
	by float64
}

type samples struct {
	at   []int64   // unix seconds
	vals []float32 // len(at) rows
	wide int       // columns of a row
}

func newMemory() *Memory {
	m := &Memory{}
	m.init()
	return m
}

func (m *Memory) init() {
	if m.column == nil {
		m.column, m.sites, m.holding, m.fell = map[string]int{}, map[string]*samples{}, map[string]clock{}, map[string]map[string]fall{}
		m.maintained, m.online = map[string]time.Time{}, map[string]time.Time{}
	}
}

// restart forgets what was seen of gates: another wave begins.
func (m *Memory) restart() {
	m.passed = time.Time{}
	clear(m.holding)
	clear(m.fell)
}

// fallen tells whether a changed site has at the last look moved by more than a gate on peers
// allows, and that is not in doubt.
func (m *Memory) fallen(site string) bool {
	for what, of := range m.fell {
		if _, has := of[site]; has && !strings.HasSuffix(what, " ") { // with a space: peers
			return true
		}
	}
	return false
}

// look takes samples of all sites. After a time in which nobody looked, nothing holds
// without a break.
func (m *Memory) look(sites []Site, now time.Time) {
	if m.began.IsZero() {
		m.began = now
	}
	if now.Sub(m.looked) > blind {
		m.restart()
		m.awake = now
	}
	m.looked = now
	m.looks++
	for i := range sites {
		if sites[i].Maintenance {
			m.maintained[sites[i].Name] = now
		}
		if sites[i].Online {
			m.online[sites[i].Name] = now
		}
	}
	m.add(sites, now)
}

func (m *Memory) add(sites []Site, now time.Time) {
	t := now.Unix()
	for i := range sites {
		s := &sites[i]
		if len(s.Measures) == 0 {
			continue
		}
		for name := range s.Measures {
			if _, ok := m.column[name]; !ok {
				m.column[name] = -1
			}
		}
	}
	m.order()
	for i := range sites {
		s := &sites[i]
		if !s.Online || len(s.Measures) == 0 {
			continue
		}
		h := m.sites[s.Name]
		if h == nil {
			h = &samples{}
			m.sites[s.Name] = h
		}
		if n := len(h.at); n > 0 && t-h.at[n-1] < int64(sampleEvery/time.Second) && t >= h.at[n-1] {
			continue
		}
		h.add(t, m, s.Measures)
	}
}

// order gives columns to names that are new, in the order of the alphabet.
func (m *Memory) order() {
	var fresh []string
	for name, c := range m.column {
		if c < 0 {
			fresh = append(fresh, name)
		}
	}
	slices.Sort(fresh)
	for _, name := range fresh {
		m.column[name] = len(m.names)
		m.names = append(m.names, name)
	}
}

func (h *samples) add(t int64, m *Memory, measures map[string]float64) {
	if h.wide != len(m.names) {
		vals := make([]float32, 0, (len(h.at)+1)*len(m.names))
		for r := range h.at {
			vals = append(vals, h.vals[r*h.wide:(r+1)*h.wide]...)
			for range len(m.names) - h.wide {
				vals = append(vals, float32(math.NaN()))
			}
		}
		h.vals, h.wide = vals, len(m.names)
	}
	drop := 0
	for drop < len(h.at) && (t-h.at[drop] > int64(keepSamples/time.Second) || h.at[drop] > t) {
		drop++
	}
	if drop > 0 {
		h.at = append(h.at[:0], h.at[drop:]...)
		h.vals = append(h.vals[:0], h.vals[drop*h.wide:]...)
	}
	h.at = append(h.at, t)
	for _, name := range m.names {
		v, ok := measures[name]
		if !ok || !comparable(v) {
			v = math.NaN()
		}
		h.vals = append(h.vals, float32(v))
	}
}

// recent returns the values of a site's measure from one moment on.
func (m *Memory) recent(site, measure string, from time.Time) []float64 {
	h := m.sites[site]
	c, ok := m.column[measure]
	if h == nil || !ok || c >= h.wide {
		return nil
	}
	var out []float64
	for r, t := range h.at {
		if v := float64(h.vals[r*h.wide+c]); t >= from.Unix() && !math.IsNaN(v) {
			out = append(out, v)
		}
	}
	return out
}

// mean is the mean of a site's measure from one moment on, with the reading of now.
func (m *Memory) mean(s *Site, measure string, from time.Time, now time.Time) (float64, bool) {
	v, ok := s.measure(measure)
	if !ok {
		return 0, false
	}
	h := m.sites[s.Name]
	c, has := m.column[measure]
	if h == nil || !has || c >= h.wide {
		return v, true
	}
	sum, n := v, 1.0
	f, t := from.Unix(), now.Unix()
	for r := len(h.at) - 1; r >= 0 && h.at[r] >= f; r-- {
		if x := float64(h.vals[r*h.wide+c]); h.at[r] < t && !math.IsNaN(x) {
			sum, n = sum+x, n+1
		}
	}
	return sum / n, true
}

// usual is what a site's measure was in the last minutes, and not in a maintenance; false: it
// has not been seen for long enough to say.
func (m *Memory) usual(site, measure string, now time.Time) (float64, bool) {
	from := now.Add(-keepSamples)
	if at := m.maintained[site]; at.After(from) {
		from = at
	}
	v := m.recent(site, measure, from)
	if len(v) < 5 {
		return 0, false
	}
	return median(v), true
}

// holds notes whether something is true, and returns for how long it has been, without a
// look that said that it is not; negative if it is not.
func (m *Memory) holds(what string, now time.Time, is bool) time.Duration {
	if !is {
		delete(m.holding, what)
		return -1
	}
	c, ok := m.holding[what]
	if !ok {
		c = clock{at: now}
	}
	c = m.tick(c, now)
	m.holding[what] = c
	return c.ran
}
