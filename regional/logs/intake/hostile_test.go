package intake

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"fmt"
	"math"
	"net"
	"runtime"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/regional/logs/store"
)

// heap is what is alive, in bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestHostileClient: whatever one site sends, it holds no more than its share of
// memory, is cut off, and another site's lines get through meanwhile.
func TestHostileClient(t *testing.T) {
	gz := func(n int) []byte {
		var b bytes.Buffer
		w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
		zeros := make([]byte, 1<<20)
		for range n {
			_, _ = w.Write(zeros)
		}
		_ = w.Close()
		return b.Bytes()
	}
	bomb := mp{0x93}.str("t").bin(gz(64)).amap(2).str("compressed", "gzip", "chunk", "b")
	for name, msg := range map[string][]byte{
		"a str of 4 GiB":             {0x93, 0xdb, 0xff, 0xff, 0xff, 0xff},
		"a bin of 4 GiB":             {0x93, 0xa1, 't', 0xc6, 0xff, 0xff, 0xff, 0xff},
		"an array of 4 billion":      {0x93, 0xa1, 't', 0xdd, 0xff, 0xff, 0xff, 0xff},
		"a map of 4 billion":         {0x93, 0xa1, 't', 0x91, 0xdf, 0xff, 0xff, 0xff, 0xff},
		"deep arrays":                bytes.Repeat([]byte{0x91}, 1<<20),
		"deep maps":                  append([]byte{0x93, 0xa1, 't', 0x91, 0x92, 0x01}, bytes.Repeat([]byte{0x81, 0x01}, 100)...),
		"a reserved byte":            {0x93, 0xc1},
		"no message":                 {0xc0},
		"HTTP":                       []byte("GET / HTTP/1.1\r\n\r\n"),
		"a gzip bomb":                bomb,
		"an array of empty strings":  append(mp{0x93}.str("t").array(60000), bytes.Repeat([]byte{0xa0}, 30000)...),
		"maps as keys of maps":       append(append(mp{0x93}.str("t"), 0x01), append(nestedKeys(30), 0xc0)...), // and then no message
		"options that are no map":    {0x93, 0xa1, 't', 0x90, 0x01},
		"a chunk id that is a map":   append(mp{0x93}.str("t").array(0).amap(1).str("chunk"), 0x80),
		"an unknown compression":     mp{0x93}.str("t").bin([]byte("x")).amap(1).str("compressed", "lzma"),
		"gzip that is none":          mp{0x93}.str("t").bin([]byte("x")).amap(1).str("compressed", "gzip"),
		"zstd with a window of 2 GB": mp{0x93}.str("t").bin([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00}).amap(1).str("compressed", "zstd"),
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, func(o *Options) {
				o.MaxMessageBytes, o.MaxPayloadBytes, o.MessageTime = 1<<20, 2<<20, 300*time.Millisecond
			})
			var conns []net.Conn
			before := heap()
			for range 8 {
				c := r.dial(t, paris)
				go func() { _, _ = c.Write(msg) }() // may block or fail
				conns = append(conns, c)
			}
			if got := send(t, r.dial(t, berlin), forward("ok", 1, func(int) string { return "x" })); got != ackOf("ok") {
				t.Fatalf("the other site: ack %q", got)
			}
			for _, c := range conns {
				closed(t, c)
			}
			if grown := heap() - before; grown > r.opts.SiteMemory {
				t.Errorf("the heap grew by %d bytes; a site may hold %d", grown, r.opts.SiteMemory)
			}
			testkit.EventuallyTrue(t, "all memory is given back", func() bool { return r.Status().MemoryUsed == 0 })
			if st := r.Status(); st.MemoryPeak > 2*r.opts.SiteMemory {
				t.Errorf("peak %d bytes; a site may hold %d", st.MemoryPeak, r.opts.SiteMemory)
			}
		})
	}
}

// nestedKeys is {{{}: nil}: nil}, n maps around the empty one.
func nestedKeys(n int) []byte {
	return append(append(bytes.Repeat([]byte{0x81}, n), 0x80), bytes.Repeat([]byte{0xc0}, n)...)
}

