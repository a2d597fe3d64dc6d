package decide

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

const (
	version       = 1
	keepDecisions = 30
	maxColumns    = 64
	unknown       = math.MinInt64 // a reading that there was not
	// maxReading bounds readings, in steps of their unit, so that what is kept stays small.
	maxReading = 1 << 40
	// What a row may have besides; see pack.
	hasDrift, hasReady, hasIll = 1, 2, 4
)

// decided is RolloutStateSpec.Decided: what a rollout has to remember besides who has
// what. Times are seconds since 1970.
type decided struct {
	Version int                   `json:"v"`
	Phase   v1alpha1.RolloutPhase `json:"phase"`
	Message string                `json:"message,omitempty"` // of an end, or why it stands still
	Started int64                 `json:"started,omitempty"`
	Ended   int64                 `json:"ended,omitempty"`
	Waves   []wave                `json:"waves,omitempty"`
	Wave    int                   `json:"wave,omitempty"` // the current one, from 1
	// Since is when what is judged now began: the wave, or those that are caught up.
	Since int64 `json:"since,omitempty"`
	// Soaked is for how many seconds all gates have held, when that was last written.
	Soaked int64 `json:"soaked,omitempty"`
	// Halted: it paused by itself. Back is what a rollback puts back: the wave, or all.
	Halted bool   `json:"halted,omitempty"`
	Back   string `json:"back,omitempty"`
	// Done is when all that can be reached had passed; what is offline is caught up after.
	Done int64 `json:"done,omitempty"`
	// What failed up to when people had it go on does not count again.
	Forgiven       int `json:"forgiven,omitempty"`
	ForgivenInWave int `json:"forgivenInWave,omitempty"`
	// What of spec.control was seen.
	Paused  bool             `json:"paused,omitempty"`
	Promote int32            `json:"promote,omitempty"`
	Resume  int32            `json:"resume,omitempty"`
	Retried map[string]int32 `json:"retried,omitempty"`

	Decisions []v1alpha1.RolloutDecision `json:"decisions,omitempty"`
	// Columns of readings, with how large a step of each is.
	Columns []column `json:"columns,omitempty"`
	// Packed is the rows; see pack.
	Packed string `json:"sites,omitempty"`
	// Alerts that fired at a site before it changed, as alertMark, by its position; an empty list: nobody
	// knew, and what fires when somebody does is taken for it.
	Alerts map[int][]string `json:"alerts,omitempty"`

	rows []row
}

type wave struct {
	Name     string `json:"name,omitempty"`
	End      int    `json:"end"`            // position after its last site
	Soak     *int64 `json:"soak,omitempty"` // nil: the plan's
	Approval bool   `json:"approval,omitempty"`
	Started  int64  `json:"started,omitempty"`
	Settled  int64  `json:"settled,omitempty"` // when all that could be had it and were ready
	Passed   int64  `json:"passed,omitempty"`
}

type column struct {
	Name string  `json:"name"`
	Step float64 `json:"step"`
}

// row is what is remembered of a site.
type row struct {
	got int64 // when it got the change, or came back with it; 0: it has not
	at  int64 // when its step began
	// ready is when it first was ready with the change; 0: it has not been yet.
	ready int64
	// ill: it was not well with what it had before the change either.
	ill bool
	// before has a reading for each column from before it changed, in steps, as it would
	// have been when its wave began; unknown: there was none.
	before []int64
	// drift is how far the others had moved between the wave's begin and its change, in
	// steps: before+drift is what it really was. nil: it changed as the wave began.
	drift []int64
}

// planned is how many sites are in waves; sites after them are listed for what they have.
func (d *decided) planned() int {
	if len(d.Waves) == 0 {
		return 0
	}
	return d.Waves[len(d.Waves)-1].End
}

// bounded is a reading or a difference of two, in steps, as it can be kept.
func bounded[T int64 | float64](v T) T { return max(-maxReading, min(maxReading, v)) }

