package strangers

import (
	"crypto/tls"
	"errors"
	"net"
	"syscall"
)

// gone tells whether the peer of a connection has closed it, without reading what it has sent: a
// handshake with nobody would take the time of those who still wait.
func gone(c net.Conn) bool {
	n, err := peek(c)
	return n == 0 && err == nil || errors.Is(err, syscall.ECONNRESET)
}

// unread tells whether the peer has said something that nobody has read yet.
func unread(c net.Conn) bool {
	n, err := peek(c)
	return n > 0 && err == nil
}

// peek looks at the next byte.
func peek(c net.Conn) (n int, err error) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if s, ok := c.(*shaking); ok {
		c = s.Conn
	}
	sc, ok := c.(syscall.Conn)
	if !ok {
		return 0, syscall.ENOTSUP
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	if cerr != nil {
		return 0, cerr
	}
	return n, err
}
