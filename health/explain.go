package health

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"muster.dev/muster/internal/fleet"
)

// Explanation is the arithmetic behind a State, from readings to colour. Scores are 0 to
// 100, those of signals 0 to 1.
type Explanation struct {
	At     time.Time    `json:"at"`
	Score  *float64     `json:"score"` // null: unknown
	Colour fleet.Colour `json:"colour"`
	Since  time.Time    `json:"since"` // of the colour
	// WorstShare·Worst + (1−WorstShare)·Mean = BeforeCaps. Worst is the score before caps
	// of WorstDimension, "" if there is none; Mean that of all that are known, by weight.
	WorstShare     float64 `json:"worstShare"`
	Mean           float64 `json:"mean"`
	Worst          float64 `json:"worst"`
	WorstDimension string  `json:"worstDimension"`
	BeforeCaps     float64 `json:"beforeCaps"`
	// Formula is that sum for people; "" while the score is unknown.
	Formula    string                 `json:"formula"`
	Dimensions []DimensionExplanation `json:"dimensions"`
	Caps       []CapExplanation       `json:"caps"`
	// Held: the score is kept at the top of the colour's band until the colour gets better.
	Held bool `json:"held"`
	// Another colour comes when Needed evaluations in a row say so; Agreed did. Needed is 0
	// while none does. Waits says it for people.
	Agreed int    `json:"agreed"`
	Needed int    `json:"needed"`
	Waits  string `json:"waits"`
	// Lost are the points of the reasons. They sum to 100 − Score.
	Lost []LostPoints `json:"lost"`
}

// DimensionExplanation is one dimension of an Explanation.
type DimensionExplanation struct {
	Name    fleet.Dimension `json:"name"`
	Weight  float64         `json:"weight"`
	Applies bool            `json:"applies"` // false: nothing of it is at the site
	Known   bool            `json:"known"`
	// Incomplete: something that the site should have is unknown.
	Incomplete bool                `json:"incomplete"`
	BeforeCaps float64             `json:"beforeCaps"`
	Score      float64             `json:"score"`
	Signals    []SignalExplanation `json:"signals"`
}

// SignalExplanation is one signal of an Explanation.
type SignalExplanation struct {
	Name    string   `json:"name"`
	Value   *float64 `json:"value"` // null: unknown
	Unit    string   `json:"unit"`
	Good    float64  `json:"good"`
	Bad     float64  `json:"bad"`
	Score   *float64 `json:"score"`
	Weight  float64  `json:"weight"`
	Applies bool     `json:"applies"` // false: its pack is not at the site
	Counted bool     `json:"counted"`
	Error   string   `json:"error"` // why it is unknown, if that is known
	Objects []string `json:"objects"`
	Pack    string   `json:"pack"`
	Source  string   `json:"source"`
	// Points that it loses of the site's 100, its cap's included.
	Points float64 `json:"points"`
}

// CapExplanation is a cap on the site's score.
type CapExplanation struct {
	Signal string `json:"signal"` // "": what is unknown
	// At is the cap that the signal's score gives, Without the score before caps if the
	// signal were good, Leaves what the cap leaves: within the band of At's colour, what
	// else is lost goes on counting.
	At      float64 `json:"at"`
	Without float64 `json:"without"`
	Leaves  float64 `json:"leaves"`
	Binds   bool    `json:"binds"`
	Text    string  `json:"text"` // the arithmetic for people
}

// LostPoints are the points of one reason.
type LostPoints struct {
	Dimension fleet.Dimension `json:"dimension"`
	Signal    string          `json:"signal"`
	Points    float64         `json:"points"`
	Text      string          `json:"text"`
}

