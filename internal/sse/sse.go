// Package sse reads server-sent events, as the HTML standard defines
// text/event-stream. It is for Muster's own clients: the CLI, and whoever else
// follows a stream of another role. Writing them is a few lines where it is done.
package sse

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Event is one event. Name is "message" if the stream gave none.
type Event struct {
	ID   string // the last id that the stream gave, for Last-Event-ID
	Name string
	Data string
}

// Reader reads events. Not safe for concurrent use.
type Reader struct {
	r   *bufio.Reader
	max int
	id  string
}

// ErrTooLarge is in the error of an event over the reader's limit.
var ErrTooLarge = errors.New("event too large")

// NewReader reads from r events of at most max bytes of lines.
func NewReader(r io.Reader, max int) *Reader { return &Reader{r: bufio.NewReader(r), max: max} }

// Next returns the next event; comments and events without data are passed over.
// io.EOF: the stream ended, and what it had begun is worth nothing.
func (r *Reader) Next() (Event, error) {
	e := Event{Name: "message"}
	var data []string
	size := 0
	for {
		line, err := r.line(r.max - size)
		if err != nil {
			return Event{}, err
		}
		size += len(line) + 1
		if line == "" {
			if data == nil {
				e, size = Event{Name: "message"}, 0
				continue
			}
			e.ID, e.Data = r.id, strings.Join(data, "\n")
			return e, nil
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data = append(data, value)
		case "event":
			if value != "" {
				e.Name = value
			}
		case "id":
			if !strings.Contains(value, "\x00") {
				r.id = value
			}
		}
	}
}

// line returns a line of at most max bytes without its end: \n, or \r\n.
func (r *Reader) line(max int) (string, error) {
	var b []byte
	for {
		part, err := r.r.ReadSlice('\n')
		if len(b)+len(part) > max {
			return "", fmt.Errorf("read the stream: %w: over %d bytes", ErrTooLarge, r.max)
		}
		b = append(b, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return "", err
		}
		return strings.TrimSuffix(string(b[:len(b)-1]), "\r"), nil
	}
}
