package intake

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"
	"time"
	"unicode/utf8"

	"muster.dev/muster/regional/logs/store"
)

// check reads every record of a payload and holds what comes out to what the store
// takes.
func check(t *testing.T, w *worker, body []byte, records func(func(entry, error) bool), wantTime bool) {
	var l line
	var b batch
	b.reset(paris, "eu", "id")
	n := 0
	records(func(e entry, err error) bool {
		if n++; n > len(body)+1 {
			t.Fatalf("%d records in %d bytes", n, len(body))
		}
		if err != nil || e.malformed || e.group != 0 {
			return true
		}
		l.index, l.time = n, e.time
		w.reader.read(&l, []byte("kube.var.log.containers.a_b_c-d.log"), e.record, e.meta, e.record, wantTime)
		for _, f := range [][]byte{l.node, l.namespace, l.pod, l.container, l.unit, l.stream, l.severity} {
			if len(f) > store.MaxFieldBytes || !utf8.Valid(f) {
				t.Fatalf("field %q", f)
			}
		}
		if len(l.message) > store.MaxMessageBytes || !utf8.Valid(l.message) || len(l.labels) > store.MaxLabels {
			t.Fatalf("message %q, %d labels", l.message, len(l.labels))
		}
		for _, kv := range l.labels {
			if len(kv.key) == 0 || len(kv.key) > store.MaxFieldBytes || len(kv.value) > store.MaxFieldBytes || !utf8.Valid(kv.key) || !utf8.Valid(kv.value) {
				t.Fatalf("label %q=%q", kv.key, kv.value)
			}
		}
		if !wantTime && !json.Valid(e.record.appendJSON(nil, math.MaxInt)) {
			t.Fatalf("no JSON: %s", e.record.appendJSON(nil, math.MaxInt))
		}
		b.add(&l)
		return true
	})
	c, err := newCodec()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.decode(c.encode(nil, &b)); err != nil || len(got) != b.lines {
		t.Fatalf("%d records came back of %d: %v", len(got), b.lines, err)
	}
}

// FuzzForward: any bytes are a message, or not, however they are split; and never
// more work than their length.
func FuzzForward(f *testing.F) {
	f.Add(forward("chunk", 2, func(int) string { return "level=warn \xff" }), 3)
	f.Add([]byte(append(mp{0x94}.str("t").at(1, 2).amap(1).str("log", "x"), 0xc0)), 1)
	f.Add([]byte(mp{0x93}.str("t").bin(mp{}.entry(time.Unix(1, 2), "log", "x", "kubernetes", "y")).amap(1).str("size").uint(1)), 9)
	f.Add([]byte{0x93, 0xa1, 't', 0xdd, 0xff, 0xff, 0xff, 0xff}, 2)
	w := &worker{reader: reader{maxLine: 1000}}
	f.Fuzz(func(t *testing.T, b []byte, split int) {
		const limit = 1 << 16
		var whole, parts scanner
		done, err := whole.run(b, limit)
		if split < 0 || split > len(b) {
			split = len(b) / 2
		}
		first, perr := parts.run(b[:split], limit)
		if perr == nil && !first {
			first, perr = parts.run(b, limit)
		}
		if first != done || (err == nil) != (perr == nil) || (done && whole.pos != parts.pos) {
			t.Fatalf("whole: %v %v at %d, in parts: %v %v at %d", done, err, whole.pos, first, perr, parts.pos)
		}
		if !done || err != nil {
			return
		}
		m, err := parseMessage(b[:whole.pos])
		if err != nil {
			return
		}
		if m.mode == modeMessage {
			check(t, w, b, func(yield func(entry, error) bool) { yield(m.messageEntry(), nil) }, false)
			return
		}
		check(t, w, m.entries, entries(m.entries), false)
	})
}

func FuzzNDJSON(f *testing.F) {
	f.Add([]byte(`{"log":"x","level":3,"kubernetes":{"labels":{"a":{"b":1}}}}`+"\n{}\n"), true)
	f.Add([]byte(`[{"date":1.5,"log":"\ud800"},{"a":[]}]`), false)
	f.Add([]byte(`{"a":"}"}{"b":"\\"}`), false)
	w := &worker{reader: reader{maxLine: 1000}}
	f.Fuzz(func(t *testing.T, b []byte, lines bool) {
		kind := "application/json"
		if lines {
			kind = "application/x-ndjson"
		}
		records, wantTime := recordsOf(kind, b)
		check(t, w, b, records, wantTime)
		if !lines || bytes.ContainsAny(b, "\r\xef") {
			return
		}
		// Every line that the standard library takes for an object is a record.
		want, got := 0, 0
		for _, line := range bytes.Split(b, []byte("\n")) {
			var m map[string]json.RawMessage
			if json.Unmarshal(line, &m) == nil && m != nil {
				want++
			}
		}
		for _, err := range records {
			if err == nil {
				got++
			}
		}
		if got != want {
			t.Fatalf("%d records, want %d", got, want)
		}
	})
}

func FuzzJSONFields(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":"x\"}","c":{"d":[1,2]},"e":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := object(b)
		if err != nil {
			return
		}
		var want map[string]json.RawMessage
		if json.Unmarshal(b, &want) != nil {
			t.Fatal("object took what is none")
		}
		got := map[string]json.RawMessage{}
		v.each(func(k []byte, v value) bool { got[string(k)] = v.raw; return true })
		if len(got) != len(want) && utf8.Valid(b) {
			t.Fatalf("%d fields, want %d", len(got), len(want))
		}
		for k, raw := range want {
			if utf8.Valid(b) && !bytes.Equal(bytes.TrimSpace(raw), got[k]) {
				t.Fatalf("%q: %s, want %s", k, got[k], raw)
			}
		}
	})
}

func FuzzPing(f *testing.F) {
	f.Add([]byte(mp{0x96}.str("PING", "h", "salt", keyDigest([]byte("salt"), "h", "n", "k"), "", "")))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s scanner
		if done, err := s.run(b, maxPing); err != nil || !done {
			return
		}
		host, salt, ok, err := checkPing(b[:s.pos], "n", "k")
		if ok && (err != nil || !bytes.Contains(b, []byte(keyDigest(salt, host, "n", "k")))) {
			t.Fatal("let in without the digest")
		}
	})
}

func FuzzBatch(f *testing.F) {
	c, err := newCodec()
	if err != nil {
		f.Fatal(err)
	}
	var b batch
	b.reset(paris, "eu", "p")
	b.add(&line{time: 1, message: []byte("m"), labels: []label{{[]byte("k"), []byte("v")}}})
	f.Add(c.encode(nil, &b))
	f.Add(b.buf)
	f.Fuzz(func(t *testing.T, rec []byte) {
		_, _ = c.decode(rec)
		_, _ = c.decode(c.encode(nil, &batch{buf: rec}))
	})
}