// Explain takes a state's arithmetic apart. A state of Restore has none: ok is false.
func Explain(st *State) (x Explanation, ok bool) {
	m := st.Model
	if m == nil || m.index == nil || len(m.Signals) != len(st.Signals) || len(m.Signals) == 0 {
		return x, false
	}
	again := *st
	e := evaluation{m: m, r: &Readings{Link: st.Link}, st: &again, worst: -1, binds: -1}
	for i := range m.Signals {
		if s := &st.Signals[i]; s.Counted {
			d := m.Signals[i].dim
			e.known[d] += m.Signals[i].Weight
			e.sum[d] += m.Signals[i].Weight * s.Score
		}
	}
	x = Explanation{At: st.At, Colour: st.Colour, Since: st.Since, WorstShare: m.WorstShare, Agreed: st.Against, Needed: st.Needed, Waits: waits(st)}
	points := make(map[string]float64, len(st.Reasons))
	for _, r := range st.Reasons {
		points[r.Signal] += r.PointsLost
	}
	var raw [4]float64
	weight := 0.0
	for d, name := range fleet.Dimensions {
		s := &st.Dimensions[d]
		raw[d] = s.Raw
		dim := DimensionExplanation{Name: name, Weight: m.Weights[d], Applies: s.Applies, Known: s.Known, Incomplete: s.Incomplete, BeforeCaps: s.Raw, Score: s.Score, Signals: []SignalExplanation{}}
		for i := range m.Signals {
			if m.Signals[i].dim == d {
				dim.Signals = append(dim.Signals, explainSignal(&m.Signals[i], &st.Signals[i], st.NoteOf(i), points[m.Signals[i].Name]))
			}
		}
		if s.Known {
			x.Mean += m.Weights[d] * s.Raw
			weight += m.Weights[d]
		}
		x.Dimensions = append(x.Dimensions, dim)
	}
	if weight > 0 {
		x.Mean /= weight
	}
	before, worst := e.base(raw)
	if worst >= 0 {
		x.WorstDimension, x.Worst = string(fleet.Dimensions[worst]), raw[worst]
	}
	x.Caps, x.Lost = []CapExplanation{}, []LostPoints{}
	if st.Known {
		score := st.Score
		x.Score, x.BeforeCaps = &score, before
		x.Held = st.Score < st.Capped
		x.Formula = "mean = " + short(before)
		if worst >= 0 {
			x.Formula = fmt.Sprintf("%s × mean %s + %s × worst %s (%s) = %s", short(1-x.WorstShare), short(x.Mean), short(x.WorstShare), short(x.Worst), x.WorstDimension, short(before))
		}
		x.Caps = e.explainCaps(raw, before)
	}
	for _, r := range st.Reasons {
		x.Lost = append(x.Lost, LostPoints{r.Dimension, r.Signal, r.PointsLost, r.Text})
	}
	return x, true
}

func explainSignal(sig *Signal, st *SignalState, note Note, points float64) SignalExplanation {
	x := SignalExplanation{Name: sig.Name, Unit: sig.Unit, Good: sig.Good, Bad: sig.Bad, Weight: sig.Weight, Applies: st.Applies, Counted: st.Counted, Error: note.Err, Objects: note.Objects, Pack: sig.Pack, Source: sig.Source, Points: points}
	if x.Objects == nil {
		x.Objects = []string{}
	}
	if st.Known {
		value, score := st.Value, st.Score
		x.Value, x.Score = &value, &score
	}
	return x
}

func (e *evaluation) explainCaps(raw [4]float64, before float64) []CapExplanation {
	out, binds, least := []CapExplanation{}, -1, before
	for i := range e.m.Signals {
		st := &e.st.Signals[i]
		if !st.Counted || st.Score >= 0.5 || e.m.Signals[i].Cap >= NoCap {
			continue
		}
		d := e.m.Signals[i].dim
		keep := raw[d]
		raw[d] = e.mended(i)
		without, _ := e.base(raw)
		raw[d] = keep
		c := CapExplanation{Signal: e.m.Signals[i].Name, At: e.m.Signals[i].CapAt(st.Score), Without: without, Leaves: snap(e.capOf(i, without))}
		if c.Leaves < least {
			least, binds = c.Leaves, len(out)
		}
		out = append(out, c)
	}
	for d := range e.st.Dimensions {
		if e.st.Dimensions[d].Incomplete && e.m.Weights[d] > 0 {
			if least > unknownCap {
				binds = len(out)
			}
			out = append(out, CapExplanation{At: unknownCap, Without: before, Leaves: unknownCap})
			break
		}
	}
	if binds >= 0 {
		out[binds].Binds = true
	}
	for i := range out {
		c := &out[i]
		if c.Signal == "" {
			c.Text = fmt.Sprintf("cap: something is unknown that the site should have: at most %s", short(c.Leaves))
			continue
		}
		floor := floorOf(c.At)
		c.Text = fmt.Sprintf("cap of %s: %s; %s + (%s − %s) × %s %% that the rest has = %s", c.Signal, short(c.At), short(floor), short(c.At), short(floor), short(c.Without), short(c.Leaves))
	}
	return out
}

