package spool

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"muster.dev/muster/internal/testkit/faultdisk"
)

func TestFirstInFirstOut(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir, SegmentBytes: 100})
	mustAppend(t, s, "a", "b", "c", "d", "e", "f")
	if n := len(segFiles(t, dir)); n < 2 {
		t.Fatalf("%d segments: the test wants several", n)
	}
	got := drain(t, s)
	want(t, "records", data(got), "a b c d e f")
	// Acknowledge all but b and e, in any order.
	for _, i := range []int{5, 0, 3, 2} {
		s.Ack(got[i].Seq)
	}
	if st := s.Stats(); st.Pending != 2 || st.InFlight != 2 || st.Acked != 4 {
		t.Errorf("stats %+v", st)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Options{Dir: dir, SegmentBytes: 100})
	if st := s.Stats(); st.Pending != 2 {
		t.Errorf("after a clean restart: stats %+v", st)
	}
	mustAppend(t, s, "g")
	again := drain(t, s)
	want(t, "after a clean restart", data(again), "b e g")
	if again[2].Seq != got[5].Seq+1 {
		t.Errorf("sequence numbers start anew: %d after %d", again[2].Seq, got[5].Seq)
	}
	for _, r := range again {
		s.Ack(r.Seq)
	}
	if st := s.Stats(); st.Pending != 0 || st.Bytes != 0 || st.OldestAge != 0 {
		t.Errorf("all acknowledged: stats %+v", st)
	}
	if n := len(segFiles(t, dir)); n != 1 {
		t.Errorf("%d segments left, want 1", n)
	}
}

func TestNextWaits(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	c, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Next(c); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	got := make(chan string, 3)
	for range 3 {
		go func() {
			r, err := s.Next(context.Background())
			got <- string(r.Data) + fmt.Sprint(err)
		}()
	}
	mustAppend(t, s, "x", "y")
	two := []string{<-got, <-got}
	slices.Sort(two)
	want(t, "records", strings.Join(two, " "), "x<nil> y<nil>")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want(t, "after Close", <-got, ErrClosed.Error())
	if _, err := s.Append(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("Append after Close: %v", err)
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	dir := t.TempDir()
	open(t, Options{Dir: dir})
	if _, err := Open(Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), " uses "+dir) {
		t.Errorf("err = %v", err)
	}
}

func TestDropOldest(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), MaxBytes: 2000})
	payload := strings.Repeat("x", 80)
	for i := range 100 {
		mustAppend(t, s, fmt.Sprintf("%02d%s", i, payload))
		if st := s.Stats(); st.DiskBytes > 2000 {
			t.Fatalf("%d bytes on disk after %d records", st.DiskBytes, i)
		}
	}
	st, got := s.Stats(), drain(t, s)
	if st.Dropped.Size+uint64(len(got)) != 100 || st.Pending != uint64(len(got)) || len(got) < 10 {
		t.Errorf("%d handed out, stats %+v", len(got), st)
	}
	want(t, "newest", string(got[len(got)-1].Data[:2]), "99")
	// What is in flight when its segment goes can still be acknowledged, and is
	// not counted as dropped.
	for i := range 100 {
		mustAppend(t, s, fmt.Sprintf("%02d%s", i, payload))
	}
	before := s.Stats()
	for _, r := range got {
		s.Ack(r.Seq)
	}
	after := s.Stats()
	if after.Acked != uint64(len(got)) || after.Dropped != before.Dropped || after.Pending != before.Pending-uint64(len(got)) {
		t.Errorf("before %+v, after %+v", before, after)
	}
	rest := drain(t, s)
	if uint64(len(rest)) != after.Pending {
		t.Errorf("%d handed out, %d pending", len(rest), after.Pending)
	}
}

func TestRefuseNew(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), MaxBytes: 2000, OnFull: RefuseNew})
	payload := strings.Repeat("x", 80)
	n := 0
	var err error
	for ; err == nil && n < 100; n++ {
		_, err = s.Append([]byte(payload))
	}
	if !errors.Is(err, ErrFull) || n < 10 || n == 100 {
		t.Fatalf("after %d records: %v", n, err)
	}
	if st := s.Stats(); st.Dropped.Refused != 1 || st.Dropped.Total() != 0 || st.DiskBytes > 2000 {
		t.Errorf("stats %+v", st)
	}
	for _, r := range drain(t, s) {
		s.Ack(r.Seq)
	}
	mustAppend(t, s, payload)
	if _, err := s.Append(make([]byte, 3000)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("err = %v", err)
	}
}