// pack encodes the rows: for each, got and at as seconds after started, and the readings,
// each plus one (0: unknown) above the least of its column; all as unsigned varints. Before
// a row stands the sum of hasDrift, hasReady and hasIll, as far as it has these.
func (d *decided) pack() string {
	var b []byte
	put := func(v int64) { b = binary.AppendUvarint(b, uint64(max(0, v))) }
	after := func(t int64) int64 {
		if t == 0 {
			return 0
		}
		return max(0, t-d.Started) + 1
	}
	least := make([]int64, len(d.Columns))
	for c := range least {
		least[c] = math.MaxInt64
		for i := range d.rows {
			if v := d.rows[i].reading(c); v != unknown {
				least[c] = min(least[c], v)
			}
		}
		if least[c] == math.MaxInt64 {
			least[c] = 0
		}
		b = binary.AppendVarint(b, least[c])
	}
	for i := range d.rows {
		r := &d.rows[i]
		has := int64(0)
		if r.drift != nil {
			has += hasDrift
		}
		if r.ready != 0 {
			has += hasReady
		}
		if r.ill {
			has += hasIll
		}
		put(has)
		put(after(r.got))
		put(after(r.at))
		if r.ready != 0 {
			put(after(r.ready))
		}
		for c := range least {
			if v := r.reading(c); v == unknown {
				put(0)
			} else {
				put(v - least[c] + 1)
			}
		}
		if r.drift != nil {
			for c := range least {
				b = binary.AppendVarint(b, r.drift[c])
			}
		}
	}
	return base64.StdEncoding.EncodeToString(b)
}

func (r *row) reading(c int) int64 {
	if c >= len(r.before) {
		return unknown
	}
	return r.before[c]
}

var errShort = errors.New("sites: ends in the middle")

// unpack is the inverse of pack for n sites.
func (d *decided) unpack(n int) error {
	b, err := base64.StdEncoding.DecodeString(d.Packed)
	if err != nil {
		return fmt.Errorf("sites: %w", err)
	}
	bad := false
	get := func() int64 {
		v, k := binary.Uvarint(b)
		if k <= 0 || v > 1<<50 {
			bad = true
			return 0
		}
		b = b[k:]
		return int64(v)
	}
	signed := func() int64 {
		v, k := binary.Varint(b)
		if k <= 0 || v > maxReading || v < -maxReading {
			bad = true
			return 0
		}
		b = b[k:]
		return v
	}
	when := func(v int64) int64 {
		if v == 0 {
			return 0
		}
		return d.Started + v - 1
	}
	if len(b) < 3*n { // each has three bytes at least
		return errShort
	}
	least := make([]int64, len(d.Columns))
	for c := range least {
		least[c] = signed()
	}
	d.rows = make([]row, n)
	for i := range d.rows {
		r := &d.rows[i]
		has := get()
		r.got, r.at = when(get()), when(get())
		if bad || has > hasDrift+hasReady+hasIll {
			return errShort
		}
		r.ill = has&hasIll != 0
		if has&hasReady != 0 {
			r.ready = when(get())
		}
		for c := range least {
			v := get()
			if v == 0 {
				continue
			}
			if r.before == nil {
				r.before = make([]int64, len(least))
				for k := range r.before {
					r.before[k] = unknown
				}
			}
			if r.before[c] = v - 1 + least[c]; r.before[c] > 2*maxReading {
				bad = true
			}
		}
		if has&hasDrift != 0 {
			r.drift = make([]int64, len(least))
			for c := range least {
				r.drift[c] = signed()
			}
		}
		if bad {
			return errShort
		}
	}
	if len(b) > 0 {
		return errors.New("sites: there is more than there are sites")
	}
	return nil
}

// Parsed is a state that was read, for one decision.
type Parsed struct {
	names []string
	d     *decided // nil: nothing was decided yet
	err   error    // which deciding says
}

