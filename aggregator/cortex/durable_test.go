package cortex

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/powercut"
)

// TestPowerLossKeepsWhatWasAcknowledged cuts the power right after the answers: of new
// tenants and of known ones, of samples in order and late, and of what was taken from a
// push that was refused for the rest of it.
func TestPowerLossKeepsWhatWasAcknowledged(t *testing.T) {
	dir := t.TempDir()
	now := time.Now().Truncate(time.Minute)
	hourAgo := now.Add(-time.Hour)
	powercut.Run(t, dir, func(dir string) {
		c, _ := start(t, Options{DataDir: dir})
		for _, tenant := range []string{"acme", "globex"} {
			if _, err := pushV2(c.URL(), tenant, sample{"a", now, 1}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := pushV2(c.URL(), "acme", sample{"b", now, 2}); err != nil {
			t.Fatal(err)
		}
		if _, err := pushV2(c.URL(), "acme", sample{"a", hourAgo, 0.5}); err != nil {
			t.Fatal(err)
		}
		if resp, err := pushV2(c.URL(), "acme", sample{"a", now.Add(-90 * time.Hour), 9}, sample{"c", now, 3}); err == nil || resp.StatusCode != http.StatusBadRequest {
			t.Fatalf("a sample of four days ago: %v", err)
		}
	})
	c, _ := start(t, Options{DataDir: dir})
	wantValues(t, c.URL(), "acme", now, map[string]float64{"a": 1, "b": 2, "c": 3})
	wantValues(t, c.URL(), "acme", hourAgo, map[string]float64{"a": 0.5})
	wantValues(t, c.URL(), "globex", now, map[string]float64{"a": 1})
}

// TestPowerLossOverSegments cuts the power when a log has gone through several segments.
func TestPowerLossOverSegments(t *testing.T) {
	dir := t.TempDir()
	now := time.Now().Truncate(time.Minute)
	const pushes, each = 6, 1000
	powercut.Run(t, dir, func(dir string) {
		c, _ := start(t, Options{DataDir: dir, segmentBytes: 32 << 10})
		for n := range pushes {
			samples := make([]sample, each)
			for i := range samples {
				samples[i] = sample{fmt.Sprintf("%d-%d", n, i), now, 1}
			}
			if _, err := pushV2(c.URL(), "acme", samples...); err != nil {
				t.Fatal(err)
			}
		}
		if files, err := os.ReadDir(filepath.Join(dir, "tsdb", "acme", "wal")); err != nil || len(files) < 3 {
			t.Fatalf("%d segments, %v", len(files), err)
		}
	})
	c, _ := start(t, Options{DataDir: dir})
	if got, err := query(c.URL(), "acme", `test_metric`, now); err != nil || len(got) != pushes*each {
		t.Errorf("%d series, want %d: %v", len(got), pushes*each, err)
	}
}

// TestPowerLossKeepsUploads cuts the power when the ingester has noted that its blocks
// need to be uploaded never again.
func TestPowerLossKeepsUploads(t *testing.T) {
	dir := t.TempDir()
	powercut.Run(t, dir, func(dir string) {
		c, _ := start(t, Options{DataDir: dir})
		if _, err := pushV2(c.URL(), "acme", sample{"a", time.Now(), 1}); err != nil {
			t.Fatal(err)
		}
		c.app.Ingester.FlushHandler(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/ingester/flush?wait=true", nil))
		if b, err := os.ReadFile(filepath.Join(dir, "tsdb", "acme", "thanos.shipper.json")); err != nil || !strings.Contains(string(b), `"uploaded": [`) {
			t.Errorf("the ingester noted %s, %v", b, err)
		}
	})
	metas, err := filepath.Glob(filepath.Join(dir, "blocks", "acme", "*", "meta.json"))
	if err != nil || len(metas) != 1 {
		t.Fatalf("blocks in the bucket: %q, %v", metas, err)
	}
	for _, name := range []string{"meta.json", "index", "chunks/000001"} {
		if fi, err := os.Stat(filepath.Join(filepath.Dir(metas[0]), name)); err != nil || fi.Size() == 0 {
			t.Errorf("%s of the block in the bucket: %v, %v", name, fi, err)
		}
	}
}

// TestFailedSyncIsNotAcknowledged: neither that push nor any later one, and the store
// ends; what had been acknowledged before is there after the next start.
func TestFailedSyncIsNotAcknowledged(t *testing.T) {
	dir := t.TempDir()
	now := time.Now().Truncate(time.Minute)
	c, err := New(Options{DataDir: dir, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	var failing atomic.Bool
	c.wal.syncFile = func(f *os.File) error {
		if failing.Load() {
			return syscall.EIO
		}
		return f.Sync()
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	defer cancel()
	testkit.EventuallyWithin(t, "Cortex is ready", startLimit, c.Ready)
	if _, err := pushV2(c.URL(), "acme", sample{"a", now, 1}); err != nil {
		t.Fatal(err)
	}
	failing.Store(true)
	if resp, err := pushV2(c.URL(), "acme", sample{"b", now, 2}); err == nil || resp == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a push that could not be synced: %v", err)
	}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "sync the write-ahead log of tenant acme") {
		t.Errorf("Run: %v", err)
	}
	if err := c.wal.sync("acme"); err == nil {
		t.Error("synced after a failure")
	}
	c, _ = start(t, Options{DataDir: dir})
	if got, err := query(c.URL(), "acme", `test_metric{series="a"}`, now); err != nil || got["a"] != 1 {
		t.Errorf("after the restart: %v, %v", got, err)
	}
}

// BenchmarkPush is a push of 500 series over HTTP by one and by eight senders, answered
// with its sync and without, and a plain write and fsync of as many bytes as a push adds
// to the log.
func BenchmarkPush(b *testing.B) {
	dir := b.TempDir()
	c, err := New(Options{DataDir: dir, Listen: "127.0.0.1:0"})
	if err != nil {
		b.Fatal(err)
	}
	var sync atomic.Bool
	c.wal.syncFile = func(f *os.File) error {
		if sync.Load() {
			return f.Sync()
		}
		return nil
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	defer func() { cancel(); <-done }()
	for c.Ready() != nil {
		time.Sleep(20 * time.Millisecond)
	}
	begin := time.Now().Add(-40 * time.Hour)
	var n atomic.Int64
	names := make([][]string, 8)
	for w := range names {
		for i := range 500 {
			names[w] = append(names[w], fmt.Sprintf("w%d-%d", w, i))
		}
	}
	push := func(w int) {
		at := begin.Add(time.Duration(n.Add(1)) * time.Second)
		samples := make([]sample, len(names[w]))
		for i := range samples {
			samples[i] = sample{names[w][i], at, float64(i)}
		}
		if _, err := pushV2(c.URL(), "acme", samples...); err != nil {
			b.Error(err)
		}
	}
	for w := range names {
		push(w)
	}
	for _, senders := range []int{1, 8} {
		for _, synced := range []bool{false, true} {
			b.Run(fmt.Sprintf("senders=%d/synced=%v", senders, synced), func(b *testing.B) {
				sync.Store(synced)
				var left atomic.Int64
				left.Store(int64(b.N))
				ended := make(chan bool)
				for w := range senders {
					go func() {
						for left.Add(-1) >= 0 {
							push(w)
						}
						ended <- true
					}()
				}
				for range senders {
					<-ended
				}
			})
		}
	}
	b.Run("plain", func(b *testing.B) {
		f, err := os.Create(filepath.Join(dir, "plain"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		buf := make([]byte, 6<<10)
		for b.Loop() {
			if _, err := f.Write(buf); err != nil {
				b.Fatal(err)
			}
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
