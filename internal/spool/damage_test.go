package spool

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fill makes a closed spool of n records in files of about size bytes.
func fill(t *testing.T, n, payload int, size int64) (dir string) {
	t.Helper()
	dir = t.TempDir()
	s := open(t, Options{Dir: dir, SegmentBytes: size})
	for i := range n {
		mustAppend(t, s, fmt.Sprintf("%05d%s", i, strings.Repeat("x", payload-5)))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestOneDamagedBitCostsOneRecord flips each bit of a spool in turn.
func TestOneDamagedBitCostsOneRecord(t *testing.T) {
	const n, payload = 6, 10
	dir := fill(t, n, payload, 150) // two files
	files := segFiles(t, dir)
	if len(files) != 2 {
		t.Fatal(files)
	}
	for f, file := range files {
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for bit := range 8 * len(whole) {
			b := slices.Clone(whole)
			b[bit/8] ^= 1 << (bit % 8)
			copyDir := t.TempDir()
			for _, other := range append(files, filepath.Join(dir, "acked")) {
				c, _ := os.ReadFile(other)
				if other == file {
					c = b
				}
				if err := os.WriteFile(filepath.Join(copyDir, filepath.Base(other)), c, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			hit := 3*f + bit/8/(recHeaderSize+payload)
			s := open(t, Options{Dir: copyDir, SegmentBytes: 150})
			got := drain(t, s)
			st := s.Stats()
			if len(got) != n-1 || st.Dropped.Corrupt != 1 || st.Pending != n-1 || slices.ContainsFunc(got, func(r Record) bool { return r.Seq == uint64(hit) }) {
				t.Fatalf("file %d, bit %d: %d handed out, stats %+v", f, bit, len(got), st)
			}
			crash(s)
		}
	}
}

// TestFlippedBytesCostTheRecordsThatTheyHit flips 1 % of all bytes, and less.
func TestFlippedBytesCostTheRecordsThatTheyHit(t *testing.T) {
	const payload = 64
	for _, flips := range []float64{0.01, 0.001} {
		for _, n := range []int{220, 2000} {
			dir := fill(t, n, payload, 64<<10)
			rnd := rand.New(rand.NewPCG(uint64(n), 1))
			hit, seq := map[int]bool{}, 0
			for _, file := range segFiles(t, dir) {
				b, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				for i := range b {
					if rnd.Float64() < flips {
						b[i] ^= 1 << rnd.IntN(8)
						hit[seq+i/(recHeaderSize+payload)] = true
					}
				}
				seq += len(b) / (recHeaderSize + payload)
				if err := os.WriteFile(file, b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s := open(t, Options{Dir: dir})
			got := drain(t, s)
			st := s.Stats()
			if len(got) != n-len(hit) || st.Dropped.Corrupt != uint64(len(hit)) || st.Pending != uint64(len(got)) {
				t.Errorf("%g of %d records: %d hit, %d handed out, stats %+v", flips, n, len(hit), len(got), st)
			}
			for _, r := range got {
				s.Ack(r.Seq)
			}
			if st := s.Stats(); st.Pending != 0 || st.Bytes != 0 {
				t.Errorf("stats %+v", st)
			}
			mustAppend(t, s, "new")
			want(t, "after", data(drain(t, s)), "new")
		}
	}
}

// TestNobodyForgesARecord has records that hold what looks like records, of other
// files and of guessed markers, behind a damaged header.
func TestNobodyForgesARecord(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	forged := appendFrame(nil, marker{}, 1, newClock().Now(), []byte("forged"))
	mustAppend(t, s, "one "+string(forged), "two")
	file := segFiles(t, dir)[0]
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, file, "one", -recHeaderSize+9)
	s = open(t, Options{Dir: dir})
	want(t, "records", data(drain(t, s)), "two")
}

// TestDamageWhileOpen damages the segment that is being written: what comes after
// is not lost with it.
func TestDamageWhileOpen(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	mustAppend(t, s, "one", "two", "three")
	flip(t, segFiles(t, dir)[0], "one", -recHeaderSize+3)
	want(t, "records", data(drain(t, s)), "two three")
	flip(t, segFiles(t, dir)[0], "three", 0)
	mustAppend(t, s, "four", "five")
	flip(t, segFiles(t, dir)[0], "five", -recHeaderSize+3)
	want(t, "records", data(drain(t, s)), "four")
	mustAppend(t, s, "six")
	want(t, "records", data(drain(t, s)), "six")
	if st := s.Stats(); st.Dropped.Corrupt != 2 || st.Pending != 4 {
		t.Errorf("stats %+v", st)
	}
}

func TestDamageIsLoggedAsWhatItIs(t *testing.T) {
	dir := fill(t, 20, 10, 1<<20)
	file := segFiles(t, dir)[0]
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		b    []byte
		line string
	}{
		"bit in the middle": {bytes.Replace(whole, []byte("00007"), []byte("00\x007"), 1), ""},
		"header in the middle": {func() []byte {
			b := slices.Clone(whole)
			b[7*(recHeaderSize+10)+9] ^= 1
			return b
		}(), "records=1"},
		"end gone": {whole[:len(whole)-3*(recHeaderSize+10)-5], "records=4"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(file, tc.b, 0o600); err != nil {
				t.Fatal(err)
			}
			log, lines := testLog()
			s := open(t, Options{Dir: dir, Logger: log})
			n := len(drain(t, s))
			st := s.Stats()
			if st.Dropped.Corrupt == 0 || uint64(n)+st.Dropped.Corrupt != 20 {
				t.Errorf("%d handed out, stats %+v", n, st)
			}
			if out := lines(); !strings.Contains(out, "level=ERROR") || !strings.Contains(out, tc.line) || strings.Contains(out, "half-written") {
				t.Errorf("log:\n%s", out)
			}
			crash(s)
		})
	}
}
