package decide

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	defaultMaxFailed       = "2%"
	defaultMaxFailedInWave = "10%"
	defaultReadyWithin     = 10 * time.Minute
	defaultSoak            = 15 * time.Minute
)

// amount is a number, or that percentage of all, rounded down: of a budget of 10 % three
// sites have none to lose.
func amount(field, text, unset string, all int) (int, error) {
	text = cmp.Or(text, unset)
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || percent && n > 100 {
		return 0, fmt.Errorf("%s: %q: want a number such as 3, or a percentage such as 10%%", field, text)
	}
	if percent {
		n = all * n / 100
	}
	return n, nil
}

// spent says which budget is used up, in words; "": none is.
func (r *run) spent() string {
	b := &r.in.Spec.Budget
	inWave, all, failed := 0, 0, 0
	waveAll := 0
	first, end := r.span(r.d.Wave)
	for i := range r.names {
		if i >= r.d.planned() || r.gone(i) {
			continue
		}
		all++
		bad := r.steps[i] == 'f'
		if bad {
			failed++
		}
		if i >= first && i < end {
			waveAll++
			if bad {
				inWave++
			}
		} else if bad && r.late(i) {
			inWave++ // caught up in this wave
		}
	}
	// Who is well again has spent what was forgiven: it is no credit for others.
	r.d.Forgiven, r.d.ForgivenInWave = min(r.d.Forgiven, failed), min(r.d.ForgivenInWave, inWave)
	limit, _ := amount("spec.budget.maxFailedInWave", b.MaxFailedInWave, defaultMaxFailedInWave, waveAll)
	if over := inWave - r.d.ForgivenInWave; over > limit && !r.promoted() {
		return fmt.Sprintf("%s failed in wave %d, and %d may: %s", sites(inWave), r.d.Wave, limit+r.d.ForgivenInWave, r.whyFailed())
	}
	limit, _ = amount("spec.budget.maxFailed", b.MaxFailed, defaultMaxFailed, all)
	if failed-r.d.Forgiven > limit {
		return fmt.Sprintf("%s of %d failed, and %d may: %s", sites(failed), all, limit+r.d.Forgiven, r.whyFailed())
	}
	return ""
}

// whyFailed names the first that failed, and why.
func (r *run) whyFailed() string {
	var out []string
	for i, name := range r.names {
		if r.steps[i] != 'f' {
			continue
		}
		if len(out) == 3 {
			out = append(out, "…")
			break
		}
		why := "was not ready in time"
		if s := r.site[i]; s != nil && s.State == Failed {
			why = cmp.Or(s.Why, "could not apply it")
		}
		if len(why) > 160 {
			why = strings.ToValidUTF8(why[:160], "") + "…"
		}
		out = append(out, name+" "+why)
	}
	return strings.Join(out, "; ")
}
