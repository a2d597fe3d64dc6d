package cortex

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster.dev/muster/internal/diskshare"
)

// While the disk is nearly full, pushes of the tenant that sends most wait, the others' are
// stored, and everybody's queries are answered.
func TestNearlyFullDisk(t *testing.T) {
	var free atomic.Int64
	free.Store(10 << 30)
	disk := diskshare.New(func() (int64, int64, error) { return free.Load(), 20 << 30, nil }, nil)
	c, _ := start(t, Options{DataDir: t.TempDir(), Disk: disk})
	now := time.Now()
	var many []sample
	for i := range 1000 {
		many = append(many, sample{"a", now.Add(time.Duration(i-1000) * time.Second), float64(i * i)})
	}
	if _, err := pushV2(c.URL(), "greedy", many...); err != nil {
		t.Fatal(err)
	}
	if _, err := pushV2(c.URL(), "small", many[0]); err != nil {
		t.Fatal(err)
	}
	free.Store(500 << 20)
	disk.Look()
	if resp, err := pushV2(c.URL(), "greedy", sample{"a", now, 7}); err == nil || resp == nil || resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" || !strings.Contains(err.Error(), "the disk is nearly full") {
		t.Errorf("the greedy tenant: %v", err)
	}
	if _, err := pushV2(c.URL(), "small", sample{"a", now, 7}); err != nil {
		t.Errorf("the small one: %v", err)
	}
	if got, err := query(c.URL(), "greedy", "test_metric", now); err != nil || got["a"] != 999*999 {
		t.Errorf("a query of the greedy tenant: %v, %v", got, err)
	}
	free.Store(10 << 30)
	disk.Look()
	if _, err := pushV2(c.URL(), "greedy", sample{"a", now, 7}); err != nil {
		t.Errorf("with room again: %v", err)
	}
}
