package wire

import (
	"math"
	"testing"
)

type aSeries struct {
	tenant, site string
	value        float64
}

func readAll(b []byte, heads ...[]byte) (out []aSeries, err error) {
	r, err := ReadVector(b)
	if err != nil {
		return nil, err
	}
	for {
		more, err := r.More()
		if !more || err != nil {
			return out, err
		}
		if n := len(out); n < len(heads) {
			if v, ok := r.Expected(heads[n]); ok {
				out = append(out, aSeries{"expected", "expected", v})
				continue
			}
		}
		tenant, site, v, err := r.Next()
		if err != nil {
			return out, err
		}
		out = append(out, aSeries{string(tenant), string(site), v})
	}
}

func TestVector(t *testing.T) {
	in := []aSeries{{"acme", "paris-01", 1.5}, {"", "", math.Inf(-1)}, {"acme", "a\"b\n", 0}, {"beta", "paris-01", -1e300}}
	b := AppendVector(nil, len(in))
	for _, s := range in {
		b = AppendSeries(b, s.tenant, s.site, s.value)
	}
	if !IsVector(b) || IsVector([]byte(`{"status":"success"}`)) {
		t.Fatal("one is not told from the other")
	}
	got, err := readAll(b)
	if err != nil || len(got) != len(in) {
		t.Fatal(got, err)
	}
	for i := range in {
		if got[i] != in[i] {
			t.Errorf("%v, want %v", got[i], in[i])
		}
	}
	got, err = readAll(b, AppendSeriesHead(nil, "acme", "paris-01"), AppendSeriesHead(nil, "acme", "paris-02"), nil, AppendSeriesHead(nil, "beta", "paris-01"))
	if err != nil || len(got) != 4 || got[0] != (aSeries{"expected", "expected", 1.5}) || got[1] != in[1] || got[3] != (aSeries{"expected", "expected", -1e300}) {
		t.Error(got, err)
	}
	for n := len(vectorMagic); n < len(b); n++ {
		if got, err := readAll(b[:n]); err == nil {
			t.Errorf("the first %d bytes are %v", n, got)
		}
	}
	if _, err := readAll(append(b, 0)); err == nil {
		t.Error("a byte too many is taken")
	}
}

func FuzzVector(f *testing.F) {
	f.Add(AppendSeries(AppendVector(nil, 1), "acme", "paris-01", 1.5))
	f.Add([]byte("\x00mv1\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if !IsVector(b) {
			return
		}
		got, err := readAll(b)
		if err != nil {
			return
		}
		again := AppendVector(nil, len(got))
		for _, s := range got {
			again = AppendSeries(again, s.tenant, s.site, s.value)
		}
		if twice, err := readAll(again); err != nil || len(twice) != len(got) {
			t.Errorf("%q is read as %v, and then as %v, %v", b, got, twice, err)
		}
	})
}
