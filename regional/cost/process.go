package cost

import "runtime/metrics"

// memory is what the Go runtime has of the machine, in bytes: what GOMEMLIMIT is about.
// Files that are mapped, such as blocks, are not in it: the kernel takes those back.
func memory() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() - s[1].Value.Uint64())
}

func thisProcess() Process { return Process{CPU: cpu(), Memory: memory()} }
