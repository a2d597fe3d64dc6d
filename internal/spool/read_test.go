package spool

import (
	"testing"

	"muster.dev/muster/internal/testkit/faultdisk"
)

// What is read as soon as it is written costs the same however much stands before it in
// its file: a site's spool is drained after each scrape.
func TestReadingBehindTheWriterDoesNotLookFromTheBeginning(t *testing.T) {
	dir := t.TempDir()
	disk := faultdisk.New(t, dir)
	s := open(t, Options{Dir: dir, FS: disk})
	next := func() (reads int) {
		before := disk.Count("read")
		mustAppend(t, s, "x")
		recs := drain(t, s)
		if data(recs) != "x" {
			t.Fatalf("read %q", data(recs))
		}
		s.Ack(recs[0].Seq)
		return disk.Count("read") - before
	}
	first := next()
	for range 200 {
		next()
	}
	if n := next(); n > first {
		t.Errorf("%d reads for a record behind 200 others, %d for the first", n, first)
	}
	if st := s.Stats(); st.Pending != 0 {
		t.Errorf("%d pending", st.Pending)
	}
}
