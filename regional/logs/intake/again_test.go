package intake

import (
	"bytes"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster.dev/muster/internal/testkit"
)

// nginx is an entry as Fluent Bit holds it behind a parser of whole seconds.
func nginx(at time.Time, line string) mp {
	return mp{}.entry(at.Truncate(time.Second), "remote", "10.0.0.1", "log", line)
}

// fluentBit is a chunk with Fluent Bit's id, which is made of its content: the first 16
// bytes of its SHA-512 in base64 (append_options in plugins/out_forward/forward_format.c).
func fluentBit(tag string, entries mp) (msg []byte, id string) {
	sum := sha512.Sum512(entries)
	id = base64.StdEncoding.EncodeToString(sum[:16])
	return append(mp{0x93}.str(tag).bin(entries).amap(2).str("chunk", id, "fluent_signal"), 0), id
}

// oldFluentBit is the same before it said what kind of chunk it is.
func oldFluentBit(tag string, entries mp) (msg []byte, id string) {
	_, id = fluentBit(tag, entries)
	return mp{0x93}.str(tag).bin(entries).amap(1).str("chunk", id), id
}

// TestEqualLinesOfTwoSources: what was found with a real Fluent Bit 5.1.1. The lines of a
// source are whole seconds old, as parsers of nginx and syslog make them, so that
// equal lines are equal to the byte; they are as many lines as were written.
func TestEqualLinesOfTwoSources(t *testing.T) {
	at := time.Now()
	for name, run := range map[string]func(t *testing.T, r *running) (lines int){
		// The same line from two nodes of a site in one second.
		"two nodes, forward with acks": func(t *testing.T, r *running) int {
			one, two := r.dial(t, paris), r.dial(t, paris)
			for i := range 6 {
				msg, id := fluentBit("kube", nginx(at, fmt.Sprint("GET /", i)))
				for _, c := range []interface {
					Write([]byte) (int, error)
					Read([]byte) (int, error)
				}{one, two} {
					_, _ = c.Write(msg)
					buf := make([]byte, 512)
					if n, err := c.Read(buf); err != nil || string(buf[:n]) != ackOf(id) {
						t.Fatalf("%q %v", buf[:n], err)
					}
				}
			}
			return 12
		},
		"two nodes, forward without keepalive": func(t *testing.T, r *running) int {
			for i := range 6 {
				msg, id := fluentBit("kube", nginx(at, fmt.Sprint("GET /", i)))
				for range 2 {
					c := r.dial(t, paris)
					if got := send(t, c, msg); got != ackOf(id) {
						t.Fatalf("%q", got)
					}
					_ = c.Close()
				}
			}
			return 12
		},
		"two nodes, forward without acks": func(t *testing.T, r *running) int {
			one, two := r.dial(t, paris), r.dial(t, paris)
			for i := range 6 {
				msg := mp{0x92}.str("kube").bin(nginx(at, fmt.Sprint("GET /", i)))
				_, _ = one.Write(msg)
				_, _ = two.Write(msg)
			}
			return 12
		},
		"two nodes, HTTP": func(t *testing.T, r *running) int {
			one, two := r.http(t, paris), r.http(t, paris)
			for i := range 6 {
				for _, cl := range []*http.Client{one, two} {
					r.ok(t, cl, "", "kube", nginx(at, fmt.Sprint("GET /", i)))
				}
			}
			return 12
		},
		"two nodes, plugin": func(t *testing.T, r *running) int {
			one, two := r.http(t, paris), r.http(t, paris)
			for i := range 6 {
				r.ok(t, one, fmt.Sprint("node-one-", i), "kube", nginx(at, fmt.Sprint("GET /", i)))
				r.ok(t, two, fmt.Sprint("node-two-", i), "kube", nginx(at, fmt.Sprint("GET /", i)))
			}
			return 12
		},
		// Two pods: only the tag tells them apart.
		"two pods, HTTP": func(t *testing.T, r *running) int {
			line := mp{}.entry(at.Truncate(time.Microsecond).Add(7), "log", "ready")
			for _, pod := range []string{"a", "b"} {
				r.ok(t, r.http(t, paris), "", "kube.var.log.containers."+pod+"_shop_web-0.log", line)
			}
			return 2
		},
		"two pods, forward": func(t *testing.T, r *running) int {
			for _, pod := range []string{"a", "b"} {
				msg, id := fluentBit("kube."+pod, mp{}.entry(at.Truncate(time.Microsecond).Add(7), "log", "ready"))
				if got := send(t, r.dial(t, paris), msg); got != ackOf(id) {
					t.Fatalf("%q", got)
				}
			}
			return 2
		},
		// Five equal flushes of two lines.
		"equal flushes, forward": func(t *testing.T, r *running) int {
			c := r.dial(t, paris)
			for range 5 {
				msg, id := fluentBit("kube", append(nginx(at, "tick"), nginx(at, "tock")...))
				if got := send(t, c, msg); got != ackOf(id) {
					t.Fatalf("%q", got)
				}
			}
			return 10
		},
		"equal flushes, forward, by five connections": func(t *testing.T, r *running) int {
			for range 5 {
				msg, id := fluentBit("kube", append(nginx(at, "tick"), nginx(at, "tock")...))
				if got := send(t, r.dial(t, paris), msg); got != ackOf(id) {
					t.Fatalf("%q", got)
				}
			}
			return 10
		},
		"equal flushes, forward, of a Fluent Bit 1": func(t *testing.T, r *running) int {
			for range 5 {
				msg, id := oldFluentBit("kube", append(nginx(at, "tick"), nginx(at, "tock")...))
				if got := send(t, r.dial(t, paris), msg); got != ackOf(id) {
					t.Fatalf("%q", got)
				}
			}
			return 10
		},
		"equal flushes, HTTP": func(t *testing.T, r *running) int {
			cl := r.http(t, paris)
			for range 5 {
				r.ok(t, cl, "", "kube", append(nginx(at, "tick"), nginx(at, "tock")...))
			}
			return 10
		},
		"equal flushes, plugin": func(t *testing.T, r *running) int {
			for i := range 5 {
				r.ok(t, r.http(t, paris), fmt.Sprint("n-", i), "kube", append(nginx(at, "tick"), nginx(at, "tock")...))
			}
			return 10
		},
		// Whatever names its time to the millisecond: loggers of JavaScript, docker's
		// clock on some machines.
		"two nodes, milliseconds": func(t *testing.T, r *running) int {
			for range 2 {
				r.ok(t, r.http(t, paris), "", "kube", append(mp{}.entry(at.Truncate(time.Millisecond), "log", "a"), mp{}.entry(at.Truncate(time.Millisecond).Add(time.Millisecond), "log", "b")...))
			}
			return 4
		},
		"two nodes, one line in microseconds": func(t *testing.T, r *running) int {
			for range 2 {
				r.ok(t, r.http(t, paris), "", "host", mp{}.entry(at.Truncate(time.Millisecond).Add(3*time.Microsecond), "MESSAGE", "a"))
			}
			return 2
		},
		// An id that says nothing, on one connection that has had its ack.
		"an id used again": func(t *testing.T, r *running) int {
			c := r.dial(t, paris)
			for range 3 {
				if got := send(t, c, mp{0x93}.str("t").bin(nginx(at, "x")).amap(1).str("chunk", "AAAAAAAAAAAAAAAAAAAAAA==")); got != ackOf("AAAAAAAAAAAAAAAAAAAAAA==") {
					t.Fatalf("%q", got)
				}
			}
			return 3
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, nil)
			want := run(t, r)
			testkit.EventuallyTrue(t, "all are stored", func() bool {
				return r.sink.count() == want && r.queue.Stats().Pending == 0
			})
		})
	}
}