func TestAgeCap(t *testing.T) {
	clock := newClock()
	s := open(t, Options{Dir: t.TempDir(), SegmentBytes: 100, MaxAge: time.Hour, Now: clock.Now})
	mustAppend(t, s, "a", "b", "c", "d", "e", "f") // three a segment
	clock.Add(40 * time.Minute)
	mustAppend(t, s, "g")
	if age := s.Stats().OldestAge; age != 40*time.Minute {
		t.Errorf("oldest age %s", age)
	}
	clock.Add(30 * time.Minute)
	want(t, "records", data(drain(t, s)), "g")
	if st := s.Stats(); st.Dropped.Age != 6 || st.Pending != 1 || st.OldestAge != 30*time.Minute {
		t.Errorf("stats %+v", st)
	}
}

func TestSetLimits(t *testing.T) {
	clock := newClock()
	s := open(t, Options{Dir: t.TempDir(), SegmentBytes: 200, Now: clock.Now})
	for i := range 50 {
		mustAppend(t, s, fmt.Sprintf("%02d%s", i, strings.Repeat("x", 80)))
	}
	s.SetLimits(1000, 0)
	if st := s.Stats(); st.DiskBytes > 1000 || st.Dropped.Size == 0 || st.Pending+st.Dropped.Size != 50 {
		t.Errorf("stats %+v", st)
	}
	clock.Add(2 * time.Hour)
	s.SetLimits(1000, time.Hour)
	if got := drain(t, s); len(got) != 0 {
		t.Errorf("%d expired records handed out", len(got))
	}
}

// flip inverts a byte of the file, off bytes from where text stands.
func flip(t *testing.T, path, text string, off int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	i := bytes.Index(b, []byte(text))
	if i < 0 {
		t.Fatalf("%q is not in %s", text, path)
	}
	b[i+off] ^= 0xff
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTornTailAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	mustAppend(t, s, "first", "second")
	crash(s)
	file := segFiles(t, dir)[0]
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	oneEnds := recHeaderSize + len("first")
	for cut := range len(whole) {
		if err := os.WriteFile(file, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, Options{Dir: dir})
		mustAppend(t, s, "new")
		got, expect := data(drain(t, s)), "new"
		if cut >= oneEnds {
			expect = "first new"
		}
		want(t, fmt.Sprintf("cut at %d", cut), got, expect)
		crash(s)
		for _, f := range segFiles(t, dir) {
			_ = os.Remove(f)
		}
	}
}

// TestTailLostInPowerCut has the file's length on the disk but not its last bytes.
func TestTailLostInPowerCut(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	mustAppend(t, s, "first", "second")
	crash(s)
	flip(t, segFiles(t, dir)[0], "second", 2)
	s = open(t, Options{Dir: dir})
	mustAppend(t, s, "new")
	want(t, "records", data(drain(t, s)), "first new")
	if st := s.Stats(); st.Dropped.Corrupt != 0 || st.Pending != 2 {
		t.Errorf("a torn tail is no damage: stats %+v", st)
	}
}

func TestWatermarkDamagedOrAhead(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	mustAppend(t, s, "a", "b", "c")
	for _, r := range drain(t, s)[:2] {
		s.Ack(r.Seq)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.ackPath(), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, Options{Dir: dir})
	want(t, "without a watermark all comes again", data(drain(t, s)), "a b c")
	crash(s)
	// Power loss can take the tail of the segments and leave a newer watermark.
	if err := os.WriteFile(s.ackPath(), encodeAcks(3, spans{{0, 10}, {12, 13}}), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, Options{Dir: dir})
	want(t, "nothing", data(drain(t, s)), "")
	mustAppend(t, s, "d")
	got := drain(t, s)
	want(t, "the new one", data(got), "d")
	if got[0].Seq != 13 {
		t.Errorf("seq %d: numbers that were acknowledged are given out again", got[0].Seq)
	}
}

