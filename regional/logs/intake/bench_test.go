package intake

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/regional/logs/store"
)

// benchLine has about 230 bytes, as a line of a web server in a pod has.
func benchEntry(b mp, i int) mp {
	b = append(append(b, 0x92, 0x92).at(uint32(time.Now().Unix()), uint32(i)), 0x80)
	b = b.amap(4).str("stream", "stdout", "log", fmt.Sprintf(`10.1.2.%d - - [21/Nov/2026:03:28:26 +0000] "GET /api/v1/items/%d HTTP/1.1" 200 %d "-" "Mozilla/5.0 (X11; Linux x86_64)"`, i%250, i*7919, i%4096))
	b = b.str("logtag", "F", "kubernetes").amap(5)
	b = b.str("namespace_name", "shop", "pod_name", fmt.Sprint("web-", i%8), "container_name", "nginx", "host", "node-1", "labels")
	return b.amap(1).str("app", "web")
}

type nowhere struct{}

func (nowhere) Write(_ context.Context, r []Record) (store.Result, error) {
	return store.Result{Stored: len(r)}, nil
}

// BenchmarkForward sends chunks of 2,000 lines over one TLS connection and waits for
// each ack: decode, queue on disk, ack. The lines then go to a store that takes
// them for nothing.
func BenchmarkForward(b *testing.B) {
	const lines = 2000
	r := start(b, func(o *Options) {
		o.Sink = nowhere{}
		o.SiteBytesPerSecond = 1 << 30
		o.Limits = func(fleet.SiteID) SiteLimits { return SiteLimits{BytesPerSecond: 1 << 30} }
	})
	c := r.dial(b, paris)
	_ = c.SetDeadline(time.Time{})
	msg := mp{0x93}.str("kube").array(lines)
	for i := range lines {
		msg = benchEntry(msg, i)
	}
	msg = msg.amap(1).str("chunk", "0000000000")
	b.SetBytes(int64(len(msg)))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		copy(msg[len(msg)-10:], fmt.Sprintf("%010d", n)) // or it would be a chunk sent again
		n++
		_ = send(b, c, msg)
	}
	b.ReportMetric(float64(n*lines)/b.Elapsed().Seconds(), "lines/s")
}

// BenchmarkDeliver is the same without TLS and socket: decode, compress, append.
func BenchmarkDeliver(b *testing.B) {
	const lines = 2000
	in, err := New(Options{Name: "eu-1", Dir: b.TempDir(), Sink: nowhere{}, QueueBytes: 64 << 30})
	if err != nil {
		b.Fatal(err)
	}
	defer in.Close()
	s, err := in.enter(paris, "eu")
	if err != nil {
		b.Fatal(err)
	}
	body := mp{}
	for i := range lines {
		body = benchEntry(body, i)
	}
	w := in.newWorker()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if _, err := w.deliver(delivery{site: s, region: "eu", tag: []byte("kube"), hash: hashOf(paris, body), records: entries(body)}); err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64(n*lines)/b.Elapsed().Seconds(), "lines/s")
	b.ReportMetric(float64(in.queue.Stats().DiskBytes)/float64(n*lines), "disk-B/line")
}

// BenchmarkPlain is what the two above are measured against: the same lines as they come
// over the wire, written to a file and synced.
func BenchmarkPlain(b *testing.B) {
	const lines = 2000
	body := mp{}
	for i := range lines {
		body = benchEntry(body, i)
	}
	f, err := os.Create(filepath.Join(b.TempDir(), "plain"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	b.SetBytes(int64(len(body)))
	n := 0
	for b.Loop() {
		if _, err := f.Write(body); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64(n*lines)/b.Elapsed().Seconds(), "lines/s")
}

// BenchmarkDecode is the other end of the queue: read the queue, decode, hand over.
func BenchmarkDecode(b *testing.B) {
	c, err := newCodec()
	if err != nil {
		b.Fatal(err)
	}
	var bt batch
	bt.reset(paris, "eu", "0123456789abcdef")
	body := mp{}
	for i := range 2000 {
		body = benchEntry(body, i)
	}
	r := reader{maxLine: 1 << 18}
	var l line
	for e := range entries(body) {
		r.read(&l, nil, e.record, e.meta, value{}, false)
		bt.add(&l)
	}
	rec := c.encode(nil, &bt)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		got, err := c.decode(rec)
		if err != nil || len(got) != 2000 {
			b.Fatal(err)
		}
		n += len(got)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "lines/s")
}