// ok posts Fluent Bit's own entries.
func (r *running) ok(t testing.TB, cl *http.Client, delivery, tag string, entries mp) {
	t.Helper()
	req, _ := http.NewRequest("POST", r.url, bytes.NewReader(entries))
	req.Header.Set("Content-Type", "application/msgpack")
	req.Header.Set(TagHeader, tag)
	if delivery != "" {
		req.Header.Set("X-Muster-Delivery", delivery)
	}
	resp, err := cl.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
}

// TestSentAgainIsStoredOnce: where it is sure that a message is the same one, because it has
// an id of its own or its lines have times that no two lines share.
func TestSentAgainIsStoredOnce(t *testing.T) {
	at := time.Now().Truncate(time.Millisecond)
	micro := func(n int) time.Time { return at.Add(time.Duration(n) * time.Microsecond) }
	for name, run := range map[string]func(t *testing.T, r *running){
		"the plugin's id": func(t *testing.T, r *running) {
			r.ok(t, r.http(t, paris), "node-1", "kube", nginx(at, "x"))
		},
		"an id by the protocol": func(t *testing.T, r *running) {
			send(t, r.dial(t, paris), mp{0x93}.str("t").bin(nginx(at, "x")).amap(1).str("chunk", "cGllY2Ugb2YgMTYgYnl0cw=="))
		},
		"nanoseconds": func(t *testing.T, r *running) {
			msg, _ := fluentBit("kube", mp{}.entry(at.Add(123_457), "log", "x"))
			send(t, r.dial(t, paris), msg)
		},
		"nanoseconds without acks": func(t *testing.T, r *running) {
			_, _ = r.dial(t, paris).Write(mp{0x92}.str("kube").bin(mp{}.entry(at.Add(123_457), "log", "x")))
		},
		"nanoseconds, HTTP": func(t *testing.T, r *running) {
			r.ok(t, r.http(t, paris), "", "kube", mp{}.entry(at.Add(123_457), "log", "x"))
		},
		"microseconds and a node": func(t *testing.T, r *running) {
			r.ok(t, r.http(t, paris), "", "host", mp{}.entry(micro(7), "MESSAGE", "x", "_HOSTNAME", "node-1"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, nil)
			for range 2 {
				run(t, r)
			}
			testkit.EventuallyTrue(t, "it is stored", func() bool { return r.sink.count() > 0 && r.queue.Stats().Pending == 0 })
			if n := r.sink.count(); n != 1 {
				t.Errorf("stored %d times", n)
			}
		})
	}
	t.Run("several microseconds", func(t *testing.T) {
		r := start(t, nil)
		for range 2 {
			r.ok(t, r.http(t, paris), "", "host", append(mp{}.entry(micro(7), "MESSAGE", "x"), mp{}.entry(micro(9), "MESSAGE", "x")...))
		}
		testkit.EventuallyTrue(t, "it is stored", func() bool { return r.sink.count() == 2 && r.queue.Stats().Pending == 0 })
		got := map[string]int{}
		for _, rec := range r.sink.all() {
			got[rec.Message]++
		}
		if d := cmp.Diff(map[string]int{"x": 2}, got); d != "" {
			t.Error(d)
		}
	})
}
