package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/regional/engine/compiled"
)

// TestPrograms: what is asked again gets a program, however much is asked once in between.
func TestPrograms(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	p := newPrograms(nil, compiled.NewRecent(), func() time.Time { return now }, prometheus.NewRegistry())
	if p.of(expression{text: "up", lookback: compiled.Lookback}) != nil {
		t.Error("a program for what is asked for the first time")
	}
	if p.of(expression{text: "up", lookback: compiled.Lookback}) == nil {
		t.Error("no program for what is asked again")
	}
	if p.of(expression{text: "topk(1, up)", lookback: compiled.Lookback}); p.of(expression{text: "topk(1, up)", lookback: compiled.Lookback}) != nil {
		t.Error("a program for what can't be compiled")
	}
	for i := range 3 * maxPrograms {
		p.of(expression{fmt.Sprintf("up{site=~%q}", fmt.Sprint(i)), compiled.Lookback})
	}
	if p.of(expression{text: "down", lookback: compiled.Lookback}); p.of(expression{text: "down", lookback: compiled.Lookback}) == nil || p.of(expression{text: "up", lookback: compiled.Lookback}) == nil {
		t.Error("what is asked once leaves no room for what is asked again")
	}
	if len(p.by) > maxPrograms {
		t.Errorf("%d are kept", len(p.by))
	}
	if now = now.Add(programFor + time.Second); p.of(expression{text: "up", lookback: compiled.Lookback}) != nil {
		t.Error("a program of long ago")
	}
}
