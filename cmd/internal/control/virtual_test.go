package control

import (
	"math"
	"testing"

	"muster.dev/muster/control/vk8s/status"
)

// A machine with memory serves an informer that asks for 150,000 pods at once, a small one
// no less than it did.
func TestListsTakeAShareOfTheMemory(t *testing.T) {
	const pods = 150_000 * 6500
	for limit, want := range map[int64]int{1 << 30: status.DefaultListBytes, 8 << 30: 2 << 30, math.MaxInt64: status.DefaultListBytes} {
		if got := listBytes(limit); got != want {
			t.Errorf("%d bytes of memory: %d for lists, want %d", limit, got, want)
		}
	}
	if one := listBytes(8<<30) / 2; one < pods {
		t.Errorf("one list has %d, 150,000 pods take %d", one, pods)
	}
}
