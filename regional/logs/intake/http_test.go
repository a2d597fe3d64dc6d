package intake

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
)

func (r *running) post(t testing.TB, contentType, encoding string, body []byte) (int, string, http.Header) {
	t.Helper()
	return r.postTo(t, r.http(t, paris), contentType, encoding, "", body)
}

func (r *running) postTo(t testing.TB, cl *http.Client, contentType, encoding, tag string, body []byte) (int, string, http.Header) {
	t.Helper()
	req, _ := http.NewRequest("POST", r.url, bytes.NewReader(body))
	req.Header.Set("Content-Type", contentType)
	if encoding != "" {
		req.Header.Set("Content-Encoding", encoding)
	}
	if tag != "" {
		req.Header.Set(TagHeader, tag)
	}
	resp, err := cl.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), resp.Header
}

// TestHTTPForms: what Fluent Bit's http output sends in each of its formats
// (plugins/out_http/http.c, src/flb_pack.c), and its date formats.
func TestHTTPForms(t *testing.T) {
	at := time.Now().UTC().Truncate(time.Millisecond)
	sec := float64(at.UnixMilli()) / 1000
	one := fmt.Sprintf(`{"date":%.6f,"log":"one\n","stream":"stderr"}`, sec)
	two := fmt.Sprintf(`{"date":%q,"log":"two","n":1}`, at.Format("2006-01-02T15:04:05.000000Z"))
	three := fmt.Sprintf(`{"date":%d,"log":"thr\u00e9e"}`, at.UnixMilli())
	gz := func(s string) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write([]byte(s))
		_ = w.Close()
		return b.Bytes()
	}
	zw, _ := zstd.NewWriter(nil)
	lines := one + "\n" + two + "\n" + three + "\n"
	rec := func(m string) Record {
		return Record{Timestamp: at, Tenant: "acme", Site: "paris", Region: "eu-west", Message: m}
	}
	want := []Record{rec("one"), rec("two"), rec("thrée")}
	want[0].Stream = "stderr"
	want[1].Labels = map[string]string{"n": "1"}
	for name, c := range map[string]struct {
		kind, encoding string
		body           []byte
	}{
		"json":                  {"application/json", "", []byte("[" + one + "," + two + ", " + three + "]")},
		"json_lines":            {"application/x-ndjson", "", []byte(lines)},
		"json_stream":           {"application/json", "", []byte(one + two + three)},
		"lines as anything":     {"text/plain", "", []byte(lines)},
		"json_lines, gzip":      {"application/x-ndjson", "gzip", gz(lines)},
		"json_lines, zstd":      {"application/x-ndjson", "zstd", zw.EncodeAll([]byte(lines), nil)},
		"json_lines, snappy":    {"application/x-ndjson", "snappy", s2.EncodeSnappy(nil, []byte(lines))},
		"msgpack (own entries)": {"application/msgpack", "", mp{}.entry(at, "log", "one", "stream", "stderr").entry(at, "log", "two", "n", "1").entry(at, "log", "thrée")},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, nil)
			code, text, _ := r.post(t, c.kind, c.encoding, c.body)
			if code != 200 || !strings.Contains(text, `"accepted":3,"dropped":0,"malformed":0`) {
				t.Fatalf("%d %s", code, text)
			}
			testkit.EventuallyTrue(t, "all are written", func() bool { return r.sink.count() == 3 && r.queue.Stats().Pending == 0 })
			got := r.sink.all()
			for i := range got {
				got[i].ID = ""
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("want -, got +:\n%s", d)
			}
		})
	}
}

// TestHTTPSameBodyTwice: a line without a time that is sent again is said again, and is
// kept; one with a time of its own is the same line. Both may be in one body.
func TestHTTPSameBodyTwice(t *testing.T) {
	var now atomic.Int64
	now.Store(time.Now().UnixNano())
	at := time.Now().UTC().Truncate(time.Second).Add(123456789).Format(time.RFC3339Nano)
	for name, c := range map[string]struct {
		kind, body string
		want       map[string]int
	}{
		"no times":     {"application/json", `{"message":"backup finished"}`, map[string]int{"backup finished": 3}},
		"own times":    {"application/json", `{"message":"backup finished","time":"` + at + `"}`, map[string]int{"backup finished": 1}},
		"both":         {"application/x-ndjson", `{"log":"a"}` + "\n" + `{"log":"b","ts":"` + at + `"}` + "\n" + `{"log":"c","time":"now"}`, map[string]int{"a": 3, "b": 1, "c": 3}},
		"impossible":   {"application/json", `{"message":"x","time":"2001-01-01T00:00:00Z"}`, map[string]int{"x": 3}},
		"own msgpack":  {"application/msgpack", string(mp{}.entry(time.Now().Truncate(time.Microsecond).Add(7), "log", "x")), map[string]int{"x": 1}},
		"msgpack at 0": {"application/msgpack", string(mp{}.entry(time.Unix(0, 0), "log", "x")), map[string]int{"x": 3}},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, func(o *Options) { o.Now = func() time.Time { return time.Unix(0, now.Load()) } })
			for range 3 {
				if code, text, _ := r.post(t, c.kind, "", []byte(c.body)); code != 200 {
					t.Fatalf("%d %s", code, text)
				}
				now.Add(int64(time.Second))
			}
			testkit.EventuallyTrue(t, "all are written", func() bool { return r.queue.Stats().Pending == 0 })
			got := map[string]int{}
			for _, rec := range r.sink.all() {
				got[rec.Message]++
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("want -, got +:\n%s", d)
			}
		})
	}
}

