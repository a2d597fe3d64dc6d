package intake

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fluent/fluent-logger-golang/fluent"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
)

// The bytes that a Fluent Bit 5 sends, by hand. Where each form comes from:
// plugins/out_forward/forward.c (flush_forward_mode, flush_message_mode) and
// forward_format.c (append_options, flb_forward_format_*) of fluent/fluent-bit 5.1,
// src/flb_log_event_encoder*.c for the entries, src/flb_mp.c for the map headers
// that are always map32, and include/fluent-bit/flb_log_event.h for group markers.
// The protocol is https://github.com/fluent/fluentd/wiki/Forward-Protocol-Specification-v1
//
// 65f0c8b0 is 2024-03-12T21:27:12Z; 1dcd6500 ns is half a second.
const (
	hexTag = "a4 6b756265" // "kube"
	hexT   = "d7 00 65f0c8b0 1dcd6500"
	hexLog = "a3 6c6f67" // "log"
	hexHi  = "a2 6869"   // "hi"
	// {"chunk": "Y2h1bgs=", "size": 1, "fluent_signal": 0}: a map32 header, an int64 size
	hexOpts = "df 00000003 a5 6368756e6b a8 593268316267733d a4 73697a65 d3 0000000000000001 ad 666c75656e745f7369676e616c 00"
	chunkID = "Y2h1bgs="
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var at2024 = time.Date(2024, 3, 12, 21, 27, 12, 5e8, time.UTC)

// TestFluentBitForms feeds each form as bytes and looks at what reaches the store.
func TestFluentBitForms(t *testing.T) {
	want := []Record{{Timestamp: at2024, Tenant: "acme", Site: "paris", Region: "eu-west", Message: "hi"}}
	seconds := []Record{{Timestamp: at2024.Truncate(time.Second), Tenant: "acme", Site: "paris", Region: "eu-west", Message: "hi"}}
	entry := "92 92 " + hexT + " 80 81" + hexLog + hexHi
	gz := func(b []byte) []byte {
		var buf bytes.Buffer
		w := gzip.NewWriter(&buf)
		_, _ = w.Write(b)
		_ = w.Close()
		return buf.Bytes()
	}
	zs := func(b []byte) []byte {
		w, _ := zstd.NewWriter(nil)
		return w.EncodeAll(b, nil)
	}
	packed := func(payload []byte, opts ...string) []byte {
		b := mp{0x93}.str("kube").bin(payload).amap(len(opts)/2 + 1)
		return b.str(opts...).str("chunk", chunkID)
	}
	for name, tc := range map[string]struct {
		msg  []byte
		want []Record
	}{
		// retain_metadata_in_forward_mode: entries as the engine holds them; the array
		// header of flush_forward_mode is the shortest.
		"forward, event time and metadata": {unhex(t, "93"+hexTag+"91"+entry+hexOpts), want},
		// The default since 2.1: flb_forward_format_transcode to FLB_LOG_EVENT_FORMAT_FORWARD.
		"forward, event time":           {unhex(t, "93"+hexTag+"91 92"+hexT+"81"+hexLog+hexHi+hexOpts), want},
		"event time as ext 8":           {unhex(t, "93"+hexTag+"91 92 c7 08 00 65f0c8b0 1dcd6500 81"+hexLog+hexHi+hexOpts), want},
		"forward compat, whole seconds": {unhex(t, "93"+hexTag+"91 92 cf 0000000065f0c8b0 81"+hexLog+hexHi+hexOpts), seconds},
		"wide headers":                  {unhex(t, "dd 00000003 db 00000004 6b756265 dd 00000001 dc 0002 dc 0002"+hexT+"de 0000 df 00000001 d9 03 6c6f67 db 00000002 6869"+hexOpts), want},
		"metadata absent":               {unhex(t, "93"+hexTag+"91 92 91 "+hexT+" 81"+hexLog+hexHi+hexOpts), want},
		"message":                       {unhex(t, "94"+hexTag+hexT+"81"+hexLog+hexHi+hexOpts), want},
		"packed, bin":                   {packed(unhex(t, entry)), want},
		"compressed, gzip":              {packed(gz(unhex(t, entry)), "compressed", "gzip"), want},
		"compressed, zstd":              {packed(zs(unhex(t, entry)), "compressed", "zstd"), want},
		"compressed, two gzip members":  {packed(append(gz(unhex(t, entry)[:10]), gz(unhex(t, entry)[10:])...), "compressed", "gzip"), want},
		// Before records from OpenTelemetry: -1 and -2 as seconds, counted in size.
		"group markers": {unhex(t, "93"+hexTag+"93"+
			"92 92 d7 00 ffffffff 00000000 80 80"+entry+"92 92 d7 00 fffffffe 00000000 80 80"+strings.Replace(hexOpts, "0000000000000001", "0000000000000003", 1)), want},
		// in_tail passes bytes on as they are: a str that is no UTF-8.
		"raw bytes in a str": {unhex(t, "93"+hexTag+"91 92"+hexT+"81"+hexLog+"a4 68 ff fe 69"+hexOpts),
			[]Record{{Timestamp: at2024, Tenant: "acme", Site: "paris", Region: "eu-west", Message: "h\uFFFDi"}}},
		"a lying record": {append(mp{0x93, 0xa1, 'x', 0x91, 0x92}.at(0x65f0c8b0, 5e8).amap(4).str("log", "hi", "tenant", "umbrella", "site", "tokyo", "region", "jp").amap(1), mp{}.str("chunk", chunkID)...),
			[]Record{{Timestamp: at2024, Tenant: "acme", Site: "paris", Region: "eu-west", Message: "hi", Labels: map[string]string{"tenant": "umbrella", "site": "tokyo", "region": "jp"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, func(o *Options) { o.MaxPast = 100 * 365 * 24 * time.Hour })
			c := r.dial(t, paris)
			// In two parts: what is incomplete must not be taken for broken.
			if _, err := c.Write(tc.msg[:len(tc.msg)/2]); err != nil {
				t.Fatal(err)
			}
			if got := send(t, c, tc.msg[len(tc.msg)/2:]); got != ackOf(chunkID) {
				t.Fatalf("ack %q", got)
			}
			testkit.EventuallyTrue(t, "the record is stored", func() bool { return r.sink.count() >= len(tc.want) })
			got := r.sink.all()
			for i := range got {
				if got[i].ID == "" {
					t.Error("no id")
				}
				got[i].ID = ""
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("want -, got +:\n%s", d)
			}
		})
	}
}

// TestChunkSentAgain: a sender that missed the ack sends the same bytes, over the
// same or another connection, to this process or to the one after it.
func TestChunkSentAgain(t *testing.T) {
	dir := t.TempDir()
	sink := &memSink{}
	msg := forward("again", 10, func(i int) string { return fmt.Sprint("line ", i) })
	var ca *authority
	for round := range 2 {
		r := start(t, func(o *Options) { o.Dir, o.Sink = dir, sink })
		ca = r.ca
		for range 2 {
			if got := send(t, r.dial(t, paris), msg); got != ackOf("again") {
				t.Fatalf("round %d: ack %q", round, got)
			}
		}
		if st := r.Status().Sites[0]; st.Duplicates != 1 || st.Lines != 10 {
			t.Errorf("round %d: %+v, want 10 lines and 1 duplicate", round, st)
		}
		// Another site's chunk of the same id and content is another chunk.
		if got := send(t, r.dial(t, tokyo), msg); got != ackOf("again") {
			t.Fatalf("ack %q", got)
		}
		// The same id with other content loses nothing.
		if got := send(t, r.dial(t, berlin), forward("again", 1, func(int) string { return fmt.Sprint("other ", round) })); got != ackOf("again") {
			t.Fatalf("ack %q", got)
		}
		testkit.EventuallyTrue(t, "everything is stored", func() bool { return sink.count() >= 21+round && r.queue.Stats().Pending == 0 })
		r.stop()
	}
	_ = ca
	if n := sink.count(); n != 22 {
		t.Errorf("%d records, want 22", n)
	}
	if sink.duplicates != 20 {
		t.Errorf("%d duplicates reached the store, want those of the second process, 20", sink.duplicates)
	}
}

// TestSameLineTwice: without a chunk id nothing is sent again by the protocol, and
// equal lines in one second are as many lines.
func TestSameLineTwice(t *testing.T) {
	r := start(t, nil)
	c := r.dial(t, paris)
	msg := append(mp{0x93}.str("app").uint(uint32(time.Now().Unix())).amap(1), mp{}.str("log", "tick")...)
	for range 3 {
		if _, err := c.Write(msg); err != nil {
			t.Fatal(err)
		}
	}
	testkit.EventuallyTrue(t, "three lines", func() bool { return r.sink.count() == 3 })
}

// TestSignalsRefused: metrics and traces are told apart and named, the connection
// closes without an ack, and logs go on.
func TestSignalsRefused(t *testing.T) {
	for signal, name := range signals {
		r := start(t, nil)
		c := r.dial(t, paris)
		b := mp{0x93}.str("node").bin([]byte("cmetrics")).amap(2).str("chunk", "m1", "fluent_signal")
		if _, err := c.Write(append(b, byte(signal))); err != nil {
			t.Fatal(err)
		}
		closed(t, c)
		testkit.EventuallyTrue(t, "the reason is kept", func() bool {
			st := r.Status().Sites
			return len(st) == 1 && strings.Contains(st[0].LastError, name) && strings.Contains(st[0].LastError, "match only logs")
		})
		if got := send(t, r.dial(t, paris), forward("l1", 1, func(int) string { return "x" })); got != ackOf("l1") {
			t.Errorf("ack %q", got)
		}
	}
}

// TestMalformedEntriesAreLeftOut: one bad entry does not cost the chunk.
func TestMalformedEntriesAreLeftOut(t *testing.T) {
	r := start(t, nil)
	b := mp{0x93}.str("t").array(4).entry(time.Now(), "log", "one")
	b = append(b, 0x01)                   // no entry
	b = append(b, 0x92, 0x01, 0x02)       // no record
	b = b.entry(time.Now(), "log", "two") // good again
	if got := send(t, r.dial(t, paris), b.amap(1).str("chunk", "c")); got != ackOf("c") {
		t.Fatalf("ack %q", got)
	}
	testkit.EventuallyTrue(t, "two lines", func() bool { return r.sink.count() == 2 })
	if st := r.Status().Sites[0]; st.Malformed != 2 {
		t.Errorf("%+v", st)
	}
}

// TestHandshake plays Fluent Bit's part of it, which checks the server too.
func TestHandshake(t *testing.T) {
	r := start(t, func(o *Options) {
		o.SharedKey = "s3cret"
	})
	play := func(c net.Conn, host, key string) (ok bool, reason string, proven bool) {
		t.Helper()
		buf := make([]byte, 1023) // of Fluent Bit, and one read
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if string(buf[:6]) != "\x92\xa4HELO" {
			t.Fatalf("HELO %q", buf[:n])
		}
		var nonce string
		value{raw: buf[6:n]}.each(func(k []byte, v value) bool {
			if string(k) == "nonce" {
				nonce = string(v.text())
			}
			return true
		})
		salt := "\x00\xff0123456789abcd"
		pong := send(t, c, mp{0x96}.str("PING", host, salt, keyDigest([]byte(salt), host, nonce, key), "", ""))
		if pong[:6] != "\x95\xa4PONG" {
			t.Fatalf("PONG %q", pong)
		}
		rest := []byte(pong[6:])
		ok = rest[0] == 0xc3
		rest = rest[1:]
		var text [3]string
		for i := range text {
			var raw []byte
			if raw, rest, err = cut(rest); err != nil {
				t.Fatal(err)
			}
			text[i] = string(value{raw: raw}.text())
		}
		return ok, text[0], text[2] == keyDigest([]byte(salt), text[1], nonce, key)
	}
	c := r.dial(t, paris)
	if ok, reason, proven := play(c, "edge-1", "s3cret"); !ok || !proven {
		t.Fatalf("ok %v %q, server proven %v", ok, reason, proven)
	}
	if got := send(t, c, forward("k", 1, func(int) string { return "x" })); got != ackOf("k") {
		t.Errorf("ack %q", got)
	}
	c = r.dial(t, paris)
	if ok, reason, _ := play(c, "edge-1", "wrong"); ok || reason != "shared_key mismatch" {
		t.Errorf("a wrong key: %v %q", ok, reason)
	}
	closed(t, c)
	// A message before the handshake is no PING.
	c = r.dial(t, paris)
	if _, err := c.Write(forward("k", 1, func(int) string { return "x" })); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 512)
	_, _ = c.Read(buf)
	closed(t, c)
}

// TestSharedKeyNotServed: a sender that waits for a handshake that is not served is named,
// with what to do, and one that speaks late is heard.
func TestSharedKeyNotServed(t *testing.T) {
	r := start(t, func(o *Options) { o.HandshakeTime = 100 * time.Millisecond })
	c := r.dial(t, paris)
	testkit.EventuallyTrue(t, "it is said", func() bool {
		st := r.Status()
		return len(st.Sites) == 1 && strings.Contains(st.Sites[0].LastError, "forwardSharedKeyFile") && testutil.ToFloat64(r.metrics.refused.WithLabelValues("silent")) == 1
	})
	if got := send(t, c, forward("k", 1, func(int) string { return "x" })); got != ackOf("k") {
		t.Errorf("ack %q", got)
	}
}

// TestFluentLogger is the protocol as somebody else's client understands it.
func TestFluentLogger(t *testing.T) {
	r := start(t, nil)
	addr := r.plain(t, paris)
	for _, sub := range []bool{false, true} {
		l, err := fluent.New(fluent.Config{FluentHost: "127.0.0.1", FluentPort: addr.Port, RequestAck: true, SubSecondPrecision: sub, Timeout: 5 * time.Second, WriteTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			err := l.Post("app.web", map[string]any{"message": fmt.Sprintf("request %d", i), "level": "WARN", "status": 503, "took": 0.25, "ok": false, "user": map[string]any{"id": 7}})
			if err != nil {
				t.Fatalf("post %d: %v", i, err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	testkit.EventuallyTrue(t, "40 records", func() bool { return r.sink.count() == 40 })
	got := r.sink.all()[7]
	got.ID = ""
	if age := time.Since(got.Timestamp); age < -time.Second || age > time.Minute {
		t.Errorf("timestamp %s", got.Timestamp)
	}
	got.Timestamp = time.Time{}
	want := Record{Tenant: "acme", Site: "paris", Region: "eu-west", Severity: "warning", Message: got.Message, Labels: map[string]string{"status": "503", "took": "0.25", "ok": "false", "user.id": "7"}}
	if d := cmp.Diff(want, got); d != "" || !strings.HasPrefix(got.Message, "request ") {
		t.Errorf("want -, got +:\n%s", d)
	}
}

// TestIdentity: no certificate of a site, no lines.
func TestIdentity(t *testing.T) {
	var denied atomic.Bool
	r := start(t, func(o *Options) {
		o.Denied = func(id fleet.SiteID, _ *x509.Certificate) (string, bool) {
			return "decommissioned", denied.Load() && id == paris
		}
	})
	for name, cert := range map[string]tls.Certificate{
		"none":     {},
		"regional": r.ca.server(t).Certificates[0],
		"stranger": newAuthority(t).site(t, paris),
	} {
		cfg := r.ca.client(t, paris)
		cfg.Certificates = []tls.Certificate{cert}
		c, err := tls.Dial("tcp", r.Addr().String(), cfg)
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			_, _ = c.Write(forward("x", 1, func(int) string { return "x" }))
			if n, err := c.Read(make([]byte, 10)); err == nil {
				t.Errorf("%s: got %d bytes", name, n)
			}
			_ = c.Close()
		}
	}
	// Access that ends, ends on open connections.
	c := r.dial(t, paris)
	send(t, c, forward("a", 1, func(int) string { return "x" }))
	denied.Store(true)
	if _, err := c.Write(forward("b", 1, func(int) string { return "y" })); err != nil {
		t.Fatal(err)
	}
	closed(t, c)
	testkit.EventuallyTrue(t, "one line", func() bool { return r.sink.count() == 1 })
}
