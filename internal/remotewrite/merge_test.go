package remotewrite

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// merged puts batches together as a lane does, and decodes what comes of it.
func mergedSeries(t testing.TB, batches ...[]Series) []Series {
	t.Helper()
	var items []item
	for _, b := range batches {
		info, body, err := split(Encode("acme", 0, b))
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, item{info: info, body: body})
	}
	info, body := merge(items)
	out, err := decodeBody(body, true)
	if err != nil {
		t.Fatal(err)
	}
	if info.Series != len(out) || info.All() != countSamples(out) {
		t.Errorf("the request has %d series and %d samples, its record says %+v", len(out), countSamples(out), info)
	}
	return out
}

// TestMerge: records of several sites and scrapes are one request, in which each series
// stands once, with its samples in order and the newest metadata.
func TestMerge(t *testing.T) {
	named := func(site string, s []Series) []Series {
		for i := range s {
			s[i].Labels = labels.NewBuilder(s[i].Labels).Set("site", site).Labels()
		}
		return s
	}
	second := named("paris", batch(3, 2000))
	second[2].Metadata = Metadata{Type: "gauge", Help: "Newer help.", Unit: "bytes"}
	got := mergedSeries(t, named("paris", mixed()), named("lyon", batch(2, 1500)), second)
	want := append(named("paris", mixed()), named("lyon", batch(2, 1500))...)
	for i := range 3 {
		want[i].Samples = append(want[i].Samples, second[i].Samples...)
		want[i].Metadata = second[i].Metadata
	}
	equal(t, got, want)
}

func TestMergeTellsDamage(t *testing.T) {
	info, body, _ := split(Encode("acme", 0, batch(3, 1000)))
	for _, bad := range [][]byte{nil, {0xff, 0xff, 0xff, 0xff, 0x7f}, body[:len(body)-4]} {
		if _, got := merge([]item{{info: info, body: body}, {info: info, body: bad}}); got != nil {
			t.Errorf("%x is merged", bad)
		}
	}
}

// FuzzMerge: any bytes are refused, or become a request of as many samples.
func FuzzMerge(f *testing.F) {
	f.Add(EncodeV2(mixed()), EncodeV2(batch(2, 5)))
	f.Add(EncodeV2(nil), []byte{1, 0, 0})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		m := merger{index: map[string]int{}}
		for _, body := range [][]byte{a, b} {
			if err := m.add(body, "", false); err != nil {
				if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrTooLarge) {
					t.Errorf("err = %v", err)
				}
				return
			}
		}
		inA, errA := decodeBody(a, true)
		inB, errB := decodeBody(b, true)
		if errA != nil || errB != nil {
			return // a sample is broken, which its receiver will say
		}
		out, err := decodeBody(m.body(), true)
		if err != nil || countSamples(out) != countSamples(inA)+countSamples(inB) {
			t.Fatalf("%d and %d samples are merged to %d, %v", countSamples(inA), countSamples(inB), countSamples(out), err)
		}
	})
}

// TestLinger: what comes within a moment goes in one request, and what is enough for one
// does not wait.
func TestLinger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *SenderOptions) { o.MaxSamples, o.Linger = 1000, 500*time.Millisecond })
		defer r.stop()
		for i := range 20 {
			if _, err := r.spool.Append(Encode("acme", 0, batch(10, int64(1000+i)))); err != nil {
				t.Fatal(err)
			}
			settle(20 * time.Millisecond)
		}
		if n := len(r.recv.requests()); n != 0 {
			t.Fatalf("%d requests before the time", n)
		}
		settle(101 * time.Millisecond)
		if got := r.recv.requests(); len(got) != 1 || countSamples(got[0].series) != 200 || r.spool.Stats().Pending != 0 {
			t.Fatalf("%d requests, %+v", len(got), r.spool.Stats())
		}
		r.push(400) // 1,200 samples
		settle(time.Millisecond)
		if got := r.recv.requests(); len(got) < 2 {
			t.Errorf("%d requests: what is enough for one waits", len(got))
		}
		settle(time.Second)
		if r.spool.Stats().Pending != 0 {
			t.Errorf("%+v", r.spool.Stats())
		}
	})
}

// TestLingerGivesWayToMemory: a lane whose records would fill no request does not wait
// while others can't be read for lack of memory.
func TestLingerGivesWayToMemory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *SenderOptions) { o.MaxSamples, o.Linger, o.Concurrency = 1<<20, time.Hour, 2 })
		defer r.stop()
		for i := range 40 {
			s := []Series{{Labels: labels.FromStrings("__name__", "x", "noise", noise(16<<10, i)), Samples: []Sample{{T: 1, V: 1}}}}
			if _, err := r.spool.Append(Encode("acme", uint32(i%2), s)); err != nil {
				t.Fatal(err)
			}
		}
		settle(time.Second)
		if got := r.spool.Stats(); got.Pending > 2*aheadBytes/(16<<10) {
			t.Errorf("%+v", got)
		}
	})
}

// noise is text that does not compress.
func noise(n, seed int) string {
	var b bytes.Buffer
	for x := uint64(seed + 1); b.Len() < n; x = x*6364136223846793005 + 1442695040888963407 {
		fmt.Fprintf(&b, "%x", x)
	}
	return b.String()[:n]
}

// What one merge leaves behind is in no later one, whichever of them damaged requests ended.
func TestMergersAreUsedAgain(t *testing.T) {
	for round := range 50 {
		m := &merger{index: map[string]int{}}
		if round%2 == 1 {
			m = mergers.Get().(*merger)
		}
		n := 1 + (round*37)%90
		for site := range 3 {
			s := batch(n, int64(1000*round))
			for i := range s {
				s[i].Labels = labels.NewBuilder(s[i].Labels).Set("site", fmt.Sprint(round/2, "-", site)).Labels()
			}
			_, body, err := split(Encode("acme", 0, s))
			if err != nil {
				t.Fatal(err)
			}
			if err := m.add(body, "", false); err != nil {
				t.Fatal(err)
			}
			if round%5 == 4 && m.add(body[:len(body)-4], "", false) == nil {
				t.Fatal("a damaged request is merged")
			}
		}
		out, err := decodeBody(m.body(), true)
		if err != nil || len(out) != 3*n {
			t.Fatalf("round %d: %d series, want %d, %v", round, len(out), 3*n, err)
		}
		for i, s := range out {
			if want := fmt.Sprint(round/2, "-", i/n); s.Labels.Get("site") != want || len(s.Samples) != 1 || s.Samples[0].T != int64(1000*round) {
				t.Fatalf("round %d: %v, want site %s", round, s, want)
			}
		}
		m.release()
	}
}

// BenchmarkMerge is a lane's work on eight pushes of 500 series; bytes are of the result.
func BenchmarkMerge(b *testing.B) {
	var items []item
	for site := range 8 {
		s := batch(500, int64(site)*1000)
		for i := range s {
			s[i].Labels = labels.NewBuilder(s[i].Labels).Set("site", fmt.Sprint("site-", site)).Labels()
		}
		info, body, err := split(Encode("acme", 0, s))
		if err != nil {
			b.Fatal(err)
		}
		items = append(items, item{info: info, body: body})
	}
	b.ReportAllocs()
	for b.Loop() {
		if info, body := merge(items); len(body) == 0 || info.Series != 4000 {
			b.Fatal(info)
		}
	}
}
