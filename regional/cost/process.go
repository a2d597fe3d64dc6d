package cost

import (
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/prometheus/procfs"

	"muster.dev/muster/internal/turns"
)

// thisProcess reads what this process uses and may use. Its memory is what the Go runtime
// has of the machine, which is what GOMEMLIMIT, and with it what its control group allows, is
// about. Files that are mapped, such as blocks, are not in it: the kernel takes those back.
func thisProcess() Process {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	p := Process{CPU: cpu(), Memory: int64(s[0].Value.Uint64() - s[1].Value.Uint64()), Cores: float64(turns.Cores()), Idle: -1}
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		p.MemoryLimit = limit
	}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return p // no Linux
	}
	if st, err := fs.Stat(); err == nil {
		p.Idle = time.Duration((st.CPUTotal.Idle + st.CPUTotal.Iowait) * float64(time.Second))
	}
	if mem, err := fs.Meminfo(); err == nil && mem.MemAvailableBytes != nil && p.MemoryLimit == 0 {
		p.MemoryLimit = p.Memory + int64(*mem.MemAvailableBytes) // nothing limits it but the machine
	}
	return p
}