// Parse reads a state; nil: there is none.
func Parse(s *v1alpha1.RolloutStateSpec) *Parsed {
	p := &Parsed{}
	if s == nil {
		return p
	}
	if p.names, p.err = checkState(s); p.err != nil || s.Decided == nil || len(s.Decided.Raw) == 0 || string(s.Decided.Raw) == "null" {
		return p
	}
	if p.d, p.err = decode(s.Decided.Raw, len(p.names)); p.err != nil {
		p.d, p.err = nil, fmt.Errorf("decided: %w", p.err)
	}
	return p
}

// Since is when what is judged now began, the wave or what is caught up; zero: nothing has, or
// it can't be told.
func (p *Parsed) Since() time.Time {
	if p.d == nil || p.d.Since <= 0 {
		return time.Time{}
	}
	return time.Unix(p.d.Since, 0)
}

// Moving are the sites that a rollout is changing, or is putting back: what they are like is
// of that. Failed are those that failed with it, as long as its waves go on.
func Moving(s *v1alpha1.RolloutStateSpec) (moving, failed map[string]bool) {
	var d struct {
		Back string `json:"back"`
		Done int64  `json:"done"`
	}
	moving, failed = map[string]bool{}, map[string]bool{}
	if s.Decided == nil || json.Unmarshal(s.Decided.Raw, &d) != nil {
		return moving, failed
	}
	for i, name := range strings.Fields(s.Sites) {
		if i >= len(s.Steps) {
			break
		}
		switch v1alpha1.SiteStep(s.Steps[i]) {
		case v1alpha1.StepUpdating, v1alpha1.StepReady:
			moving[name] = true
		case v1alpha1.StepRolledBack:
			if d.Back != "" {
				moving[name] = true
			}
		case v1alpha1.StepFailed:
			if d.Done == 0 {
				failed[name] = true
			}
		}
	}
	return moving, failed
}

// decode reads the state of n sites. What it refuses it does not guess: nothing moves.
func decode(raw []byte, n int) (*decided, error) {
	d := &decided{}
	if err := json.Unmarshal(raw, d); err != nil {
		return nil, err
	}
	if d.Version != version {
		return nil, fmt.Errorf("v: %d: this version of Muster reads %d", d.Version, version)
	}
	if d.Started < 0 || d.Started > 1<<40 {
		return nil, errors.New("started: is no time")
	}
	if len(d.Columns) > maxColumns {
		return nil, fmt.Errorf("columns: %d, more than %d", len(d.Columns), maxColumns)
	}
	for _, c := range d.Columns {
		if !(c.Step > 0) || math.IsInf(c.Step, 0) {
			return nil, fmt.Errorf("columns: step of %s: %v", c.Name, c.Step)
		}
	}
	last := 0
	for i, w := range d.Waves {
		if w.End < last || w.End > n {
			return nil, fmt.Errorf("waves[%d].end: %d of %d sites", i, w.End, n)
		}
		last = w.End
	}
	if d.Wave < 0 || d.Wave > len(d.Waves) {
		return nil, fmt.Errorf("wave: %d of %d", d.Wave, len(d.Waves))
	}
	for i := range d.Alerts {
		if i < 0 || i >= n {
			return nil, fmt.Errorf("alerts: site %d of %d", i, n)
		}
	}
	if d.Packed == "" {
		d.rows = make([]row, n)
		return d, nil
	}
	return d, d.unpack(n)
}

func (d *decided) encode() []byte {
	d.Version = version
	if len(d.Decisions) > keepDecisions {
		d.Decisions = slices.Clone(d.Decisions[len(d.Decisions)-keepDecisions:])
	}
	if d.Packed = ""; len(d.rows) > 0 {
		d.Packed = d.pack()
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(d); err != nil {
		panic(err) // of strings and numbers alone
	}
	return bytes.TrimSpace(buf.Bytes())
}

// checkState says what is wrong with a state's three columns.
func checkState(s *v1alpha1.RolloutStateSpec) ([]string, error) {
	names := strings.Fields(s.Sites)
	if len(s.Steps) != len(names) || len(s.Has) != len(names) {
		return nil, fmt.Errorf("%d sites, %d steps, %d contents", len(names), len(s.Steps), len(s.Has))
	}
	return names, nil
}
