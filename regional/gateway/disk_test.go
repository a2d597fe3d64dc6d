package gateway

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"muster.dev/muster/internal/diskshare"
)

// A disk that one tenant fills takes its neighbour's samples for longer: the one that sends
// most is told to wait, with the reason, and goes on when there is room.
func TestNearlyFullDisk(t *testing.T) {
	var free atomic.Int64
	free.Store(10 << 30)
	disk := diskshare.New(func() (int64, int64, error) { return free.Load(), 20 << 30, nil }, nil)
	h := newHarness(t, harnessOptions{change: func(o *Options) { o.Disk = disk }})
	greedy, small := h.client(h.ca.site(t, paris, "")), h.client(h.ca.site(t, tokyo, ""))
	push := func(c *http.Client, n int) (int, string, http.Header) {
		s := sample(time.Now(), 1, "__name__", "up")
		for i := 1; i < n; i++ {
			s.Samples = append(s.Samples, sample(time.Now().Add(time.Duration(i)*time.Millisecond), 1).Samples...)
		}
		return h.pushSeries(c, s)
	}
	for c, n := range map[*http.Client]int{greedy: 900, small: 10} {
		if code, text, _ := push(c, n); code != http.StatusNoContent {
			t.Fatalf("%d %s", code, text)
		}
	}
	free.Store(500 << 20)
	disk.Look()
	code, text, hdr := push(greedy, 1)
	if code != http.StatusTooManyRequests || !strings.Contains(text, "the disk is nearly full, 500 MiB are free, and tenant acme is 99 %") || hdr.Get("Retry-After") == "" {
		t.Errorf("%d %s", code, text)
	}
	if live := slices.Collect(h.g.Live()); len(live) != 2 || live[0].Limited != "DiskNearlyFull" || live[1].Limited != "" {
		t.Errorf("%+v", live)
	}
	if n := testutil.ToFloat64(h.g.metrics.limited.WithLabelValues(reasonDisk)); n != 1 {
		t.Errorf("%g refusals are counted", n)
	}
	if code, text, _ := push(small, 1); code != http.StatusNoContent {
		t.Errorf("the neighbour: %d %s", code, text)
	}
	free.Store(10 << 30)
	disk.Look()
	if code, text, _ := push(greedy, 1); code != http.StatusNoContent {
		t.Errorf("with room again: %d %s", code, text)
	}
}
