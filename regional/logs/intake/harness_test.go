package intake

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit/testca"
	"muster.dev/muster/regional/logs/store"
)

var (
	paris  = fleet.SiteID{Tenant: "acme", Name: "paris"}
	berlin = fleet.SiteID{Tenant: "acme", Name: "berlin"}
	tokyo  = fleet.SiteID{Tenant: "umbrella", Name: "tokyo"}
)

// authority is a CA for tests.
type authority struct{ *testca.CA }

func newAuthority(t testing.TB) *authority { return &authority{testca.New(t)} }

func (a *authority) site(t testing.TB, id fleet.SiteID) tls.Certificate {
	return *a.Site(t, id, "eu-west")
}

func (a *authority) server(t testing.TB) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{*a.Regional(t, "eu-1")}, ClientCAs: a.Pool(), ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}
}

func (a *authority) client(t testing.TB, id fleet.SiteID) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{a.site(t, id)}, RootCAs: a.Pool(), ServerName: "127.0.0.1"}
}

// memSink is a store that keeps one record an id, counts what comes twice, and can
// be down, or refuse some records for good or for now.
type memSink struct {
	mu         sync.Mutex
	records    map[string]Record // by tenant and id
	order      []string
	duplicates int
	down       error
	dead       func(Record) string
	later      func(Record) bool
	writes     int
}

func (s *memSink) Write(_ context.Context, records []Record) (store.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	var res store.Result
	if s.down != nil {
		return res, s.down
	}
	if s.records == nil {
		s.records = map[string]Record{}
	}
	for i, r := range records {
		if r.Tenant != records[0].Tenant {
			return res, errors.New("records of two tenants in one write")
		}
		if s.dead != nil {
			if why := s.dead(r); why != "" {
				res.Dead = append(res.Dead, store.Failure{Index: i, Reason: why})
				continue
			}
		}
		if s.later != nil && s.later(r) {
			res.Retry = append(res.Retry, store.Failure{Index: i, Reason: "the index is blocked"})
			continue
		}
		key := r.Tenant + "/" + r.ID
		if _, ok := s.records[key]; ok {
			s.duplicates++
			res.Duplicates++
			continue
		}
		s.records[key] = r
		s.order = append(s.order, key)
		res.Stored++
	}
	return res, nil
}

func (s *memSink) setDown(err error) {
	s.mu.Lock()
	s.down = err
	s.mu.Unlock()
}

func (s *memSink) setLater(later func(Record) bool) {
	s.mu.Lock()
	s.later = later
	s.mu.Unlock()
}

func (s *memSink) tries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// of counts a tenant's records.
func (s *memSink) of(tenant string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.records {
		if r.Tenant == tenant {
			n++
		}
	}
	return n
}

func (s *memSink) all() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Record, 0, len(s.order))
	for _, k := range s.order {
		out = append(out, s.records[k])
	}
	return out
}

func (s *memSink) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.order)
}

// running is an intake and what a test needs to talk to it.
type running struct {
	*Intake
	url  string // of POST /api/v1/logs, as the gateway serves it
	ca   *authority
	sink *memSink
	stop func()
}

func start(t testing.TB, change func(*Options)) *running {
	t.Helper()
	r := &running{ca: newAuthority(t), sink: &memSink{}}
	o := Options{Name: "eu-1", Listen: "127.0.0.1:0", TLS: r.ca.server(t), Dir: t.TempDir(), Sink: r.sink, MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond}
	if change != nil {
		change(&o)
	}
	in, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.Intake = in
	srv := httptest.NewUnstartedServer(in.Handler(func(req *http.Request) (fleet.SiteID, string, error) {
		id, region, _, err := in.peer(req.TLS)
		return id, region, err
	}))
	srv.TLS, srv.Config.ErrorLog = o.TLS.Clone(), log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	r.url = srv.URL + Path
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- in.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// dial opens a connection of the forward protocol.
func (r *running) dial(t testing.TB, id fleet.SiteID) net.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", r.Addr().String(), r.ca.client(t, id))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

func (r *running) http(t testing.TB, id fleet.SiteID) *http.Client {
	tr := &http.Transport{TLSClientConfig: r.ca.client(t, id)}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

// send writes and reads what comes back in one read, as Fluent Bit reads an ack.
func send(t testing.TB, c net.Conn, msg []byte) string {
	t.Helper()
	if _, err := c.Write(msg); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 512)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatalf("reading the ack: %v", err)
	}
	return string(buf[:n])
}

// closed waits until the server closes the connection without a word.
func closed(t testing.TB, c net.Conn) {
	t.Helper()
	buf := make([]byte, 512)
	if n, err := c.Read(buf); err == nil {
		t.Fatalf("got %q, want the connection closed", buf[:n])
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Fatal("the connection stays open")
	}
}

func ackOf(chunk string) string { return string(appendStr(appendStr([]byte{0x81}, "ack"), chunk)) }

// A small MessagePack writer for tests.

type mp []byte

func (b mp) array(n int) mp { return append(b, 0xdc, byte(n>>8), byte(n)) } // not the shortest, on purpose
func (b mp) amap(n int) mp  { return append(b, 0xdf, 0, 0, byte(n>>8), byte(n)) }
func (b mp) str(s ...string) mp {
	for _, s := range s {
		b = appendStr(b, s)
	}
	return b
}
func (b mp) bin(p []byte) mp {
	n := len(p)
	return append(append(b, 0xc6, byte(n>>24), byte(n>>16), byte(n>>8), byte(n)), p...)
}
func (b mp) uint(n uint32) mp {
	return append(b, 0xce, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// at is an EventTime as a fixext 8.
func (b mp) at(sec, nsec uint32) mp {
	return append(b, 0xd7, 0, byte(sec>>24), byte(sec>>16), byte(sec>>8), byte(sec), byte(nsec>>24), byte(nsec>>16), byte(nsec>>8), byte(nsec))
}

// entry is [[EventTime, {}], record] with the fields of kv.
func (b mp) entry(at time.Time, kv ...string) mp {
	b = append(append(b, 0x92, 0x92).at(uint32(at.Unix()), uint32(at.Nanosecond())), 0x80)
	return b.amap(len(kv) / 2).str(kv...)
}

// forward is a Forward message of n lines with a chunk id.
func forward(chunk string, n int, line func(int) string) []byte {
	b := mp{0x93}.str("tag").array(n)
	now := time.Now()
	for i := range n {
		b = b.entry(now, "log", line(i))
	}
	return append(b.amap(3).str("chunk", chunk, "size").uint(uint32(n)).str("fluent_signal"), 0)
}

// plain is a TCP listener whose connections are carried over mTLS to the intake, for
// clients that know no client certificates.
func (r *running) plain(t testing.TB, id fleet.SiteID) *net.TCPAddr {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	cfg := r.ca.client(t, id)
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := tls.Dial("tcp", r.Addr().String(), cfg)
			if err != nil {
				_ = in.Close()
				continue
			}
			go func() { _, _ = io.Copy(out, in); _ = out.CloseWrite() }()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
		}
	}()
	return ln.Addr().(*net.TCPAddr)
}
