package delta

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"
)

func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = r.Read(b)
	return b
}

func made(t testing.TB, old, current []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := Make(&out, bytes.NewReader(old), int64(len(old)), bytes.NewReader(current)); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestRoundTrip(t *testing.T) {
	old := noise(1, 3<<20)
	insert := bytes.Join([][]byte{old[:1<<20], noise(2, 1000), old[1<<20:]}, nil)
	inPlace := bytes.Clone(old)
	copy(inPlace[1_500_000:], noise(3, 4096))
	for name, tc := range map[string]struct {
		old, current []byte
		most         int // bytes of the delta
	}{
		"the same":         {old, old, 64},
		"inserted":         {old, insert, 1100},
		"in place":         {old, inPlace, 4200},
		"taken out":        {insert, old, 100},
		"moved":            {old, append(bytes.Clone(old[1<<20:]), old[:1<<20]...), 200},
		"at the ends":      {old, bytes.Join([][]byte{noise(4, 10), old[10 : len(old)-10], noise(5, 10)}, nil), 200},
		"all new":          {old, noise(6, 1<<20), 1<<20 + 1000},
		"from nothing":     {nil, old[:5000], 5100},
		"to nothing":       {old, nil, 64},
		"short":            {[]byte("abc"), []byte("abcd"), 64},
		"zeros":            {make([]byte, 1<<20), make([]byte, 2<<20), 400},
		"compressible":     {old, bytes.Repeat([]byte("all the same "), 100_000), 1000},
		"a lot that's new": {old, append(noise(7, 3*maxLiteral+5), old...), 3*maxLiteral + 2000},
	} {
		d := made(t, tc.old, tc.current)
		var got bytes.Buffer
		if err := Apply(&got, bytes.NewReader(tc.old), int64(len(tc.old)), bytes.NewReader(d), int64(len(tc.current))); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !bytes.Equal(got.Bytes(), tc.current) {
			t.Errorf("%s: something else came out", name)
		}
		if len(d) > tc.most {
			t.Errorf("%s: %d bytes, want at most %d", name, len(d), tc.most)
		}
		for _, size := range []int{len(tc.current) - 1, len(tc.current) + 1} {
			if Apply(io.Discard, bytes.NewReader(tc.old), int64(len(tc.old)), bytes.NewReader(d), int64(size)) == nil {
				t.Errorf("%s: taken for %d bytes", name, size)
			}
		}
	}
}

// Whatever comes as a delta: an error or a file of that size, never more than it.
func FuzzApply(f *testing.F) {
	old := noise(1, 20_000)
	current := append(bytes.Clone(old[5000:]), noise(2, 3000)...)
	f.Add(made(f, old, current))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, d []byte) {
		var out bytes.Buffer
		err := Apply(&out, bytes.NewReader(old), int64(len(old)), bytes.NewReader(d), int64(len(current)))
		if out.Len() > len(current) || err == nil && out.Len() != len(current) {
			t.Fatalf("%d bytes of %d, %v", out.Len(), len(current), err)
		}
	})
}

// A 100 MB image of which 1 % changes, as pages here and there and as one piece.
func BenchmarkOnePercent(b *testing.B) {
	const size = 100_000_000
	old := noise(1, size)
	pages := bytes.Clone(old)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range size / 100 / 4096 {
		copy(pages[r.IntN(size/4096)*4096:], noise(uint64(i)+9, 4096))
	}
	piece := bytes.Join([][]byte{old[:size/2], noise(3, size/100), old[size/2+size/100/2:]}, nil)
	for _, tc := range []struct {
		name    string
		current []byte
	}{{"pages", pages}, {"piece", piece}} {
		d := made(b, old, tc.current)
		b.Run("make/"+tc.name, func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				made(b, old, tc.current)
			}
			b.ReportMetric(float64(len(d)), "delta-bytes")
		})
		b.Run("apply/"+tc.name, func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				if err := Apply(io.Discard, bytes.NewReader(old), size, bytes.NewReader(d), int64(len(tc.current))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
