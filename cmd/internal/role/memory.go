package role

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// MemoryShareEnv is in the environment of processes that share a control group: how much
// of its memory is this one's, between 0 and 1. What is set there by hand stays.
const MemoryShareEnv = "AUTOMEMLIMIT"

// MemoryRatio is how much of a control group's memory a process that is alone in it lets
// its heap grow to, before it collects garbage harder; the rest is for what is not heap.
const MemoryRatio = 0.9

// leastGrowth is by how many bytes the heap of a process that collects garbage early may grow
// all the same. What a collection costs goes with what is live, so a small heap that is
// collected at every few megabytes spends its processor on that, and memory is not what it
// lacks.
const leastGrowth = 128 << 20

// growthLook is how often that is looked at. What is live changes slowly but for the start,
// when a role reads what it kept: collected at every 30 % from the first megabyte on, that
// takes twice the processor time (BenchmarkRestart in regional/gateway).
const growthLook = time.Second

// limitMemory has the garbage collector keep the process below what its control group
// allows, as far as it can, and collect when the heap has grown by gcPercent, and by
// leastGrowth, until ctx ends; 0: Go's default. GOGC, GOMEMLIMIT and MemoryShareEnv in the
// environment come first. Where nothing limits the process there is no limit.
func limitMemory(ctx context.Context, log *slog.Logger, gcPercent int) {
	if gcPercent > 0 && os.Getenv("GOGC") == "" {
		now := percentOf(gcPercent, 0)
		debug.SetGCPercent(now)
		go func() {
			tick := time.NewTicker(growthLook)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
				metrics.Read(live)
				// To set it stops the world for a moment.
				if want := percentOf(gcPercent, live[0].Value.Uint64()); 10*max(want-now, now-want) > now {
					debug.SetGCPercent(want)
					now = want
				}
			}
		}()
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

// percentOf is by how many percent the heap may grow of which live bytes are live.
func percentOf(percent int, live uint64) int {
	return max(percent, int(min(leastGrowth*100/max(live, 1), 400)))
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
