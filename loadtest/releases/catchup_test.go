package releases

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

// has tells the content and the step of a site; false: it is in no wave.
func (c *course) has(name string) (content byte, step v1alpha1.SiteStep, ok bool) {
	i := slices.Index(strings.Fields(c.state.Sites), name)
	if i < 0 {
		return 0, 0, false
	}
	return c.state.Has[i], v1alpha1.SiteStep(c.state.Steps[i]), true
}

// absent are sites that are offline from before the rollout begins until it is said.
func (c *course) absent() []*site {
	var out []*site
	for _, x := range c.sites {
		if !c.now.Before(x.offline) {
			continue
		}
		x.offline = c.now.Add(30 * 24 * time.Hour)
		out = append(out, x)
	}
	return out
}

// Sites that were offline come back one after the other once all others have passed, in a fleet
// in which all else goes on as ever. Each gets the change and passes by the same gates; one that
// does not bear it is put back alone, while those that have passed keep it.
func TestSitesThatComeBack(t *testing.T) {
	const apart = 75 * time.Minute
	seeds := uint64(4)
	inParallel(int(seeds), func(i int) {
		seed := *seedFlag*1000 + 900 + uint64(i)
		bad := map[string]bool{}
		rel := &release{kind: "bad where it was not tried", degree: 0.5, does: func(r *release, x *site, since time.Duration, v *vitals) {
			if bad[x.name] {
				crash(r, x, since, v)
			}
		}}
		c := begin(seed, 120, rel)
		away := c.absent()
		if len(away) < 6 {
			t.Errorf("seed %d: %d sites are away", seed, len(away))
			return
		}
		last := away[5]
		bad[last.name] = true
		for range 2 * 60 * 12 {
			if c.step(); c.over() {
				break
			}
		}
		if c.halted || c.phase.Ended() || !c.over() {
			t.Errorf("-seed %d, %d: %s %s%s", *seedFlag, i, c.phase, c.message, c.story())
			return
		}
		var slow []string
		for n, x := range away[:6] {
			x.offline = c.now
			back, passed := c.now, time.Duration(0)
			for c.now.Sub(back) < apart && c.phase != v1alpha1.RolloutPaused {
				c.step()
				x.fault, x.offline = "", back // it has no trouble of its own: what is told apart here is the release's
				if _, step, _ := c.has(x.name); passed == 0 && step == v1alpha1.StepPassed {
					passed = c.now.Sub(back)
				}
			}
			switch content, step, ok := c.has(x.name); {
			case !ok:
				t.Errorf("-seed %d, %d: %s left", *seedFlag, i, x.name)
			case n < 5 && (content != '1' || step != v1alpha1.StepPassed || c.phase != v1alpha1.RolloutProgressing):
				t.Errorf("-seed %d, %d: %s came back, and after %s has %c, %c: %s %s%s", *seedFlag, i, x.name, c.now.Sub(back), content, step, c.phase, c.message, c.story())
				return
			case n < 5:
				slow = append(slow, fmt.Sprint(passed))
			case content != '0' || step != v1alpha1.StepRolledBack || c.phase != v1alpha1.RolloutPaused:
				t.Errorf("-seed %d, %d: the bad one has %c, %c: %s %s%s", *seedFlag, i, content, step, c.phase, c.message, c.story())
				return
			default:
				t.Logf("-seed %d, %d: good ones passed %s after they came back, the bad one was put back after %s: %s", *seedFlag, i, strings.Join(slow, ", "), c.now.Sub(back), c.message)
			}
		}
		back := 0
		for k, name := range strings.Fields(c.state.Sites) {
			if c.state.Steps[k] == byte(v1alpha1.StepRolledBack) {
				back++
			} else if x := slices.IndexFunc(c.sites, func(x *site) bool { return x.name == name }); x >= 0 && !slices.Contains(away, c.sites[x]) && c.state.Steps[k] == byte(v1alpha1.StepPassed) && c.state.Has[k] != '1' {
				t.Errorf("-seed %d, %d: %s lost the change", *seedFlag, i, name)
			}
		}
		if back != 1 {
			t.Errorf("-seed %d, %d: %d sites were put back%s", *seedFlag, i, back, c.story())
		}
	})
}
