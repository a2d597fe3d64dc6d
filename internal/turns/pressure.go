package turns

import (
	"time"

	"github.com/prometheus/procfs"
)

// pressure is whether this machine is short of processors, by the kernel's own account
// (https://docs.kernel.org/accounting/psi.html). It is guarded by its Slots' lock.
type pressure struct {
	asked time.Time
	is    bool
}

// highPressure is the part of the last ten seconds, in percent, in which some thread of the machine
// that could have run waited for a processor.
const highPressure = 50

// high is asked of the kernel once a second at most. A kernel without an account is taken to be
// under pressure.
func (p *pressure) high() bool {
	if now := time.Now(); now.Sub(p.asked) >= time.Second {
		p.asked, p.is = now, true
		if fs, err := procfs.NewDefaultFS(); err == nil {
			if psi, err := fs.PSIStatsForResource("cpu"); err == nil && psi.Some != nil {
				p.is = psi.Some.Avg10 >= highPressure
			}
		}
	}
	return p.is
}
