package gateway

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"golang.org/x/time/rate"

	"muster.dev/muster/internal/fairshare"
	"muster.dev/muster/internal/wire"
)

// framed is a message as gRPC sends it.
func framed(n int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(n)), make([]byte, n)...)
}

// bodyFor is what withBody makes, over some bytes.
func bodyFor(r io.Reader, room int, slots *fairshare.Shares) *grpcBody {
	g := &Gateway{ahead: slots}
	req, _ := g.withBody(httptest.NewRequest(http.MethodPost, "/", io.NopCloser(r)), rate.NewLimiter(rate.Inf, 1<<20), maxMessage, room, paris)
	return req.Body.(*grpcBody)
}

// endless repeats a message.
type endless struct {
	message []byte
	at      int
	read    int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.message[e.at:])
	e.at = (e.at + n) % len(e.message)
	e.read += n
	return n, nil
}

// A peer without a certificate sends a message byte by byte, each in a frame of its own: it
// holds about what it sent, and not a buffer for each byte.
func TestBytesOneByOne(t *testing.T) {
	h := newHarness(t, harnessOptions{})
	const sent = 8000
	reached, stop := make(chan struct{}), make(chan struct{})
	stuck := readerFunc(func([]byte) (int, error) {
		close(reached)
		<-stop
		return 0, io.ErrUnexpectedEOF
	})
	body := io.MultiReader(iotest.OneByteReader(bytes.NewReader(framed(strangerBytes - 1)[:sent])), stuck)
	before := heap()
	req := httptest.NewRequest(http.MethodPost, wire.Registration_Register_FullMethodName, io.NopCloser(body))
	req.ProtoMajor, req.ProtoMinor = 2, 0
	req.Header.Set("Content-Type", "application/grpc")
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.g.ServeHTTP(httptest.NewRecorder(), req)
	}()
	<-reached
	if held := heap() - before; held > 8<<20 {
		t.Errorf("%d bytes of a stranger hold %d kB", sent, held>>10)
	}
	close(stop)
	<-done
}

// Small messages that nobody takes are read as far ahead as there is room, and the others
// wait in the windows of HTTP/2.
func TestBodyWaits(t *testing.T) {
	for name, c := range map[string]struct {
		room, slots, want int // buffers of 16 kB that are read
	}{
		"a stream":                          {aheadFloor, 1, aheadFloor >> 14},
		"a tunnel":                          {tunnelAhead, 1, tunnelAhead >> 14},
		"a tunnel that is one of many":      {tunnelAhead, 0, aheadFloor >> 14},
		"a connection between sites":        {hostAhead, 1, hostAhead >> 14},
		"a connection that is one of many ": {hostAhead, 0, aheadFloor >> 14},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slots := fairshare.NewShares(c.slots)
				b := bodyFor(iotest.OneByteReader(&endless{message: framed(2)}), c.room, slots)
				ctx, cancel := context.WithCancel(t.Context())
				b.ctx = ctx
				n, done := 0, make(chan struct{})
				go func() {
					defer close(done)
					for p := make([]byte, 16<<10); ; n++ {
						if _, err := b.Read(p); err != nil {
							return
						}
					}
				}()
				synctest.Wait()
				if n != c.want {
					t.Errorf("%d buffers were read, want %d", n, c.want)
				}
				b.took()
				synctest.Wait()
				if n != c.want+1 {
					t.Errorf("%d buffers once one was taken, want %d", n, c.want+1)
				}
				cancel()
				<-done
				b.end()
				if c.slots > 0 && !slots.Take("umbrella") {
					t.Error("it keeps its slot")
				}
			})
		})
	}
}

// Nothing is read behind the one message of a request.
func TestBodyOfOneMessage(t *testing.T) {
	src := &endless{message: framed(100)}
	b := bodyFor(src, 0, nil)
	p := make([]byte, 16<<10)
	if n, err := b.Read(p); n != 105 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := b.Read(p); n != 0 || !errors.Is(err, errSingle) || src.read > 110 {
		t.Errorf("%d, %v; %d bytes read", n, err, src.read)
	}
	b = bodyFor(bytes.NewReader(framed(100)), 0, nil)
	if got, err := io.ReadAll(b); len(got) != 105 || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	// What is too long is handed on at once: gRPC refuses it by its head.
	b = bodyFor(iotest.OneByteReader(bytes.NewReader(binary.BigEndian.AppendUint32([]byte{0}, maxMessage+1))), 0, nil)
	if n, err := b.Read(p); n != 5 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := b.Read(p); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("behind it: %v", err)
	}
}

// FuzzBody: whatever comes, in whatever pieces, is handed on unchanged, and what is held
// becomes nothing when all messages are taken.
func FuzzBody(f *testing.F) {
	f.Add(append(framed(3), framed(0)...), uint8(1))
	f.Add(append(framed(40_000), 0, 0, 0), uint8(200))
	f.Add(binary.BigEndian.AppendUint32([]byte{1}, 1<<31), uint8(3))
	f.Fuzz(func(t *testing.T, in []byte, piece uint8) {
		b := bodyFor(pieces{bytes.NewReader(in), int(piece) + 1}, hostAhead, fairshare.NewShares(4))
		var out []byte
		p := make([]byte, 1<<10)
		for {
			n, err := b.Read(p)
			out = append(out, p[:n]...)
			for b.given() {
				b.took()
			}
			if err != nil {
				if !errors.Is(err, io.EOF) && b.left <= b.max {
					t.Fatal(err)
				}
				break
			}
		}
		if !bytes.HasPrefix(in, out) || len(out) < len(in) && b.left <= b.max {
			t.Errorf("%d bytes of %d came out", len(out), len(in))
		}
		if b.held != b.open {
			t.Errorf("%d bytes are held, and %d of a message that is not whole", b.held, b.open)
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// pieces reads at most n bytes at once.
type pieces struct {
	io.Reader
	n int
}

func (r pieces) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(len(p), r.n)]) }
