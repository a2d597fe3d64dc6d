package spool

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"muster.dev/muster/internal/testkit/faultdisk"
)

// powerLife appends, reads and acknowledges until the power goes. It returns what
// was promised: records whose append returned, and those that were acknowledged.
func powerLife(s *Spool, from, n int) (appended, acked []string) {
	for i := from; i < from+n; i++ {
		rec := fmt.Sprintf("%04d%s", i, strings.Repeat("y", i%90))
		if _, err := s.Append([]byte(rec)); err != nil {
			return appended, acked
		}
		appended = append(appended, rec)
		if i%3 == 1 {
			for range 2 {
				s.reader <- struct{}{}
				r, ok, err := s.tryNext()
				<-s.reader
				if err != nil || !ok {
					break
				}
				if r.Seq%5 != 0 {
					s.Ack(r.Seq)
					acked = append(acked, string(r.Data))
				}
			}
		}
		if i%7 == 0 {
			s.flush()
		}
	}
	return appended, acked
}

// TestPowerLossAtEveryOperation cuts the power before each change of the disk in
// turn, and lets nothing or something of what was not synced survive: every record
// whose append returned is there, or was acknowledged.
func TestPowerLossAtEveryOperation(t *testing.T) {
	total := 0
	{
		dir := t.TempDir()
		disk := faultdisk.New(t, dir)
		s := open(t, Options{Dir: dir + "/a/b", FS: disk, SegmentBytes: 600, SyncInterval: always})
		powerLife(s, 0, 40)
		_ = s.Close()
		total = disk.Ops()
	}
	if total < 100 {
		t.Fatalf("%d operations", total)
	}
	for cut := 0; cut < total; cut++ {
		for seed := range uint64(4) {
			dir := t.TempDir()
			disk := faultdisk.New(t, dir)
			o := Options{Dir: dir + "/a/b", FS: disk, SegmentBytes: 600, SyncInterval: 0}
			disk.PowerOffAfter(cut)
			var appended, acked []string
			s, err := Open(o)
			if err == nil {
				appended, acked = powerLife(s, 0, 40)
				_ = s.Close()
			}
			disk.Crash(seed * uint64(cut+1))
			s, err = Open(o)
			if err != nil {
				t.Fatalf("cut %d, seed %d: %v", cut, seed, err)
			}
			have := map[string]bool{}
			last := uint64(0)
			for i, r := range drain(t, s) {
				if i > 0 && r.Seq <= last {
					t.Fatalf("cut %d, seed %d: record %d after %d", cut, seed, r.Seq, last)
				}
				last, have[string(r.Data)] = r.Seq, true
			}
			for _, rec := range acked {
				have[rec] = true
			}
			for _, rec := range appended {
				if !have[rec] {
					t.Fatalf("cut %d, seed %d: %s was promised and is lost", cut, seed, rec)
				}
			}
			more, _ := powerLife(s, 100, 10)
			if len(more) != 10 {
				t.Fatalf("cut %d, seed %d: it does not work on", cut, seed)
			}
			crash(s)
		}
	}
	t.Logf("%d operations", total)
}

// TestAppendsShareASync has 40 appends at once on a disk whose syncs take long.
func TestAppendsShareASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		disk := faultdisk.New(t, dir)
		s, err := Open(Options{Dir: dir, FS: disk})
		if err != nil {
			t.Fatal(err)
		}
		disk.SlowSync(20 * time.Millisecond)
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				if _, err := s.Append(fmt.Append(nil, i)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := disk.Count("sync"); n > 2 {
			t.Errorf("%d syncs", n)
		}
		disk.Crash(0)
		crash(s)
		if s, err = Open(Options{Dir: dir, FS: disk}); err != nil {
			t.Fatal(err)
		}
		if st := s.Stats(); st.Pending != 40 {
			t.Errorf("after a power cut: stats %+v", st)
		}
		_ = s.Close()
	})
}

// TestAFailedSyncIsNoSuccessLater fails one sync under appends that wait: they hear
// of it, later ones go to another file, and what they were told holds.
func TestAFailedSyncIsNoSuccessLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		disk := faultdisk.New(t, dir)
		s, err := Open(Options{Dir: dir, FS: disk})
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, s, "before")
		disk.Fail("sync", syscall.EIO)
		disk.SlowSync(20 * time.Millisecond)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				if _, err := s.Append(fmt.Append(nil, i)); !errors.Is(err, ErrSync) || !errors.Is(err, syscall.EIO) {
					t.Errorf("err = %v", err)
				}
			})
		}
		wg.Wait()
		disk.Fail("sync", nil)
		if _, err := s.Append([]byte("at once")); !errors.Is(err, ErrSync) {
			t.Errorf("right after a failed sync: %v", err)
		}
		if st := s.Stats(); !st.SyncFailing || st.SyncErrors != 1 || st.Pending != 1 || st.Dropped.Refused != 1 {
			t.Errorf("stats %+v", st)
		}
		time.Sleep(syncPause)
		mustAppend(t, s, "after")
		want(t, "records", data(drain(t, s)), "before after")
		if st := s.Stats(); st.SyncFailing {
			t.Errorf("stats %+v", st)
		}
		disk.Crash(0)
		crash(s)
		if s, err = Open(Options{Dir: dir, FS: disk}); err != nil {
			t.Fatal(err)
		}
		want(t, "after a power cut", data(drain(t, s)), "before after")
		_ = s.Close()
	})
}

// TestUnsyncedRecordsAreNotHandedOut: what may still be taken back must not be sent.
func TestUnsyncedRecordsAreNotHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		disk := faultdisk.New(t, dir)
		s, err := Open(Options{Dir: dir, FS: disk})
		if err != nil {
			t.Fatal(err)
		}
		disk.SlowSync(time.Second / 2)
		go func() { mustAppend(t, s, "a") }()
		got := make(chan time.Time)
		begin := time.Now()
		time.Sleep(100 * time.Millisecond) // it is written, and the sync under way
		go func() {
			_, _ = s.Next(t.Context())
			got <- time.Now()
		}()
		if after := (<-got).Sub(begin); after < time.Second/2 {
			t.Errorf("handed out after %s", after)
		}
		synctest.Wait()
		disk.SlowSync(0)
		_ = s.Close()
	})
}

// TestPowerLossCostsAnIntervalAtMost: what was appended longer ago than SyncInterval
// survives.
func TestPowerLossCostsAnIntervalAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		disk := faultdisk.New(t, dir)
		o := Options{Dir: dir, FS: disk, SyncInterval: time.Second, SegmentBytes: 500}
		s, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 95 {
			mustAppend(t, s, fmt.Sprint(i))
			time.Sleep(100 * time.Millisecond)
		}
		disk.Crash(0)
		crash(s)
		if s, err = Open(o); err != nil {
			t.Fatal(err)
		}
		if n := len(drain(t, s)); n < 84 || n > 95 {
			t.Errorf("%d of 95 records", n)
		}
		_ = s.Close()
	})
}
