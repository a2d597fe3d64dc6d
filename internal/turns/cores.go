package turns

import (
	"os"
	"runtime"
)

// cores is noted before any role asks for more threads than that.
var cores = runtime.GOMAXPROCS(0)

// Cores is how many processors this process may use, as Go found them at its start: by
// affinity and by the control group, or what GOMAXPROCS in the environment says. What is as
// wide as the machine asks for this, not for runtime.GOMAXPROCS, which Threads raises.
func Cores() int { return cores }

// threadsPerCore is how many threads run Go code for each processor in a role that serves
// many tenants.
const threadsPerCore = 3

// Threads lets Go code run on more threads than there are processors. Go lets a goroutine
// that has become ready wait until those before it on its thread have had 10 ms each; the
// kernel lets a thread that has waited for something go before those that compute all the
// time. So where a machine is short of processors a short answer comes sooner, though
// the work is the same. GOMAXPROCS in the environment comes first.
func Threads() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(threadsPerCore * cores)
	}
}
