package hostile

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/wire"
)

// Identity is a site's certificate in use; a joined agent is one.
type Identity interface {
	HTTPClient() *http.Client
	TLSClientConfig(host string) *tls.Config
}

// Site is a site that joined as any other and then misbehaves. Safe for concurrent use.
type Site struct {
	Identity Identity
	Server   string // its gateway, https://HOST:PORT

	holding
}

// Attacks of a site.
func (s *Site) Attacks() []Attack {
	return []Attack{
		{Name: "a thousand new series a push", Every: 200 * time.Millisecond, Try: s.newSeries, Wall: bounded},
		{Name: "native histograms with ten thousand buckets", Every: 500 * time.Millisecond, Try: s.histograms, Wall: bounded},
		{Name: "long labels, many labels, other tenants' labels", Every: 300 * time.Millisecond, Try: s.labels},
		{Name: "samples from yesterday and from tomorrow", Every: 300 * time.Millisecond, Try: s.times},
		{Name: "garbage as remote write", Every: 200 * time.Millisecond, Try: s.garbage, Wall: refused},
		{Name: "a bomb in snappy", Every: 500 * time.Millisecond, Try: s.bomb, Wall: refused},
		{Name: "log lines of one letter", Every: 100 * time.Millisecond, Try: s.shortLines},
		{Name: "eight megabytes of log lines of one letter", Every: 10 * time.Second, Try: s.eightMegabytes},
		{Name: "log lines of a megabyte", Every: 500 * time.Millisecond, Try: s.longLines},
		{Name: "log lines with a thousand fields of new names", Every: 500 * time.Millisecond, Try: s.manyFields},
		{Name: "bodies that are never finished", Every: 300 * time.Millisecond, Try: s.unfinished},
		{Name: "status reports without end", Every: time.Second, Try: s.reports},
	}
}

func (s *Site) post(ctx context.Context, path, contentType, encoding string, body []byte) string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Server+path, bytes.NewReader(body))
	if err != nil {
		return "error"
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Content-Encoding", encoding)
	resp, err := s.Identity.HTTPClient().Do(req)
	if err != nil {
		return short(err)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	_ = resp.Body.Close()
	return strconv.Itoa(resp.StatusCode)
}

// short is an error in a word.
func short(err error) string {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return "no answer"
	default:
		return "connection refused or closed"
	}
}

func (s *Site) push(ctx context.Context, series []remotewrite.Series) string {
	return s.post(ctx, "/api/v1/push", remotewrite.ContentTypeV2, "snappy", remotewrite.EncodeV2(series))
}

func sample(t time.Time) []remotewrite.Sample { return []remotewrite.Sample{{T: t.UnixMilli(), V: 1}} }

func (s *Site) newSeries(ctx context.Context, n int) string {
	series := make([]remotewrite.Series, 1000)
	for i := range series {
		series[i] = remotewrite.Series{Labels: labels.FromStrings("__name__", "flood", "n", strconv.Itoa(n), "i", strconv.Itoa(i)), Samples: sample(time.Now())}
	}
	return s.push(ctx, series)
}

func (s *Site) histograms(ctx context.Context, n int) string {
	const buckets = 10_000
	h := &histogram.Histogram{Schema: 8, Count: buckets, Sum: 1, ZeroThreshold: 1e-128, PositiveSpans: []histogram.Span{{Offset: 0, Length: buckets}}, PositiveBuckets: make([]int64, buckets)}
	h.PositiveBuckets[0] = 1
	series := make([]remotewrite.Series, 100)
	for i := range series {
		series[i] = remotewrite.Series{Labels: labels.FromStrings("__name__", "bomb", "n", strconv.Itoa(n%10), "i", strconv.Itoa(i)),
			Histograms: []remotewrite.Histogram{{T: time.Now().UnixMilli(), H: h}}}
	}
	return s.push(ctx, series)
}

func (s *Site) labels(ctx context.Context, n int) string {
	b := labels.NewScratchBuilder(100)
	b.Add("__name__", "labels")
	switch n % 3 {
	case 0:
		b.Add("tenant", "demo")
		b.Add("site", "paris")
		b.Add("long", strings.Repeat("x", 100_000))
	case 1:
		for i := range 5000 {
			b.Add(fmt.Sprintf("l%05d", i), "x")
		}
	case 2:
		b.Add("tenant", "demo")
		b.Add("site", "paris")
		b.Add("region", "elsewhere")
	}
	b.Sort()
	return s.push(ctx, []remotewrite.Series{{Labels: b.Labels(), Samples: sample(time.Now())}})
}

