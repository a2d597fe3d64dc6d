package intake

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"

	"muster.dev/muster/internal/testkit"
)

// noisy has n bytes of text that does not compress well.
func noisy(n int) string {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('!' + r.IntN(90))
		if b[i] == '"' || b[i] == '\\' {
			b[i] = 'x'
		}
	}
	return string(b)
}

// TestOneLongLine: a line of 18 MB among four others is cut and counted, and its
// neighbours are kept, whatever way it comes; with the message whole it comes once.
func TestOneLongLine(t *testing.T) {
	at := time.Now()
	long := noisy(18_000_000)
	texts := []string{"one", "two", long, "four", "five"}
	var packed mp
	var nd []byte
	var list []any
	for i, s := range texts {
		packed = packed.entry(at.Add(time.Duration(i)), "log", s, "stream", "stdout")
		rec := map[string]any{"log": s, "stream": "stdout"}
		line, _ := json.Marshal(rec)
		nd = append(append(nd, line...), '\n')
		list = append(list, rec)
	}
	array, _ := json.Marshal(list)
	gz := func(b []byte) []byte {
		var buf bytes.Buffer
		w, _ := gzip.NewWriterLevel(&buf, gzip.BestSpeed)
		_, _ = w.Write(b)
		_ = w.Close()
		return buf.Bytes()
	}
	zs := func(b []byte) []byte {
		w, _ := zstd.NewWriter(nil)
		return w.EncodeAll(b, nil)
	}
	body := func(kind, encoding string, b []byte) func(*testing.T, *running) {
		return func(t *testing.T, r *running) {
			if code, text, _ := r.post(t, kind, encoding, b); code != 200 || !strings.Contains(text, `"accepted":5`) {
				t.Fatalf("%d %s", code, text)
			}
		}
	}
	msg := func(b []byte) func(*testing.T, *running) {
		return func(t *testing.T, r *running) {
			c := r.dial(t, paris)
			if got := send(t, c, b); got != ackOf("c") {
				t.Fatalf("ack %q", got)
			}
			// The connection goes on.
			if got := send(t, c, forward("next", 1, func(int) string { return "next" })); got != ackOf("next") {
				t.Fatalf("ack %q", got)
			}
		}
	}
	for name, run := range map[string]func(*testing.T, *running){
		"plugin":                 body("application/msgpack", "gzip", gz(packed)),
		"plugin, not compressed": body("application/msgpack", "", packed),
		"HTTP, zstd":             body("application/msgpack", "zstd", zs(packed)),
		"HTTP, NDJSON":           body("application/x-ndjson", "", nd),
		"HTTP, JSON, gzip":       body("application/json", "gzip", gz(array)),
		"forward":                msg(append(append(mp{0x93}.str("t").array(5), packed...).amap(1).str("chunk"), mp{}.str("c")...)),
		"forward, packed":        msg(mp{0x93}.str("t").bin(packed).amap(1).str("chunk", "c")),
		"forward, gzip":          msg(mp{0x93}.str("t").bin(gz(packed)).amap(2).str("compressed", "gzip", "chunk", "c")),
		"forward, zstd":          msg(mp{0x93}.str("t").bin(zs(packed)).amap(2).str("compressed", "zstd", "chunk", "c")),
		"forward, small gzip": func(t *testing.T, r *running) { // within the limit as it comes
			b := mp{}
			for _, s := range []string{"one", "two", strings.Repeat("x", 18_000_000), "four", "five"} {
				b = b.entry(at, "log", s)
			}
			msg(mp{0x93}.str("t").bin(gz(b)).amap(2).str("compressed", "gzip", "chunk", "c"))(t, r)
		},
		"message": func(t *testing.T, r *running) {
			c := r.dial(t, paris)
			for _, s := range texts {
				if got := send(t, c, mp{0x94}.str("t").at(uint32(at.Unix()), 77).amap(1).str("log", s).amap(1).str("chunk", "c")); got != ackOf("c") {
					t.Fatalf("ack %q", got)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, nil)
			run(t, r)
			testkit.EventuallyTrue(t, "all are stored", func() bool { return r.sink.count() >= 5 && r.queue.Stats().Pending == 0 })
			got := map[string]bool{}
			for _, rec := range r.sink.all() {
				if strings.HasSuffix(rec.Message, "[truncated]") {
					if len(rec.Message) < 200_000 || rec.Message[0] != long[0] && rec.Message[0] != 'x' {
						t.Errorf("%d bytes are left", len(rec.Message))
					}
					got["long"] = true
					continue
				}
				got[rec.Message] = true
			}
			for _, want := range []string{"one", "two", "long", "four", "five"} {
				if !got[want] {
					t.Errorf("%s is missing", want)
				}
			}
			if st := r.Status(); st.MemoryUsed != 0 || st.MemoryPeak > r.opts.SiteMemory {
				t.Errorf("memory %d, peak %d", st.MemoryUsed, st.MemoryPeak)
			}
		})
	}
}

