package cli

import (
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"muster.dev/muster/control/api/v1alpha1"
)

// style is what a terminal shows that a file does not.
type style struct {
	colour              bool
	full, part          string // of a bar
	lost, rest          string
	ok, bad, wait, dark string // marks of verdicts and waves
}

var (
	plainStyle = style{full: "#", part: "+", lost: "!", rest: ".", ok: "ok", bad: "!!", wait: "..", dark: "??"}
	fancyStyle = style{colour: true, full: "█", part: "▒", lost: "█", rest: "░", ok: "✓", bad: "✗", wait: "…", dark: "?"}
)

// styleOf is for a terminal, unless $NO_COLOR or $TERM speak against it.
func styleOf(w io.Writer) style {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return plainStyle
	}
	if st, err := f.Stat(); err != nil || st.Mode()&os.ModeCharDevice == 0 {
		return plainStyle
	}
	return fancyStyle
}

const (
	green, yellow, red, grey, bold = "32", "33", "31", "90", "1"
)

func (s style) paint(code, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// mark of a verdict, two columns wide.
func (s style) mark(v v1alpha1.GateVerdict) string {
	switch v {
	case v1alpha1.GatePass:
		return s.paint(green, fmt.Sprintf("%-2s", s.ok))
	case v1alpha1.GateFail:
		return s.paint(red, fmt.Sprintf("%-2s", s.bad))
	case v1alpha1.GateWait:
		return s.paint(yellow, fmt.Sprintf("%-2s", s.wait))
	}
	return s.paint(grey, fmt.Sprintf("%-2s", s.dark))
}

const barWidth = 24

// bar has the sites that are ready with the change, those that are changing or failed, and
// the rest. What there is of a kind is seen, however few sites it is.
func (s style) bar(c v1alpha1.RolloutCounts) string {
	if c.Total <= 0 {
		return strings.Repeat(s.rest, barWidth)
	}
	cells := func(n int32) int {
		k := int(n) * barWidth / int(c.Total)
		if k == 0 && n > 0 {
			k = 1
		}
		return k
	}
	done := cells(c.Updated)
	failed := min(cells(c.Failed), barWidth)
	busy := min(cells(c.Updating), barWidth-failed)
	done = min(done, barWidth-failed-busy)
	return s.paint(green, strings.Repeat(s.full, done)) + s.paint(yellow, strings.Repeat(s.part, busy)) + s.paint(red, strings.Repeat(s.lost, failed)) +
		s.paint(grey, strings.Repeat(s.rest, barWidth-done-busy-failed))
}

// countsText is what a bar can't say.
func countsText(c v1alpha1.RolloutCounts) string {
	out := fmt.Sprintf("%d/%d", c.Updated, c.Total)
	var more []string
	for _, x := range []struct {
		n    int32
		what string
	}{{c.Updating, "updating"}, {c.Failed, "failed"}, {c.RolledBack, "put back"}, {c.Offline, "offline"}, {c.Held, "held"}} {
		if x.n > 0 {
			more = append(more, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	if len(more) > 0 {
		out += ", " + strings.Join(more, ", ")
	}
	return out
}

// drawRollout writes the picture of a rollout.
func drawRollout(w io.Writer, r owned, s style, now time.Time) {
	st := &r.Status
	colour := map[v1alpha1.RolloutPhase]string{v1alpha1.RolloutCompleted: green, v1alpha1.RolloutRolledBack: red, v1alpha1.RolloutRollingBack: red, v1alpha1.RolloutInvalid: red, v1alpha1.RolloutPaused: yellow}[st.Phase]
	head := s.paint(colour, phaseText(r.Rollout))
	if colour == "" {
		head = phaseText(r.Rollout)
	}
	if st.Wave > 0 && !st.Phase.Ended() {
		head += fmt.Sprintf(", wave %d of %d", st.Wave, st.WaveCount)
	}
	fmt.Fprintf(w, "%s   %s\n", s.paint(bold, r.String()), head)
	fmt.Fprintln(w, printable(changesText(r.Spec.Changes)))
	if len(r.Spec.VirtualSites) > 0 {
		fmt.Fprintln(w, "on "+printable(strings.Join(r.Spec.VirtualSites, ", ")))
	}
	if st.Message != "" {
		fmt.Fprintln(w, printable(st.Message))
	}
	if len(st.Waves) > 0 {
		fmt.Fprintln(w)
		width := 4
		for _, wave := range st.Waves {
			width = max(width, len([]rune(wave.Name)))
		}
		width = min(width, 24)
		for wave := range shownWaves(st) {
			if wave == nil {
				fmt.Fprintln(w, "      …")
				continue
			}
			mark := "  "
			switch {
			case wave.PassedAt != nil:
				mark = s.paint(green, fmt.Sprintf("%-2s", s.ok))
			case wave.Number == st.Wave && !st.Phase.Ended():
				mark = s.paint(yellow, "> ")
			}
			fmt.Fprintf(w, "%s %3d  %-*.*s  %s  %s\n", mark, wave.Number, width, width, printable(wave.Name), s.bar(wave.Sites), countsText(wave.Sites))
		}
	} else {
		fmt.Fprintln(w, "no waves yet: the controllers have not begun it")
	}
	if len(st.Gates) > 0 && (!st.Phase.Ended() || st.Phase == v1alpha1.RolloutRolledBack) {
		fmt.Fprintln(w)
		drawGates(w, st.Gates, s)
	}
	if st.Next != "" && !st.Phase.Ended() {
		fmt.Fprintf(w, "\nnext: %s%s\n", printable(strings.TrimSuffix(st.Next, ".")), inTime(st.NextAt, now))
	}
	if n := len(st.Decisions); n > 0 {
		d := st.Decisions[n-1]
		fmt.Fprintf(w, "last: %s%s, %s ago\n", printable(strings.TrimSuffix(d.Text, ".")), byText(d.By), duration.HumanDuration(now.Sub(d.At.Time)))
	}
}

// shownWaves are all, or of very many those around the current one and the first and last that
// the status has; nil stands for what is left out.
func shownWaves(st *v1alpha1.RolloutStatus) iter.Seq[*v1alpha1.RolloutWaveStatus] {
	const around = 6
	return func(yield func(*v1alpha1.RolloutWaveStatus) bool) {
		last := int32(0)
		for i := range st.Waves {
			w := &st.Waves[i]
			far := w.Number < st.Wave-around || w.Number > st.Wave+around
			if len(st.Waves) > 2*around+4 && far && i > 0 && i < len(st.Waves)-1 {
				continue
			}
			if w.Number > last+1 && !yield(nil) || !yield(w) {
				return
			}
			last = w.Number
		}
		if last < st.WaveCount {
			yield(nil)
		}
	}
}

func drawGates(w io.Writer, gates []v1alpha1.GateReading, s style) {
	width := 4
	for _, g := range gates {
		width = max(width, len(g.Name))
	}
	for _, g := range gates {
		fmt.Fprintf(w, "%s %-*s  %-7s  %s\n", s.mark(g.Verdict), width, g.Name, g.Verdict, evidence(g))
	}
}

// evidence is what a gate says, how much it has seen, and which sites speak most against it.
func evidence(g v1alpha1.GateReading) string {
	var out []string
	if g.OfSites > 0 && g.Sites < g.OfSites {
		out = append(out, fmt.Sprintf("%d of %d sites", g.Sites, g.OfSites))
	}
	if g.OfSeconds > 0 && g.Seconds < g.OfSeconds {
		out = append(out, fmt.Sprintf("%s of %s", shortTime(g.Seconds), shortTime(g.OfSeconds)))
	}
	text := strings.TrimSuffix(printable(g.Text), ".")
	for _, o := range out {
		if !strings.Contains(g.Text, o) {
			text += "; " + o
		}
	}
	if len(g.Worst) > 0 && g.Verdict != v1alpha1.GatePass {
		text += "; worst: " + printable(strings.Join(g.Worst, ", "))
	}
	return text
}

func shortTime(seconds int32) string {
	return duration.HumanDuration(time.Duration(seconds) * time.Second)
}

func inTime(t *metav1.Time, now time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	if d := t.Sub(now); d > 0 {
		return fmt.Sprintf(", in %s (%s)", duration.HumanDuration(d), t.Local().Format("15:04:05"))
	}
	return ", now"
}

func byText(by string) string {
	if by == "" {
		return ""
	}
	return " (" + printable(by) + ")"
}
