package role

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// MemoryShareEnv is in the environment of processes that share a control group: how much
// of its memory is this one's, between 0 and 1. What is set there by hand stays.
const MemoryShareEnv = "AUTOMEMLIMIT"

// MemoryRatio is how much of a control group's memory a process that is alone in it lets
// its heap grow to, before it collects garbage harder; the rest is for what is not heap.
const MemoryRatio = 0.9

// limitMemory has the garbage collector keep the process below what its control group
// allows, as far as it can, and collect when the heap has grown by gcPercent; 0: Go's
// default. GOGC, GOMEMLIMIT and MemoryShareEnv in the environment come first. Where
// nothing limits the process there is no limit.
func limitMemory(log *slog.Logger, gcPercent int) {
	if gcPercent > 0 && os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	limit, err := memlimit.SetGoMemLimitWithOpts(memlimit.WithRatio(MemoryRatio), memlimit.WithProvider(memlimit.FromCgroup))
	switch {
	case errors.Is(err, memlimit.ErrNoCgroup), errors.Is(err, memlimit.ErrCgroupsNotSupported):
	case err != nil:
		log.Warn("there is no limit for the heap: what the control group allows can't be read", "err", err)
	case limit > 0:
		log.Info("the heap is kept below what the control group allows", "bytes", limit)
	}
}

// MemoryShare is the environment that gives a child process its share of the memory that
// this process' control group has. percents of all children are 100 together.
func MemoryShare(percent float64) []string {
	for _, name := range []string{MemoryShareEnv, "GOMEMLIMIT"} {
		if os.Getenv(name) != "" {
			return nil
		}
	}
	return []string{fmt.Sprintf("%s=%s", MemoryShareEnv, strconv.FormatFloat(MemoryRatio*percent/100, 'f', 4, 64))}
}
