// Package tunnelpipe is both ends of a stream of a tunnel, in memory, for tests of what goes over it.
package tunnelpipe

import (
	"io"

	"muster.dev/muster/internal/wire"
)

// Pipe is one end.
type Pipe struct {
	out, in chan *wire.TunnelData
	done    chan struct{}
}

// New returns the two ends.
func New() (a, b Pipe) {
	x, y, done := make(chan *wire.TunnelData), make(chan *wire.TunnelData), make(chan struct{})
	return Pipe{x, y, done}, Pipe{y, x, done}
}

// Cut ends the stream for both ends, once.
func (p Pipe) Cut() { close(p.done) }

// Send waits until the other end receives; after Cut it is io.EOF.
func (p Pipe) Send(m *wire.TunnelData) error {
	select {
	case p.out <- m:
		return nil
	case <-p.done:
		return io.EOF
	}
}

// Recv waits until the other end sends; after Cut it is io.EOF.
func (p Pipe) Recv() (*wire.TunnelData, error) {
	select {
	case m := <-p.in:
		return m, nil
	case <-p.done:
		return nil, io.EOF
	}
}

// CloseSend does nothing.
func (p Pipe) CloseSend() error { return nil }