// TestKeysAreBounded: a key that is a map or an array is shown within bounds, however
// deep it is.
func TestKeysAreBounded(t *testing.T) {
	for n := range 31 {
		raw := nestedKeys(n)
		w := worker{reader: reader{maxLine: 1000}}
		check(t, &w, raw, func(yield func(entry, error) bool) { yield(entry{record: value{raw: raw}}, nil) }, false)
		if got := len(value{raw: raw}.appendJSON(nil, math.MaxInt)); got > 4*len(raw)+64 {
			t.Fatalf("%d levels, %d bytes of MessagePack: %d bytes of JSON", n, len(raw), got)
		}
		if cap(w.reader.text) > 8*len(raw)+64 {
			t.Fatalf("%d levels, %d bytes of MessagePack: %d bytes of text", n, len(raw), cap(w.reader.text))
		}
	}
	long := append(append([]byte{0x81}, mp{}.array(5000).str(make([]string, 5000)...)...), 0x01)
	value{raw: long}.each(func(key []byte, _ value) bool {
		if len(key) == 0 || len(key) > store.MaxFieldBytes {
			t.Errorf("a key of %d bytes", len(key))
		}
		return true
	})
}

// TestNamesWithoutLabels: the name of a field that becomes no label takes no memory,
// and neither do fields beyond the number that a record may have.
func TestNamesWithoutLabels(t *testing.T) {
	name := string(bytes.Repeat([]byte("n"), store.MaxFieldBytes-2))
	const pairs = 100_000
	for what, c := range map[string]struct {
		pair   []byte
		labels int
	}{
		"null":          {[]byte{0xa1, 'a', 0xc0}, 0},
		"empty objects": {[]byte{0xa1, 'a', 0x80}, 0},
		"numbers":       {[]byte{0xa1, 'a', 0x01}, store.MaxLabels},
	} {
		fields := []byte{0xdf, 0, byte(pairs >> 16), byte(pairs >> 8 & 0xff), byte(pairs & 0xff)}
		fields = append(fields, bytes.Repeat(c.pair, pairs)...)
		rec := append(mp{0x82}.str("log", "x", name), fields...)
		r, l := reader{maxLine: 1000}, line{}
		if n := testing.AllocsPerRun(1, func() { r.read(&l, nil, value{raw: rec}, value{}, value{}, false) }); n > 100 {
			t.Errorf("%s: %.0f allocations", what, n)
		}
		if len(l.labels) != c.labels {
			t.Errorf("%s: %d labels, want %d", what, len(l.labels), c.labels)
		}
		if cap(r.text) > 4*store.MaxLabels*store.MaxFieldBytes {
			t.Errorf("%s: %d bytes of names", what, cap(r.text))
		}
	}
}

// TestLongJSON: what is shown as JSON and then cut is not built whole.
func TestLongJSON(t *testing.T) {
	const n = 60_000
	list := mp{}.array(n)
	fields := mp{}.amap(n)
	for range n {
		list, fields = append(list, 0xc2), append(fields.str("f"), 0xc2)
	}
	many := mp{}.amap(8).str("log", "x")
	for i := range 7 {
		many = append(many.str(fmt.Sprint("l", i)), list...)
	}
	raw := append(mp{0x81}.str("b"), mp{}.bin(bytes.Repeat([]byte{0xff}, 300_000))...)
	text := mp{0x81}.str("s", string(bytes.Repeat([]byte{1}, 300_000)))
	for name, c := range map[string]struct {
		rec []byte
		cut bool
	}{
		"fields":           {fields, true},
		"message":          {append(mp{0x81}.str("log"), list...), true},
		"map as a message": {append(mp{0x81}.str("log"), fields...), true},
		"pod":              {append(mp{0x82}.str("log", "x", "pod"), list...), false},
		"labels":           {many, false},
		"bytes":            {raw, true},
		"one text":         {text, true},
		"an ext":           {append(mp{0x81, 0xa1, 'e', 0xc9, 0, 4, 0, 0, 5}, make([]byte, 1<<18)...), true},
		"a key":            {append(append(mp{0x81}, text[3:]...), 1), true},
	} {
		r, l := reader{maxLine: 10_000}, line{}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r.read(&l, nil, value{raw: c.rec}, value{}, value{}, false)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 512<<10 {
			t.Errorf("%s: %d bytes of memory for a record of %d", name, got, len(c.rec))
		}
		if cut := r.truncated == 1 && len(l.message) > 9_990; cut != c.cut {
			t.Errorf("%s: a message of %d bytes, %d truncated", name, len(l.message), r.truncated)
		}
		if r.unlabelled > 1 {
			t.Errorf("%s: looked at %d fields after the last one with room", name, r.unlabelled)
		}
		if name == "labels" && (len(l.labels) != 7 || len(l.labels[0].value) != store.MaxFieldBytes) {
			t.Errorf("labels %.100s", l.labels)
		}
	}
}

