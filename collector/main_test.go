package collector

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a collector leaves a goroutine behind: a simulated fleet
// starts and stops many in one process.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"), // started by the package's init
	)
}
