package status

import (
	"bytes"
	"fmt"
	"net"
	"time"
)

// What a site may answer before a session begins: library code reads and keeps it without
// an end of its own.
const (
	upgradeBytes = 64 << 10
	upgradeTime  = 30 * time.Second
)

// upgrading is a connection to a site that is asked for a session. It ends where the site
// answers with anything else than one that begins within upgradeTime and upgradeBytes; from
// there on it is as it was.
type upgrading struct {
	net.Conn
	answer []byte // as far as it has come; at most upgradeBytes
	begun  bool
}

func newUpgrading(c net.Conn) *upgrading {
	_ = c.SetDeadline(time.Now().Add(upgradeTime))
	return &upgrading{Conn: c}
}

// Read implements net.Conn.
func (c *upgrading) Read(p []byte) (int, error) {
	if c.begun {
		return c.Conn.Read(p)
	}
	left := upgradeBytes - len(c.answer)
	if left == 0 {
		return 0, fmt.Errorf("it answered with more than %d KiB and no session", upgradeBytes>>10)
	}
	n, err := c.Conn.Read(p[:min(len(p), left)])
	from := max(0, len(c.answer)-3) // the end may have come in parts
	c.answer = append(c.answer, p[:n]...)
	if ends(c.answer[from:]) && bytes.HasPrefix(c.answer, []byte("HTTP/1.1 101 ")) {
		c.begun, c.answer = true, nil
		_ = c.SetDeadline(time.Time{})
	}
	return n, err
}

// ends says whether an empty line is in an answer, as net/http looks for it.
func ends(b []byte) bool {
	return bytes.Contains(b, []byte("\n\r\n")) || bytes.Contains(b, []byte("\n\n"))
}
