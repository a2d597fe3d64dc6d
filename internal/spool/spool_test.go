package spool

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
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
	if _, err := Open(Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "another process") {
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

func TestDamagedRecordCostsItself(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir, SegmentBytes: 150})
	mustAppend(t, s, "one", "two", "three", "four", "five", "six", "seven", "eight")
	files := segFiles(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, files[0], "two", 0) // the data: costs the record
	s = open(t, Options{Dir: dir, SegmentBytes: 150})
	want(t, "records", data(drain(t, s)), "one three four five six seven eight")
	if st := s.Stats(); st.Dropped.Corrupt != 1 || st.Pending != 7 {
		t.Errorf("stats %+v", st)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, files[0], "three", -recHeaderSize+3) // the length: costs the rest of the segment
	s = open(t, Options{Dir: dir, SegmentBytes: 150})
	mustAppend(t, s, "nine")
	want(t, "records", data(drain(t, s)), "one five six seven eight nine")
	if st := s.Stats(); st.Dropped.Corrupt != 3 || st.Pending != 6 {
		t.Errorf("stats %+v", st)
	}
}

// TestDamageWhileOpen damages the segment that is being written: what comes after
// goes to a new file, and is not lost with the old one.
func TestDamageWhileOpen(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	mustAppend(t, s, "one", "two", "three")
	flip(t, segFiles(t, dir)[0], "one", -recHeaderSize+3)
	want(t, "records", data(drain(t, s)), "")
	mustAppend(t, s, "four", "five")
	want(t, "records", data(drain(t, s)), "four five")
	if st := s.Stats(); st.Dropped.Corrupt != 3 || st.Pending != 2 {
		t.Errorf("stats %+v", st)
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
	oneEnds := int(segHeaderSize) + recHeaderSize + len("first")
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
	if err := os.WriteFile(s.ackPath(), encodeAcks(10, []uint64{12}), 0o600); err != nil {
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
	enospc := syscall.ENOSPC
	for name, tc := range map[string]struct {
		ops   []string
		short int
		every bool
	}{
		"full disk":                        {ops: []string{"write"}},
		"short write":                      {ops: []string{"write"}, short: 10},
		"short write that can't be undone": {ops: []string{"write", "truncate"}, short: 10},
		"whole write that can't be undone": {ops: []string{"sync", "truncate"}, every: true},
		"failed sync":                      {ops: []string{"sync"}, every: true},
	} {
		t.Run(name, func(t *testing.T) {
			fs := newFaultFS()
			fs.short = tc.short
			o := Options{Dir: t.TempDir(), FS: fs}
			if tc.every {
				o.SyncInterval = -1
			}
			s := open(t, o)
			mustAppend(t, s, "a", "b")
			for _, op := range tc.ops {
				fs.set(op, enospc)
			}
			for range 2 { // the second meets the state that the first one left
				if _, err := s.Append([]byte("lost")); !errors.Is(err, enospc) || !strings.Contains(err.Error(), "spool "+o.Dir) {
					t.Errorf("err = %v", err)
				}
			}
			for _, op := range tc.ops {
				fs.set(op, nil)
			}
			mustAppend(t, s, "c")
			want(t, "records", data(drain(t, s)), "a b c")
			crash(s)
			s = open(t, o)
			want(t, "after a restart", data(drain(t, s)), "a b c")
			if st := s.Stats(); st.Dropped.Total() != 0 {
				t.Errorf("stats %+v", st)
			}
		})
	}
}

func TestFailingReadsAreReportedThenSkipped(t *testing.T) {
	fs := newFaultFS()
	s := open(t, Options{Dir: t.TempDir(), FS: fs, SegmentBytes: 60})
	mustAppend(t, s, "aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb", "cccccccccccccccccccc")
	fs.set("read", syscall.EIO)
	if _, err := s.Next(ctx(t)); !errors.Is(err, syscall.EIO) {
		t.Errorf("err = %v", err)
	}
	fs.set("read", nil)
	r, err := s.Next(ctx(t))
	if err != nil || r.Data[0] != 'a' {
		t.Errorf("a passing fault cost a record: %q, %v", r.Data, err)
	}
}

func TestFailedWatermarkIsTriedAgain(t *testing.T) {
	fs := newFaultFS()
	dir := t.TempDir()
	s := open(t, Options{Dir: dir, FS: fs})
	mustAppend(t, s, "a", "b")
	s.Ack(drain(t, s)[0].Seq)
	fs.set("write", syscall.ENOSPC)
	s.flush()
	fs.set("write", nil)
	s.flush()
	crash(s)
	s = open(t, Options{Dir: dir})
	want(t, "records", data(drain(t, s)), "b")
}

func TestBackgroundSyncFailureIsCounted(t *testing.T) {
	fs := newFaultFS()
	reg := prometheus.NewRegistry()
	s := open(t, Options{Dir: t.TempDir(), FS: fs, Registerer: reg})
	mustAppend(t, s, "a")
	fs.set("sync", syscall.EIO)
	s.flush()
	if st := s.Stats(); st.SyncErrors != 1 {
		t.Errorf("stats %+v", st)
	}
	fs.set("sync", nil)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP muster_spool_pending_records Records in the spool that are not acknowledged.
# TYPE muster_spool_pending_records gauge
muster_spool_pending_records 1
# HELP muster_spool_sync_errors_total Failed syncs to stable storage.
# TYPE muster_spool_sync_errors_total counter
muster_spool_sync_errors_total 1
`), "muster_spool_pending_records", "muster_spool_sync_errors_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Error(problems, err)
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
	at := time.Unix(1, 0)
	seg := appendFrame(appendFrame(segHeader(1), 1, at, []byte("a")), 2, at, []byte("b"))
	f.Add(seg, appendFrame(segHeader(3), 3, at, []byte("c")), encodeAcks(2, []uint64{3}))
	f.Add(seg[:len(seg)-1], []byte{}, []byte{})
	f.Add([]byte(magic), segHeader(3), encodeAcks(1<<60, nil))
	f.Add(seg, appendFrame(segHeader(3), 9, at, []byte("c")), encodeAcks(1, []uint64{1, 1 << 62}))
	f.Fuzz(func(t *testing.T, one, two, acks []byte) {
		dir := t.TempDir()
		for path, b := range map[string][]byte{segPath(dir, 1): one, segPath(dir, 3): two, dir + "/acked": acks} {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Open(Options{Dir: dir, SyncInterval: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		old := drain(t, s)
		for _, r := range old {
			frame := appendFrame(nil, r.Seq, r.Time, r.Data)
			if !bytes.Contains(one, frame) && !bytes.Contains(two, frame) {
				t.Errorf("record %+v was made up", r)
			}
		}
		mustAppend(t, s, "new")
		got := drain(t, s)
		if len(got) != 1 || string(got[0].Data) != "new" {
			t.Fatalf("after recovery: %q", data(got))
		}
		if st := s.Stats(); st.Pending != uint64(len(old)+1) {
			t.Errorf("%d handed out, stats %+v", len(old)+1, st)
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
	})
}

func FuzzAcks(f *testing.F) {
	f.Add(encodeAcks(7, []uint64{9, 12}))
	f.Add([]byte(ackMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if mark, acked, err := decodeAcks(b); err == nil && !bytes.Equal(encodeAcks(mark, acked), b) {
			t.Errorf("%d %v is not what %x says", mark, acked, b)
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