// short writes a figure of the arithmetic: two decimals, four digits.
func short(v float64) string { return fmt.Sprintf("%.4g", math.Round(v*100)/100) }

// waits says what the colour waits for; "" when it waits for nothing.
func waits(st *State) string {
	said := fmt.Sprintf("%d of %d evaluations in a row", st.Against, st.Needed)
	switch {
	case st.Needed == 0:
		return ""
	case !st.Known && st.Colour == fleet.Grey:
		return "what is still unknown may be on its way: " + said + " had a score"
	case st.Better:
		return "the colour holds: " + said + " were better"
	case !st.Known:
		return "the colour holds: " + said + " knew too little"
	default:
		return "the colour holds: " + said + " were worse"
	}
}

// WriteText writes the explanation for people. all adds the signals that are well and
// those that do not apply.
func (x *Explanation) WriteText(w io.Writer, all bool) error {
	var b strings.Builder
	f := short
	score := "unknown"
	if x.Score != nil {
		score = f(*x.Score)
	}
	fmt.Fprintf(&b, "%s %s since %s\n\n", score, x.Colour, x.Since.UTC().Format(time.RFC3339))
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, d := range x.Dimensions {
		switch {
		case !d.Applies:
			fmt.Fprintf(t, "%s\tdoes not apply\n", d.Name)
		case !d.Known:
			fmt.Fprintf(t, "%s\tunknown\tweight %s\n", d.Name, f(d.Weight))
		default:
			fmt.Fprintf(t, "%s\t%s\tweight %s", d.Name, f(d.BeforeCaps), f(d.Weight))
			if d.Score < d.BeforeCaps {
				fmt.Fprintf(t, "\tcapped at %s", f(d.Score))
			}
			if d.Incomplete {
				fmt.Fprint(t, "\tnot fully known")
			}
			fmt.Fprintln(t)
		}
		for _, s := range d.Signals {
			switch {
			case !s.Applies:
				if all {
					fmt.Fprintf(t, "  %s\t-\tdoes not apply: no %s here\n", s.Name, s.Pack)
				}
			case s.Value == nil:
				why := s.Error
				if why == "" {
					why = "nothing gives it"
				}
				fmt.Fprintf(t, "  %s\t-\tunknown\tweight %s\t%s\n", s.Name, f(s.Weight), why)
			case all || *s.Score < 1:
				fmt.Fprintf(t, "  %s\t%s\tscores %s between good %s and bad %s\tweight %s\t%s\n", s.Name, FormatValue(*s.Value, s.Unit), f(*s.Score), FormatValue(s.Good, s.Unit), FormatValue(s.Bad, s.Unit), f(s.Weight), strings.Join(s.Objects, ", "))
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if well, absent := x.quiet(); !all && well+absent > 0 {
		fmt.Fprintf(&b, "\nnot shown: signals that are well (%d), and that do not apply (%d)\n", well, absent)
	}
	if x.Score != nil {
		fmt.Fprintf(&b, "\nscore before caps: %s\n", x.Formula)
		for _, c := range x.Caps {
			binds := ""
			if c.Binds {
				binds = "  ← counts"
			}
			fmt.Fprintf(&b, "%s%s\n", c.Text, binds)
		}
	}
	if x.Waits != "" {
		fmt.Fprintf(&b, "\n%s\n", x.Waits)
	}
	if len(x.Lost) > 0 {
		fmt.Fprintln(&b)
		t = tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		sum := 0.0
		for _, l := range x.Lost {
			sum += l.Points
			fmt.Fprintf(t, "−%s\t%s\t%s\n", f(l.Points), l.Dimension, l.Text)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if x.Score != nil {
			fmt.Fprintf(&b, "100 − %s = %s\n", f(sum), f(100-sum))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// quiet counts the signals that lose nothing and those that do not apply.
func (x *Explanation) quiet() (well, absent int) {
	for _, d := range x.Dimensions {
		for _, s := range d.Signals {
			switch {
			case !s.Applies:
				absent++
			case s.Score != nil && *s.Score == 1:
				well++
			}
		}
	}
	return well, absent
}
