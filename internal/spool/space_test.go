package spool

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/testkit/faultdisk"
)

// diskSpool is a spool on a disk of so many bytes.
func diskSpool(t *testing.T, capacity int64, o Options) (*Spool, *faultdisk.Disk, *fakeClock) {
	t.Helper()
	o.Dir = t.TempDir()
	disk, clock := faultdisk.New(t, o.Dir), newClock()
	disk.SetCapacity(capacity)
	o.FS, o.Now = disk, clock.Now
	return open(t, o), disk, clock
}

func number5(i int, payload int) string {
	return fmt.Sprintf("%05d%s", i, strings.Repeat("x", payload-5))
}

// TestAcknowledgedSegmentsGoAnywhere parks the first record of all and every
// hundredth after it: the rest must not fill the queue.
func TestAcknowledgedSegmentsGoAnywhere(t *testing.T) {
	dir := t.TempDir()
	o := Options{Dir: dir, MaxBytes: 64 << 10, SegmentBytes: 1 << 10, OnFull: RefuseNew}
	s := open(t, o)
	parked, inHand := []string{}, []uint64{}
	for i := range 2000 {
		mustAppend(t, s, number5(i, 100))
		r, err := s.Next(ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			parked = append(parked, string(r.Data[:5]))
			continue
		}
		if inHand = append(inHand, r.Seq); len(inHand) > 30 {
			s.Ack(inHand[0])
			inHand = inHand[1:]
		}
	}
	for _, seq := range inHand {
		s.Ack(seq)
	}
	if st := s.Stats(); st.Pending != 20 || st.DiskBytes > 21<<10 || st.Bytes != 20*(recHeaderSize+100) {
		t.Errorf("stats %+v", st)
	}
	crash := func() *Spool { s.flush(); crash(s); return open(t, o) }
	s = crash()
	var got []string
	for _, r := range drain(t, s) {
		got = append(got, string(r.Data[:5]))
		s.Ack(r.Seq)
	}
	want(t, "parked", strings.Join(got, " "), strings.Join(parked, " "))
	s = crash()
	if st := s.Stats(); st.Pending != 0 || st.Dropped.Total() != 0 || len(segFiles(t, dir)) != 0 {
		t.Errorf("%d files, stats %+v", len(segFiles(t, dir)), st)
	}
	if size := fileSize(t, s.ackPath()); size > 64 {
		t.Errorf("the watermark has %d bytes", size)
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi.Size()
}

// TestFullDiskHeals fills a small disk in every way, by the spool and by others, and
// drains it: samples flow again without a restart, and what is dropped or refused is
// what the policy says.
func TestFullDiskHeals(t *testing.T) {
	const capacity = 1 << 20
	for _, onFull := range []OnFull{DropOldest, RefuseNew} {
		for _, sync := range []time.Duration{always, time.Hour} {
			t.Run(fmt.Sprintf("policy %d, sync %d", onFull, sync), func(t *testing.T) {
				log, lines := testLog()
				s, disk, clock := diskSpool(t, capacity, Options{OnFull: onFull, SyncInterval: sync, Logger: log})
				appended, refused := 0, 0
				next := func() {
					_, err := s.Append([]byte(number5(appended+refused, 2000)))
					switch {
					case err == nil:
						appended++
					case onFull == RefuseNew && errors.Is(err, ErrFull):
						refused++
					default:
						t.Fatalf("append %d: %v", appended+refused, err)
					}
					clock.Add(100 * time.Millisecond)
				}
				for range 1000 { // 2 MB
					next()
				}
				st := s.Stats()
				if left := capacity - disk.Used(); left < capacity/reserveShare/2 {
					t.Errorf("the spool leaves %d bytes of the disk to others", left)
				}
				if onFull == DropOldest && (st.Dropped.Size == 0 || st.Dropped.Size > 700) || onFull == RefuseNew && (refused == 0 || refused > 700) {
					t.Errorf("%d refused, stats %+v", refused, st)
				}
				// Others take all that is left, and more.
				for step := int64(1); step <= 4; step++ {
					disk.SetCapacity(disk.Used() + 500*step)
					for range 50 {
						next()
						s.flush()
					}
				}
				st = s.Stats()
				if !st.DiskFull || st.DiskBytes < capacity/8 {
					t.Errorf("on a full disk: stats %+v", st)
				}
				got := drain(t, s)
				if uint64(len(got)) != st.Pending || uint64(appended) != st.Pending+st.Dropped.Size {
					t.Errorf("%d handed out of %d, stats %+v", len(got), appended, st)
				}
				if last := fmt.Sprintf("%05d", appended+refused-1); onFull == DropOldest && string(got[len(got)-1].Data[:5]) != last {
					t.Errorf("the newest is %.5s, want %s", got[len(got)-1].Data, last)
				}
				for _, r := range got {
					s.Ack(r.Seq)
				}
				if n := strings.Count(lines(), "level=ERROR"); n > 6 { // a kind and minute
					t.Errorf("%d lines:\n%s", n, lines())
				}
				disk.SetCapacity(capacity)
				before, was := s.Stats(), refused
				for range 100 {
					next()
					for _, r := range drain(t, s) {
						s.Ack(r.Seq)
					}
				}
				clock.Add(2 * time.Minute)
				s.flush()
				if st := s.Stats(); refused != was || st.Dropped != before.Dropped || st.Pending != 0 || st.DiskFull {
					t.Errorf("after it has room again: %d refused, stats %+v", refused-was, st)
				}
				_ = s.Close()
				s = open(t, s.opts)
				if st := s.Stats(); st.Pending != 0 || st.Dropped.Total() != 0 {
					t.Errorf("after a restart: stats %+v", st)
				}
			})
		}
	}
}

// TestDrainedSpoolOnAFullDiskGoesOn has not a byte left on the disk: what was
// delivered must make room before the next file is begun.
func TestDrainedSpoolOnAFullDiskGoesOn(t *testing.T) {
	for _, onFull := range []OnFull{DropOldest, RefuseNew} {
		s, disk, _ := diskSpool(t, -1, Options{OnFull: onFull, SegmentBytes: 4000, SyncInterval: always})
		for i := range 10 {
			mustAppend(t, s, number5(i, 900))
		}
		for _, r := range drain(t, s)[:9] {
			s.Ack(r.Seq)
		}
		disk.SetCapacity(1)
		// The rest of the active file is all acknowledged but one record.
		for i := range 20 {
			_, err := s.Append([]byte(number5(100+i, 900)))
			if onFull == RefuseNew && !errors.Is(err, ErrFull) || onFull == DropOldest && err != nil && !errors.Is(err, ErrFull) {
				t.Fatal(err)
			}
		}
		disk.SetCapacity(disk.Used() + 1) // what it frees is its own from now on
		for _, r := range drain(t, s) {
			s.Ack(r.Seq)
		}
		for seq := range s.out {
			s.Ack(seq)
		}
		if st := s.Stats(); st.Pending != 0 {
			t.Fatalf("stats %+v", st)
		}
		disk.SetCapacity(max(disk.Used(), 3000))
		for i := range 100 {
			if _, err := s.Append([]byte(number5(i, 900))); err != nil {
				t.Fatalf("policy %d: record %d: %v", onFull, i, err)
			}
			for _, r := range drain(t, s) {
				s.Ack(r.Seq)
			}
		}
	}
}

// TestOpenOnAFullDisk opens a spool where nothing can be written, and drains it.
func TestOpenOnAFullDisk(t *testing.T) {
	s, disk, _ := diskSpool(t, -1, Options{SegmentBytes: 1000})
	for i := range 20 {
		mustAppend(t, s, number5(i, 200))
	}
	crash(s)
	disk.SetCapacity(0)
	s = open(t, s.opts)
	if got := drain(t, s); len(got) != 20 {
		t.Errorf("%d handed out", len(got))
	}
	if _, err := s.Append([]byte("x")); err != nil && !errors.Is(err, ErrFull) {
		t.Error(err)
	}
}
