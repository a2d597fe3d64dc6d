// Package hostile is what peers of ill will do to a Muster: a site that holds a good
// certificate, the admin of a tenant, and somebody who can only reach the gateway's
// port. It stands in for what can't be hired; the neighbour test of package e2e runs it
// beside a tenant that must not notice.
//
// Every attack is bounded: it runs until its context ends, one request at a time and
// at a stated pace, so that what a neighbour feels is Muster's fault and not a
// machine that is busy with attacking. It talks only to the addresses that it is
// given, and belongs to no product path.
package hostile

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Attack is one way to do harm.
type Attack struct {
	Name string
	// Every is the pause after each try.
	Every time.Duration
	// Try does it once and says what came back, in a word or two: "204", "429",
	// "refused". The number of try begins at 0.
	Try func(ctx context.Context, n int) string
	// Wall is what has to come back; the zero one asks nothing: such a wall shows in what
	// neighbours feel.
	Wall Wall
}

// Wall says how Muster has to answer an attack.
type Wall struct {
	Must  []string // one of these at least once
	Never []string
}

var (
	// refused: it is never let in.
	refused = Wall{Must: []string{"400", "401", "403", "413", "422", "429"}, Never: []string{"200", "201", "204"}}
	// bounded: some is let in, not all of it.
	bounded = Wall{Must: []string{"400", "403", "413", "422", "429", "503"}}
)

// Check says how the wall did not hold.
func (w Wall) Check(t Tally) error {
	for _, answer := range w.Never {
		if t[answer] > 0 {
			return fmt.Errorf("%d of %d tries were answered %s", t[answer], t.All(), answer)
		}
	}
	if len(w.Must) > 0 && !slices.ContainsFunc(w.Must, func(answer string) bool { return t[answer] > 0 }) {
		return fmt.Errorf("of %d tries none was refused: %s", t.All(), t)
	}
	return nil
}

// Run runs attacks side by side until ctx ends, and returns what came back: attack →
// answer → how often.
func Run(ctx context.Context, attacks []Attack) map[string]Tally {
	out := map[string]Tally{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, a := range attacks {
		wg.Go(func() {
			t := Tally{}
			for n := 0; ctx.Err() == nil; n++ {
				if answer := a.Try(ctx, n); ctx.Err() == nil {
					t[answer]++
				}
				select {
				case <-ctx.Done():
				case <-time.After(a.Every):
				}
			}
			mu.Lock()
			defer mu.Unlock()
			out[a.Name] = t
		})
	}
	wg.Wait()
	return out
}

// holding is what attacks leave open. Safe for concurrent use.
type holding struct {
	mu   sync.Mutex
	open []io.Closer
}

func (h *holding) hold(c io.Closer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = append(h.open, c)
}

// Close closes all that the attacks left open.
func (h *holding) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.open {
		_ = c.Close()
	}
	h.open = nil
}

// slow opens a connection, sends the beginning of something, and leaves it open.
func (h *holding) slow(ctx context.Context, addr string, cfg *tls.Config, send string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return short(err)
	}
	if _, err := io.WriteString(c, send); err != nil {
		_ = c.Close()
		return short(err)
	}
	h.hold(c)
	return "held"
}

// Tally counts answers.
type Tally map[string]int

// String lists the answers by name.
func (t Tally) String() string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(t)) {
		parts = append(parts, fmt.Sprintf("%s × %d", k, t[k]))
	}
	return strings.Join(parts, ", ")
}

// All is the number of tries.
func (t Tally) All() int {
	n := 0
	for _, c := range t {
		n += c
	}
	return n
}
