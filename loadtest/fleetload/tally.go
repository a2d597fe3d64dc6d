package fleetload

import (
	"slices"
	"sync"
	"time"
)

// Tally counts what became of a fleet's requests since it was begun. Safe for
// concurrent use.
type Tally struct {
	mu sync.Mutex
	c  Counts
	// of each push that was answered or timed out
	took []time.Duration
}

// Counts of a phase.
type Counts struct {
	Pushes      int `json:"pushes"`      // that were acknowledged
	Samples     int `json:"samples"`     // in these
	Bytes       int `json:"bytes"`       // bodies of these
	TooMany     int `json:"tooMany"`     // 429
	Unavailable int `json:"unavailable"` // 5xx
	Refused     int `json:"refused"`     // other answers than 2xx: samples were lost
	Timeouts    int `json:"timeouts"`
	Failed      int `json:"failed"`     // no connection, or it broke
	Reconnects  int `json:"reconnects"` // streams that were opened anew
	// Of pushes that were acknowledged, refused or timed out, in milliseconds.
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
	// LastError is one of those that are counted, for a person.
	LastError string `json:"lastError,omitempty"`
}

func (t *Tally) push(samples, bytes int, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.c.Pushes++
	t.c.Samples += samples
	t.c.Bytes += bytes
	t.took = append(t.took, took)
}

func (t *Tally) fail(count func(*Counts), why string, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	count(&t.c)
	t.c.LastError = why
	if took > 0 {
		t.took = append(t.took, took)
	}
}

func (t *Tally) reconnected() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.c.Reconnects++
}

// Sums returns what was counted so far, without the times.
func (t *Tally) Sums() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.c
}

// Counts returns what was counted so far.
func (t *Tally) Counts() Counts {
	t.mu.Lock()
	c, took := t.c, slices.Clone(t.took)
	t.mu.Unlock()
	slices.Sort(took)
	at := func(q float64) float64 {
		if len(took) == 0 {
			return 0
		}
		return float64(took[int(q*float64(len(took)-1))]) / float64(time.Millisecond)
	}
	c.P50, c.P99, c.Max = at(0.5), at(0.99), at(1)
	return c
}

// Quantile of unsorted durations; 0 of none.
func Quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	return d[int(q*float64(len(d)-1))]
}