// TestTooLargeIsSaid: what can't be taken even with its texts cut is refused once, with an
// answer that the sender can read though it sends all of its body first.
func TestTooLargeIsSaid(t *testing.T) {
	r := start(t, func(o *Options) { o.MaxMessageBytes, o.MaxPayloadBytes = 256<<10, 512<<10 })
	for name, chunked := range map[string]bool{"with a length": false, "chunked": true} {
		body := io.Reader(bytes.NewReader(bytes.Repeat([]byte("{\"log\":\"x\"}\n"), 1<<20)))
		if chunked {
			body = io.MultiReader(body)
		}
		req, _ := http.NewRequest("POST", r.url, body)
		req.Header.Set("Content-Type", "application/x-ndjson")
		resp, err := r.http(t, paris).Do(req)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 413 || !strings.Contains(string(text), "send smaller batches") {
			t.Errorf("%s: %d %s", name, resp.StatusCode, text)
		}
	}
	if n := r.sink.count(); n != 0 {
		t.Errorf("%d lines of refused bodies", n)
	}
}

// FuzzTrim: what is short comes out as it went in, and what was valid stays so.
func FuzzTrim(f *testing.F) {
	f.Add([]byte(mp{}.entry(time.Unix(1, 2), "log", strings.Repeat("x", 100))), 10)
	f.Add([]byte{0xc6, 0, 0, 0, 5, 1, 2, 3, 4, 5, 0xc7, 3, 9, 1, 2, 3, 0xdf, 0, 0, 0, 1, 1, 2}, 2)
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff, 1}, 0)
	f.Fuzz(func(t *testing.T, b []byte, max int) {
		max = 64 + (max & 0xffff)
		out, err := io.ReadAll(newTrimmer(bufio.NewReader(bytes.NewReader(b)), max, -1))
		if err != nil {
			return
		}
		for i, part := range [][]byte{b, out} {
			for len(part) > 0 {
				_, rest, err := cut(part)
				if err != nil && i == 0 {
					return // it was not valid before
				}
				if err != nil {
					t.Fatalf("%x became %x: %v", b, out, err)
				}
				part = rest
			}
		}
		if len(b) <= max && !bytes.Equal(out, b) {
			t.Errorf("%x became %x", b, out)
		}
	})
}

// FuzzTrimJSON is FuzzTrim for JSON.
func FuzzTrimJSON(f *testing.F) {
	f.Add([]byte(`{"log":"a long one","n":[1,"\u00e9\\\"x\ud83d\ude00"]}`), 3)
	f.Add([]byte("{\"a\n\":\"b"), 0)
	f.Fuzz(func(t *testing.T, b []byte, max int) {
		max &= 0xff
		out, err := io.ReadAll(&jsonTrimmer{r: bufio.NewReaderSize(bytes.NewReader(b), 16), max: max})
		if err != nil || len(out) > len(b) {
			t.Fatalf("%q became %q, %v", b, out, err)
		}
		if len(b) <= max && !bytes.Equal(out, b) {
			t.Errorf("%q became %q", b, out)
		}
		if json.Valid(b) && !json.Valid(out) {
			t.Errorf("%q became %q with %d", b, out, max)
		}
	})
}

// TestCutIsValid: a text is cut between two characters, and what is no UTF-8 is
// repaired within its bound.
func TestCutIsValid(t *testing.T) {
	for _, s := range []string{strings.Repeat("é", 1000), strings.Repeat("\xff", 1000), strings.Repeat("a", 1000), "a" + strings.Repeat("€", 400)} {
		r, l := reader{maxLine: 500}, line{}
		r.read(&l, nil, value{raw: mp{0x81}.str("log", s)}, value{}, value{}, false)
		if !utf8.Valid(l.message) || len(l.message) > 500+len("… [truncated]") || !strings.HasSuffix(string(l.message), "… [truncated]") || r.truncated != 1 {
			t.Errorf("%.10q: %d bytes, truncated %d", s, len(l.message), r.truncated)
		}
		if valid := utf8.ValidString(s); valid && r.repaired != 0 {
			t.Errorf("%.10q: repaired %d", s, r.repaired)
		}
	}
}
