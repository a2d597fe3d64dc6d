package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

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
//
// Of Alertmanagers that gossip one notifies and the others don't, now this one, now that. So each
// role's Tally counts what its own sent, and they tell each other (MarshalBinary, Merge): any of them
// knows what all sent.
type Tally struct {
	file string
	self string // this role's, since its directory is there
	mu   sync.Mutex
	of   map[tallied]*tallyCount
}

type tallied struct{ from, tenant, rule string }

type tallyCount struct {
	From      string           `json:"from"` // who counted: self of a Tally
	Tenant    string           `json:"tenant"`
	Rule      string           `json:"rule"`
	Hours     map[int64]int    `json:"hours"` // by hours since 1970
	Failed    map[int64]int    `json:"failed,omitempty"`
	Receivers map[string]int64 `json:"receivers"` // the hour in which each was notified last
}

func (x *tallyCount) key() tallied { return tallied{x.From, x.Tenant, x.Rule} }

// tallyFile is a Tally on disk, and as peers tell it.
type tallyFile struct {
	Self   string        `json:"self"`
	Counts []*tallyCount `json:"counts"`
}

// OpenTally reads what the file of an earlier run has; what is no tally in it is forgotten.
func OpenTally(file string) (*Tally, error) {
	t := &Tally{file: file, of: map[tallied]*tallyCount{}}
	b, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("tally of notifications: %w", err)
	}
	var earlier tallyFile
	if err == nil && json.Unmarshal(b, &earlier) == nil {
		t.self = earlier.Self
		t.mergeLocked(earlier.Counts)
	}
	if t.self == "" {
		t.self = uuid.NewString()
	}
	return t, nil
}

// Add counts an attempt at one notification for each of the rules that it is about.
func (t *Tally) Add(now time.Time, tenant, receiver string, rules []string, failed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	hour := now.Unix() / 3600
	for _, rule := range rules {
		x := t.entryLocked(tallied{t.self, tenant, rule}, hour)
		if x == nil {
			return
		}
		x.Hours[hour]++
		if failed {
			x.Failed[hour]++
		}
		x.Receivers[receiver] = hour
	}
}

// entryLocked is nil where there is no room.
func (t *Tally) entryLocked(k tallied, hour int64) *tallyCount {
	if x := t.of[k]; x != nil {
		return x
	}
	if len(t.of) >= maxTallied {
		t.forgetLocked(hour)
	}
	if len(t.of) >= maxTallied {
		return nil
	}
	x := &tallyCount{From: k.from, Tenant: k.tenant, Rule: k.rule, Hours: map[int64]int{}, Failed: map[int64]int{}, Receivers: map[string]int64{}}
	t.of[k] = x
	return x
}

// mergeLocked takes the higher one of two counts by the same role of the same hour: they only grow.
func (t *Tally) mergeLocked(counts []*tallyCount) {
	hour := time.Now().Unix() / 3600
	for _, in := range counts {
		if in == nil {
			continue
		}
		x := t.entryLocked(in.key(), hour)
		if x == nil {
			return
		}
		for h, n := range in.Hours {
			x.Hours[h] = max(x.Hours[h], n)
		}
		for h, n := range in.Failed {
			x.Failed[h] = max(x.Failed[h], n)
		}
		for name, h := range in.Receivers {
			x.Receivers[name] = max(x.Receivers[name], h)
		}
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

// encode has what is to be known of the last 24 hours.
func (t *Tally) encode(now time.Time) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked(now.Unix() / 3600)
	b, err := json.Marshal(tallyFile{Self: t.self, Counts: slices.Collect(maps.Values(t.of))})
	if err != nil {
		return nil, fmt.Errorf("tally of notifications: %w", err)
	}
	return b, nil
}

// Save writes the file.
func (t *Tally) Save(now time.Time) error {
	b, err := t.encode(now)
	if err != nil {
		return err
	}
	return atomicfile.Write(t.file, b, 0o600)
}

// MarshalBinary is what the Alertmanagers of a cluster tell each other.
func (t *Tally) MarshalBinary() ([]byte, error) { return t.encode(time.Now()) }

// Merge takes what another role told. It fails never: after an error the gossip would leave out what comes behind, silences
// among it.
func (t *Tally) Merge(b []byte) error {
	var in tallyFile
	if json.Unmarshal(b, &in) != nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mergeLocked(in.Counts)
	return nil
}

// loudest are the rules of some tenants, the loudest first.
func (t *Tally) loudest(now time.Time, mine func(tenant string) bool) []wire.RuleLoudness {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked(now.Unix() / 3600)
	sums := map[tallied]*wire.RuleLoudness{}
	for k, x := range t.of {
		if !mine(x.Tenant) {
			continue
		}
		k.from = ""
		r := sums[k]
		if r == nil {
			r = &wire.RuleLoudness{Tenant: x.Tenant, Rule: x.Rule}
			sums[k] = r
		}
		for _, n := range x.Hours {
			r.Notifications += n
		}
		for _, n := range x.Failed { // an attempt that is made again until it succeeds notified nobody
			r.Failed += n
			r.Notifications -= n
		}
		for name := range x.Receivers {
			r.Receivers = append(r.Receivers, name)
		}
	}
	out := make([]wire.RuleLoudness, 0, len(sums))
	for _, r := range sums {
		slices.Sort(r.Receivers)
		r.Receivers = slices.Compact(r.Receivers)
		out = append(out, *r)
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
