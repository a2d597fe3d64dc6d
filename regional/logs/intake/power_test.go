package intake

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/faultdisk"
)

// powerLife runs an intake on a disk: chunks of several tenants and sites, of which the store
// takes the first ones and refuses some for good. It returns the lines that were acknowledged.
func powerLife(t *testing.T, disk *faultdisk.Disk, dir string, sink *memSink) (acked []string) {
	t.Helper()
	in, err := New(Options{Name: "eu-1", Dir: dir, Sink: sink, FS: disk, DeadLetterBytes: 8 << 10, QueueBytes: 8 << 10})
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = in.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	w := in.newWorker()
	for i := range 12 {
		id := []fleet.SiteID{paris, berlin, tokyo}[i%3]
		s, err := in.enter(id, "eu")
		if err != nil {
			t.Fatal(err)
		}
		m, err := parseMessage(forward(fmt.Sprint(i), 3, func(j int) string {
			if j == 1 && i < 6 {
				return fmt.Sprint("bad ", i)
			}
			return fmt.Sprint(i, ".", j)
		}))
		if err != nil {
			t.Fatal(err)
		}
		if i == 6 {
			sink.setDown(errors.New("down"))
		}
		_, err = w.deliver(delivery{site: s, region: "eu", tag: m.tag, hash: hashOf(id, m.entries), records: entries(m.entries)})
		if err == nil {
			for j := range 3 {
				if j == 1 && i < 6 {
					acked = append(acked, fmt.Sprint("bad ", i))
				} else {
					acked = append(acked, fmt.Sprint(i, ".", j))
				}
			}
		}
		in.leave(s)
		_ = in.quota.save()
	}
	return acked
}

// deadLines is what the files of dead letters hold.
func deadLines(t *testing.T, dir string) string {
	t.Helper()
	var all []byte
	files, _ := filepath.Glob(filepath.Join(dir, "dead-letters", "*"))
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return string(all)
}

func refuseBad(r Record) string {
	if strings.HasPrefix(r.Message, "bad") {
		return "it is bad"
	}
	return ""
}

// TestPowerLoss cuts the power before each change of the disk in turn: every line that was
// acknowledged is in the store, among the dead letters, or in the queue, from which it
// goes to the store after the restart.
func TestPowerLoss(t *testing.T) {
	root := t.TempDir()
	disk := faultdisk.New(t, root)
	if n := len(powerLife(t, disk, filepath.Join(root, "logs"), &memSink{dead: refuseBad})); n != 36 {
		t.Fatalf("%d lines without a power cut", n)
	}
	total := disk.Ops()
	for at := 0; at < total; at++ {
		for seed := range uint64(2) {
			root := t.TempDir()
			disk := faultdisk.New(t, root)
			disk.PowerOffAfter(at)
			sink := &memSink{dead: refuseBad}
			dir := filepath.Join(root, "logs")
			acked := powerLife(t, disk, dir, sink)
			disk.Crash(seed * uint64(at+1))
			sink.setDown(nil)
			r := start(t, func(o *Options) { o.Listen, o.Dir, o.Sink, o.FS = "", dir, sink, disk })
			testkit.EventuallyTrue(t, "the queue is drained", func() bool { return r.queue.Stats().Pending == 0 })
			r.stop()
			have := map[string]bool{}
			for _, rec := range sink.all() {
				have[rec.Message] = true
			}
			letters := deadLines(t, dir)
			for _, line := range acked {
				if !have[line] && !strings.Contains(letters, `"`+line+`"`) {
					t.Fatalf("power cut before change %d of %d, seed %d: %q was acknowledged and is lost", at, total, seed, line)
				}
			}
		}
	}
	t.Logf("%d changes of the disk", total)
}
