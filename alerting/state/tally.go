package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/wire"
)

const (
	tallyHours = 24
	// maxTallied rules are counted; further ones are not.
	maxTallied = 10_000
)

// Tally counts the notifications that rules sent in the last 24 hours, by the hour. The timeline
// tells of notifications too, but leaves out what a loud receiver gets too much of, which is just
// what is asked for here. Safe for concurrent use.
type Tally struct {
	file string
	mu   sync.Mutex
	of   map[tallied]*tallyCount
}

type tallied struct{ tenant, rule string }

type tallyCount struct {
	Tenant    string           `json:"tenant"`
	Rule      string           `json:"rule"`
	Hours     map[int64]int    `json:"hours"` // by hours since 1970
	Failed    map[int64]int    `json:"failed,omitempty"`
	Receivers map[string]int64 `json:"receivers"` // the hour in which each was notified last
}

// OpenTally reads what the file of an earlier run has; what is no tally in it is forgotten.
func OpenTally(file string) (*Tally, error) {
	t := &Tally{file: file, of: map[tallied]*tallyCount{}}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	} else if err != nil {
		return nil, fmt.Errorf("tally of notifications: %w", err)
	}
	var all []*tallyCount
	if json.Unmarshal(b, &all) != nil {
		return t, nil
	}
	for _, x := range all {
		if x != nil && x.Hours != nil && x.Receivers != nil && len(t.of) < maxTallied {
			t.of[tallied{x.Tenant, x.Rule}] = x
		}
	}
	return t, nil
}

// Add counts an attempt at one notification for each of the rules that it is about.
func (t *Tally) Add(now time.Time, tenant, receiver string, rules []string, failed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	hour := now.Unix() / 3600
	for _, rule := range rules {
		k := tallied{tenant, rule}
		x := t.of[k]
		if x == nil {
			if len(t.of) >= maxTallied {
				t.forgetLocked(hour)
			}
			if len(t.of) >= maxTallied {
				return
			}
			x = &tallyCount{Tenant: tenant, Rule: rule, Hours: map[int64]int{}, Receivers: map[string]int64{}}
			t.of[k] = x
		}
		x.Hours[hour]++
		if failed {
			if x.Failed == nil {
				x.Failed = map[int64]int{}
			}
			x.Failed[hour]++
		}
		x.Receivers[receiver] = hour
	}
}

func (t *Tally) forgetLocked(hour int64) {
	for k, x := range t.of {
		for _, m := range []map[int64]int{x.Hours, x.Failed} {
			for h := range m {
				if h <= hour-tallyHours {
					delete(m, h)
				}
			}
		}
		for name, h := range x.Receivers {
			if h <= hour-tallyHours {
				delete(x.Receivers, name)
			}
		}
		if len(x.Hours) == 0 {
			delete(t.of, k)
		}
	}
}

// Save writes the file.
func (t *Tally) Save(now time.Time) error {
	t.mu.Lock()
	t.forgetLocked(now.Unix() / 3600)
	all := make([]*tallyCount, 0, len(t.of))
	for _, x := range t.of {
		all = append(all, x)
	}
	b, err := json.Marshal(all)
	t.mu.Unlock()
	if err != nil {
		return fmt.Errorf("tally of notifications: %w", err)
	}
	return atomicfile.Write(t.file, b, 0o600)
}

// loudest are the rules of some tenants, the loudest first.
func (t *Tally) loudest(now time.Time, mine func(tenant string) bool) []wire.RuleLoudness {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked(now.Unix() / 3600)
	out := []wire.RuleLoudness{}
	for _, x := range t.of {
		if !mine(x.Tenant) {
			continue
		}
		r := wire.RuleLoudness{Tenant: x.Tenant, Rule: x.Rule, Receivers: []string{}}
		for _, n := range x.Hours {
			r.Notifications += n
		}
		for _, n := range x.Failed { // an attempt that is made again until it succeeds notified nobody
			r.Failed += n
		}
		r.Notifications -= r.Failed
		for name := range x.Receivers {
			r.Receivers = append(r.Receivers, name)
		}
		slices.Sort(r.Receivers)
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b wire.RuleLoudness) int {
		return cmp.Or(b.Notifications-a.Notifications, b.Failed-a.Failed, strings.Compare(a.Rule, b.Rule), strings.Compare(a.Tenant, b.Tenant))
	})
	return out
}

// loudness lists which rules notified how often in the last 24 hours.
func (s *State) loudness(_ *http.Request, q url.Values, sc *wire.Scope) (int, any, *wire.Problem) {
	limit, p := limitOf(q, defaultLimit)
	if p != nil {
		return 0, nil, p
	}
	out := wire.LoudnessList{Hours: tallyHours, Rules: []wire.RuleLoudness{}}
	if s.opts.Tally == nil {
		return http.StatusOK, out, nil
	}
	out.Counted = true
	all := s.opts.Tally.loudest(time.Now(), func(tenant string) bool {
		return sc.Has(tenant) && (len(sc.Asked) == 0 || slices.Contains(sc.Asked, tenant))
	})
	for _, r := range all {
		out.Total += r.Notifications
	}
	out.Rules = append(out.Rules, all[:min(limit, len(all))]...)
	return http.StatusOK, out, nil
}
