package remotewrite

import (
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/model/labels"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

var stampOfParis = labels.FromStrings("region", "eu", "site", "paris", "tenant", "acme")

// raw is a request as a site sends it, and what the record of its series would say of it.
func rawOf(series []Series) Raw {
	return Raw{Body: EncodeV2(series), Stamp: stampOfParis, Info: infoOf("", series)}
}

func stampSeries(series []Series, stamp labels.Labels) []Series {
	out := make([]Series, len(series))
	for i, s := range series {
		b := labels.NewBuilder(s.Labels)
		stamp.Range(func(l labels.Label) { b.Set(l.Name, l.Value) })
		s.Labels = b.Labels()
		out[i] = s
	}
	return out
}

// A request that goes on as it came is the same to its receiver as its series, stamped and
// encoded anew.
func TestRaw(t *testing.T) {
	in := mixed()
	in[2].Labels = labels.FromStrings("Z", "1", "__name__", "x", "rf", "2", "sitf", "3", "zone", "4") // around each of the stamp's
	rec := AppendRaw([]byte("before"), "acme", 3, rawOf(in))[len("before"):]
	key, out, err := Decode(rec)
	if err != nil || key != "acme" {
		t.Fatal(key, err)
	}
	equal(t, out, stampSeries(in, stampOfParis))
	got, err := Inspect(rec)
	want, _ := Inspect(Encode("acme", 3, in))
	want.EncodedBytes, want.stamp = got.EncodedBytes, got.stamp
	if err != nil || got != want {
		t.Errorf("info %+v, want %+v, %v", got, want, err)
	}
	// An empty value takes a label away, and what a site says of itself does not count.
	in[0].Labels = labels.FromStrings("__name__", "x", "region", "mine", "site", "mine", "tenant", "mine")
	_, out, err = Decode(AppendRaw(nil, "acme", 0, Raw{Body: EncodeV2(in[:1]), Stamp: labels.New(labels.Label{Name: "region"}, labels.Label{Name: "site", Value: "paris"}), Info: infoOf("", in[:1])}))
	if want := labels.FromStrings("__name__", "x", "site", "paris", "tenant", "mine"); err != nil || !labels.Equal(out[0].Labels, want) {
		t.Errorf("%v, want %v, %v", out, want, err)
	}
}

// Of both kinds of records one request is made.
func TestMergeRaw(t *testing.T) {
	var items []item
	for _, rec := range [][]byte{AppendRaw(nil, "acme", 0, rawOf(mixed())), Encode("acme", 0, stampSeries(batch(3, 3000), stampOfParis)), AppendRaw(nil, "acme", 0, rawOf(batch(2, 4000)))} {
		info, body, err := split(rec)
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, item{info: info, body: body})
	}
	info, body := merge(items)
	got, err := decodeBody(body, true)
	if err != nil {
		t.Fatal(err)
	}
	want := stampSeries(mixed(), stampOfParis)
	for i := range want {
		want[i].Metadata = batch(3, 3000)[i].Metadata
		want[i].Samples = append(want[i].Samples, batch(3, 3000)[i].Samples...)
		if i < 2 {
			want[i].Samples = append(want[i].Samples, batch(2, 4000)[i].Samples...)
		}
	}
	equal(t, got, want)
	if info.All() != countSamples(got) || info.Series != 3 || info.stamp != "" {
		t.Errorf("%+v of %d samples", info, countSamples(got))
	}
}

// A stamped record that is alone is stamped too, also for a receiver of 1.0; one that can't be
// is dropped and counted, and holds up nothing.
func TestRawIsSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *SenderOptions) { o.MaxSamples = 1 })
		defer r.stop()
		damaged := rawOf(batch(1, 1000))
		damaged.Body = snappy.Encode(nil, []byte{0x2a, 2, 0x12, 0}) // a series without labels
		for _, raw := range []Raw{rawOf(batch(1, 1000)), damaged, rawOf(batch(1, 2000))} {
			if _, err := r.spool.Append(AppendRaw(nil, "acme", 0, raw)); err != nil {
				t.Fatal(err)
			}
		}
		settle(time.Second)
		got := r.recv.requests()
		if len(got) != 2 || r.spool.Stats().Pending != 0 || r.sender.Status().DroppedSamples != 1 {
			t.Fatalf("%d requests, %+v, %+v", len(got), r.spool.Stats(), r.sender.Status())
		}
		for i, q := range got {
			equal(t, q.series, stampSeries(batch(1, int64(1000*(i+1))), stampOfParis))
		}
	})
}