func TestDiskFaultsLeaveTheSpoolUsable(t *testing.T) {
	for name, tc := range map[string]struct {
		ops   []string
		short int
		every bool
	}{
		"failing write":                    {ops: []string{"write"}},
		"short write":                      {ops: []string{"write"}, short: 10},
		"short write that can't be undone": {ops: []string{"write", "truncate"}, short: 10},
		"whole write that can't be undone": {ops: []string{"sync", "truncate"}, every: true},
		"failed sync":                      {ops: []string{"sync"}, every: true},
		"failed sync of the name":          {ops: []string{"syncdir"}, every: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, clock := t.TempDir(), newClock()
			fs := faultdisk.New(t, dir)
			fs.ShortWrites(tc.short)
			o := Options{Dir: dir, FS: fs, Now: clock.Now}
			if tc.every {
				o.SyncInterval = always
			}
			s := open(t, o)
			mustAppend(t, s, "a", "b")
			if tc.ops[0] == "syncdir" {
				s.mu.Lock()
				s.broken = true // a new file
				s.mu.Unlock()
			}
			for _, op := range tc.ops {
				fs.Fail(op, syscall.EIO)
			}
			for range 2 { // the second meets the state that the first one left
				if _, err := s.Append([]byte("lost")); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "spool "+o.Dir) {
					t.Errorf("err = %v", err)
				}
				clock.Add(2 * syncPause)
			}
			for _, op := range tc.ops {
				fs.Fail(op, nil)
			}
			mustAppend(t, s, "c")
			want(t, "records", data(drain(t, s)), "a b c")
			crash(s)
			s = open(t, o)
			want(t, "after a restart", data(drain(t, s)), "a b c")
			if st := s.Stats(); st.Dropped.Total() != 0 || st.Pending != 3 {
				t.Errorf("stats %+v", st)
			}
		})
	}
}

func TestFailingReadsAreReportedThenSkipped(t *testing.T) {
	dir := t.TempDir()
	fs := faultdisk.New(t, dir)
	s := open(t, Options{Dir: dir, FS: fs, SegmentBytes: 60})
	mustAppend(t, s, "aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb", "cccccccccccccccccccc")
	fs.Fail("read", syscall.EIO)
	if _, err := s.Next(ctx(t)); !errors.Is(err, syscall.EIO) {
		t.Errorf("err = %v", err)
	}
	fs.Fail("read", nil)
	r, err := s.Next(ctx(t))
	if err != nil || r.Data[0] != 'a' {
		t.Errorf("a passing fault cost a record: %q, %v", r.Data, err)
	}
	fs.Fail("read", syscall.EIO)
	for range readAttempts - 1 {
		if _, err := s.Next(ctx(t)); !errors.Is(err, syscall.EIO) {
			t.Errorf("err = %v", err)
		}
	}
	want(t, "what can't be read", data(drainErrors(s)), "")
	fs.Fail("read", nil)
	mustAppend(t, s, "d")
	want(t, "records", data(drain(t, s)), "d")
	if st := s.Stats(); st.Dropped.Corrupt != 2 || st.Pending != 2 {
		t.Errorf("stats %+v", st)
	}
}

func TestFailedWatermarkIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	fs := faultdisk.New(t, dir)
	s := open(t, Options{Dir: dir, FS: fs})
	mustAppend(t, s, "a", "b")
	s.Ack(drain(t, s)[0].Seq)
	fs.Fail("write", syscall.ENOSPC)
	s.flush()
	fs.Fail("write", nil)
	s.flush()
	crash(s)
	s = open(t, Options{Dir: dir})
	want(t, "records", data(drain(t, s)), "b")
}

