package tunnel

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/tunnelpipe"
	"muster.dev/muster/internal/wire"
)

// joined are two windowed ends with a hop between them.
func joined(t *testing.T, seen func(int, *wire.TunnelData) error) (a, b net.Conn, ended chan error) {
	t.Helper()
	a1, a2 := tunnelpipe.New()
	b1, b2 := tunnelpipe.New()
	if seen == nil {
		seen = func(int, *wire.TunnelData) error { return nil }
	}
	ended = make(chan error, 1)
	a, b = Windowed(a1, "a", func() { a1.Cut() }), Windowed(b1, "b", func() { b1.Cut() })
	go func() { ended <- Join(a2, b2, seen) }()
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b, ended
}

func TestWindowedCarriesAll(t *testing.T) {
	a, b, ended := joined(t, nil)
	body := make([]byte, 20*Window+7)
	_, _ = rand.Read(body)
	go func() { _, _ = a.Write(body) }()
	back := make(chan error, 1)
	go func() {
		got := make([]byte, len(body))
		_, err := io.ReadFull(b, got)
		if err == nil {
			_, err = b.Write(got)
		}
		back <- err
	}()
	got := make([]byte, len(body))
	if _, err := io.ReadFull(a, got); err != nil || !bytes.Equal(got, body) {
		t.Fatalf("%v; equal: %t", err, bytes.Equal(got, body))
	}
	if err := <-back; err != nil {
		t.Error(err)
	}
	a.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Nobody reads: who writes waits, and no more than a window is under way.
func TestWindowedWaits(t *testing.T) {
	a, b, _ := joined(t, nil)
	_ = a.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	n, err := a.Write(make([]byte, 10*Window))
	if n != Window || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes were written, %v", n, err)
	}
	_ = a.SetWriteDeadline(time.Time{})
	if _, err := io.ReadFull(b, make([]byte, Window)); err != nil {
		t.Fatal(err)
	}
	if n, err := a.Write(make([]byte, Window/2)); n != Window/2 || err != nil {
		t.Errorf("once it is read: %d, %v", n, err)
	}
}

// An end that sends more than was asked for, or is ready for more than a window, is cut off.
func TestWindowedIsEnforced(t *testing.T) {
	for name, m := range map[string]*wire.TunnelData{"data": {Data: make([]byte, Window+1)}, "credit": {Credit: 1}, "much credit": {Credit: 1 << 31}} {
		mine, theirs := tunnelpipe.New()
		c := Windowed(mine, "x", func() { mine.Cut() })
		if err := theirs.Send(m); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, ErrWindow) {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
	}
}

// The hop between can end it, and both ends notice.
func TestJoinIsCut(t *testing.T) {
	cut := errors.New("enough")
	a, _, ended := joined(t, func(_ int, m *wire.TunnelData) error {
		if bytes.Equal(m.GetData(), []byte("bad")) {
			return cut
		}
		return nil
	})
	if _, err := a.Write([]byte("bad")); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it ends", func() error {
		select {
		case err := <-ended:
			if !errors.Is(err, cut) {
				t.Errorf("%v", err)
			}
			return nil
		default:
			return errors.New("not yet")
		}
	})
}

// Many small messages that nobody has read take about the memory of their bytes.
func TestWindowedSmallMessages(t *testing.T) {
	mine, theirs := tunnelpipe.New()
	c := Windowed(mine, "x", func() { mine.Cut() })
	defer c.Close()
	want := make([]byte, Window)
	_, _ = rand.Read(want)
	for i := range want {
		if err := theirs.Send(&wire.TunnelData{Data: want[i : i+1 : i+1]}); err != nil {
			t.Fatal(err)
		}
	}
	_ = theirs.Send(&wire.TunnelData{}) // the one before was taken
	w := c.(*windowed)
	w.mu.Lock()
	if n := len(w.queue); n > 2*Window/chunk {
		t.Errorf("%d pieces for %d bytes", n, Window)
	}
	w.mu.Unlock()
	go func() {
		for { // of the credit
			if _, err := theirs.Recv(); err != nil {
				return
			}
		}
	}()
	got := make([]byte, Window)
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v; equal: %t", err, bytes.Equal(got, want))
	}
}