// FuzzRaw: whatever a site sends, nothing of it goes on without the stamp; and what is plain
// goes on as the decoder read it.
func FuzzRaw(f *testing.F) {
	for _, s := range [][]Series{mixed(), batch(2, 5), {{Labels: labels.FromStrings("__name__", "x", "site", "mine"), Samples: []Sample{{T: 1, V: 1}}}}} {
		raw, _ := snappy.Decode(nil, EncodeV2(s))
		f.Add(raw)
	}
	odd, _ := (&writev2.Request{Symbols: []string{"", "site", "x", "__name__", "tenant"}, Timeseries: []writev2.TimeSeries{
		{LabelsRefs: []uint32{4, 2, 1, 2, 3, 2, 0, 0}, Samples: []writev2.Sample{{Value: 1}}, Metadata: writev2.Metadata{Type: 99, HelpRef: 1}}}}).Marshal()
	f.Add(odd)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var d Decoder
		bad := false
		var want []Series
		b := labels.NewScratchBuilder(8)
		for d.Reset(raw, true, Limits{}); d.Next(); {
			ls, err := d.labels(&b)
			bad = bad || d.Bad != nil || err != nil
			want = append(want, Series{Labels: ls, Metadata: d.Metadata, Samples: d.Samples, Histograms: d.Histograms})
		}
		m := newMerger()
		defer m.release()
		info, body, err := split(AppendRaw(nil, "acme", 0, Raw{Body: snappy.Encode(nil, raw), Stamp: stampOfParis}))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.add(body, info.stamp, true); err != nil {
			if d.Plain() && !bad {
				t.Fatalf("plain, and can't be merged: %v", err)
			}
			return
		}
		var got Decoder
		n := 0
		for got.Reset(must(snappy.Decode(nil, m.body())), true, recordLimits); got.Next(); n++ {
			seen := map[string]int{}
			pairs := got.Pairs()
			for i := 0; i+1 < len(pairs); i += 2 {
				if v := stampOfParis.Get(pairs[i]); v != "" {
					seen[pairs[i]]++
					if pairs[i+1] != v {
						t.Fatalf("%q goes on", pairs)
					}
				}
			}
			if len(seen) != 3 || seen["site"] != 1 || seen["tenant"] != 1 || seen["region"] != 1 {
				t.Fatalf("%q goes on", pairs)
			}
		}
		if !d.Plain() || bad {
			return
		}
		if got.Err() != nil {
			t.Fatal("plain, and what is made of it can't be decoded", got.Err())
		}
		samples := 0
		for _, s := range want {
			samples += len(s.Samples) + len(s.Histograms)
		}
		if got.total != samples {
			t.Fatalf("%d samples of %d go on", got.total, samples)
		}
	})
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// Equal labels in equal order have one hash, however they are sent, and others have others.
func TestHash(t *testing.T) {
	seed := maphash.MakeSeed()
	hash := func(body []byte, v2 bool) []uint64 {
		raw, err := snappy.Decode(nil, body)
		if err != nil {
			t.Fatal(err)
		}
		d := Decoder{Seed: seed}
		var out []uint64
		for d.Reset(raw, v2, Limits{}); d.Next(); {
			out = append(out, d.Hash(7))
		}
		return out
	}
	in := batch(200, 1000)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
	one, two := hash(EncodeV1(in), false), hash(EncodeV2(in), true)
	seen := map[uint64]bool{}
	for i := range in {
		if one[i] != two[i] || seen[one[i]] {
			t.Fatalf("series %d: %x by 1.0, %x by 2.0, seen %t", i, one[i], two[i], seen[one[i]])
		}
		seen[one[i]] = true
	}
	// The same strings at other places.
	swapped, err := (&writev2.Request{Symbols: []string{"", "a", "b"}, Timeseries: []writev2.TimeSeries{{LabelsRefs: []uint32{1, 2}}, {LabelsRefs: []uint32{2, 1}}, {LabelsRefs: []uint32{1, 2, 0, 0}}}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if h := hash(snappy.Encode(nil, swapped), true); h[0] == h[1] || h[0] == h[2] {
		t.Errorf("%x", h)
	}
	d := Decoder{Seed: seed}
	d.Reset(swapped, true, Limits{})
	d.Next()
	if d.Hash(1) == d.Hash(2) {
		t.Error("what it begins with does not count")
	}
}

// What is not as our encoder writes it says so.
func TestPlain(t *testing.T) {
	plain := func(raw []byte) bool {
		var d Decoder
		for d.Reset(raw, true, Limits{}); d.Next(); {
		}
		return d.Plain()
	}
	ok := must(snappy.Decode(nil, EncodeV2(mixed())))
	if !plain(ok) {
		t.Error("what our encoder writes is not plain")
	}
	refs, sample := []byte{0x0a, 2, 0, 0}, []byte{0x12, 11, 0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 5}
	series := func(parts ...[]byte) []byte {
		var b []byte
		for _, p := range parts {
			b = append(b, p...)
		}
		return append([]byte{0x2a, byte(len(b))}, b...)
	}
	if !plain(series(refs, sample)) {
		t.Error("one series is not plain")
	}
	for name, raw := range map[string][]byte{
		"labels last": series(sample, refs), "labels twice": series(refs, refs, sample), "labels one by one": series([]byte{0x08, 0, 0x08, 0}, sample),
		"no labels": series(sample), "a sample of more": series(refs, append([]byte{0x12, 24, 0x1a, 22}, make([]byte, 22)...)), "cut off": {0x2a, 5, 0},
	} {
		if plain(raw) {
			t.Errorf("%s: plain", name)
		}
	}
	var d Decoder
	for d.Reset(must(snappy.Decode(nil, EncodeV1(batch(1, 1)))), false, Limits{}); d.Next(); {
	}
	if d.Plain() {
		t.Error("1.0 is plain")
	}
	if _, _, err := Decode(append(appendHeader(nil, stampedVersion, Info{}), 2, 1, 'a')); !errors.Is(err, ErrMalformed) {
		t.Errorf("half a stamp: %v", err)
	}
}