// TestHTTPRefusals: what can never work is 4xx with the reason, so that the sender
// drops it; what will is 429 or 503 with Retry-After.
func TestHTTPRefusals(t *testing.T) {
	limits := SiteLimits{}
	r := start(t, func(o *Options) {
		o.MaxMessageBytes, o.MaxPayloadBytes = 64<<10, 128<<10
		o.Limits = func(fleet.SiteID) SiteLimits { return limits }
	})
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	_, _ = w.Write(bytes.Repeat([]byte(" "), 20<<20))
	_ = w.Close()
	for _, c := range []struct {
		name, kind, encoding string
		body                 string
		code                 int
		text                 string
	}{
		{"no JSON", "application/json", "", "hello", 400, "record 1: want a JSON object"},
		{"numbers", "application/x-ndjson", "", "1\n2\n", 400, "no record in it"},
		{"half an array", "application/json", "", `[{"log":"x"}`, 200, `"accepted":1,"dropped":0,"malformed":1`},
		{"a bad line between good ones", "application/x-ndjson", "", "{\"log\":\"x\"}\n{\"log\n{\"log\":\"y\"}\n", 200, `"accepted":2,"dropped":0,"malformed":1`},
		{"no gzip", "application/json", "gzip", "hello", 400, "gzip"},
		{"unknown encoding", "application/json", "br", "hello", 415, "want gzip, zstd or snappy"},
		{"too large", "application/json", "", strings.Repeat(" ", 8*64<<10+1), 413, "send smaller batches"},
		{"a bomb", "application/json", "gzip", bomb.String(), 413, "when decompressed"},
		{"broken msgpack", "application/msgpack", "", "\xdd\xff\xff\xff\xff", 400, "record 1"},
		{"nothing", "application/x-ndjson", "", "", 200, `"accepted":0`},
	} {
		code, text, _ := r.post(t, c.kind, c.encoding, []byte(c.body))
		if code != c.code || !strings.Contains(text, c.text) {
			t.Errorf("%s: %d %s, want %d %s", c.name, code, text, c.code, c.text)
		}
	}
	limits.BytesPerSecond = 100
	body := []byte(`{"log":"` + strings.Repeat("x", 4000) + `"}`)
	if code, text, _ := r.post(t, "application/x-ndjson", "", body); code != 200 {
		t.Errorf("into debt: %d %s", code, text)
	}
	code, text, header := r.post(t, "application/x-ndjson", "", body)
	if code != 429 || header.Get("Retry-After") == "" || !strings.Contains(text, "budget") {
		t.Errorf("over budget: %d %s %v", code, text, header)
	}
	conds := r.Status().Conditions
	if len(conds) != 1 || conds[0].Type != ConditionOverBudget || conds[0].Site != paris {
		t.Errorf("conditions %+v", conds)
	}
	// Without a certificate there is no connection.
	cfg := r.ca.client(t, paris)
	cfg.Certificates = nil
	cl := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg}, Timeout: 10 * time.Second}
	if resp, err := cl.Post(r.url, "application/json", strings.NewReader(`{"log":"x"}`)); err == nil {
		_ = resp.Body.Close()
		t.Errorf("without a certificate: %s", resp.Status)
	}
}

// TestSlowBody: a request that dribbles is cut off.
func TestSlowBody(t *testing.T) {
	r := start(t, func(o *Options) { o.MessageTime = 200 * time.Millisecond })
	c, err := tls.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(r.url, "https://"), Path), r.ca.client(t, paris))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(15 * time.Second))
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{", Path)
	b, err := io.ReadAll(c)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Fatal("still open")
	}
	if len(b) > 0 && !bytes.Contains(b, []byte(" 408 ")) {
		t.Errorf("%q", b)
	}
}
