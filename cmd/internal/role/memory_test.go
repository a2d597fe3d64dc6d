package role

import (
	"log/slog"
	"runtime/debug"
	"testing"
)

// What the environment says comes first.
func TestEnvironmentDecidesOverMemory(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(limit)
	defer debug.SetGCPercent(percent)
	now := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	log := slog.New(slog.DiscardHandler)

	t.Setenv("GOGC", "")
	t.Setenv(MemoryShareEnv, "off")
	limitMemory(t.Context(), log, 50)
	if got := now(); got != 400 {
		t.Errorf("GC percent %d of a heap that holds nothing yet, want 400", got)
	}
	if got := debug.SetMemoryLimit(-1); got != limit {
		t.Errorf("limit %d, want %d as it was", got, limit)
	}
	t.Setenv("GOGC", "80")
	debug.SetGCPercent(80)
	limitMemory(t.Context(), log, 50)
	if got := now(); got != 80 {
		t.Errorf("GC percent %d, want GOGC's 80", got)
	}
	if got := MemoryShare(35); got != nil {
		t.Errorf("a share of %v beside one that is set by hand", got)
	}
	t.Setenv(MemoryShareEnv, "")
	t.Setenv("GOMEMLIMIT", "")
	if got := MemoryShare(35); len(got) != 1 || got[0] != "AUTOMEMLIMIT=0.3150" {
		t.Errorf("%q", got)
	}
}

// A small heap may grow by more than its share, a large one by no more.
func TestLeastGrowth(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 20 << 20: 400, 64 << 20: 200, 256 << 20: 50, 512 << 20: 30, 4 << 30: 30} {
		if got := percentOf(30, live); got != want {
			t.Errorf("of %d MiB: %d %%, want %d", live>>20, got, want)
		}
	}
}