func TestBackgroundSyncFailureIsCounted(t *testing.T) {
	dir := t.TempDir()
	fs := faultdisk.New(t, dir)
	reg := prometheus.NewRegistry()
	s := open(t, Options{Dir: dir, FS: fs, Registerer: reg})
	mustAppend(t, s, "a")
	fs.Fail("sync", syscall.EIO)
	s.flush()
	if st := s.Stats(); st.SyncErrors != 1 || !st.SyncFailing || st.Pending != 1 {
		t.Errorf("stats %+v", st)
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP muster_spool_pending_records Records in the spool that are not acknowledged.
# TYPE muster_spool_pending_records gauge
muster_spool_pending_records 1
# HELP muster_spool_sync_errors_total Failed syncs to stable storage.
# TYPE muster_spool_sync_errors_total counter
muster_spool_sync_errors_total 1
# HELP muster_spool_sync_failing 1 while the last sync failed: the disk may not keep what is written to it.
# TYPE muster_spool_sync_failing gauge
muster_spool_sync_failing 1
`), "muster_spool_pending_records", "muster_spool_sync_errors_total", "muster_spool_sync_failing"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	fs.Fail("sync", nil)
	mustAppend(t, s, "b") // to a new file
	s.flush()
	if st := s.Stats(); st.SyncFailing || st.Pending != 2 {
		t.Errorf("stats %+v", st)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, Options{Dir: s.opts.Dir, Registerer: reg}) // the name is free again
}

// TestAgainstModel runs random operations, clean restarts and crashes against a
// plain list.
func TestAgainstModel(t *testing.T) {
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		o := Options{Dir: t.TempDir(), SegmentBytes: 200}
		o.FS = faultdisk.New(t, o.Dir) // which syncs faster
		if seed%2 == 1 {
			o.SyncInterval = always
		}
		s := open(t, o)
		appended, acked := 0, map[int]bool{}
		inHand := map[int]Record{}
		seenSinceOpen := -1
		for range 400 {
			switch rnd.IntN(12) {
			case 0, 1, 2, 3:
				mustAppend(t, s, fmt.Sprint(appended))
				appended++
			case 4, 5, 6:
				if s.pos.seq >= s.next {
					continue
				}
				got, err := s.Next(ctx(t))
				if err != nil {
					t.Fatal(err)
				}
				n := number(t, got)
				if acked[n] || n <= seenSinceOpen {
					t.Fatalf("seed %d: record %d came again", seed, n)
				}
				for i := seenSinceOpen + 1; i < n; i++ {
					if !acked[i] {
						t.Fatalf("seed %d: record %d was skipped", seed, i)
					}
				}
				seenSinceOpen = n
				inHand[n] = got
			case 7, 8, 9:
				for n, r := range inHand {
					s.Ack(r.Seq)
					acked[n] = true
					delete(inHand, n)
					break
				}
			case 10:
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s, inHand, seenSinceOpen = open(t, o), map[int]Record{}, -1
			case 11:
				s.flush() // so that the watermark is exact in the model
				crash(s)
				s, inHand, seenSinceOpen = open(t, o), map[int]Record{}, -1
			}
			if st := s.Stats(); st.Pending != uint64(appended-len(acked)) {
				t.Fatalf("seed %d: %d pending, want %d (stats %+v)", seed, st.Pending, appended-len(acked), st)
			}
		}
		_ = s.Close()
	}
}

func number(t *testing.T, r Record) (n int) {
	if _, err := fmt.Sscan(string(r.Data), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestMemoryDoesNotGrowWithBacklog queues 64 MiB and asks for less than 256 KiB.
func TestMemoryDoesNotGrowWithBacklog(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), SegmentBytes: 1 << 20})
	rec := make([]byte, 8<<10)
	mustAppend(t, s, string(rec))
	before := heap()
	for i := range 8192 {
		binary.LittleEndian.PutUint32(rec, uint32(i))
		if _, err := s.Append(rec); err != nil {
			t.Fatal(err)
		}
	}
	if grown := heap() - before; grown > 256<<10 {
		t.Errorf("heap grew by %d bytes", grown)
	}
	if st := s.Stats(); st.Pending != 8193 || st.Bytes < 64<<20 {
		t.Errorf("stats %+v", st)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// FuzzRecover opens a directory with two segments and a watermark of any content:
// it must not fail, not hand out a record whose checksum is wrong, and work on.
func FuzzRecover(f *testing.F) {
	at, m := time.Unix(1, 0), marker{1, 2, 3, 4, 5, 6, 7, 8}
	frame := func(seq uint64, text string) []byte { return appendFrame(nil, m, seq, at, []byte(text)) }
	seg := append(frame(1, "a"), frame(2, "b")...)
	f.Add(seg, frame(3, "c"), encodeAcks(4, spans{{0, 2}, {3, 4}}))
	f.Add(seg[:len(seg)-1], []byte{}, []byte{})
	f.Add(append([]byte("rubbish"), seg...), append(frame(5, "c"), frame(7, "d")...), encodeAcks(1<<60, nil))
	f.Add(seg, frame(9, "c"), encodeAcks(1, spans{{1, 2}, {1 << 62, 1<<62 + 1}}))
	f.Add(slices.Concat(frame(2, "b"), frame(1, "a"), frame(1, "a")), frame(2, "c"), encodeAcks(1, spans{{2, 3}}))
	f.Fuzz(func(t *testing.T, one, two, acks []byte) {
		dir := t.TempDir()
		for path, b := range map[string][]byte{segPath(dir, 1, m): one, segPath(dir, 3, m): two, dir + "/acked": acks} {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if next, _, err := decodeAcks(acks); err == nil && next > 1<<63 {
			t.Skip("the numbers of such a spool are used up")
		} else if _, done, err := decodeAcks(acks); err == nil && done.end() > 1<<63 {
			t.Skip("the numbers of such a spool are used up")
		}
		s, err := Open(Options{Dir: dir, SyncInterval: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		before := s.Stats()
		old := drain(t, s)
		for i, r := range old {
			frame := appendFrame(nil, m, r.Seq, r.Time, r.Data)
			if !bytes.Contains(one, frame) && !bytes.Contains(two, frame) {
				t.Errorf("record %+v was made up", r)
			}
			if i > 0 && r.Seq <= old[i-1].Seq {
				t.Errorf("record %d after %d", r.Seq, old[i-1].Seq)
			}
		}
		if st := s.Stats(); st.Pending != uint64(len(old)) || before.Pending != st.Pending+st.Dropped.Corrupt-before.Dropped.Corrupt {
			t.Errorf("%d handed out, before %+v, after %+v", len(old), before, st)
		}
		mustAppend(t, s, "new")
		got := drain(t, s)
		if len(got) != 1 || string(got[0].Data) != "new" {
			t.Fatalf("after recovery: %q", data(got))
		}
		for _, r := range append(old, got...) {
			s.Ack(r.Seq)
		}
		if st := s.Stats(); st.Pending != 0 || st.Bytes != 0 {
			t.Errorf("stats %+v", st)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s, err = Open(Options{Dir: dir, SyncInterval: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if left := drain(t, s); len(left) > 0 {
			t.Errorf("acknowledged records came again: %q", data(left))
		}
		if st := s.Stats(); st.Dropped.Total() != 0 || len(segFiles(t, dir)) != 0 {
			t.Errorf("after a clean restart: stats %+v", st)
		}
	})
}

func FuzzAcks(f *testing.F) {
	f.Add(encodeAcks(7, spans{{0, 3}, {9, 12}}))
	f.Add([]byte(ackMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if next, done, err := decodeAcks(b); err == nil && !bytes.Equal(encodeAcks(next, done), b) {
			t.Errorf("%d %v is not what %x says", next, done, b)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1 << 10, 32 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			s := open(b, Options{Dir: b.TempDir(), MaxBytes: 64 << 20})
			rec := bytes.Repeat([]byte("x"), size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Append(rec); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAppendSynced is the price of an append that is on stable storage when it
// returns, for 1, 8 and 64 that come at a time, beside a plain write and fsync.
func BenchmarkAppendSynced(b *testing.B) {
	rec := bytes.Repeat([]byte("x"), 32<<10)
	b.Run("plain write and fsync", func(b *testing.B) {
		f, err := os.Create(filepath.Join(b.TempDir(), "f"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		for b.Loop() {
			if _, err := f.Write(rec); err != nil {
				b.Fatal(err)
			}
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("%d at a time", callers), func(b *testing.B) {
			s := open(b, Options{Dir: b.TempDir(), MaxBytes: 64 << 20, SyncInterval: always})
			b.SetParallelism((callers + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := s.Append(rec); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
	b.Run("synced a second later", func(b *testing.B) {
		s := open(b, Options{Dir: b.TempDir(), MaxBytes: 64 << 20, SyncInterval: time.Second})
		for b.Loop() {
			if _, err := s.Append(rec); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkAppendNextAck(b *testing.B) {
	s := open(b, Options{Dir: b.TempDir()})
	rec := bytes.Repeat([]byte("x"), 32<<10)
	b.SetBytes(int64(len(rec)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Append(rec); err != nil {
			b.Fatal(err)
		}
		r, err := s.Next(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		s.Ack(r.Seq)
	}
}

func BenchmarkOpenWithBacklog(b *testing.B) {
	dir := b.TempDir()
	s := open(b, Options{Dir: dir})
	rec := bytes.Repeat([]byte("x"), 32<<10)
	for range 256 << 20 / len(rec) {
		mustAppend(b, s, string(rec))
	}
	_ = s.Close()
	b.SetBytes(256 << 20)
	for b.Loop() {
		s, err := Open(Options{Dir: dir, SyncInterval: time.Hour})
		if err != nil {
			b.Fatal(err)
		}
		_ = s.Close()
	}
}