func (s *Site) times(ctx context.Context, n int) string {
	at := time.Now().Add(time.Duration(n%49-24) * time.Hour)
	return s.push(ctx, []remotewrite.Series{{Labels: labels.FromStrings("__name__", "up", "job", "times"), Samples: sample(at)}})
}

func (s *Site) garbage(ctx context.Context, _ int) string {
	b := make([]byte, 1<<16)
	_, _ = rand.Read(b)
	return s.post(ctx, "/api/v1/push", remotewrite.ContentTypeV2, "snappy", b)
}

// bomb is a header that promises 4 GiB, with runs of copies behind it.
func (s *Site) bomb(ctx context.Context, _ int) string {
	b := []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0x00, 'x'}
	for len(b) < 1<<20 {
		b = append(b, 0xfe, 0x01, 0x00) // copy 64 bytes from one byte back
	}
	return s.post(ctx, "/api/v1/push", remotewrite.ContentTypeV2, "snappy", b)
}

func (s *Site) logs(ctx context.Context, lines []byte) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(lines)
	_ = z.Close()
	return s.post(ctx, "/api/v1/logs", "application/x-ndjson", "gzip", b.Bytes())
}

var shortLines = bytes.Repeat([]byte(`{"log":"x"}`+"\n"), 50_000)

func (s *Site) shortLines(ctx context.Context, _ int) string { return s.logs(ctx, shortLines) }

// eightMegabytes is as many bytes of such lines as a careless budget lets through, in
// requests one right after the other: 699,050 lines.
func (s *Site) eightMegabytes(ctx context.Context, _ int) string {
	answer := ""
	for sent := 0; sent < 8<<20 && ctx.Err() == nil; sent += len(shortLines) {
		if answer = s.shortLines(ctx, 0); answer != "200" && answer != "204" {
			break
		}
	}
	return answer
}

func (s *Site) longLines(ctx context.Context, _ int) string {
	return s.logs(ctx, []byte(`{"log":"`+strings.Repeat("x", 1<<20)+`"}`+"\n"))
}

func (s *Site) manyFields(ctx context.Context, n int) string {
	var b bytes.Buffer
	for line := range 50 {
		b.WriteString(`{"log":"x"`)
		for i := range 1000 {
			fmt.Fprintf(&b, `,"field_%d_%d_%d":%d`, n, line, i, i)
		}
		b.WriteString("}\n")
	}
	return s.logs(ctx, b.Bytes())
}

func (s *Site) tls() *tls.Config {
	u, err := url.Parse(s.Server)
	if err != nil {
		return &tls.Config{MinVersion: tls.VersionTLS13}
	}
	return s.Identity.TLSClientConfig(u.Hostname())
}

// unfinished opens a connection, promises a body and never sends it.
func (s *Site) unfinished(ctx context.Context, n int) string {
	cfg := s.tls()
	cfg.NextProtos = []string{"http/1.1"}
	path := []string{"/api/v1/push", "/api/v1/logs"}[n%2]
	return s.slow(ctx, strings.TrimPrefix(s.Server, "https://"), cfg, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
}

// reports opens the site's stream and sends reports as fast as the other end reads,
// a thousand at most.
func (s *Site) reports(ctx context.Context, _ int) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := grpc.NewClient(strings.TrimPrefix(s.Server, "https://"), grpc.WithTransportCredentials(credentials.NewTLS(s.tls())))
	if err != nil {
		return short(err)
	}
	defer conn.Close()
	stream, err := wire.NewUplinkClient(conn).Connect(ctx)
	if err != nil {
		return short(err)
	}
	if err := stream.Send(&wire.FromSite{Msg: &wire.FromSite_Hello{Hello: &wire.Hello{Capability: wire.Capability, AgentVersion: "hostile"}}}); err != nil {
		return short(err)
	}
	for i := range 1000 {
		r := &wire.Report{Seq: uint64(i + 1), AppliedRevision: "x", Conditions: []*wire.Condition{
			{Type: "CollectionPolicyApplied", Status: "False", Reason: "Hostile", Message: strings.Repeat("!", i%1000)},
		}}
		if err := stream.Send(&wire.FromSite{Msg: &wire.FromSite_Report{Report: r}}); err != nil {
			return "stream closed"
		}
	}
	return "1000 reports"
}