// TestManyLargeMessages: connections that all send a large message without ending it
// hold what one site may hold, not what all of them sent.
func TestManyLargeMessages(t *testing.T) {
	r := start(t, func(o *Options) {
		o.MaxMessageBytes, o.MaxPayloadBytes, o.SiteMemory, o.MessageTime = 4<<20, 4<<20, 12<<20, 3*time.Second
	})
	const conns = 24
	before := heap()
	var open []net.Conn
	for range conns {
		c := r.dial(t, paris)
		open = append(open, c)
		go func() {
			_, _ = c.Write(append(mp{0x93, 0xa1, 't', 0xc6, 0x00, 0x3f, 0x00, 0x00}, make([]byte, 3<<20)...))
		}()
	}
	testkit.EventuallyTrue(t, "the site's share is used up", func() bool {
		r.memory.mu.Lock()
		defer r.memory.mu.Unlock()
		return r.memory.used > 8<<20
	})
	// The test's own half of the connections is in the heap too: the bytes of each.
	if grown := heap() - before; grown > 12<<20+conns*(3<<20+256<<10) {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	if got := send(t, r.dial(t, berlin), forward("ok", 1, func(int) string { return "x" })); got != ackOf("ok") {
		t.Fatalf("the other site: ack %q", got)
	}
	for _, c := range open {
		closed(t, c)
	}
	testkit.EventuallyTrue(t, "all memory is given back", func() bool { return r.Status().MemoryUsed == 0 })
	if st := r.Status(); st.MemoryPeak > 13<<20 {
		t.Errorf("peak %d bytes; the site may hold %d", st.MemoryPeak, 12<<20)
	}
}

// TestConnectionsOfASite are bounded, and those of others are not.
func TestConnectionsOfASite(t *testing.T) {
	r := start(t, func(o *Options) {
		o.Limits = func(fleet.SiteID) SiteLimits { return SiteLimits{Connections: 3} }
	})
	for i := range 3 {
		send(t, r.dial(t, paris), forward(fmt.Sprint(i), 1, func(int) string { return "x" }))
	}
	closed(t, r.dial(t, paris))
	if got := send(t, r.dial(t, berlin), forward("ok", 1, func(int) string { return "x" })); got != ackOf("ok") {
		t.Errorf("ack %q", got)
	}
}

// TestSlowLoris: a peer that never finishes its TLS handshake, one that never
// finishes a message and one that never starts one are all cut off.
func TestSlowLoris(t *testing.T) {
	r := start(t, func(o *Options) {
		o.HandshakeTime, o.MessageTime, o.IdleTime = 200*time.Millisecond, 200*time.Millisecond, 300*time.Millisecond
	})
	raw, err := net.Dial("tcp", r.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(15 * time.Second))
	_, _ = raw.Write([]byte{0x16})
	closed(t, raw)
	c := r.dial(t, paris)
	_, _ = c.Write([]byte{0x93, 0xa4})
	closed(t, c)
	closed(t, r.dial(t, paris))
}

// TestAFloodOfStrangers: more connections than may be under way, which say nothing for as long
// as they may, keep no site out that comes from elsewhere.
func TestAFloodOfStrangers(t *testing.T) {
	r := start(t, func(o *Options) { o.HandshakeTime = time.Minute })
	from := func(addr string) *net.Dialer {
		return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}, Timeout: 10 * time.Second}
	}
	for _, addr := range []string{"127.0.0.3", "127.0.0.4"} {
		for range handshakesHost + 10 {
			c, err := from(addr).Dial("tcp", r.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}
	testkit.Eventually(t, "a site from elsewhere is served", func() error {
		c, err := tls.DialWithDialer(from("127.0.0.2"), "tcp", r.Addr().String(), r.ca.client(t, paris))
		if err != nil {
			return err
		}
		defer c.Close()
		if got := send(t, c, forward("ok", 1, func(int) string { return "x" })); got != ackOf("ok") {
			return fmt.Errorf("ack %q", got)
		}
		return nil
	})
}

// TestBudget: a site over its budget is delayed, then cut off without an ack; it
// loses nothing, and is named.
func TestBudget(t *testing.T) {
	r := start(t, func(o *Options) {
		o.MaxDelay = 200 * time.Millisecond
		o.Limits = func(id fleet.SiteID) SiteLimits {
			if id == paris {
				return SiteLimits{BytesPerSecond: 100}
			}
			return SiteLimits{}
		}
	})
	big := func(int) string { return fmt.Sprintf("%0500d", 0) }
	if got := send(t, r.dial(t, paris), forward("first", 20, big)); got != ackOf("first") {
		t.Fatalf("ack %q", got)
	}
	c := r.dial(t, paris)
	if _, err := c.Write(forward("second", 20, big)); err != nil {
		t.Fatal(err)
	}
	closed(t, c)
	if got := send(t, r.dial(t, berlin), forward("first", 20, big)); got != ackOf("first") {
		t.Errorf("the other site: ack %q", got)
	}
	if conds := r.Status().Conditions; len(conds) != 1 || conds[0].Site != paris || conds[0].Type != ConditionOverBudget {
		t.Errorf("%+v", conds)
	}
	testkit.EventuallyTrue(t, "what was acknowledged", func() bool { return r.sink.count() == 40 })
}

// TestStreams: lines of denied streams are left out and acknowledged.
func TestStreams(t *testing.T) {
	r := start(t, func(o *Options) {
		o.Limits = func(fleet.SiteID) SiteLimits {
			return SiteLimits{Allow: []string{"pod/*", "unit/kubelet.service"}, Deny: []string{"pod/kube-system/*"}}
		}
	})
	b := mp{0x93}.str("t").array(4)
	now := time.Now()
	b = b.entry(now, "log", "1", "namespace", "shop", "pod", "web-1", "container", "web")
	b = b.entry(now, "log", "2", "namespace", "kube-system", "pod", "dns-1", "container", "dns")
	b = b.entry(now, "MESSAGE", "3", "_SYSTEMD_UNIT", "kubelet.service")
	b = b.entry(now, "MESSAGE", "4", "_SYSTEMD_UNIT", "ssh.service")
	if got := send(t, r.dial(t, paris), b.amap(1).str("chunk", "c")); got != ackOf("c") {
		t.Fatalf("ack %q", got)
	}
	testkit.EventuallyTrue(t, "two lines", func() bool { return r.sink.count() == 2 })
	if all := r.sink.all(); all[0].Message+all[1].Message != "13" {
		t.Errorf("%v", all)
	}
	if st := r.Status().Sites[0]; st.Dropped != 2 {
		t.Errorf("%+v", st)
	}
}

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"*", "", true}, {"a*", "abc", true}, {"*c", "abc", true}, {"a*c", "abc", true}, {"a*c", "ab", false},
		{"a*a", "a", false}, {"pod/*/web-*/*", "pod/shop/web-1/web", true}, {"pod/*/web-*/*", "pod/shop/db-1/web", false}, {"*b*b*", "ab", false},
	} {
		if got := glob(c.pattern, c.s); got != c.want {
			t.Errorf("glob(%q, %q) = %v", c.pattern, c.s, got)
		}
	}
}

