package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// place is what others have to know of a rollout that is under way.
type place struct {
	tenant  string
	created time.Time
	objects []string
	// sites that it may change, and those that it is changing: they got something and
	// their wave has not passed.
	sites, moving map[string]bool
	begun, paused bool
}

// stand takes up where a rollout stands in the line.
func (c *Controller) stand(k *known, p place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k.place = p
}

// queued says behind which rollout one that has not begun has to wait; "": behind none.
//
// The rule: rollouts of different objects that share sites begin in the order in which they
// were made, and one begins while another is under way only if that one is changing no site
// of its own at that moment. Else nobody could tell which of the two made a site worse. One
// that has begun goes on, and one that people paused before it began lets others by. Two
// that move the same object never wait for each other: the newer takes over.
func (c *Controller) queued(key types.NamespacedName, mine place) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var first types.NamespacedName
	var why string
	for other, k := range c.known {
		p := k.place
		if other == key || p.tenant != mine.tenant || !before(other, p, key, mine) || sameObject(p, mine) {
			continue
		}
		var text string
		switch n, at := shared(mine.sites, p.moving); {
		case n > 0:
			text = fmt.Sprintf("waits behind rollout %s, which is changing %s", nameFor(other, key), sitesText(n, at))
		case !p.begun && !p.paused:
			if n, at := shared(mine.sites, p.sites); n > 0 {
				text = fmt.Sprintf("waits behind rollout %s, which is about to change %s", nameFor(other, key), sitesText(n, at))
			}
		}
		if text != "" && (why == "" || before(other, p, first, c.known[first].place)) {
			first, why = other, text
		}
	}
	return why
}

// before: a rollout that has begun is before one that has not; else the older one is.
func before(a types.NamespacedName, pa place, b types.NamespacedName, pb place) bool {
	if pa.begun != pb.begun {
		return pa.begun
	}
	if !pa.created.Equal(pb.created) {
		return pa.created.Before(pb.created)
	}
	return strings.Compare(a.String(), b.String()) < 0
}

func sameObject(a, b place) bool {
	return slices.ContainsFunc(a.objects, func(o string) bool { return slices.Contains(b.objects, o) })
}

// shared is how many sites are in both, and the first by name.
func shared(a, b map[string]bool) (n int, first string) {
	for name := range b {
		if !a[name] {
			continue
		}
		if n++; first == "" || name < first {
			first = name
		}
	}
	return n, first
}

func sitesText(n int, example string) string {
	if n == 1 {
		return "site " + example + " as well"
	}
	return fmt.Sprintf("%d of the same sites, such as %s", n, example)
}

func nameFor(other, mine types.NamespacedName) string {
	if other.Namespace == mine.Namespace {
		return other.Name
	}
	return other.Namespace + "/" + other.Name
}