// TestScannerRefusesAtTheHeader: what can't fit is refused before it is sent.
func TestScannerRefusesAtTheHeader(t *testing.T) {
	for name, c := range map[string]struct {
		msg  []byte
		want error
	}{
		"str":      {[]byte{0x93, 0xdb, 0xff, 0xff, 0xff, 0xff}, errLarge},
		"bin":      {[]byte{0x93, 0xa1, 't', 0xc6, 0x00, 0x10, 0x00, 0x00}, errLarge},
		"ext":      {[]byte{0xc9, 0xff, 0xff, 0xff, 0xff, 0x00}, errLarge},
		"array":    {[]byte{0x93, 0xa1, 't', 0xdd, 0xff, 0xff, 0xff, 0xff}, errLarge},
		"map":      {[]byte{0xdf, 0xff, 0xff, 0xff, 0xff}, errLarge},
		"many":     {bytes.Repeat([]byte{0xdc, 0x40, 0x00}, 8), errLarge},
		"deep":     {bytes.Repeat([]byte{0x91}, maxDepth+1), errDeep},
		"reserved": {[]byte{0x92, 0xc1}, errInvalid},
	} {
		var s scanner
		if done, err := s.run(c.msg, 100_000); done || err != c.want {
			t.Errorf("%s: %v %v, want %v", name, done, err, c.want)
		}
	}
}
